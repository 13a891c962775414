//! Payments: an intent, a charge, and what the balance gets of it. A card answers at once; a bank debit is `processing` until it
//! is settled, well or badly.

use serde_json::{Value, json};

use super::balance::{self, Movement};
use super::checkout;
use super::invoices;
use super::money;
use super::refusal::Refusal;
use super::shapes::{self, Method};
use super::world::{World, int, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Paid,
    Processing,
    Declined,
}

pub struct Intent<'a> {
    pub amount: i64,
    pub currency: &'a str,
    pub customer: Option<&'a str>,
    pub description: &'a str,
    pub metadata: Value,
}

/// Declares a payment; gives the intent's id.
pub fn intend(world: &mut World, wanted: Intent<'_>) -> String {
    let mut intent = shapes::payment_intent(world, wanted.amount, wanted.currency, wanted.customer, None);
    intent["description"] = json!(wanted.description);
    intent["metadata"] = wanted.metadata;
    let id = world.add(intent);
    world.tell("payment_intent.created", &id);
    id
}

/// Tries it with a payment method.
pub fn pay(world: &mut World, intent: &str, payment_method: &str) -> Outcome {
    let method = Method::of(&world.copy(payment_method));
    world.set(intent, json!({ "payment_method": payment_method }));
    let before = world.copy(intent);
    let charge = world.add(shapes::charge(world, &before, method));
    world.set(intent, json!({ "latest_charge": charge }));
    if method == Method::SepaDebit {
        world.set(intent, json!({ "status": "processing" }));
        world.tell("payment_intent.processing", intent);
        world.tell("charge.pending", &charge);
        return Outcome::Processing;
    }
    if take_decline(world, text(&before, "customer")) {
        fail(world, intent, &charge);
        return Outcome::Declined;
    }
    succeed(world, intent, &charge, "charge");
    Outcome::Paid
}

/// Says what became of a bank debit, and lets its invoice and its checkout know.
pub fn settle(world: &mut World, intent: &str, paid: bool) -> Result<(), Refusal> {
    let before = world.get("payment_intent", intent)?.clone();
    if text(&before, "status") != "processing" {
        return Err(Refusal::invalid(format!(
            "The payment {intent} is {}, so there is nothing to settle.",
            text(&before, "status")
        )));
    }
    let charge = text(&before, "latest_charge");
    if paid {
        succeed(world, intent, charge, "payment");
    } else {
        fail(world, intent, charge);
    }
    invoices::payment_settled(world, intent, paid);
    checkout::payment_settled(world, intent, paid);
    Ok(())
}

/// The balance hears of it a moment after the charge did: the first snapshot of a charge names no balance transaction.
fn succeed(world: &mut World, intent: &str, charge: &str, kind: &str) {
    let (amount, currency) = (int(&world.copy(charge), "amount"), text(&world.copy(charge), "currency").to_owned());
    world.set(
        charge,
        json!({
            "status": "succeeded", "paid": true, "captured": true, "amount_captured": amount,
            "outcome": {
                "advice_code": null, "network_advice_code": null, "network_decline_code": null,
                "network_status": "approved_by_network", "reason": null, "risk_level": "normal",
                "seller_message": "Payment complete.", "type": "authorized",
            },
        }),
    );
    world.tell("charge.succeeded", charge);
    world.set(intent, json!({ "status": "succeeded", "amount_received": amount }));
    world.tell("payment_intent.succeeded", intent);
    let fee = money::fee(amount, &currency);
    let movement =
        Movement { kind, category: "charge", amount, currency: &currency, fee, source: charge, description: "Payment" };
    let transaction = balance::book(world, &movement);
    world.update(charge, json!({ "balance_transaction": transaction }), "charge.updated");
}

fn fail(world: &mut World, intent: &str, charge: &str) {
    let message = "Your card was declined.";
    world.set(
        charge,
        json!({
            "status": "failed", "failure_code": "card_declined", "failure_message": message,
            "outcome": {
                "advice_code": "try_again_later", "network_advice_code": null, "network_decline_code": null,
                "network_status": "declined_by_network", "reason": "generic_decline", "risk_level": "normal",
                "seller_message": "The bank did not return any further details with this decline.", "type": "issuer_declined",
            },
        }),
    );
    world.tell("charge.failed", charge);
    let error = json!({
        "charge": charge, "code": "card_declined", "decline_code": "generic_decline",
        "doc_url": "https://stripe.com/docs/error-codes/card-declined", "message": message, "type": "card_error",
    });
    world.set(intent, json!({ "status": "requires_payment_method", "payment_method": null, "last_payment_error": error }));
    world.tell("payment_intent.payment_failed", intent);
}

/// Uses up one refusal, if this customer or whoever is next has one coming.
fn take_decline(world: &mut World, customer: &str) -> bool {
    let whose = [customer, "*"].into_iter().find(|whose| world.declines.get(*whose).is_some_and(|left| *left > 0));
    if let Some(left) = whose.and_then(|whose| world.declines.get_mut(whose)) {
        *left -= 1;
    }
    whose.is_some()
}
