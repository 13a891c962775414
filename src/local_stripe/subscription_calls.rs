//! The API's calls about subscriptions.

use serde_json::{Value, json};

use super::catalog::{self, metadata, metadata_updated};
use super::form::Params;
use super::invoices;
use super::refusal::Refusal;
use super::subscriptions::{self, Prorate, Wanted, Why};
use super::world::{World, text};

pub fn create(world: &mut World, form: &Params) -> Result<Value, Refusal> {
    form.only(&[
        "customer",
        "items[*][price]",
        "items[*][quantity]",
        "metadata[*]",
        "default_payment_method",
        "trial_end",
        "payment_behavior",
        "trial_period_days",
        "cancel_at_period_end",
        "discounts[*][coupon]",
        "trial_settings[end_behavior][missing_payment_method]",
        "currency",
    ])?;
    let customer = form.required("customer")?;
    world.named("customer", customer, "customer")?;
    let behaviours = ["allow_incomplete", "default_incomplete", "error_if_incomplete", "pending_if_incomplete"];
    let behaviour = form.one_of("payment_behavior", &behaviours)?.unwrap_or("allow_incomplete");
    let items = items(world, form)?;
    let currency = text(&items[0].0, "currency").to_owned();
    let method = form.text("default_payment_method");
    if let Some(method) = method {
        world.named("payment_method", method, "default_payment_method")?;
    }
    if behaviour == "error_if_incomplete" && world.declines.values().any(|left| *left > 0) {
        return Err(Refusal::declined());
    }
    let trial_end = trial_end(world, form, "trial_end", "trial_period_days")?;
    let coupon =
        form.text("discounts[0][coupon]").map(|id| world.named("coupon", id, "discounts[0][coupon]").cloned()).transpose()?;
    let metadata = metadata(form, "metadata");
    let wanted = Wanted { customer, items, currency: &currency, metadata, trial_end, method, coupon, flexible: false };
    let id = subscriptions::begin(world, wanted);
    if let Some(behaviour) = form.text("trial_settings[end_behavior][missing_payment_method]") {
        world.set(&id, json!({ "trial_settings": { "end_behavior": { "billing_cycle_anchor": null, "missing_payment_method": behaviour } } }));
    }
    if form.flag("cancel_at_period_end")? == Some(true) {
        subscriptions::end_with_period(world, &id, true, false);
    }
    let invoice = text(&world.copy(&id), "latest_invoice").to_owned();
    if text(&world.copy(&invoice), "status") == "open" && behaviour != "default_incomplete" {
        invoices::attempt(world, &invoice, None);
    }
    Ok(world.copy(&id))
}

fn items(world: &World, form: &Params) -> Result<Vec<(Value, i64)>, Refusal> {
    let item = |n: usize| {
        let param = format!("items[{n}][price]");
        let price = world.named("price", form.required(&param)?, &param)?;
        if price["recurring"].is_null() {
            let message = format!(
                "The price specified is set to `type=one_time` but this field only accepts prices with `type=recurring`: {}",
                text(price, "id")
            );
            return Err(Refusal::param(&param, message));
        }
        let currency = form.text("currency").unwrap_or_else(|| text(price, "currency"));
        Ok((catalog::in_currency(world, price, currency, "currency")?, form.int(&format!("items[{n}][quantity]"))?.unwrap_or(1)))
    };
    let items: Vec<_> = (0..form.count("items")).map(item).collect::<Result<_, _>>()?;
    if items.is_empty() { Err(Refusal::required("items")) } else { Ok(items) }
}

/// When a trial ends, as a moment or as days from now.
pub fn trial_end(world: &World, form: &Params, moment: &str, days: &str) -> Result<Option<i64>, Refusal> {
    if let Some(days) = form.int(days)?.filter(|days| *days > 0) {
        return Ok(Some(world.now() + days.min(730) * 24 * 3600));
    }
    match form.int(moment)? {
        Some(at) if at <= world.now() => Err(Refusal::param(moment, "Trial end must be in the future")),
        found => Ok(found),
    }
}

pub fn update(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&[
        "items[*][id]",
        "items[*][price]",
        "items[*][quantity]",
        "metadata[*]",
        "cancel_at_period_end",
        "cancel_at",
        "trial_end",
        "proration_behavior",
        "payment_behavior",
        "default_payment_method",
        "cancellation_details[*]",
    ])?;
    let before = world.get("subscription", id)?.clone();
    if subscriptions::is_over(&before) {
        return Err(Refusal::invalid("A canceled subscription can only update its cancellation_details and metadata."));
    }
    let prorate = match form.one_of("proration_behavior", &["create_prorations", "always_invoice", "none"])? {
        Some("none") => Prorate::Not,
        Some("always_invoice") => Prorate::Now,
        _ => Prorate::Later,
    };
    let changes = (0..form.count("items")).map(|n| item_change(world, &before, form, n)).collect::<Result<Vec<_>, _>>()?;
    let (ending, ends_at) = (form.flag("cancel_at_period_end")?, form.int("cancel_at")?);
    let trial_now = form.text("trial_end") == Some("now");
    let trial_end = if trial_now { None } else { trial_end(world, form, "trial_end", "")? };

    let mut fields = json!({ "metadata": metadata_updated(&before["metadata"], form) });
    if let Some(method) = form.text("default_payment_method") {
        world.named("payment_method", method, "default_payment_method")?;
        fields["default_payment_method"] = json!(method);
    }
    if form.has("cancel_at") {
        fields["cancel_at"] = json!(ends_at);
        fields["canceled_at"] = json!(ends_at.map(|_| world.now()));
    }
    if trial_now || trial_end.is_some() {
        let end = trial_end.unwrap_or_else(|| world.now());
        let mut list = before["items"].clone();
        for item in list["data"].as_array_mut().into_iter().flatten() {
            item["current_period_end"] = json!(end);
        }
        fields["items"] = list;
        fields["trial_end"] = json!(end);
        fields["billing_cycle_anchor"] = json!(end);
    }
    world.update(id, fields, "customer.subscription.updated");
    for (item, price, quantity) in changes {
        subscriptions::change_item(world, id, &item, &price, quantity, prorate);
    }
    if let Some(ending) = ending {
        subscriptions::end_with_period(world, id, ending, false);
    }
    Ok(world.copy(id))
}

fn item_change(world: &World, before: &Value, form: &Params, n: usize) -> Result<(String, Value, i64), Refusal> {
    let param = format!("items[{n}][id]");
    let id = form.required(&param)?;
    let item = subscriptions::items(before).into_iter().find(|item| text(item, "id") == id);
    let item = item.ok_or_else(|| Refusal::names_nothing("subscription_item", id, &param))?;
    let param = format!("items[{n}][price]");
    let price = match form.text(&param) {
        Some(price) => catalog::in_currency(world, world.named("price", price, &param)?, text(before, "currency"), &param)?,
        None => item["price"].clone(),
    };
    let quantity = form.int(&format!("items[{n}][quantity]"))?.or(item["quantity"].as_i64()).unwrap_or(1);
    Ok((id.to_owned(), price, quantity))
}

/// At once. A second time there is nothing left to cancel.
pub fn cancel(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["invoice_now", "prorate", "cancellation_details[*]"])?;
    if subscriptions::is_over(world.get("subscription", id)?) {
        return Err(Refusal::missing("subscription", id));
    }
    subscriptions::end(world, id, Why::Requested);
    Ok(world.copy(id))
}

/// Out of `paused`, where a trial ended without a way to pay.
pub fn resume(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["billing_cycle_anchor", "proration_behavior"])?;
    let status = text(world.get("subscription", id)?, "status").to_owned();
    if status != "paused" {
        return Err(Refusal::invalid(format!("You can only resume a subscription that is paused; this one is {status}.")));
    }
    subscriptions::turn(world, id, "active");
    world.tell("customer.subscription.resumed", id);
    subscriptions::come_round(world, id);
    Ok(world.copy(id))
}
