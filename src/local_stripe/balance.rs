//! Balance transactions: every movement of this account's money, in the currency it is kept in.

use serde_json::{Value, json};

use super::money;
use super::world::{World, fresh};

pub struct Movement<'a> {
    /// Stripe's `type`.
    pub kind: &'a str,
    /// Its accounting class.
    pub category: &'a str,
    /// Signed, in the currency of what it is about.
    pub amount: i64,
    pub currency: &'a str,
    pub fee: i64,
    /// The charge, refund or dispute.
    pub source: &'a str,
    pub description: &'a str,
}

/// Books it; gives the transaction's id.
pub fn book(world: &mut World, movement: &Movement<'_>) -> String {
    let (settled_in, rate) = settlement(world, movement.currency);
    let settled = |amount| rate.map_or(amount, |(from, to)| money::part(amount, from, to));
    let (amount, fee) = (settled(movement.amount), settled(movement.fee));
    let fees = json!([{
        "amount": fee, "application": null, "currency": settled_in, "description": "Stripe processing fees", "type": "stripe_fee",
    }]);
    let transaction = json!({
        "id": fresh("txn_3", 23), "object": "balance_transaction", "amount": amount,
        "available_on": world.now() + 2 * 24 * 3600, "balance_type": "payments", "created": world.now(), "currency": settled_in,
        "description": movement.description, "exchange_rate": rate.map(|(from, to)| as_decimal(from, to)), "fee": fee,
        "fee_details": if fee == 0 { json!([]) } else { fees }, "net": amount - fee, "reporting_category": movement.category,
        "source": movement.source, "status": "pending", "type": movement.kind,
    });
    world.add(transaction)
}

/// The currency the balance is kept in, and the rate to it where that is another one.
fn settlement(world: &World, currency: &str) -> (String, Option<(i64, i64)>) {
    let other = world.settlement.as_deref().filter(|settled| *settled != currency);
    match other.and_then(|settled| Some((settled.to_owned(), money::rate(currency, settled)?))) {
        Some((settled, rate)) => (settled, Some(rate)),
        None => (currency.to_owned(), None),
    }
}

/// A rate is the one decimal number in Stripe's JSON. Six digits; sums are made from the whole numbers.
fn as_decimal(from: i64, to: i64) -> Value {
    let millionths = money::part(from, 1_000_000, to);
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    serde_json::from_str(&text).unwrap_or_default()
}
