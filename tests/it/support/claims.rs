//! Claims of single events, written in one line each.

use bottle::domain::event::{Delivery, Source};
use bottle::domain::ids::{EventId, EventKey};
use serde_json::{Value, json};

use super::histories::{meaning, moment};
use super::tokens::unsigned;

pub fn user_id(user: &str) -> String {
    format!("kp_{user}")
}

pub fn customer_id(user: &str) -> String {
    format!("customer_{user}")
}

/// Claims in one line: `10-21 10:00:00 changed - pro`. The verbs are `assigned`, `created` and `changed` (agreement, plan),
/// `cancelled` (agreement, and after `at` when it takes effect), `paid`, `failed` and `overdue` (agreement), `registered` (a
/// type that says nothing about billing). `-` names no agreement. They name the user and the user's customer id.
pub fn says(user: &str, key: &str, line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = moment(&words[..2].join(" "));
    let word = |n: usize| words.get(n).copied().filter(|word| *word != "-");
    let kind = match words[2] {
        "assigned" => "customer.plan_assigned",
        "created" => "customer.agreement_created",
        "changed" => "customer.plan_changed",
        "cancelled" => "customer.agreement_cancelled",
        "paid" => "customer.payment_succeeded",
        "failed" => "customer.payment_failed",
        "overdue" => "customer.invoice_overdue",
        "registered" => "user.created",
        other => panic!("`{other}` is no verb"),
    };
    let mut data = json!({"user_id": user_id(user), "customer_id": customer_id(user), "customer_type": "user"});
    if let Some(agreement) = word(3) {
        data["agreement_id"] = json!(agreement);
    }
    match word(4) {
        Some("at") => data["effective_at"] = json!(moment(&words[5..].join(" ")).to_string()),
        Some("pro") => data["plan"] = json!({"key": "customer_pro_plan"}),
        Some("starter") => data["plan"] = json!({"key": "customer_starter_plan"}),
        Some(key) => data["plan"] = json!({"key": key}),
        None => {}
    }
    json!({"type": kind, "event_id": event_key(key), "source": "user", "event_timestamp": at.to_string(), "data": data})
}

/// The provider's id of the event that a test calls `key`.
pub fn event_key(key: &str) -> String {
    format!("event_{key:x<10}")
}

/// The same claims without the user: only the customer id says whose they are.
pub fn customer_only(mut claims: Value) -> Value {
    claims["data"].as_object_mut().unwrap().remove("user_id");
    claims
}

/// A delivery as intake has it after verifying; its signature is no signature.
pub fn verified(claims: &Value) -> Delivery {
    let text = |name: &str| claims[name].as_str().unwrap().to_owned();
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&(claims.to_string().len() as u64).to_be_bytes());
    Delivery {
        source: Source::Kinde,
        key: EventKey(text("event_id")),
        kind: text("type"),
        webhook_id: Some(text("event_id")),
        body: format!("{}.bm9uZQ", unsigned(&json!({"alg": "RS256"}), claims.to_string())).into_bytes(),
        sent: None,
        occurred: meaning(EventId(0), claims).map(|dated| dated.at),
        digest,
    }
}
