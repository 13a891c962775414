//! Reconcile against a local Stripe over HTTP: events that never came, books that differ, plans nobody told us of.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bottle::domain::ask_again::Party;
use bottle::domain::event::Source;
use bottle::domain::ids::CustomerId;
use bottle::providers::listing::ListError;
use bottle::providers::{Provider, Providers, Ware};
use bottle::reconcile::runs::Mode;
use bottle::reconcile::{Reconciler, Wish};
use serde_json::{Value, json};

use crate::local_stripe::{self, Stripe};
use crate::support::cases;
use crate::support::claims::says;
use crate::support::comparing::Comparing;
use crate::support::kinde_api::KindeApi;
use crate::support::till::{self, Till, now_secs, real_now, text};

const DAY: i64 = 24 * 3600;

/// A shop whose clock was five days back when it opened: what is sold there is no news any more.
pub async fn till() -> Till {
    let stripe = Stripe::begin(local_stripe::settings()).await;
    stripe.turn("clock", json!({ "to": now_secs() - 5 * DAY })).await;
    Till::at(stripe).await
}

/// Kinde is a script there, which cannot be asked.
pub fn comparing(till: &Till) -> Comparing {
    Comparing { pool: till.pipeline.pool.clone(), providers: till.pipeline.providers.clone(), rules: till.pipeline.rules.clone() }
}

/// The events that a webhook is read of, oldest first.
fn billing(news: Vec<Value>) -> Vec<Value> {
    let carries = |event: &Value| {
        let kind = event["type"].as_str().unwrap();
        ["checkout.session.completed", "invoice.paid", "charge.refunded"].contains(&kind)
            || kind.starts_with("customer.subscription.")
            || kind.starts_with("refund.")
    };
    news.into_iter().filter(carries).collect()
}

async fn rows_of_books(till: &Till) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map(|row| text(&row["id"]));
        let mut form = vec![("limit", "100")];
        form.extend(after.as_deref().map(|after| ("starting_after", after)));
        let page = till.stripe.get("/v1/balance_transactions", &form).await;
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["has_more"] != true {
            return all;
        }
    }
}

/// 500 of 2,000 with BOTTLE_TEST_SCALE=10.
#[tokio::test]
async fn a_quarter_of_the_events_never_came_and_all_come_back_while_falsified_amounts_are_named() {
    let mut till = till().await;
    let wanted = usize::try_from(cases(200)).unwrap();
    let mut news = Vec::new();
    for n in 0.. {
        // Three purchases come to about seven such events.
        if n >= wanted * 3 / 8 && n % 10 == 0 {
            news = billing(till.news().await);
            if news.len() >= wanted {
                break;
            }
        }
        let (user, ware) = (format!("user{n}"), if n % 3 == 0 { Ware::Pack } else { Ware::Pro });
        let session = till.buy(&user, ware, "card").await;
        if n % 9 == 0 {
            till.stripe.turn(&format!("charges/{}/refund", till.charge(&session).await), json!({ "amount": 120 })).await;
        }
    }
    news.truncate(wanted);
    let (came, lost): (Vec<_>, Vec<_>) = news.iter().enumerate().partition(|(n, _)| n % 4 != 1);
    for (_, event) in &came {
        till.deliver(event).await;
    }
    let comparing = comparing(&till);
    comparing.engine().drain().await.unwrap();
    let books = rows_of_books(&till).await;
    let falsified: Vec<&Value> = books.iter().step_by(books.len() / 3).take(3).collect();
    for row in &falsified {
        let amount = row["amount"].as_i64().unwrap() + 100;
        till.stripe.turn(&format!("balance_transactions/{}/falsify", text(&row["id"])), json!({ "amount": amount })).await;
    }

    // What is beyond what was wanted never came either.
    let all = billing(till.news().await);
    let missing: BTreeSet<String> = lost.iter().map(|(_, e)| text(&e["id"])).chain(all.iter().map(|e| text(&e["id"]))).collect();
    let looked = comparing.everything().await;
    let look = comparing.run(&[Source::Stripe], Mode::Look).await;
    assert_eq!(comparing.everything().await, looked, "a look changes nothing");
    let count = |counts: Vec<String>, class: &str| counts.into_iter().find(|c| c.starts_with(class)).unwrap_or_default();
    assert_eq!(count(comparing.counts(&look).await, "event_missing"), format!("event_missing: {}/0", missing.len()));

    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let counts = comparing.counts(&run).await;
    assert_eq!(counts, [format!("event_missing: {0}/{0}", missing.len()), "amount_differs: 3/0".to_owned()]);
    let findings = comparing.findings(&run).await;
    let fetched: BTreeSet<String> =
        findings.iter().filter(|f| f.class.as_str() == "event_missing").map(|f| f.subject.clone()).collect();
    assert_eq!(fetched, missing);
    let named: BTreeSet<String> = findings
        .iter()
        .filter(|f| f.class.as_str() == "amount_differs")
        .map(|f| {
            assert!(f.account.is_some(), "{f:?}");
            f.subject.split_once(':').unwrap().1.to_owned()
        })
        .collect();
    assert_eq!(named, falsified.iter().map(|row| text(&row["source"])).collect());
    // Each falsified row has a dollar more than we have; ours are what they were before.
    assert_eq!((run.totals.len(), run.totals[0].theirs_minor - run.totals[0].ours_minor), (1, 300));
    assert_eq!(till.ledger().await.len(), books.len(), "every movement is in the ledger");
    assert_eq!(till.differences().await, Vec::<String>::new());
    let stored = "select count(*) from inbox_events where source <> 'stripe' or status not in ('applied', 'ignored')";
    assert_eq!(comparing.value::<i64>(stored).await, 0);

    let before = comparing.everything().await;
    let again = comparing.run(&[Source::Stripe], Mode::Apply).await;
    assert_eq!(comparing.counts(&again).await, ["amount_differs: 3/0"]);
    assert_eq!(comparing.everything().await, before, "a second run changes nothing");

    // The webhook comes after all, as the endpoint words it: a copy, and no other content under a known id.
    let mut late = news.iter().find(|e| missing.contains(e["id"].as_str().unwrap())).unwrap().clone();
    late["data"]["object"]["status"] = json!("worded otherwise");
    let stored = till.deliver(&late).await;
    assert!(stored.copy && !stored.conflict);
    assert_eq!(comparing.value::<i64>("select count(*) from conflicts").await, 0);
}

#[tokio::test]
async fn a_plan_whose_event_was_never_made_is_found_and_repaired_by_asking() {
    let mut till = till().await;
    let (_, ended) = till.subscriber("ada").await;
    let (_, ending) = till.subscriber("ben").await;
    let (_, same) = till.subscriber("cyd").await;
    let comparing = comparing(&till);
    assert_eq!(comparing.counts(&comparing.run(&[Source::Stripe], Mode::Apply).await).await, Vec::<String>::new());

    // Stripe makes no event of these, which happens.
    till.stripe.turn("switches", json!({ "omit": 1_000 })).await;
    let canceled = till.stripe.call(reqwest::Method::DELETE, &format!("/v1/subscriptions/{ended}"), &[]).await;
    assert_eq!(canceled.body["status"], "canceled");
    till.stripe.post(&format!("/v1/subscriptions/{ending}"), &[("cancel_at_period_end", "true")]).await;
    till.buy("dora", Ware::Pro, "card").await;
    assert_eq!(till.stripe.get(&format!("/v1/subscriptions/{same}"), &[]).await["status"], "active");

    let run = comparing.run(&[Source::Stripe], Mode::Look).await;
    let found = comparing.told(&run).await;
    let (ada, ben) = (till.pipeline.account_id("ada").await.unwrap(), till.pipeline.account_id("ben").await.unwrap());
    let end = bottle::domain::instant::Instant::from_nanos(till.period_end(&ending).await * 1_000_000_000);
    let starts = |start: String| assert!(found.iter().any(|line| line.starts_with(&start)), "{start}: {found:#?}");
    starts(format!("plan_stale stripe account {ada}: pro | free | open | nothing: this run only looked"));
    starts(format!("plan_stale stripe account {ben}: pro | pro, free from {end} | open | "));
    assert!(
        found
            .iter()
            .any(|line| line.starts_with("unknown_ours stripe cus_") && line.contains("nobody of this name | pro | open")),
        "{found:#?}"
    );

    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let counts = comparing.counts(&run).await;
    assert!(counts.contains(&"plan_stale: 2/2".to_owned()), "{counts:?} {:#?}", comparing.told(&run).await);
    till.pipeline.now = bottle::domain::instant::Instant::from_datetime(time::OffsetDateTime::now_utc());
    assert!(till.pipeline.account("ada").await.starts_with("free"));
    assert!(till.pipeline.account("dora").await.starts_with("pro"), "whom nobody knew has an account now");
    let said = till.lines("select reason from inbox_events where type = 'bottle.asked_stripe'").await;
    assert!(
        said[0].starts_with("plan set to free from ") && said[1].starts_with("plan set to free; found by reconcile: "),
        "{said:?}"
    );
    assert!(
        said.iter().all(|line| line.ends_with("found by reconcile: no message of this had come, so Stripe was asked again")),
        "{said:?}"
    );
    assert_eq!(till.lines("select distinct source from facts").await, ["stripe"]);
    assert_eq!(till.differences().await, Vec::<String>::new());

    let before = comparing.everything().await;
    let again = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let left = comparing.told(&again).await;
    assert!(left.iter().all(|line| line.starts_with("unknown_ours stripe charge:")), "{left:#?}");
    assert_eq!(left.len(), 1, "the money of a purchase that no event tells of is for a person: {left:#?}");
    assert_eq!(comparing.everything().await, before);
}

#[tokio::test]
async fn what_waits_in_the_queue_is_no_difference_and_what_is_dead_is_named() {
    let mut till = till().await;
    let (_, subscription) = till.subscriber("ada").await;
    let comparing = comparing(&till);
    till.stripe.call(reqwest::Method::DELETE, &format!("/v1/subscriptions/{subscription}"), &[]).await;
    let news = till.news().await;
    let over = news.iter().find(|e| e["type"] == "customer.subscription.deleted").unwrap();
    till.deliver(over).await;
    // Nobody works: it stays where it is, and nobody has read yet whose it is.
    let reconciler = comparing.reconciler();
    let wish = Wish { sources: vec![Source::Stripe], since: None, mode: Mode::Look, night: None };
    let run = reconciler.run(&wish).await.unwrap();
    let found = comparing.told(&run).await;
    assert!(found.iter().all(|line| !line.starts_with("plan_stale")), "{found:#?}");
    assert_eq!(run.tallies.get("waiting"), Some(&1));

    // It runs while the run pauses before its second look: no difference either.
    let pausing = Reconciler { settle: Duration::from_secs(5), ..comparing.reconciler() };
    sqlx::query("update inbox_events set due_at = 'infinity', status = 'parked', waits_for = 'x', reason = 'x', account_id = null where type = 'customer.subscription.deleted'")
        .execute(&comparing.pool)
        .await
        .unwrap();
    let narrow = Wish { since: Some(time::OffsetDateTime::now_utc()), ..wish.clone() };
    let running = tokio::spawn(async move { pausing.run(&narrow).await.unwrap() });
    let suspected = "select count(*) from reconcile_findings where state = 'suspected' and class = 'plan_stale'";
    for _ in 0..400 {
        if comparing.value::<i64>(suspected).await == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(comparing.value::<i64>(suspected).await, 1);
    let undone = "select id from accounts where plan = 'pro'";
    let account: i64 = comparing.value(undone).await;
    sqlx::query("update inbox_events set due_at = now(), status = 'received', waits_for = null where status = 'parked'")
        .execute(&comparing.pool)
        .await
        .unwrap();
    comparing.engine().drain().await.unwrap();
    let run = running.await.unwrap();
    assert_eq!(comparing.told(&run).await, Vec::<String>::new());
    // As it was before.
    sqlx::query("delete from facts where event_id = (select id from inbox_events where type = 'customer.subscription.deleted')")
        .execute(&comparing.pool)
        .await
        .unwrap();
    sqlx::query("update accounts set plan = 'pro' where id = $1").bind(account).execute(&comparing.pool).await.unwrap();

    let dead = "update inbox_events set status = 'dead', reason = 'dead after 6 attempts: x', account_id = (select min(id) from accounts) \
                where type = 'customer.subscription.deleted' returning id";
    let dead: i64 = comparing.value(dead).await;
    let run = reconciler.run(&wish).await.unwrap();
    let stale: Vec<_> = comparing.findings(&run).await.into_iter().filter(|f| f.class.as_str() == "plan_stale").collect();
    assert_eq!(stale.len(), 1);
    assert_eq!(stale[0].event.map(|e| e.0), Some(dead));
    assert!(stale[0].done.ends_with(&format!("its event {dead} is dead")), "{}", stale[0].done);
    // The customer is served all the same, and the dead event is still there to be looked at.
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    assert!(comparing.counts(&run).await.contains(&"plan_stale: 1/1".to_owned()), "{:#?}", comparing.told(&run).await);

    // Had the question died too, the same difference would not be asked about again each night.
    sqlx::query("delete from facts where event_id in (select id from inbox_events where source = 'bottle')")
        .execute(&comparing.pool)
        .await
        .unwrap();
    sqlx::query("update accounts set plan = 'pro'").execute(&comparing.pool).await.unwrap();
    let asked: i64 = comparing.value("update inbox_events set status = 'dead' where source = 'bottle' returning id").await;
    let before = comparing.everything().await;
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let told = comparing.told(&run).await;
    assert!(told[0].contains(&format!("open | it was asked again before: event {asked} is dead")), "{told:#?}");
    assert_eq!(comparing.everything().await, before);
}

#[tokio::test]
async fn what_only_one_side_has_is_named_and_nobody_elses_money_is_not_ours() {
    let mut till = till().await;
    let first = till.buy("ada", Ware::Pack, "card").await;
    let second = till.buy("ada", Ware::Pack, "card").await;
    till.run().await;
    let comparing = comparing(&till);
    assert_eq!(comparing.counts(&comparing.run(&[Source::Stripe], Mode::Apply).await).await, Vec::<String>::new());
    let charge = till.charge(&first).await;
    let row = till.stripe.get("/v1/balance_transactions", &[("source", &charge)]).await["data"][0].clone();
    till.stripe.turn(&format!("objects/{}/delete", text(&row["id"])), json!({})).await;
    // Sold past this Bottle: no mark, and nobody we know.
    let stranger = till.stripe.session("payment", crate::local_stripe::PACK, &[]).await;
    till.stripe.turn("switches", json!({ "omit": 1_000 })).await;
    till.stripe.complete(&stranger, "card").await;
    till.stripe.turn(&format!("charges/{}/refund", till.charge(&second).await), json!({})).await;

    let run = comparing.run(&[Source::Stripe], Mode::Look).await;
    let found = comparing.told(&run).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().any(|l| *l == format!("unknown_theirs stripe charge:{charge}: 5.00 USD | not in their books | open | nothing: the ledger is never changed, a person has to look")), "{found:#?}");
    assert!(
        found.iter().any(|l| l.starts_with("unknown_ours stripe refund:re_") && l.contains("not in our ledger | -5.00 USD")),
        "{found:#?}"
    );
    assert_eq!(run.tallies.get("foreign"), Some(&1));
    let total = &run.totals[0];
    assert_eq!((total.currency.as_str(), total.ours_minor, total.theirs_minor), ("usd", 1000, 0));
}

#[tokio::test]
async fn a_customer_they_do_not_know_loses_nothing_by_it() {
    let mut till = till().await;
    let (customer, subscription) = till.subscriber("ada").await;
    till.stripe.turn("switches", json!({ "omit": 1_000 })).await;
    till.stripe.turn(&format!("objects/{subscription}/delete"), json!({})).await;
    let comparing = comparing(&till);
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let found = comparing.told(&run).await;
    assert!(
        found.len() == 1
            && found[0].starts_with("unknown_theirs stripe account ")
            && found[0].contains(&format!("pro | no agreement {subscription} | open | nothing: ")),
        "{found:#?}"
    );
    till.stripe.turn(&format!("objects/{customer}/delete"), json!({})).await;
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    let found = comparing.told(&run).await;
    assert!(found.len() == 1 && found[0].contains("pro | nobody of this name | open | nothing: "), "{found:#?}");
    till.pipeline.now = bottle::domain::instant::Instant::from_datetime(time::OffsetDateTime::now_utc());
    assert!(till.pipeline.account("ada").await.starts_with("pro"));
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_and_a_refused_key_is_told_at_once() {
    let mut till = till().await;
    till.subscriber("ada").await;
    let comparing = comparing(&till);
    till.stripe.turn("calls/reset", json!({})).await;
    for path in ["/v1/events", "/v1/subscriptions", "/v1/balance_transactions"] {
        till.stripe.turn("faults", json!({ "path": path, "status": 429, "retry_after": 1, "times": 1 })).await;
    }
    let began = std::time::Instant::now();
    let run = comparing.run(&[Source::Stripe], Mode::Look).await;
    assert_eq!(comparing.counts(&run).await, Vec::<String>::new());
    assert!(began.elapsed().as_millis() >= 3_000, "{:?}", began.elapsed());
    let calls = till.calls().await;
    assert_eq!(calls["GET /v1/events"], 2, "one refused, one answered: {calls}");

    let wrong = bottle::providers::stripe::Stripe::new(bottle::providers::stripe::Settings {
        client: bottle::outbound::Client::new(&till.stripe.url()).unwrap(),
        key: "sk_test_other".to_owned(),
        live: false,
        webhook_secrets: vec!["whsec_x".to_owned()],
        price_pro: crate::local_stripe::PRO.to_owned(),
        price_pack: None,
        tenant: "test".to_owned(),
    });
    let providers = Providers { kinde: None, stripe: Some(bottle::providers::Provider::Stripe(wrong)) };
    let shut_out = Comparing { providers: Arc::new(providers), ..comparing.clone() };
    let began = std::time::Instant::now();
    let error = shut_out.try_run(&[Source::Stripe], Mode::Look).await.unwrap_err();
    assert!(error.to_string().starts_with("Stripe could not be asked: ") && error.to_string().contains("401"), "{error}");
    assert!(began.elapsed().as_secs() < 5);
    let failed: String = comparing.value("select error from reconcile_runs where state = 'failed'").await;
    assert!(failed.contains("401"), "{failed}");
}

#[tokio::test]
async fn a_plan_that_two_providers_give_is_compared_with_each_by_itself() {
    let mut till = till().await;
    let kinde = KindeApi::start().await;
    let Providers { stripe, .. } = Arc::into_inner(till.pipeline.providers).unwrap();
    let Providers { kinde: arm, .. } = Arc::into_inner(kinde.providers()).unwrap();
    till.pipeline.providers = Arc::new(Providers { kinde: arm, stripe });
    let (_, subscription) = till.subscriber("ada").await;
    kinde.lists("ada", &[("agr_1", "pro", None)]);
    let mut begun = says("ada", "begun", "10-21 10:00:00 created agr_1 pro");
    let hour_ago = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
    begun["event_timestamp"] = json!(bottle::domain::instant::Instant::from_datetime(hour_ago).to_string());
    till.pipeline.now = bottle::domain::instant::Instant::from_datetime(time::OffsetDateTime::now_utc());
    till.pipeline.deliver(&begun).await;
    let comparing = comparing(&till);
    comparing.engine().drain().await.unwrap();
    let both = [Source::Kinde, Source::Stripe];
    let quiet = comparing.run(&both, Mode::Apply).await;
    assert_eq!(comparing.told(&quiet).await, Vec::<String>::new());

    till.stripe.turn("switches", json!({ "omit": 1_000 })).await;
    till.stripe.call(reqwest::Method::DELETE, &format!("/v1/subscriptions/{subscription}"), &[]).await;
    let plan = async || comparing.value::<String>("select plan from accounts").await;
    let run = comparing.run(&both, Mode::Apply).await;
    let told = comparing.told(&run).await;
    assert!(told.len() == 1 && told[0].contains("stripe account 1: pro | free | repaired"), "{told:#?}");
    assert_eq!(plan().await, "pro", "Kinde gives it still");
    let said = "select reason from inbox_events where source = 'bottle' order by id desc limit 1";
    assert_eq!(comparing.value::<String>(said).await, "plan is already pro; Stripe was asked again, and nothing changed");

    kinde.lists("ada", &[]);
    let run = comparing.run(&both, Mode::Apply).await;
    let told = comparing.told(&run).await;
    assert!(told.len() == 1 && told[0].contains("kinde account 1: pro | free | repaired"), "{told:#?}");
    assert_eq!(plan().await, "free");
    let before = comparing.everything().await;
    assert_eq!(comparing.told(&comparing.run(&both, Mode::Apply).await).await, Vec::<String>::new());
    assert_eq!(comparing.everything().await, before);
}

/// A Stripe that answers every call so.
async fn answering(answer: impl Fn(&HashMap<String, String>) -> (u16, Value) + Clone + Send + Sync + 'static) -> Provider {
    use axum::extract::Query;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(move |Query(asked): Query<HashMap<String, String>>| {
        let (status, body) = answer(&asked);
        std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), axum::Json(body)))
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    Provider::Stripe(till::arm(&url))
}

#[tokio::test]
async fn a_price_that_is_not_there_is_an_error_and_a_customer_who_is_not_there_is_nobody() {
    let missing = |param: &'static str| {
        let error = json!({ "code": "resource_missing", "param": param, "message": format!("No such {param}: 'x'") });
        answering(move |_| (400, json!({ "error": error.clone() })))
    };
    let error = missing("price").await.customers(None).await.unwrap_err();
    assert!(matches!(&error, ListError::Unreadable { why } if why.contains("No such price")), "{error:?}");
    let party = Party { user: None, customers: vec![CustomerId("cus_1".to_owned())] };
    assert!(missing("customer").await.plans(&party, real_now()).await.unwrap().is_none());
    assert_eq!(missing("starting_after").await.customers(Some("sub_1")).await.unwrap().next, None);
}

#[tokio::test]
async fn an_event_that_is_too_large_or_cannot_be_read_is_passed_over_and_the_others_are_listed() {
    let event = |id: &str| till::event(id, "invoice.paid", "in_0001");
    let (mut large, mut odd) = (event("evt_0002"), event("evt_0003"));
    large["data"]["object"]["text"] = json!("x".repeat(5 << 20));
    odd["livemode"] = json!("perhaps");
    let all = [event("evt_0001"), large, odd, event("evt_0004")];
    let provider = answering(move |asked| {
        assert_eq!(asked.keys().filter(|name| name.starts_with("types[")).count(), bottle::providers::stripe::READ.len());
        let after = asked.get("starting_after").and_then(|id| all.iter().position(|event| event["id"] == id.as_str()));
        let left = &all[after.map_or(0, |at| at + 1)..];
        let page = &left[..left.len().min(asked["limit"].parse().unwrap())];
        (200, json!({ "object": "list", "data": page, "has_more": page.len() < left.len() }))
    })
    .await;
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let now = time::OffsetDateTime::now_utc();
        let page = provider.events(now - time::Duration::days(1), now, after.as_deref()).await.unwrap();
        keys.extend(page.items.into_iter().map(|event| event.key.0));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["evt_0001", "evt_0004"]);
}
