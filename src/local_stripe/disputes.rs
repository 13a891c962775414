//! Disputes: the money goes when one is opened, and comes back when it is won. An inquiry (`warning_…`) moves none.

use serde_json::{Value, json};

use super::balance::{self, Movement};
use super::money;
use super::refusal::Refusal;
use super::shapes;
use super::world::{World, int, text};

pub fn open(world: &mut World, charge_id: &str, amount: Option<i64>, reason: &str, inquiry: bool) -> Result<Value, Refusal> {
    let charge = world.get("charge", charge_id)?.clone();
    let left = int(&charge, "amount") - int(&charge, "amount_refunded");
    let amount = amount.unwrap_or(left);
    if text(&charge, "status") != "succeeded" || amount < 1 || amount > left {
        return Err(Refusal::invalid(format!("There is nothing to dispute of the charge {charge_id}: {left} are left of it.")));
    }
    if charge["disputed"] == true {
        return Err(Refusal::invalid(format!("The charge {charge_id} is disputed already.")));
    }
    let status = if inquiry { "warning_needs_response" } else { "needs_response" };
    let id = world.add(shapes::dispute(world, &charge, amount, reason, status));
    world.set(charge_id, json!({ "disputed": true }));
    if inquiry {
        world.tell("charge.dispute.created", &id);
    } else {
        let currency = text(&charge, "currency");
        let fee = 15 * 10_i64.pow(money::exponent(currency)) * if money::exponent(currency) == 0 { 100 } else { 1 };
        move_money(world, &id, -amount, fee, "dispute");
        world.tell("charge.dispute.created", &id);
        world.tell("charge.dispute.funds_withdrawn", &id);
    }
    world.tell_change("charge.updated", charge_id, json!({ "disputed": false }));
    Ok(world.copy(&id))
}

/// `won` gives the money back; of an inquiry only that it is over is said.
pub fn close(world: &mut World, id: &str, won: bool) -> Result<Value, Refusal> {
    let dispute = world.get("dispute", id)?.clone();
    let status = text(&dispute, "status");
    if matches!(status, "won" | "lost" | "warning_closed") {
        return Err(Refusal::invalid(format!("The dispute {id} is closed already: {status}.")));
    }
    let end = match (status.starts_with("warning"), won) {
        (true, _) => "warning_closed",
        (false, true) => "won",
        (false, false) => "lost",
    };
    let previous = world.set(id, json!({ "status": end }));
    if end == "won" {
        move_money(world, id, int(&dispute, "amount"), 0, "dispute_reversal");
        world.tell("charge.dispute.funds_reinstated", id);
    }
    world.tell_change("charge.dispute.closed", id, previous);
    Ok(world.copy(id))
}

fn move_money(world: &mut World, id: &str, amount: i64, fee: i64, category: &str) {
    let dispute = world.copy(id);
    let movement = Movement {
        kind: "adjustment",
        category,
        amount,
        currency: text(&dispute, "currency"),
        fee,
        source: id,
        description: if amount < 0 { "Chargeback withdrawal" } else { "Chargeback reversal" },
    };
    let transaction = balance::book(world, &movement);
    let mut moved = dispute["balance_transactions"].as_array().cloned().unwrap_or_default();
    moved.push(world.copy(&transaction));
    world.set(id, json!({ "balance_transactions": moved }));
}
