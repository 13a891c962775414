//! Refunds: several to a charge, in part or in whole, and one can fail after it was made.

use serde_json::{Value, json};

use super::balance::{self, Movement};
use super::catalog::{metadata, metadata_updated};
use super::form::Params;
use super::money;
use super::refusal::Refusal;
use super::shapes;
use super::world::{World, int, random, text};

pub fn create(world: &mut World, form: &Params) -> Result<Value, Refusal> {
    form.only(&["charge", "payment_intent", "amount", "reason", "metadata[*]"])?;
    let reason = form.one_of("reason", &["duplicate", "fraudulent", "requested_by_customer"])?;
    let charge = match (form.text("charge"), form.text("payment_intent")) {
        (Some(charge), None) => world.named("charge", charge, "charge")?,
        (None, Some(intent)) => {
            let intent = world.named("payment_intent", intent, "payment_intent")?;
            let charge = text(intent, "latest_charge").to_owned();
            let message = format!("This PaymentIntent ({}) does not have a successful charge to refund.", text(intent, "id"));
            world.find(&charge).ok_or_else(|| Refusal::param("payment_intent", message))?
        }
        _ => {
            return Err(Refusal::invalid(
                "One of the following params should be provided for this request: payment_intent or charge.",
            ));
        }
    };
    let charge = text(charge, "id").to_owned();
    let id = refund(world, &charge, form.int("amount")?, reason)?;
    world.set(&id, json!({ "metadata": metadata(form, "metadata") }));
    tell_of_new(world, &id);
    Ok(world.copy(&id))
}

pub fn update(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["metadata[*]"])?;
    let metadata = metadata_updated(&world.get("refund", id)?["metadata"], form);
    world.update(id, json!({ "metadata": metadata }), "refund.updated");
    Ok(world.copy(id))
}

/// The refund itself; nobody is told yet.
fn refund(world: &mut World, charge_id: &str, amount: Option<i64>, reason: Option<&str>) -> Result<String, Refusal> {
    let charge = world.get("charge", charge_id)?.clone();
    let left = int(&charge, "amount") - int(&charge, "amount_refunded");
    let amount = amount.unwrap_or(left);
    if text(&charge, "status") != "succeeded" {
        return Err(Refusal::param("charge", format!("Charge {charge_id} was not paid, so it cannot be refunded.")));
    }
    if charge["disputed"] == true {
        return Err(Refusal::invalid(format!("Charge {charge_id} has been charged back.")).coded("charge_disputed"));
    }
    if left == 0 {
        return Err(Refusal::invalid(format!("Charge {charge_id} has already been refunded.")).coded("charge_already_refunded"));
    }
    if amount < 1 {
        return Err(Refusal::param("amount", "Invalid positive integer").coded("parameter_invalid_integer"));
    }
    if amount > left {
        let currency = text(&charge, "currency");
        let (amount, left) = (money::in_words(amount, currency), money::in_words(left, currency));
        return Err(Refusal::param(
            "amount",
            format!("Refund amount ({amount}) is greater than unrefunded amount on charge ({left})"),
        ));
    }
    let id = world.add(shapes::refund(world, &charge, amount, reason));
    let by_card = text(&charge["payment_method_details"], "type") == "card";
    let movement = Movement {
        kind: if by_card { "refund" } else { "payment_refund" },
        category: "refund",
        amount: -amount,
        currency: text(&charge, "currency"),
        fee: 0,
        source: &id,
        description: "REFUND FOR CHARGE",
    };
    let transaction = balance::book(world, &movement);
    // A card takes it back at once; a bank transfer may yet come back.
    world.set(&id, json!({ "balance_transaction": transaction, "status": if by_card { "succeeded" } else { "pending" } }));
    Ok(id)
}

/// The charge counts the refund from now on, and all who listen hear of both.
fn tell_of_new(world: &mut World, id: &str) {
    let refund = world.copy(id);
    let charge = text(&refund, "charge");
    count(world, charge, int(&refund, "amount"), "charge.refunded");
    world.tell("refund.created", id);
    if text(&refund, "status") == "succeeded" {
        let card = json!({ "reference": random(8).to_lowercase(), "reference_status": "available", "reference_type": "acquirer_reference_number", "type": "refund" });
        world.update(id, json!({ "destination_details": { "card": card, "type": "card" } }), "refund.updated");
    }
}

/// Adds to what a charge gave back, cumulatively; less where a refund failed.
fn count(world: &mut World, charge: &str, amount: i64, event: &str) {
    let before = world.copy(charge);
    let refunded = int(&before, "amount_refunded") + amount;
    let full = refunded == int(&before, "amount");
    world.update(charge, json!({ "amount_refunded": refunded, "refunded": full }), event);
}

/// A refund that someone at this Stripe's desk makes.
pub fn at_desk(world: &mut World, charge: &str, amount: Option<i64>, pending: bool) -> Result<Value, Refusal> {
    let id = refund(world, charge, amount, None)?;
    if pending {
        world.set(&id, json!({ "status": "pending" }));
    }
    tell_of_new(world, &id);
    Ok(world.copy(&id))
}

/// A pending refund arrives.
pub fn succeed(world: &mut World, id: &str) -> Result<Value, Refusal> {
    let refund = world.get("refund", id)?;
    if text(refund, "status") != "pending" {
        return Err(Refusal::invalid(format!("The refund {id} is {}, not pending.", text(refund, "status"))));
    }
    world.update(id, json!({ "status": "succeeded" }), "refund.updated");
    Ok(world.copy(id))
}

/// A refund comes back, also one that had succeeded: the money is ours again.
pub fn fail(world: &mut World, id: &str) -> Result<Value, Refusal> {
    let refund = world.get("refund", id)?.clone();
    if !matches!(text(&refund, "status"), "pending" | "succeeded") {
        return Err(Refusal::invalid(format!("The refund {id} is {} already.", text(&refund, "status"))));
    }
    let amount = int(&refund, "amount");
    let movement = Movement {
        kind: "refund_failure",
        category: "refund_failure",
        amount,
        currency: text(&refund, "currency"),
        fee: 0,
        source: id,
        description: "REFUND FAILURE",
    };
    let transaction = balance::book(world, &movement);
    let fields =
        json!({ "status": "failed", "failure_reason": "lost_or_stolen_card", "failure_balance_transaction": transaction });
    let previous = world.set(id, fields);
    world.tell_change("refund.updated", id, previous);
    world.tell("refund.failed", id);
    count(world, text(&refund, "charge"), -amount, "charge.updated");
    Ok(world.copy(id))
}
