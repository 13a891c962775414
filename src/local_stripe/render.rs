//! An object as a version of the API writes it. Kept are the newest shapes; before basil some things stood elsewhere.

use serde_json::{Value, json};

use super::invoices;
use super::subscriptions;
use super::world::{World, int, text};

/// From this version on periods are on a subscription's items, and invoices and payments no longer name each other.
const BASIL: &str = "2025-03-31";

/// Writes it, and every object in it, for a version. Versions begin with their date, so they can be compared.
pub fn at(world: &World, version: &str, value: &mut Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| at(world, version, element)),
        Value::Object(fields) => {
            // What an event tells was written when it happened, and is not written anew.
            let is_event = fields.get("object").is_some_and(|kind| kind == "event");
            if !is_event {
                fields.values_mut().for_each(|inner| at(world, version, inner));
                own(world, version, value);
            }
        }
        _ => {}
    }
}

fn own(world: &World, version: &str, value: &mut Value) {
    let old = version < BASIL;
    match text(value, "object") {
        "balance_transaction" if int(value, "available_on") <= world.now() => value["status"] = json!("available"),
        "subscription" if old => {
            let ends = subscriptions::ends(value);
            let starts = subscriptions::items(value).iter().map(|item| int(item, "current_period_start")).max();
            for item in value["items"]["data"].as_array_mut().into_iter().flatten() {
                drop_fields(item, &["current_period_start", "current_period_end"]);
            }
            value["current_period_start"] = json!(starts);
            value["current_period_end"] = json!(ends);
        }
        "invoice" if old => {
            let id = text(value, "id").to_owned();
            let intent = invoices::intent_of(world, &id);
            let charge = intent.as_deref().map(|intent| world.copy(intent)["latest_charge"].clone());
            let paid = text(value, "status") == "paid";
            let details = value["parent"]["subscription_details"].take();
            drop_fields(value, &["parent", "payments", "amount_overpaid"]);
            for (field, inner) in [
                ("subscription", details["subscription"].clone()),
                ("subscription_details", json!({ "metadata": details["metadata"] })),
                ("payment_intent", json!(intent)),
                ("charge", charge.unwrap_or_default()),
                ("paid", json!(paid)),
                ("paid_out_of_band", json!(paid && intent.is_none())),
            ] {
                value[field] = inner;
            }
        }
        "line_item" if old && value["parent"].is_object() => {
            let details = value["parent"]["subscription_item_details"].take();
            let price = world.copy(text(&value["pricing"]["price_details"], "price"));
            drop_fields(value, &["parent", "pricing"]);
            for (field, inner) in [
                ("proration", details["proration"].clone()),
                ("subscription", details["subscription"].clone()),
                ("subscription_item", details["subscription_item"].clone()),
                ("type", json!("subscription")),
                ("price", price),
            ] {
                value[field] = inner;
            }
        }
        "charge" | "payment_intent" if old => {
            let intent = if text(value, "object") == "charge" { text(value, "payment_intent") } else { text(value, "id") };
            value["invoice"] = json!(invoices::of_intent(world, intent));
        }
        _ => {}
    }
}

fn drop_fields(value: &mut Value, names: &[&str]) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}
