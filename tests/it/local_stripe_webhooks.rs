//! Webhooks of the local Stripe, against a receiver that only this file knows, and a check of signatures that is not its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bottle::local_stripe::server::Settings;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::local_stripe::{Folder, SECRET, Stripe, id, settings, until};

#[derive(Clone)]
struct Arrived {
    signature: String,
    content_type: String,
    body: String,
}

impl Arrived {
    fn event(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn event_id(&self) -> String {
        id(&self.event()).to_owned()
    }

    fn kind(&self) -> String {
        self.event()["type"].as_str().unwrap().to_owned()
    }

    fn items(&self, name: &str) -> Vec<String> {
        self.signature.split(',').filter_map(|item| item.strip_prefix(&format!("{name}="))).map(str::to_owned).collect()
    }

    fn is_signed_by(&self, secret: &str) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{}.{}", self.items("t")[0], self.body).as_bytes());
        let right = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.items("v1").contains(&right)
    }

    fn age(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        i64::try_from(now).unwrap() - self.items("t")[0].parse::<i64>().unwrap()
    }
}

/// A webhook endpoint that answers what it is told to, then 200.
#[derive(Clone, Default)]
struct Receiver {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    answers: Arc<Mutex<VecDeque<u16>>>,
}

impl Receiver {
    fn answering(answers: impl IntoIterator<Item = u16>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/webhooks/stripe", listener.local_addr().unwrap());
        let routes = Router::new().route("/webhooks/stripe", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        url
    }

    fn all(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    async fn has(&self, count: usize) -> Vec<Arrived> {
        until(&format!("{count} deliveries"), async || self.all().len() >= count).await;
        self.all()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
    let (signature, content_type) = (header("stripe-signature"), header("content-type"));
    let body = String::from_utf8(body.to_vec()).unwrap();
    receiver.arrived.lock().unwrap().push(Arrived { signature, content_type, body });
    let status = receiver.answers.lock().unwrap().pop_front().unwrap_or(200);
    (StatusCode::from_u16(status).unwrap(), "heard")
}

async fn sending_to(receiver: &Receiver, switches: Value) -> Stripe {
    let stripe = Stripe::begin(Settings { webhook_url: Some(receiver.listen().await), speed: 1e6, ..settings() }).await;
    stripe.turn("switches", switches).await;
    stripe
}

#[tokio::test]
async fn an_event_arrives_signed_and_whole() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({})).await;
    let customer = stripe.customer().await;
    let arrived = receiver.has(1).await.remove(0);
    assert!(arrived.is_signed_by(SECRET) && !arrived.is_signed_by("first") && !arrived.is_signed_by("whsec_second"));
    assert_eq!((arrived.items("t").len(), arrived.items("v1").len(), arrived.items("v0").len()), (1, 1, 1));
    assert!((0..5).contains(&arrived.age()));
    assert_eq!(arrived.content_type, "application/json; charset=utf-8");
    let event = arrived.event();
    assert_eq!((&event["object"], &event["type"]), (&json!("event"), &json!("customer.created")));
    assert_eq!(event["data"]["object"]["id"], customer);
    assert_eq!((&event["livemode"], &event["pending_webhooks"]), (&json!(false), &json!(1)));
    assert!(event["request"]["id"].as_str().unwrap().starts_with("req_") && event["created"].is_i64());
    until("the event to be acknowledged", async || {
        stripe.get(&format!("/v1/events/{}", id(&event)), &[]).await["pending_webhooks"] == 0
    })
    .await;
    assert_eq!(stripe.get("/v1/events", &[("delivery_success", "false")]).await["data"], json!([]));
}

#[tokio::test]
async fn anything_but_a_2xx_is_tried_again_with_the_same_bytes() {
    let receiver = Receiver::answering([500, 302, 404, 429, 204]);
    let stripe = sending_to(&receiver, json!({})).await;
    stripe.customer().await;
    let arrived = receiver.has(5).await;
    assert!(arrived.iter().all(|one| one.body == arrived[0].body && one.is_signed_by(SECRET)));
    until("the record", async || stripe.look("deliveries").await["data"][0]["state"] == "delivered").await;
    let delivery = stripe.look("deliveries").await["data"][0].clone();
    let statuses: Vec<i64> = delivery["attempts"].as_array().unwrap().iter().map(|one| one["status"].as_i64().unwrap()).collect();
    assert_eq!(statuses, [500, 302, 404, 429, 204]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(receiver.all().len(), 5);
}

#[tokio::test]
async fn an_event_nobody_hears_is_given_up_and_stays_on_the_list() {
    let receiver = Receiver::answering([500; 11]);
    let stripe = sending_to(&receiver, json!({})).await;
    stripe.customer().await;
    until("giving up", async || stripe.look("deliveries").await["data"][0]["state"] == "given_up").await;
    assert_eq!(receiver.all().len(), 11);
    let missed = stripe.get("/v1/events", &[("delivery_success", "false")]).await;
    assert_eq!(missed["data"].as_array().unwrap().len(), 1);
    // By hand it can be sent again.
    stripe.turn(&format!("events/{}/resend", id(&missed["data"][0])), json!({})).await;
    receiver.has(12).await;
}

#[tokio::test]
async fn copies_have_one_id_and_twins_have_two() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "copies": 3 })).await;
    stripe.customer().await;
    let mut seen: Vec<String> = receiver.has(3).await.iter().map(Arrived::event_id).collect();
    seen.dedup();
    assert_eq!(seen.len(), 1);
    stripe.turn("switches", json!({ "copies": 1, "twins": true })).await;
    stripe.customer().await;
    let arrived = receiver.has(5).await;
    let (one, other) = (arrived[3].event(), arrived[4].event());
    assert_ne!(one["id"], other["id"]);
    assert_eq!(one["data"]["object"]["id"], other["data"]["object"]["id"]);
}

#[tokio::test]
async fn what_one_change_caused_comes_in_the_order_that_was_set() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "order": "as_created" })).await;
    stripe.subscriber().await;
    let created = stripe.told().await;
    let arrived: Vec<String> = receiver.has(created.len()).await.iter().map(Arrived::kind).collect();
    assert_eq!(arrived, created);
    assert!(created.len() > 10 && created.last().unwrap() == "checkout.session.completed");

    stripe.turn("switches", json!({ "order": "reversed" })).await;
    let before = created.len();
    stripe.subscriber().await;
    let created: Vec<String> = stripe.told().await.split_off(before);
    let arrived: Vec<String> = receiver.has(before + created.len()).await[before..].iter().map(Arrived::kind).collect();
    // The customer came by a call of its own.
    let mut reversed: Vec<String> = created[1..].iter().rev().cloned().collect();
    reversed.insert(0, created[0].clone());
    assert_eq!(arrived, reversed);
}

#[tokio::test]
async fn while_a_secret_is_replaced_both_sign() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "order": "as_created" })).await;
    stripe.turn("webhook_secret/roll", json!({ "secret": "whsec_second" })).await;
    stripe.customer().await;
    let both = receiver.has(1).await.remove(0);
    assert!(both.is_signed_by(SECRET) && both.is_signed_by("whsec_second") && both.items("v1").len() == 2);
    assert_eq!(stripe.running.webhook_secrets(), ["whsec_second", SECRET]);
    stripe.turn("webhook_secret/expire_old", json!({})).await;
    stripe.customer().await;
    let new = receiver.has(2).await.remove(1);
    assert!(!new.is_signed_by(SECRET) && new.is_signed_by("whsec_second"));
}

#[tokio::test]
async fn switches_tamper_age_and_claim_to_be_live() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "tamper": true, "order": "as_created" })).await;
    stripe.customer().await;
    receiver.has(1).await;
    stripe.turn("switches", json!({ "tamper": false, "age_secs": 301 })).await;
    stripe.customer().await;
    receiver.has(2).await;
    stripe.turn("switches", json!({ "age_secs": -400, "livemode": true })).await;
    stripe.customer().await;
    let arrived = receiver.has(3).await;
    assert!(!arrived[0].is_signed_by(SECRET) && arrived[0].items("v1")[0].len() == 64);
    assert!(arrived[1].is_signed_by(SECRET) && (301..310).contains(&arrived[1].age()));
    assert!(arrived[2].is_signed_by(SECRET) && (-400..-390).contains(&arrived[2].age()));
    assert_eq!((&arrived[1].event()["livemode"], &arrived[2].event()["livemode"]), (&json!(false), &json!(true)));
    assert_eq!(arrived[2].event()["data"]["object"]["livemode"], true);
    assert_eq!(stripe.try_turn("switches", json!({ "copies": 0 })).await.status, 400);
    assert_eq!(stripe.try_turn("switches", json!({ "tampre": true })).await.status, 400);
}

#[tokio::test]
async fn held_events_arrive_later_and_tell_of_a_past_that_is_over() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "hold": true })).await;
    let (_, subscription) = stripe.subscriber().await;
    stripe.turn(&format!("subscriptions/{subscription}/cancel"), json!({})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(receiver.all().len(), 0);
    stripe.turn("switches", json!({ "hold": false })).await;
    let arrived = receiver.has(stripe.told().await.len()).await;
    let created = arrived.iter().find(|one| one.kind() == "customer.subscription.created").unwrap().event();
    assert_eq!(created["data"]["object"]["status"], "incomplete");
    let path = format!("/v1/subscriptions/{subscription}");
    assert_eq!(stripe.get(&path, &[]).await["status"], "canceled");
}

#[tokio::test]
async fn answers_can_be_lost_and_events_too_and_some_never_come_to_be() {
    let receiver = Receiver::default();
    let stripe = sending_to(&receiver, json!({ "drop_answers": 2 })).await;
    stripe.customer().await;
    let arrived = receiver.has(3).await;
    assert!(arrived.iter().all(|one| one.event_id() == arrived[0].event_id()));
    stripe.turn("switches", json!({ "drop_answers": 0, "lose": 1, "omit": 0 })).await;
    let lost = stripe.customer().await;
    stripe.turn("switches", json!({ "omit": 1 })).await;
    let omitted = stripe.customer().await;
    let heard = stripe.customer().await;
    receiver.has(4).await;
    let about = |events: &Value| -> Vec<String> {
        events["data"].as_array().unwrap().iter().map(|event| id(&event["data"]["object"]).to_owned()).collect()
    };
    let listed = about(&stripe.get("/v1/events", &[]).await);
    assert!(listed.contains(&lost) && !listed.contains(&omitted) && listed.contains(&heard));
    assert_eq!(about(&stripe.get("/v1/events", &[("delivery_success", "false")]).await), [lost]);
    assert_eq!(receiver.all().len(), 4);
}

#[tokio::test]
async fn an_endpoint_gets_what_it_subscribed_to_in_its_own_version() {
    let receiver = Receiver::default();
    let wanted = json!({ "enabled_events": ["invoice.paid", "customer.subscription.*"], "endpoint_version": "2024-06-20", "order": "as_created" });
    let stripe = sending_to(&receiver, wanted).await;
    stripe.subscriber().await;
    let arrived = receiver.has(3).await;
    let kinds: Vec<String> = arrived.iter().map(Arrived::kind).collect();
    assert_eq!(kinds, ["customer.subscription.created", "invoice.paid", "customer.subscription.updated"]);
    let invoice = arrived[1].event();
    assert_eq!(invoice["api_version"], "2024-06-20");
    assert!(invoice["data"]["object"]["subscription"].is_string() && invoice["data"]["object"]["paid"] == true);
    // Written once: a later look in another version does not write it anew.
    let listed = stripe.get(&format!("/v1/events/{}", arrived[1].event_id()), &[]).await;
    assert_eq!(listed["data"], invoice["data"]);
}

#[tokio::test]
async fn no_answer_in_time_is_a_failure_and_so_is_nobody_there() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let stripe = Stripe::begin(Settings { webhook_url: Some(url), ..settings() }).await;
    stripe.turn("switches", json!({ "answer_within_ms": 50 })).await;
    stripe.customer().await;
    let first = async |text: &str| {
        let all = stripe.look("deliveries").await;
        all["data"][0]["attempts"][0]["answer"].as_str().is_some_and(|answer| answer.contains(text))
    };
    until("the deadline to pass", async || first("no answer within 50ms").await).await;

    let away = Stripe::begin(Settings { webhook_url: Some("http://127.0.0.1:1/".into()), ..settings() }).await;
    away.customer().await;
    until("a refusal", async || {
        let all = away.look("deliveries").await;
        all["data"][0]["attempts"][0]["answer"].as_str().is_some_and(|answer| answer.contains("refused"))
    })
    .await;
    // The next attempt is a minute away, unless somebody is in a hurry.
    away.turn("deliveries/flush", json!({})).await;
    until("a second attempt", async || away.look("deliveries").await["data"][0]["attempts"].as_array().unwrap().len() == 2).await;
}

#[tokio::test]
async fn what_was_on_its_way_goes_on_after_a_restart() {
    let (folder, receiver) = (Folder::new(), Receiver::default());
    let url = receiver.listen().await;
    let kept = || Settings { state: Some(folder.0.clone()), webhook_url: Some(url.clone()), ..settings() };
    let stripe = Stripe::begin(kept()).await;
    stripe.turn("switches", json!({ "hold": true })).await;
    stripe.customer().await;
    stripe.running.stop().await;
    assert_eq!(receiver.all().len(), 0);
    let again = Stripe::begin(kept()).await;
    again.turn("switches", json!({ "hold": false })).await;
    assert!(receiver.has(1).await[0].is_signed_by(SECRET));
}
