//! The life of a subscription: how it begins, comes round, changes its price and ends.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde_json::{Value, json};

use super::invoices;
use super::lines;
use super::proration;
use super::shapes;
use super::world::{World, int, text};

pub struct Wanted<'a> {
    pub customer: &'a str,
    /// Price and quantity.
    pub items: Vec<(Value, i64)>,
    pub currency: &'a str,
    pub metadata: Value,
    pub trial_end: Option<i64>,
    pub method: Option<&'a str>,
    pub coupon: Option<Value>,
    pub flexible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Requested,
    PaymentFailed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prorate {
    Not,
    /// With the next invoice.
    Later,
    /// By an invoice of its own, at once.
    Now,
}

/// Begins one, with its first invoice finalised. It is `incomplete` until that is paid; `trialing` where nothing is due yet.
pub fn begin(world: &mut World, wanted: Wanted<'_>) -> String {
    let now = world.now();
    let mut subscription = shapes::subscription(world, wanted.customer, wanted.currency, wanted.method);
    let id = text(&subscription, "id").to_owned();
    subscription["metadata"] = wanted.metadata;
    if wanted.flexible {
        subscription["billing_mode"] =
            json!({ "flexible": { "proration_discounts": "included" }, "type": "flexible", "updated_at": now });
    }
    if let Some(trial_end) = wanted.trial_end {
        subscription["status"] = json!("trialing");
        subscription["trial_start"] = json!(now);
        subscription["trial_end"] = json!(trial_end);
        subscription["billing_cycle_anchor"] = json!(trial_end);
    }
    let item = |(price, quantity): &(Value, i64)| {
        let end = wanted.trial_end.unwrap_or_else(|| period_end(now, price, now));
        shapes::subscription_item(world, &id, price, *quantity, (now, end))
    };
    let items: Vec<Value> = wanted.items.iter().map(item).collect();
    subscription["items"]["data"] = json!(items);
    world.add(subscription);
    let lines = lines::of_period(world, &world.copy(&id), wanted.trial_end.is_some());
    let invoice = invoices::draft(world, &id, "subscription_create", lines, wanted.coupon.as_ref());
    world.tell("customer.subscription.created", &id);
    invoices::finalize(world, &invoice);
    id
}

/// The end of the period that lies after `after`, counted from the anchor so that the 31st comes back after February.
pub fn period_end(anchor: i64, price: &Value, after: i64) -> i64 {
    let (interval, count) = (text(&price["recurring"], "interval"), int(&price["recurring"], "interval_count").max(1));
    let at = |n: i64| {
        let span = match interval {
            "day" => Span::new().try_days(n * count),
            "week" => Span::new().try_weeks(n * count),
            "year" => Span::new().try_years(n * count),
            _ => Span::new().try_months(n * count),
        };
        let from = Timestamp::from_second(anchor).ok()?.to_zoned(TimeZone::UTC);
        Some(from.checked_add(span.ok()?).ok()?.timestamp().as_second())
    };
    (1..).map_while(at).find(|end| *end > after).unwrap_or(i64::MAX)
}

/// Where the current period ends; the earliest, if items differ.
pub fn ends(subscription: &Value) -> i64 {
    items(subscription).iter().map(|item| int(item, "current_period_end")).min().unwrap_or(i64::MAX)
}

pub fn items(subscription: &Value) -> Vec<Value> {
    subscription["items"]["data"].as_array().cloned().unwrap_or_default()
}

pub fn is_over(subscription: &Value) -> bool {
    matches!(text(subscription, "status"), "canceled" | "incomplete_expired")
}

/// The period is over: the next one begins with a draft that Stripe finalises an hour later.
pub fn come_round(world: &mut World, id: &str) {
    let before = world.copy(id);
    if before["cancel_at_period_end"] == true {
        end(world, id, Why::Requested);
        return;
    }
    let trial_over = text(&before, "status") == "trialing";
    if trial_over && !has_method(world, &before) {
        match text(&before["trial_settings"]["end_behavior"], "missing_payment_method") {
            "pause" => {
                turn(world, id, "paused");
                world.tell("customer.subscription.paused", id);
                return;
            }
            "cancel" => return end(world, id, Why::Requested),
            _ => {}
        }
    }
    let (anchor, from) = (int(&before, "billing_cycle_anchor"), ends(&before));
    let mut list = before["items"].clone();
    for item in list["data"].as_array_mut().into_iter().flatten() {
        item["current_period_start"] = json!(from);
        item["current_period_end"] = json!(period_end(anchor, &item["price"], from));
    }
    let mut previous = world.set(id, json!({ "items": list }));
    let lines = lines::of_period(world, &world.copy(id), false);
    let invoice = invoices::draft(world, id, "subscription_cycle", lines, None);
    previous["latest_invoice"] = before["latest_invoice"].clone();
    if text(&before, "status") == "unpaid" {
        // Drafted, and not asked for: nothing more is taken from somebody who did not pay.
        world.set(&invoice, json!({ "auto_advance": false }));
    } else {
        world.set(&invoice, json!({ "automatically_finalizes_at": world.now() + 3600 }));
    }
    if trial_over {
        world.set(id, json!({ "status": "active" }));
        previous["status"] = json!("trialing");
    }
    world.tell_change("customer.subscription.updated", id, previous);
}

fn has_method(world: &World, subscription: &Value) -> bool {
    subscription["default_payment_method"].is_string()
        || super::customers::default_method(world, text(subscription, "customer")).is_some()
}

/// Another status, told if it is one.
pub fn turn(world: &mut World, id: &str, status: &str) {
    if !is_over(&world.copy(id)) {
        world.update(id, json!({ "status": status }), "customer.subscription.updated");
    }
}

/// Its latest invoice was paid, or given up on: access is back.
pub fn invoice_settled(world: &mut World, id: &str, invoice: &str) {
    let subscription = world.copy(id);
    let latest = text(&subscription, "latest_invoice") == invoice;
    if latest && matches!(text(&subscription, "status"), "incomplete" | "past_due" | "unpaid") {
        turn(world, id, "active");
    }
}

/// Final: nothing brings this id back. What is still open is not asked for any more.
pub fn end(world: &mut World, id: &str, why: Why) {
    let before = world.copy(id);
    if is_over(&before) {
        return;
    }
    let now = world.now();
    let mut details = before["cancellation_details"].clone();
    details["reason"] = json!(if why == Why::Requested { "cancellation_requested" } else { "payment_failed" });
    let canceled_at = before["canceled_at"].as_i64().unwrap_or(now);
    world.set(
        id,
        json!({
            "status": "canceled", "canceled_at": canceled_at, "ended_at": now, "cancel_at_period_end": false,
            "cancellation_details": details,
        }),
    );
    let open = |one: &Value| invoices::subscription_of(one) == id && matches!(text(one, "status"), "draft" | "open");
    for invoice in world.ids_where("invoice", open) {
        world.set(&invoice, json!({ "auto_advance": false, "automatically_finalizes_at": null, "next_payment_attempt": null }));
    }
    world.tell("customer.subscription.deleted", id);
}

/// Nobody paid the first invoice within 23 hours.
pub fn expire(world: &mut World, id: &str) {
    world.update(id, json!({ "status": "incomplete_expired", "ended_at": world.now() }), "customer.subscription.updated");
    let invoice = text(&world.copy(id), "latest_invoice").to_owned();
    if text(&world.copy(&invoice), "status") == "open" {
        invoices::void(world, &invoice, "void");
    }
}

/// An item gets another price or quantity. Another interval begins a new period at once, and is paid for at once.
pub fn change_item(world: &mut World, id: &str, item: &str, price: &Value, quantity: i64, prorate: Prorate) {
    let before = world.copy(id);
    let Some(old) = items(&before).into_iter().find(|one| text(one, "id") == item) else { return };
    let same_interval = old["price"]["recurring"]["interval"] == price["recurring"]["interval"];
    let now = world.now();
    let period = match same_interval {
        true => (int(&old, "current_period_start"), int(&old, "current_period_end")),
        false => (now, period_end(now, price, now)),
    };
    let mut new = shapes::subscription_item(world, id, price, quantity, period);
    new["id"] = old["id"].clone();
    new["created"] = old["created"].clone();
    let mut list = before["items"].clone();
    for one in list["data"].as_array_mut().into_iter().flatten().filter(|one| text(one, "id") == item) {
        *one = new.clone();
    }
    let anchor = if same_interval { int(&before, "billing_cycle_anchor") } else { now };
    let previous = world.set(id, json!({ "items": list, "billing_cycle_anchor": anchor }));
    let trial = text(&before, "status") == "trialing";
    let mut invoice = None;
    if prorate != Prorate::Not && !trial {
        let lines =
            if same_interval { proration::lines(world, &old, &new) } else { proration::lines_of_new_period(world, &old, &new) };
        if prorate == Prorate::Now || !same_interval {
            invoice = Some(invoices::draft(world, id, "subscription_update", lines, None));
        } else {
            world.waiting_lines.entry(id.to_owned()).or_default().extend(lines);
        }
    }
    world.tell_change("customer.subscription.updated", id, previous);
    if let Some(invoice) = invoice {
        invoices::finalize(world, &invoice);
        if text(&world.copy(&invoice), "status") == "open" {
            invoices::attempt(world, &invoice, None);
        }
    }
}

/// Set to end with its period, or not any more. A flexible one says so by `cancel_at` alone.
pub fn end_with_period(world: &mut World, id: &str, ending: bool, by_date: bool) {
    let before = world.copy(id);
    let mut details = before["cancellation_details"].clone();
    details["reason"] = json!(ending.then_some("cancellation_requested"));
    let fields = json!({
        "cancel_at_period_end": ending && !by_date, "cancel_at": ending.then(|| ends(&before)),
        "canceled_at": ending.then(|| world.now()), "cancellation_details": details,
    });
    world.update(id, fields, "customer.subscription.updated");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_from_the_31st_ends_with_february_and_is_the_31st_again_in_march() {
        let price = json!({ "recurring": { "interval": "month", "interval_count": 1 } });
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
        let anchor = at("2026-01-31T10:00:00Z");
        assert_eq!(period_end(anchor, &price, anchor), at("2026-02-28T10:00:00Z"));
        assert_eq!(period_end(anchor, &price, at("2026-02-28T10:00:00Z")), at("2026-03-31T10:00:00Z"));
        assert_eq!(period_end(anchor, &price, at("2026-03-01T00:00:00Z")), at("2026-03-31T10:00:00Z"));
    }
}
