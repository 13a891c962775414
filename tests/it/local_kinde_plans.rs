//! What people do with plans at the local Kinde, and the events that tell of it.

use serde_json::{Value, json};

use crate::local_kinde::{Receiver, until, verified};
use crate::support::local_kinde::{ADA, BEN, Kinde, claims};

const PRO: &str = "customer_pro_plan";
const STARTER: &str = "customer_starter_plan";

/// What arrived, by the time it happened.
fn told(receiver: &Receiver) -> Vec<Value> {
    let mut all = receiver.all(|arrived| claims(std::str::from_utf8(&arrived.body).unwrap()));
    all.sort_by_key(|event| event["event_timestamp"].as_str().unwrap().to_owned());
    all
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().strip_prefix("customer.").unwrap()).collect()
}

#[tokio::test]
async fn an_upgrade_tells_of_the_old_agreement_the_new_one_the_plan_and_the_payment() {
    let receiver = Receiver::default();
    let kinde = Kinde::start(Some(receiver.listen().await)).await;
    let page = format!("/people/{BEN}");
    kinde.post(&page, &[("deed", "choose"), ("plan", STARTER)]).await;
    until("two events", async || receiver.all(|_| ()).len() == 2).await;
    let first = told(&receiver);
    assert_eq!(names(&first), ["agreement_created", "plan_assigned"]);
    let done = kinde.post(&page, &[("deed", "choose"), ("plan", PRO)]).await;
    assert!(kinde.get(&done.location).await.body.contains("5 events are on their way"));
    until("seven events", async || receiver.all(|_| ()).len() == 7).await;

    let upgrade = &told(&receiver)[2..];
    assert_eq!(
        names(upgrade),
        ["agreement_cancelled", "agreement_created", "plan_assigned", "plan_changed", "payment_succeeded"]
    );
    let old = &first[0]["data"]["agreement_id"];
    assert_eq!(&upgrade[0]["data"]["agreement_id"], old);
    let new = &upgrade[1]["data"]["agreement_id"];
    assert!(new != old && upgrade[1..].iter().all(|event| &event["data"]["agreement_id"] == new));
    for event in &upgrade[1..4] {
        assert_eq!(event["data"]["plan"], json!({ "key": PRO }));
    }
    assert!(upgrade[1]["data"]["invoice_due_on"].as_str().unwrap().ends_with("+11"));
    for event in upgrade {
        assert_eq!(event["data"]["user_id"], BEN);
        assert!(event["data"]["customer_id"].as_str().unwrap().starts_with("customer_"));
        let at = |field: &str| event[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(at("event_timestamp") < at("timestamp") && at("timestamp") <= jiff::Timestamp::now());
    }
    for token in receiver.all(|arrived| String::from_utf8(arrived.body.to_vec()).unwrap()) {
        verified(&token, &kinde.url("")).await.unwrap();
    }
    let refused = kinde.post(&page, &[("deed", "choose"), ("plan", PRO)]).await;
    assert!(refused.status == 409 && refused.body.contains("Pro is the plan already"));
    assert_eq!(kinde.post(&page, &[("deed", "explode")]).await.status, 409);
    assert_eq!(kinde.post("/people/kp_0", &[("deed", "choose"), ("plan", PRO)]).await.status, 404);
}

#[tokio::test]
async fn a_payment_fails_is_overdue_and_is_made_and_the_plan_is_cancelled_at_the_periods_end() {
    let receiver = Receiver::default();
    let kinde = Kinde::start(Some(receiver.listen().await)).await;
    let page = format!("/people/{ADA}");
    let mut expected = Vec::new();
    for (deed, event) in [
        ("bill", None),
        ("fail_payment", Some("payment_failed")),
        ("mark_overdue", Some("invoice_overdue")),
        ("pay", Some("payment_succeeded")),
        ("meter_usage", Some("meter_usage_updated")),
        ("cancel_at_period_end", None),
        ("let_period_end", Some("agreement_cancelled")),
    ] {
        let done = kinde.post(&page, &[("deed", deed), ("quantity", "0")]).await;
        assert_eq!(done.status, 303, "{deed}: {}", done.body);
        expected.extend(event);
    }
    until("five events", async || receiver.all(|_| ()).len() == 5).await;
    let told = told(&receiver);
    assert_eq!(names(&told), expected);
    assert_eq!(told[3]["data"]["quantity"], 0);
    assert!(kinde.get(&page).await.body.contains("No plan. Choose one below."));
    assert_eq!(kinde.post(&page, &[("deed", "pay")]).await.status, 409);
}

#[tokio::test]
async fn a_plan_wanted_at_sign_up_is_chosen_on_the_way_back_to_the_app() {
    let receiver = Receiver::default();
    let mut kinde = Kinde::start(Some(receiver.listen().await)).await;
    let path = kinde.auth(&[("prompt", "create"), ("plan_interest", PRO)]);
    let signed_up = kinde.post(&path, &[("given_name", "Grace"), ("email", "grace@example.com")]).await;
    assert!(signed_up.status == 303 && signed_up.location.starts_with("/local/checkout?"), "{}", signed_up.location);
    assert_eq!(kinde.get(&signed_up.location).await.status, 303, "without the session: to the sign-in");
    kinde.keep_cookie(&signed_up);
    let checkout = kinde.get(&signed_up.location).await;
    assert!(checkout.body.contains("Choose Pro") && !checkout.body.contains("Choose Starter"), "{}", checkout.body);
    let refused = kinde.post(&signed_up.location, &[("refuse", "yes")]).await;
    assert_eq!(refused.param("error").as_deref(), Some("access_denied"));
    assert_eq!(kinde.post(&signed_up.location, &[("plan", "gold")]).await.status, 400);

    let back = kinde.post(&signed_up.location, &[("plan", PRO)]).await;
    assert!(back.param("code").is_some() && back.param("state").as_deref() == Some("the-state"));
    // Sent twice by an impatient hand: one agreement.
    assert!(kinde.post(&signed_up.location, &[("plan", PRO)]).await.param("code").is_some());
    until("three events", async || receiver.all(|_| ()).len() == 3).await;
    assert_eq!(names(&told(&receiver)), ["agreement_created", "plan_assigned", "payment_succeeded"]);

    let known = kinde.auth(&[("plan_interest", PRO)]);
    assert!(kinde.get(&known).await.param("code").is_some(), "who has a plan is not asked");
    let table = kinde.post(&kinde.auth(&[("pricing_table_key", "any")]), &[("person", BEN)]).await;
    kinde.keep_cookie(&table);
    let table = kinde.get(&table.location).await;
    assert!(table.body.contains("Choose Pro") && table.body.contains("Choose Starter"));
    let silent = kinde.get(&kinde.auth(&[("plan_interest", PRO), ("prompt", "none")])).await;
    assert!(silent.param("code").is_some(), "prompt=none never shows a page");
}

#[tokio::test]
async fn adas_past_arrives_when_she_first_signs_in_and_never_again() {
    let receiver = Receiver::default();
    let mut kinde = Kinde::start(Some(receiver.listen().await)).await;
    kinde.sign_in(ADA, &[]).await;
    until("eight events", async || receiver.all(|_| ()).len() == 8).await;
    kinde.sign_in(ADA, &[]).await;
    let past = told(&receiver);
    assert_eq!(
        names(&past),
        [
            "plan_assigned",
            "agreement_created",
            "agreement_cancelled",
            "agreement_created",
            "plan_assigned",
            "plan_changed",
            "payment_succeeded",
            "payment_succeeded"
        ]
    );
    let age = |event: &Value| {
        let at: jiff::Timestamp = event["event_timestamp"].as_str().unwrap().parse().unwrap();
        jiff::Timestamp::now().duration_since(at).as_hours() / 24
    };
    assert_eq!((age(&past[0]), age(&past[2])), (75, 40));
    // The APIs and the past agree on which agreement is whose.
    let token = kinde.machine_token().await;
    let path = format!("/api/v1/billing/agreements?customer_id={}", past[0]["data"]["customer_id"].as_str().unwrap());
    let agreements = kinde.get_as(&path, &token).await.json();
    assert_eq!(agreements["agreements"][1]["id"], past[5]["data"]["agreement_id"]);
}

#[tokio::test]
async fn what_an_order_says_is_true_at_the_apis_too() {
    let receiver = Receiver::default();
    let kinde = Kinde::start(Some(receiver.listen().await)).await;
    let token = kinde.machine_token().await;
    let order = async |order: Value| {
        let answer = crate::local_kinde::client().post(kinde.url("/local/send")).json(&order).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 202);
    };
    let live = async || {
        let customer = bottle::local_kinde::people::customer_id(BEN);
        let all = kinde.get_as(&format!("/api/v1/billing/agreements?customer_id={customer}"), &token).await.json();
        let live = all["agreements"].as_array().unwrap().iter().filter(|one| one["expires_on"].is_null()).cloned();
        live.map(|one| (one["plan_code"].as_str().unwrap().to_owned(), one["id"].clone())).collect::<Vec<_>>()
    };
    order(json!({ "event": "upgrade", "user": "ben" })).await;
    until("four events", async || receiver.all(|_| ()).len() == 4).await;
    let [(plan, id)] = &live().await[..] else { panic!() };
    assert_eq!(plan, PRO);
    let changed = told(&receiver).into_iter().find(|event| event["type"] == "customer.plan_changed").unwrap();
    assert_eq!(&changed["data"]["agreement_id"], id);
    // Old news arrives late and changes nothing; the cancellation of today does.
    order(json!({ "event": "plan_changed", "user": "ben", "plan": STARTER, "at": "2020-01-01T00:00:00Z" })).await;
    assert_eq!(live().await[0].0, PRO);
    assert_eq!(live().await.len(), 1);
    order(json!({ "event": "agreement_cancelled", "user": "ben" })).await;
    assert!(live().await.is_empty());
    until("six events", async || receiver.all(|_| ()).len() == 6).await;
    assert!(
        told(&receiver)
            .iter()
            .any(|event| event["type"] == "customer.agreement_cancelled" && &event["data"]["agreement_id"] == id)
    );
    // A second time is another agreement.
    order(json!({ "event": "upgrade", "user": "ben" })).await;
    assert!(live().await.len() == 1 && &live().await[0].1 != id);
    order(json!({ "event": "plan_assigned", "user": "kp_unheard", "plan": "gold" })).await;
    assert_eq!(kinde.get_as("/api/v1/user?id=kp_unheard", &token).await.status, 200);
}
