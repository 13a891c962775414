//! `bottle doctor`: all is well, and each thing that is not, by a line of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::net::TcpListener;

use crate::local_stripe::{self, KEY, PACK, PRO, SECRET, Stripe};
use crate::support::binary::Home;
use crate::support::db::{TestDb, fresh_db};
use crate::support::local_kinde::Kinde;
use crate::support::smtp::Smtp;

const ALERTS: [(&str, &str); 2] = [
    ("ALERT_WEBHOOK_URL", "https://alerts.example.com/hunter2"),
    ("ALERT_WEBHOOK_SECRET", "whsec_hunter2hunter2hunter2hunter2hunter2hunter2g="),
];

/// `check: state: words`, sorted as they came.
#[derive(Debug)]
struct Report {
    code: Option<i32>,
    lines: Vec<(String, String, String)>,
}

impl Report {
    /// The words of the lines about something, in that state.
    fn of(&self, check: &str, state: &str) -> String {
        let of = self.lines.iter().filter(|line| line.0 == check && line.1 == state);
        of.map(|line| line.2.as_str()).collect::<Vec<_>>().join("\n")
    }
}

async fn ask(home: &Home, settings: &[(&str, &str)]) -> Report {
    let said = home.run(&["doctor", "--json"], settings).await;
    assert!(!said.out.contains("hunter2") && !said.err.contains("hunter2"), "a secret is shown: {said:?}");
    let all: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(all["healthy"].as_bool().unwrap(), said.code == Some(0), "{all}");
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let lines = all["lines"].as_array().unwrap();
    for line in lines {
        assert_eq!(line["do"].is_null(), line["state"] == "ok", "what to do: {line}");
    }
    Report {
        code: said.code,
        lines: lines.iter().map(|line| (text(line, "check"), text(line, "state"), text(line, "words"))).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_everything_set_up_all_is_well() {
    let (home, db, smtp) = (Home::new(), fresh_db().await, Smtp::start().await);
    // Its webhooks are to come to where Bottle says people reach it.
    let kinde = Kinde::start(Some("http://localhost:3999/webhooks/kinde".to_owned())).await;
    let url = Some("http://localhost:3999/webhooks/stripe".to_owned());
    let stripe = Stripe::begin(bottle::local_stripe::server::Settings { webhook_url: url, ..local_stripe::settings() }).await;
    let running = &kinde.running;
    let settings = [
        ("DATABASE_URL", db.url()),
        ("BOTTLE_URL", "http://localhost:3999".to_owned()),
        ("KINDE_DOMAIN", running.url()),
        ("KINDE_CLIENT_ID", running.client_id()),
        ("KINDE_CLIENT_SECRET", running.client_secret()),
        ("KINDE_M2M_CLIENT_ID", running.m2m_client_id()),
        ("KINDE_M2M_CLIENT_SECRET", running.m2m_client_secret()),
        ("STRIPE_SECRET_KEY", KEY.to_owned()),
        ("STRIPE_WEBHOOK_SECRET", SECRET.to_owned()),
        ("STRIPE_PRICE_PRO", PRO.to_owned()),
        ("STRIPE_PRICE_PACK", PACK.to_owned()),
        ("STRIPE_API_BASE", stripe.url()),
        ("SMTP_URL", smtp.url()),
        ("MAIL_FROM", "bottle@bottle.test".to_owned()),
    ];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).chain(ALERTS).collect();
    let _worker = home.start(&["worker"], &settings).await;
    let report = ask(&home, &settings).await;
    assert_eq!(report.code, Some(0), "{report:#?}");
    // A test's server syncs nothing, and its role may be anybody.
    let other: Vec<_> =
        report.lines.iter().filter(|line| line.1 != "ok" && !["durability", "rights"].contains(&line.0.as_str())).collect();
    assert!(other.is_empty(), "{other:#?}");
    let seen: Vec<&str> = report.lines.iter().map(|line| line.0.as_str()).collect();
    for check in [
        "settings",
        "alerts",
        "database",
        "connections",
        "clock",
        "durability",
        "schema",
        "rights",
        "worker",
        "events",
        "transactions",
        "vacuum",
        "kinde",
        "sign-in",
        "management",
        "webhook",
        "stripe",
        "mail",
    ] {
        assert!(seen.contains(&check), "{check} was not looked at: {seen:?}");
    }
    // Of the database's clock, Kinde's and Stripe's.
    assert_eq!(seen.iter().filter(|check| **check == "clock").count(), 3, "{report:#?}");
    assert!(report.of("webhook", "ok").contains("Kinde posts to") && report.of("webhook", "ok").contains("Stripe posts to"));
    let said = home.run(&["doctor"], &settings).await;
    assert!(said.code == Some(0) && said.out.contains("ok       schema") && said.out.contains("Nothing is wrong"), "{said:?}");
}

#[tokio::test]
async fn what_is_wrong_with_the_settings_is_told_all_at_once() {
    let home = Home::new();
    let report = ask(&home, &[("BOTTLE_ADDR", "here")]).await;
    assert_eq!((report.code, report.lines.len()), (Some(1), 1), "{report:?}");
    assert!(report.of("settings", "wrong").starts_with("BOTTLE_ADDR: "), "{report:?}");
    let unsafe_ones = [
        ("BOTTLE_URL", "https://bottle.example.com"),
        ("KINDE_DOMAIN", "http://localhost:1"),
        ("KINDE_CLIENT_ID", "x"),
        ("KINDE_CLIENT_SECRET", "change-me-hunter2"),
        ("DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/x"),
        ("SMTP_URL", "smtp://u:hunter2@127.0.0.1:1"),
        ("MAIL_FROM", "a@b.example"),
    ];
    let report = ask(&home, &unsafe_ones).await;
    let wrong = report.of("settings", "wrong");
    for setting in ["KINDE_DOMAIN", "KINDE_CLIENT_SECRET", "BOTTLE_SESSION_KEY"] {
        assert!(wrong.contains(setting), "{setting} is not in {wrong}");
    }
    assert!(report.of("settings", "warning").contains("SMTP_URL"), "{report:?}");
    assert!(report.of("alerts", "warning").contains("nobody is called"), "{report:?}");
    for (check, words) in
        [("database", "cannot be reached"), ("kinde", "its public keys: no answer"), ("mail", "not there for us")]
    {
        assert!(report.of(check, "wrong").contains(words), "{check}: {report:#?}");
    }
}

#[tokio::test]
async fn what_runs_nowhere_is_not_started_to_be_looked_at() {
    let home = Home::new();
    let report = ask(&home, &[]).await;
    assert_eq!(report.code, Some(0), "{report:?}");
    assert!(report.of("database", "warning").contains("no Bottle runs in"), "{report:?}");
    assert!(report.of("disk", "ok").contains("MB are free") || !report.of("disk", "warning").is_empty(), "{report:?}");
    assert!(!home.path().join(".bottle").exists(), "it made something");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

/// A database of a test, and the doctor about it.
struct Patient {
    home: Home,
    db: TestDb,
}

impl Patient {
    async fn new() -> Self {
        Self { home: Home::new(), db: fresh_db().await }
    }

    async fn does(&self, sql: &str) {
        let mut conn = self.db.options().connect().await.unwrap();
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.unwrap();
    }

    async fn report(&self) -> Report {
        ask(&self.home, &[("DATABASE_URL", &self.db.url())]).await
    }

    async fn is(&self, check: &str, state: &str, words: &str) {
        let report = self.report().await;
        assert!(report.of(check, state).contains(words), "{check} {state} {words}: {report:#?}");
        assert_eq!(report.code, Some(i32::from(report.lines.iter().any(|line| line.1 == "wrong"))));
    }

    async fn event(&self, status: &str, age: &str) {
        self.does(&format!(
            "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at)
             values ('kinde', gen_random_uuid()::text, 'x', '', now() - interval '{age}', '{status}',
                     case '{status}' when 'parked' then 'infinity' else now() - interval '{age}' end)"
        ))
        .await;
    }
}

#[tokio::test]
async fn each_trouble_in_the_database_has_its_own_line() {
    let patient = Patient::new().await;
    patient.is("worker", "wrong", "none is connected").await;
    patient.is("events", "ok", "none is dead").await;
    patient.event("received", "10 minutes").await;
    patient.is("events", "wrong", "one event fell due more than five minutes ago: 1").await;
    patient.does("update inbox_events set status = 'dead'").await;
    patient.is("events", "wrong", "one event did not go through: 1").await;
    patient.event("parked", "2 days").await;
    patient.is("events", "warning", "one event wait").await;
    for _ in 0..25 {
        patient.event("dead", "1 hour").await;
    }
    patient.is("events", "wrong", "20 events or more did not go through").await;
    patient.does("insert into worker_pauses values (gen_random_uuid(), 'handler: boom', now(), now())").await;
    patient.is("worker", "wrong", "every event fails alike: handler: boom").await;

    patient.does("alter table inbox_events set (autovacuum_enabled = on); update _sqlx_migrations set checksum = 'x' where version = 5").await;
    patient.is("schema", "wrong", "migration 5 is not the one").await;
    patient.does("delete from _sqlx_migrations where version = 5").await;
    patient.is("schema", "wrong", "1 migration(s) are missing, from 5 on").await;
    patient.does("insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (99991231000000, 'later', true, '', 0)").await;
    patient.is("schema", "wrong", "newer than this program").await;
}

#[tokio::test]
async fn a_role_to_whom_nothing_is_refused_is_warned_of() {
    let patient = Patient::new().await;
    let superuser: bool = sqlx::query_scalar("select rolsuper from pg_roles where rolname = current_user")
        .fetch_one(&patient.db.pool().await)
        .await
        .unwrap();
    let (state, words) = if superuser { ("warning", "is a superuser") } else { ("ok", "may do what it has to") };
    patient.is("rights", state, words).await;
}

/// Kinde's and Stripe's addresses, answered with whatever a test puts there. A status of 0 is no answer at all.
#[derive(Clone, Default)]
struct Stub(Arc<Mutex<BTreeMap<String, (u16, Value)>>>);

impl Stub {
    async fn start() -> (Self, String) {
        let stub = Self::default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = async |State(stub): State<Self>, uri: Uri| {
            let (status, body) = stub.0.lock().unwrap().get(uri.path()).cloned().unwrap_or((404, json!({})));
            if status == 0 {
                std::future::pending::<()>().await;
            }
            (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
        };
        let app = Router::new().fallback(answer).with_state(stub.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (stub, url)
    }

    fn says(&self, path: &str, status: u16, body: Value) {
        self.0.lock().unwrap().insert(path.to_owned(), (status, body));
    }
}

fn token(scopes: &[&str]) -> Value {
    let claims = URL_SAFE_NO_PAD.encode(json!({ "scp": scopes }).to_string());
    json!({ "access_token": format!("e30.{claims}.x"), "expires_in": 3600 })
}

#[tokio::test]
async fn each_trouble_with_kinde_has_its_own_line() {
    let (home, (stub, url)) = (Home::new(), Stub::start().await);
    let settings = [
        ("KINDE_DOMAIN", url.as_str()),
        ("KINDE_CLIENT_ID", "id"),
        ("KINDE_CLIENT_SECRET", "hunter2"),
        ("KINDE_M2M_CLIENT_ID", "machine"),
        ("KINDE_M2M_CLIENT_SECRET", "hunter2"),
    ];
    let is = async |check: &str, state: &str, words: &str| {
        let report = ask(&home, &settings).await;
        assert!(report.of(check, state).contains(words), "{check} {state} {words}: {report:#?}");
    };
    let (jwks, discovery, tokens, hooks) =
        ("/.well-known/jwks", "/.well-known/openid-configuration", "/oauth2/token", "/api/v1/webhooks");
    let report = ask(&home, &settings).await;
    for (check, words) in [
        ("kinde", "its public keys: it answered with status 404"),
        ("sign-in", "its discovery document: it answered with status 404"),
        ("management", "gives our application no token (status 404"),
    ] {
        assert!(report.of(check, "wrong").contains(words), "{check}: {report:#?}");
    }
    stub.says(jwks, 200, json!({ "keys": [] }));
    is("kinde", "wrong", "publishes no key").await;
    stub.says(jwks, 200, json!({ "keys": [{}, {}] }));
    is("kinde", "ok", "publishes 2 key(s)").await;
    stub.says(discovery, 200, json!({ "issuer": "https://other.kinde.com" }));
    is("sign-in", "wrong", "says that it is somebody else").await;
    stub.says(discovery, 200, json!({ "issuer": url }));
    is("sign-in", "ok", "says how").await;
    stub.says(tokens, 401, json!({ "error": "invalid_client" }));
    is("management", "wrong", "no token (status 401").await;
    stub.says(tokens, 200, token(&["read:users"]));
    is("management", "wrong", "lacks the scope(s) read:billing_agreements").await;
    stub.says(tokens, 200, token(&["read:users", "read:billing_agreements"]));
    is("management", "ok", "with the scopes it needs").await;

    stub.says(hooks, 403, json!({}));
    is("webhook", "warning", "lacks the scope read:webhooks").await;
    stub.says(hooks, 200, json!({ "webhooks": [{ "endpoint": "https://elsewhere.example/webhooks/kinde", "event_types": [] }] }));
    is("webhook", "wrong", "Kinde does not post to http://localhost:").await;
    let ours = "http://localhost:3998/webhooks/kinde";
    let at_ours = |kinds: &[&str]| json!({ "webhooks": [{ "endpoint": ours, "event_types": kinds }] });
    let settings = [&settings[..], &[("BOTTLE_URL", "http://localhost:3998")]].concat();
    stub.says(hooks, 200, at_ours(&bottle::providers::kinde::READ[1..]));
    let report = ask(&home, &settings).await;
    assert!(
        report.of("webhook", "wrong").contains("does not tell http://localhost:3998/webhooks/kinde of customer.plan_assigned"),
        "{report:#?}"
    );
    stub.says(hooks, 200, at_ours(&bottle::providers::kinde::READ));
    assert!(ask(&home, &settings).await.of("webhook", "ok").contains("what is read here"));
}

#[tokio::test]
async fn each_trouble_with_stripe_has_its_own_line() {
    let (home, (stub, url)) = (Home::new(), Stub::start().await);
    let settings = [
        ("BOTTLE_URL", "http://localhost:3998"),
        ("STRIPE_API_BASE", url.as_str()),
        ("STRIPE_SECRET_KEY", "rk_test_hunter2"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_hunter2"),
        ("STRIPE_PRICE_PRO", "price_pro"),
        ("STRIPE_PRICE_PACK", "price_pack"),
    ];
    let is = async |check: &str, state: &str, words: &str| {
        let report = ask(&home, &settings).await;
        assert!(report.of(check, state).contains(words), "{check} {state} {words}: {report:#?}");
    };
    let (pro, pack, endpoints) = ("/v1/prices/price_pro", "/v1/prices/price_pack", "/v1/webhook_endpoints");
    let price =
        |recurring: Value, active: bool, live: bool| json!({ "recurring": recurring, "active": active, "livemode": live });
    is("stripe", "wrong", "STRIPE_PRICE_PRO: there is no price price_pro in the test mode").await;
    stub.says(pro, 401, json!({}));
    is("stripe", "wrong", "it does not know STRIPE_SECRET_KEY").await;
    stub.says(pro, 403, json!({}));
    is("stripe", "warning", "may not look at prices").await;
    stub.says(pro, 200, price(json!({}), true, true));
    is("stripe", "wrong", "price_pro is not of the test mode").await;
    stub.says(pro, 200, price(json!({}), false, false));
    is("stripe", "wrong", "price_pro is no longer sold").await;
    stub.says(pro, 200, price(Value::Null, true, false));
    is("stripe", "wrong", "price_pro is paid once, not again and again").await;
    stub.says(pro, 200, price(json!({}), true, false));
    stub.says(pack, 200, price(json!({}), true, false));
    is("stripe", "wrong", "price_pack is paid again and again, not once").await;
    stub.says(pack, 200, price(Value::Null, true, false));
    is("stripe", "ok", "STRIPE_PRICE_PACK is sold").await;

    stub.says(endpoints, 403, json!({}));
    is("webhook", "warning", "may not look at webhook endpoints").await;
    let ours = "http://localhost:3998/webhooks/stripe";
    let at =
        |url: &str, status: &str, kinds: &[&str]| json!({ "data": [{ "url": url, "status": status, "enabled_events": kinds }] });
    stub.says(endpoints, 200, at("https://elsewhere.example", "enabled", &["*"]));
    is("webhook", "wrong", "Stripe does not post to").await;
    stub.says(endpoints, 200, at(ours, "disabled", &["*"]));
    is("webhook", "wrong", "has switched").await;
    stub.says(endpoints, 200, at(ours, "enabled", &bottle::providers::stripe::READ[1..]));
    is("webhook", "wrong", "of checkout.session.completed").await;
    stub.says(endpoints, 200, at(ours, "enabled", &bottle::providers::stripe::READ));
    is("webhook", "ok", "what is read here").await;
}

#[tokio::test]
async fn nobody_who_keeps_silent_keeps_it_from_its_end() {
    let (home, (stub, url)) = (Home::new(), Stub::start().await);
    for path in [
        "/.well-known/jwks",
        "/.well-known/openid-configuration",
        "/oauth2/token",
        "/v1/prices/price_pro",
        "/v1/webhook_endpoints",
    ] {
        stub.says(path, 0, json!({}));
    }
    // A database and a mail server that take a connection and say nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let at = silent.local_addr().unwrap();
    let settings = [
        ("DATABASE_URL", &*format!("postgres://u:hunter2@{at}/x")),
        ("SMTP_URL", &*format!("smtp://{at}")),
        ("MAIL_FROM", "a@b.example"),
        ("KINDE_DOMAIN", &url),
        ("KINDE_CLIENT_ID", "id"),
        ("KINDE_CLIENT_SECRET", "hunter2"),
        ("KINDE_M2M_CLIENT_ID", "machine"),
        ("KINDE_M2M_CLIENT_SECRET", "hunter2"),
        ("STRIPE_API_BASE", &url),
        ("STRIPE_SECRET_KEY", "rk_test_hunter2"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_hunter2"),
        ("STRIPE_PRICE_PRO", "price_pro"),
    ];
    let began = Instant::now();
    let report = ask(&home, &settings).await;
    assert!(began.elapsed() < Duration::from_secs(22), "{:?}", began.elapsed());
    for check in ["database", "mail", "kinde", "sign-in", "management", "stripe", "webhook"] {
        assert!(!report.of(check, "wrong").is_empty(), "{check}: {report:#?}");
    }
    eprintln!("everybody silent: {:?}", began.elapsed());
}

/// What an endpoint has to be subscribed to is what is read from it.
#[test]
fn the_types_that_are_asked_for_are_documented_and_read() {
    let sample = include_str!("../../.env.example");
    for kind in bottle::providers::stripe::READ {
        assert!(sample.contains(kind), "{kind} is not in .env.example");
    }
    for (read, source) in [
        (&bottle::providers::kinde::READ[..], include_str!("../../src/providers/kinde.rs")),
        (&bottle::providers::stripe::READ[..], include_str!("../../src/providers/stripe/reading.rs")),
    ] {
        for kind in read {
            assert!(source.contains(&format!("\"{kind}\"")), "{kind} is not read");
        }
    }
}
