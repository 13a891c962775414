//! The nine deliveries of the Engine Room, posted at the live endpoint by a client that is not ours: `curl`, or a bare socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use bottle::local_kinde::app::App;
use bottle::local_kinde::server::{self, Running, Settings};
use serde_json::{Value, json};
use sqlx::Row as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::binary::{Bottle, Home};
use crate::support::db::{TestDb, fresh_db};
use crate::support::deliveries::{count, settled};

/// One line of `bottle local-kinde send --print`: a token, and the header that goes with it.
struct Printed {
    token: String,
    webhook_id: String,
}

/// Its tenant is a local Kinde with the key that signs here. Without credentials for its Management API it is not asked about
/// agreements that exist nowhere but in these deliveries.
async fn serve(home: &Home, db: &TestDb) -> (Running, Bottle) {
    let state = home.path().join(".bottle/local-kinde");
    std::fs::create_dir_all(&state).unwrap();
    let settings = Settings { addr: "127.0.0.1:0".to_owned(), state, webhook_url: None, app: App::default() };
    let kinde = server::start(settings).await.unwrap();
    let bottle = home.start(&["serve"], &[("DATABASE_URL", &db.url()), ("KINDE_DOMAIN", &kinde.url())]).await;
    (kinde, bottle)
}

async fn printed(home: &Home, event: &str, agreement: &str, at: OffsetDateTime) -> Printed {
    let at = at.format(&Rfc3339).unwrap();
    let args = ["local-kinde", "send", event, "--user", "ben", "--agreement", agreement, "--at", &at, "--print"];
    let said = home.run(&args, &[]).await;
    let (token, webhook_id) = said.out.trim().split_once(' ').unwrap_or_else(|| panic!("{said:?}"));
    Printed { token: token.to_owned(), webhook_id: webhook_id.to_owned() }
}

#[tokio::test]
async fn nine_deliveries_by_another_client_end_as_three_events_and_one_grant() {
    let (home, db) = (Home::new(), fresh_db().await);
    let (_kinde, bottle) = serve(&home, &db).await;

    let upgraded = OffsetDateTime::now_utc() - time::Duration::days(9);
    let minutes = time::Duration::minutes;
    let up = printed(&home, "plan_changed", "agreement_new", upgraded).await;
    let pay = printed(&home, "payment_succeeded", "agreement_new", upgraded + minutes(3)).await;
    let old = printed(&home, "agreement_cancelled", "agreement_old", upgraded - minutes(3)).await;

    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !curl {
        eprintln!("THERE IS NO CURL: a bare socket posts the deliveries instead");
    }
    let deliveries = [
        (&pay, false),
        (&up, false),
        (&up, true),
        (&pay, true),
        (&pay, true),
        (&pay, true),
        (&old, false),
        (&up, true),
        (&pay, true),
    ];
    for (n, (delivery, copy)) in deliveries.into_iter().enumerate() {
        let (status, answer) = if curl { by_curl(&bottle, delivery) } else { by_socket(bottle.addr(), delivery) };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &answer["copy"]), (200, &json!(copy)), "delivery {}: {answer}", n + 1);
        // In the script a worker is done before the next delivery comes.
        settled(&db.pool().await).await;
    }

    let pool = db.pool().await;
    assert_eq!(count(&pool, "select count(*) from inbox_events").await, 3);
    assert_eq!(count(&pool, "select count(*) from receipts").await, 9);
    assert_eq!(count(&pool, "select count(*) from receipts where copy").await, 6);
    assert_eq!(count(&pool, "select sum(seen_count) from inbox_events").await, 9);
    assert_eq!(count(&pool, "select count(*) from conflicts").await, 0);
    assert_eq!(count(&pool, "select count(*) from accounts where plan = 'pro'").await, 1);
    assert_eq!(count(&pool, "select count(*) from ledger where reason = 'pro'").await, 1);
    let month = &upgraded.format(&Rfc3339).unwrap()[..7];
    let balance: i64 =
        sqlx::query_scalar("select sum(delta)::bigint from ledger where period = $1").bind(month).fetch_one(&pool).await.unwrap();
    assert_eq!(balance, 500);

    let ends =
        sqlx::query("select type, status, reason, seen_count from inbox_events order by id").fetch_all(&pool).await.unwrap();
    let ends: Vec<(String, String, String, i32)> =
        ends.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    let want = [
        ("customer.payment_succeeded", "applied", "payment recorded; no Pro plan it belongs to", 5),
        ("customer.plan_changed", "applied", "plan set to pro, Pro allowance granted", 3),
        ("customer.agreement_cancelled", "ignored", "ignored: a newer plan change is already stored", 1),
    ];
    assert_eq!(ends, want.map(|(kind, status, reason, seen)| (kind.to_owned(), status.to_owned(), reason.to_owned(), seen)));
}

#[tokio::test]
async fn a_delivery_that_is_not_genuine_or_not_a_post_stores_nothing() {
    let (home, db) = (Home::new(), fresh_db().await);
    let (_kinde, bottle) = serve(&home, &db).await;
    let good = printed(&home, "plan_changed", "agreement_new", OffsetDateTime::now_utc() - time::Duration::days(9)).await;
    let (signed, signature) = good.token.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let forged = Printed { token: format!("{signed}.{other}{}", &signature[1..]), webhook_id: good.webhook_id.clone() };
    assert_eq!(by_socket(bottle.addr(), &forged).0, 401);
    assert_eq!(bottle.get("/webhooks/kinde").await.0, 405);
    let pool = db.pool().await;
    assert_eq!(count(&pool, "select (select count(*) from inbox_events) + (select count(*) from receipts)").await, 0);
    assert_eq!(by_socket(bottle.addr(), &good).0, 200);
    assert_eq!(count(&pool, "select count(*) from inbox_events").await, 1);
}

fn by_curl(bottle: &Bottle, delivery: &Printed) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "10", "--write-out", "\n%{http_code}"]);
    curl.args(["--header", "content-type: application/jwt", "--header", &format!("webhook-id: {}", delivery.webhook_id)]);
    let said = curl.args(["--data-binary", &delivery.token, &bottle.webhooks()]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&said.stderr)));
    (status.parse().unwrap(), answer.to_owned())
}

fn by_socket(to: SocketAddr, delivery: &Printed) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let Printed { token, webhook_id } = delivery;
    let length = token.len();
    let head = format!(
        "POST /webhooks/kinde HTTP/1.1\r\nHost: {to}\r\nwebhook-id: {webhook_id}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(token.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
