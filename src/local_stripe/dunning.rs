//! What follows a payment that failed: a few more tries over two weeks, and then what the switch says.

use serde_json::json;

use super::invoices;
use super::subscriptions::{self, Why};
use super::switches::AfterDunning;
use super::world::{World, int, text};

const DAY: i64 = 24 * 3600;

/// After the first attempt, the second, the third. Stripe chooses the days itself and does not publish how; these are ours.
const WAITS: [i64; 3] = [3 * DAY, 5 * DAY, 7 * DAY];

/// An attempt at this invoice has failed.
pub fn failed(world: &mut World, id: &str) {
    let invoice = world.copy(id);
    let subscription = invoices::subscription_of(&invoice).to_owned();
    let first = text(&invoice, "billing_reason") == "subscription_create";
    let wait = usize::try_from(int(&invoice, "attempt_count") - 1).ok().and_then(|n| WAITS.get(n));
    let next = wait.filter(|_| !first).map(|wait| world.now() + wait);
    world.set(id, json!({ "next_payment_attempt": next }));
    world.tell("invoice.payment_failed", id);
    if first {
        return;
    }
    if next.is_some() {
        subscriptions::turn(world, &subscription, "past_due");
        return;
    }
    match world.switches.after_dunning {
        AfterDunning::Cancel => subscriptions::end(world, &subscription, Why::PaymentFailed),
        AfterDunning::Unpaid => subscriptions::turn(world, &subscription, "unpaid"),
        AfterDunning::PastDue => subscriptions::turn(world, &subscription, "past_due"),
    }
}
