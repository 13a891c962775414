//! The whole of it against the local Kinde, which shares no code with the client: its orders, its webhooks, its Management API
//! with the switches for lag and rate limits.

use bottle::config::{M2m, Secret};
use bottle::jwks::Jwks;
use bottle::local_kinde::app;
use bottle::local_kinde::server::{self, Running, Settings};
use bottle::outbound::Client;
use bottle::providers::kinde::management::Management;
use serde_json::json;

use crate::support::Scratch;
use crate::support::app::{App, Setup, eventually};

const UPGRADED: &str = "select count(*) from accounts where plan = 'pro' and kinde_user_id = 'kp_zoe'";
const UNDECIDED: &str = "select count(*) from inbox_events where status not in ('applied', 'ignored')";

struct Both {
    bottle: App,
    kinde: Running,
    _folder: Scratch,
}

async fn both() -> Both {
    let folder = Scratch::new();
    let bound = server::bind("127.0.0.1:0").await.unwrap();
    let (url, client) = (bound.url(), Client::new(&bound.url()).unwrap());
    let credentials = M2m { client_id: "m2m".to_owned(), client_secret: Secret::new("hush") };
    let setup = Setup {
        jwks: Some(Jwks::new(format!("{url}/.well-known/jwks"), client.clone())),
        management: Some(Management::new(client, &url, credentials).unwrap()),
        worker: true,
        ..Setup::default()
    };
    let bottle = setup.start().await;
    let app =
        app::App { m2m_client_id: Some("m2m".to_owned()), m2m_client_secret: Some("hush".to_owned()), ..app::App::default() };
    let webhook_url = Some(bottle.url("/webhooks/kinde"));
    let kinde = bound.start(Settings { addr: String::new(), state: folder.path().to_owned(), webhook_url, app }).unwrap();
    Both { bottle, kinde, _folder: folder }
}

impl Both {
    /// All four events of an upgrade.
    async fn upgrade(&self) {
        let order = json!({"event": "upgrade", "user": "kp_zoe", "speed": 1_000_000.0});
        let answer = self.bottle.http.post(format!("{}/local/send", self.kinde.url())).json(&order).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        eventually("all four have arrived", async || self.count("select count(*) from inbox_events").await == 4).await;
    }

    async fn apis(&self, switches: &[(&str, &str)]) {
        let mut form = vec![("trouble", "none"), ("requests", "0"), ("secs", "0"), ("lag_secs", "0")];
        for (name, value) in switches {
            form.iter_mut().find(|field| field.0 == *name).unwrap().1 = value;
        }
        let url = format!("{}/local/switches/apis", self.kinde.url());
        let answer = self.bottle.http.post(url).form(&form).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.bottle.pool).await.unwrap()
    }

    /// What waits is due now.
    async fn hurry(&self) {
        sqlx::query("update inbox_events set due_at = now() where status in ('received', 'parked', 'failed')")
            .execute(&self.bottle.pool)
            .await
            .unwrap();
    }

    async fn all_decided(&self) {
        eventually("every event has its verdict", async || {
            self.hurry().await;
            self.count(UNDECIDED).await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn an_upgrade_is_confirmed_by_the_one_who_sent_it() {
    let both = both().await;
    both.upgrade().await;
    both.all_decided().await;
    assert_eq!(both.count(UPGRADED).await, 1);
    assert!(both.count("select count(*) from facts where kind = 'snapshot' and agreement is not null").await > 0);
    assert_eq!(both.count("select count(*) from inbox_events where reason like '%differs%' or attempts > 0").await, 0);
    assert_eq!(both.count("select count(*) from ledger where reason = 'pro'").await, 1);
    both.kinde.stop().await;
}

#[tokio::test]
async fn an_api_that_lags_delays_an_upgrade_and_never_undoes_it() {
    let both = both().await;
    both.apis(&[("lag_secs", "3600")]).await;
    both.upgrade().await;
    let waits =
        "select count(*) from inbox_events where status = 'parked' and reason like '%does not agree yet%' and attempts = 0";
    eventually("what Kinde does not list yet waits", async || both.count(waits).await >= 2).await;
    both.apis(&[]).await;
    both.all_decided().await;
    assert_eq!(both.count(UPGRADED).await, 1);
    assert_eq!(both.count("select count(*) from inbox_events where reason like '%differs%' or attempts > 0").await, 0);

    // It falls behind again, and is asked again about what it knew: the upgrade stands.
    both.apis(&[("lag_secs", "3600")]).await;
    let order = json!({"event": "payment_succeeded", "user": "kp_zoe", "speed": 1_000_000.0});
    both.bottle.http.post(format!("{}/local/send", both.kinde.url())).json(&order).send().await.unwrap();
    eventually("the payment has arrived", async || both.count("select count(*) from inbox_events").await == 5).await;
    both.all_decided().await;
    assert_eq!(both.count(UPGRADED).await, 1);
    both.kinde.stop().await;
}

#[tokio::test]
async fn its_rate_limit_is_waited_for() {
    let both = both().await;
    both.apis(&[("trouble", "too_many"), ("secs", "2")]).await;
    both.upgrade().await;
    let given_back = "select count(*) from inbox_events where status = 'received' and claims = 0 and due_at > now()";
    eventually("what needs an answer is given back", async || both.count(given_back).await > 0).await;
    both.apis(&[]).await;
    both.all_decided().await;
    assert_eq!(both.count(UPGRADED).await, 1);
    assert_eq!(both.count("select count(*) from inbox_events where reason like '%could not%' or attempts > 0").await, 0);
    both.kinde.stop().await;
}
