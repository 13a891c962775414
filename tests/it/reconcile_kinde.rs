//! Reconcile against the local Kinde over HTTP, which has no list of events: what was never delivered is found by asking.

use std::sync::Arc;

use bottle::billing::apply::Rules;
use bottle::config::{M2m, Secret};
use bottle::domain::event::Source;
use bottle::domain::plan::PlanKeys;
use bottle::jwks::Jwks;
use bottle::local_kinde::app;
use bottle::local_kinde::server::{self, Running, Settings};
use bottle::outbound::Client;
use bottle::providers::kinde::Kinde;
use bottle::providers::kinde::management::Management;
use bottle::providers::{Provider, Providers};
use bottle::reconcile::runs::Mode;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use crate::support::Scratch;
use crate::support::app::{App, DOMAIN, Setup, eventually};
use crate::support::comparing::Comparing;

struct Both {
    bottle: App,
    kinde: Running,
    comparing: Comparing,
    _folder: Scratch,
}

async fn both() -> Both {
    let folder = Scratch::new();
    let bound = server::bind("127.0.0.1:0").await.unwrap();
    let (url, client) = (bound.url(), Client::new(&bound.url()).unwrap());
    let credentials = M2m { client_id: "m2m".to_owned(), client_secret: Secret::new("hush") };
    let jwks = Jwks::new(format!("{url}/.well-known/jwks"), client.clone());
    let management = Management::new(client, &url, credentials).unwrap();
    let arm = Kinde::new(Arc::new(jwks.clone()), [url], None).with_management(management.clone());
    let bottle = Setup { jwks: Some(jwks), management: Some(management), worker: true, ..Setup::default() }.start().await;
    let app =
        app::App { m2m_client_id: Some("m2m".to_owned()), m2m_client_secret: Some("hush".to_owned()), ..app::App::default() };
    let webhook_url = Some(bottle.url("/webhooks/kinde"));
    let kinde = bound.start(Settings { addr: String::new(), state: folder.path().to_owned(), webhook_url, app }).unwrap();
    let comparing = Comparing {
        pool: bottle.pool.clone(),
        providers: Arc::new(Providers { kinde: Some(Provider::Kinde(arm)), stripe: None }),
        rules: Arc::new(Rules { keys: PlanKeys::default(), tenant: DOMAIN.to_owned() }),
    };
    Both { bottle, kinde, comparing, _folder: folder }
}

impl Both {
    /// Something that happened so many minutes ago; everything of it arrives, unless deliveries are held.
    async fn order(&self, event: &str, user: &str, minutes_ago: i64) {
        let at = (time::OffsetDateTime::now_utc() - time::Duration::minutes(minutes_ago)).format(&Rfc3339).unwrap();
        let order = json!({"event": event, "user": user, "speed": 1_000_000.0, "at": at});
        let answer = self.bottle.http.post(format!("{}/local/send", self.kinde.url())).json(&order).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn switch(&self, what: &str, form: &[(&str, &str)]) {
        let url = format!("{}/local/switches/{what}", self.kinde.url());
        let answer = self.bottle.http.post(url).form(form).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    async fn hold(&self, on: bool) {
        let form = [("hold", if on { "true" } else { "false" })];
        let answer = self.bottle.http.post(format!("{}/local/hold", self.kinde.url())).form(&form).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    async fn settled(&self, events: i64) {
        eventually("everything has arrived and run", async || {
            let open = "select count(*) from inbox_events where status not in ('applied', 'ignored')";
            self.comparing.value::<i64>("select count(*) from inbox_events").await == events
                && self.comparing.value::<i64>(open).await == 0
        })
        .await;
    }

    async fn plan(&self, user: &str) -> String {
        self.comparing.value(&format!("select coalesce(max(plan), 'nobody') from accounts where kinde_user_id = '{user}'")).await
    }
}

#[tokio::test]
async fn a_cancellation_and_an_upgrade_that_were_never_delivered_are_found_and_repaired_and_the_log_says_so() {
    let both = both().await;
    both.order("upgrade", "kp_zoe", 90).await;
    both.order("upgrade", "kp_pia", 90).await;
    both.order("plan_assigned", "kp_max", 90).await;
    both.settled(9).await;
    let comparing = &both.comparing;
    // Of the sample people one has Pro and was never here.
    let first = comparing.run(&[Source::Kinde], Mode::Apply).await;
    assert_eq!(comparing.counts(&first).await, ["unknown_ours: 1/1"]);
    let quiet = comparing.run(&[Source::Kinde], Mode::Apply).await;
    assert_eq!(comparing.counts(&quiet).await, Vec::<String>::new(), "{:#?}", comparing.told(&quiet).await);

    both.hold(true).await;
    both.order("agreement_cancelled", "kp_zoe", 60).await;
    both.order("upgrade", "kp_new", 60).await;
    let before = comparing.everything().await;
    let look = comparing.run(&[Source::Kinde], Mode::Look).await;
    let found = comparing.told(&look).await;
    assert_eq!(comparing.everything().await, before, "a look changes nothing");
    let zoe: i64 = comparing.value("select id from accounts where kinde_user_id = 'kp_zoe'").await;
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(found[0], format!("plan_stale kinde account {zoe}: pro | free | open | nothing: this run only looked"));
    assert!(
        found[1].starts_with("unknown_ours kinde customer_") && found[1].contains(": nobody of this name | pro | open"),
        "{found:#?}"
    );

    let run = comparing.run(&[Source::Kinde], Mode::Apply).await;
    assert_eq!(comparing.counts(&run).await, ["plan_stale: 1/1", "unknown_ours: 1/1"], "{:#?}", comparing.told(&run).await);
    assert_eq!([both.plan("kp_zoe").await, both.plan("kp_new").await, both.plan("kp_pia").await], ["free", "pro", "pro"]);
    let said = "select string_agg(a.kinde_user_id || ': ' || e.reason, ' / ' order by a.kinde_user_id)
                from inbox_events e join accounts a on a.id = e.account_id
                where e.source = 'bottle' and a.kinde_user_id in ('kp_new', 'kp_zoe')";
    assert_eq!(
        comparing.value::<String>(said).await,
        "kp_new: plan set to pro; found by reconcile: no message of this had come, so Kinde was asked again / \
         kp_zoe: plan set to free; found by reconcile: no message of this had come, so Kinde was asked again"
    );
    assert_eq!(comparing.value::<i64>("select count(*) from facts f join inbox_events e on e.id = f.event_id where e.source = 'bottle' and f.source <> 'kinde'").await, 0);
    // It changes the plan and grants nothing: what was paid for comes with the payment.
    assert_eq!(comparing.value::<i64>("select count(*) from ledger l join accounts a on a.id = l.account_id where a.kinde_user_id = 'kp_new' and reason = 'pro'").await, 0);

    let before = comparing.everything().await;
    let again = comparing.run(&[Source::Kinde], Mode::Apply).await;
    assert_eq!(comparing.counts(&again).await, Vec::<String>::new(), "{:#?}", comparing.told(&again).await);
    assert_eq!(comparing.everything().await, before, "a second run changes nothing");

    // What was held comes after all: late, and as it was.
    both.hold(false).await;
    both.settled(9 + 1 + 2 + 5).await;
    assert_eq!([both.plan("kp_zoe").await, both.plan("kp_new").await], ["free", "pro"]);
    both.kinde.stop().await;
}

#[tokio::test]
async fn an_account_with_an_event_in_the_queue_is_not_reported_and_a_limit_is_waited_for() {
    let both = both().await;
    both.order("upgrade", "kp_zoe", 90).await;
    both.settled(4).await;
    both.comparing.run(&[Source::Kinde], Mode::Apply).await;
    let comparing = &both.comparing;
    both.switch("apis", &[("trouble", "too_many"), ("requests", "0"), ("secs", "1"), ("lag_secs", "0")]).await;
    both.order("agreement_cancelled", "kp_zoe", 60).await;
    eventually("it arrived, and waits for Kinde", async || {
        comparing.value::<i64>("select count(*) from inbox_events where status in ('received', 'processing')").await == 1
    })
    .await;
    // So long that no worker takes it while we look.
    let later = "update inbox_events set due_at = now() + interval '1 hour' where status = 'received' and lease_token is null";
    eventually("it is put off", async || sqlx::query(later).execute(&comparing.pool).await.unwrap().rows_affected() == 1).await;
    both.switch("apis", &[("trouble", "too_many"), ("requests", "1"), ("secs", "1"), ("lag_secs", "0")]).await;
    let began = std::time::Instant::now();
    let run = comparing.run(&[Source::Kinde], Mode::Apply).await;
    assert!(began.elapsed().as_millis() >= 900, "a limit of a second took {:?}", began.elapsed());
    assert_eq!(comparing.told(&run).await, Vec::<String>::new());
    assert_eq!(run.tallies.get("waiting"), Some(&1));
    assert_eq!(comparing.value::<i64>("select count(*) from inbox_events where source = 'bottle'").await, 1, "the first run's");
    both.kinde.stop().await;
}
