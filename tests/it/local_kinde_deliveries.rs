//! The local Kinde's switches for deliveries: twice, late, out of order, lost answers, held, hurried, once more.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::local_kinde::{Receiver, until};
use crate::support::local_kinde::{BEN, Kinde, claims};

async fn with_receiver(receiver: &Receiver) -> Kinde {
    Kinde::start(Some(receiver.listen().await)).await
}

async fn choose_starter(kinde: &Kinde) {
    let done = kinde.post(&format!("/people/{BEN}"), &[("deed", "choose"), ("plan", "customer_starter_plan")]).await;
    assert_eq!(done.status, 303, "{}", done.body);
}

#[tokio::test]
async fn every_event_can_be_sent_twice_and_an_answer_lost() {
    let receiver = Receiver::default();
    let kinde = with_receiver(&receiver).await;
    kinde.deliveries(&[("copies", "2"), ("drop_answers", "1"), ("speed", "1000")]).await;
    choose_starter(&kinde).await;
    until("two events, two copies, two tries", async || receiver.all(|_| ()).len() == 8).await;
    let mut bodies = receiver.all(|arrived| (arrived.webhook_id.clone(), arrived.body.clone()));
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 2);
    until("the page to say so", async || kinde.get("/").await.body.matches("answer lost on purpose (200").count() == 4).await;
}

#[tokio::test]
async fn events_can_come_late_and_out_of_order() {
    let receiver = Receiver::default();
    let kinde = with_receiver(&receiver).await;
    kinde.deliveries(&[("late_secs", "3"), ("shuffle", "yes"), ("speed", "3")]).await;
    let began = Instant::now();
    choose_starter(&kinde).await;
    until("two events", async || receiver.all(|_| ()).len() == 2).await;
    assert!(receiver.all(|arrived| arrived.at).iter().all(|at| at.duration_since(began) >= Duration::from_secs(1)));
    let arrived = receiver.all(|arrived| claims(std::str::from_utf8(&arrived.body).unwrap())["type"].clone());
    assert_eq!(arrived, ["customer.plan_assigned", "customer.agreement_created"], "the other way round");
}

#[tokio::test]
async fn deliveries_can_be_held_and_released() {
    let receiver = Receiver::default();
    let kinde = with_receiver(&receiver).await;
    kinde.post("/local/hold", &[("hold", "true")]).await;
    choose_starter(&kinde).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(receiver.all(|_| ()).len(), 0);
    assert!(kinde.get("/").await.body.contains("held until deliveries are released"));
    // Other switches leave it as it is.
    kinde.deliveries(&[("speed", "2")]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(receiver.all(|_| ()).len(), 0);
    kinde.post("/local/hold", &[("hold", "false")]).await;
    until("two events", async || receiver.all(|_| ()).len() == 2).await;
}

#[tokio::test]
async fn waits_that_are_under_way_can_be_hurried() {
    let receiver = Receiver::answering([500, 500, 500, 500]);
    let kinde = with_receiver(&receiver).await;
    choose_starter(&kinde).await;
    until("two refusals", async || receiver.all(|_| ()).len() == 2).await;
    let began = Instant::now();
    kinde.deliveries(&[("speed", "1000000")]).await;
    until("two deliveries", async || receiver.all(|_| ()).len() == 6).await;
    assert!(began.elapsed() < Duration::from_secs(4), "the wait of 5 seconds was not sat out");
}

#[tokio::test]
async fn an_event_can_be_sent_again_by_hand() {
    let receiver = Receiver::default();
    let kinde = with_receiver(&receiver).await;
    let order = json!({ "event": "payment_failed", "user": "ben" });
    let queued = crate::local_kinde::client().post(kinde.url("/local/send")).json(&order).send().await.unwrap();
    let queued: serde_json::Value = queued.json().await.unwrap();
    until("one event", async || receiver.all(|_| ()).len() == 1).await;
    let again = format!("/local/events/{}/again", queued["queued"][0]["event_id"].as_str().unwrap());
    assert_eq!(kinde.post(&again, &[]).await.status, 303);
    until("a second delivery", async || receiver.all(|_| ()).len() == 2).await;
    let mut bodies = receiver.all(|arrived| (arrived.webhook_id.clone(), arrived.body.clone()));
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    until("both on the page", async || kinde.get("/").await.body.matches(">delivered</span> copy").count() == 2).await;
    assert_eq!(kinde.post("/local/events/event_0/again", &[]).await.status, 404);
}

#[tokio::test]
async fn events_can_be_spelled_as_other_integrations_saw_them() {
    let receiver = Receiver::default();
    let kinde = with_receiver(&receiver).await;
    kinde.deliveries(&[("plan", "code"), ("whose", "customer")]).await;
    choose_starter(&kinde).await;
    until("two events", async || receiver.all(|_| ()).len() == 2).await;
    for event in receiver.all(|arrived| claims(std::str::from_utf8(&arrived.body).unwrap())) {
        assert_eq!(event["data"]["plan"], json!({ "code": "customer_starter_plan" }));
        assert!(event["data"].get("user_id").is_none() && event["data"]["customer_id"].is_string());
    }
    let page = kinde.get("/").await.body;
    assert_eq!(page.matches("Ben Bitdiddle</p>").count(), 2, "whose each event is, though only the customer is named in it");
    for wrong in [("copies", "0"), ("copies", "-5"), ("copies", "many"), ("speed", "0"), ("speed", "inf")] {
        let mut fields =
            vec![("copies", "1"), ("late_secs", "0"), ("drop_answers", "0"), ("speed", "1"), ("plan", "key"), ("whose", "both")];
        fields.retain(|(name, _)| *name != wrong.0);
        fields.push(wrong);
        let said = kinde.post("/local/switches/deliveries", &fields).await;
        assert!(said.status == 400 && said.body.contains("<h1>"), "a page that says so: {wrong:?} {}", said.body);
    }
}
