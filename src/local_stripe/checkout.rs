//! Checkout sessions: made by a call, completed by a buyer on the page, by card at once or by bank debit days later.

use serde_json::{Value, json};

use super::catalog::{self, metadata};
use super::customers;
use super::form::Params;
use super::invoices;
use super::payments::{self, Intent, Outcome};
use super::refusal::Refusal;
use super::shapes::{self, Method, list_of};
use super::subscription_calls::trial_end;
use super::subscriptions::{self, Wanted};
use super::world::{World, fresh, int, text};

const KNOWN: &[&str] = &[
    "mode",
    "line_items[*][price]",
    "line_items[*][quantity]",
    "success_url",
    "cancel_url",
    "customer",
    "customer_email",
    "metadata[*]",
    "client_reference_id",
    "subscription_data[metadata][*]",
    "subscription_data[trial_period_days]",
    "subscription_data[trial_end]",
    "subscription_data[description]",
    "payment_intent_data[metadata][*]",
    "payment_intent_data[description]",
    "customer_creation",
    "subscription_data[trial_settings][end_behavior][missing_payment_method]",
    "discounts[*][coupon]",
    "allow_promotion_codes",
    "expires_at",
    "currency",
    "locale",
    "payment_method_types[*]",
    "ui_mode",
    "payment_method_collection",
];

/// How the buyer pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Card,
    Delayed,
    /// With a code that takes everything off.
    FreeCode,
}

pub fn create(world: &mut World, url: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(KNOWN)?;
    let mode = form.one_of("mode", &["payment", "subscription"])?.ok_or_else(|| Refusal::required("mode"))?.to_owned();
    form.required("success_url")?;
    if let Some(customer) = form.text("customer") {
        world.named("customer", customer, "customer")?;
        if form.text("customer_email").is_some() {
            let message = "You may only specify one of these parameters: customer, customer_email.";
            return Err(Refusal::param("customer_email", message));
        }
    }
    let wrong = if mode == "payment" { "subscription_data" } else { "payment_intent_data" };
    if form.has_under(wrong) {
        return Err(Refusal::param(wrong, format!("You can not pass `{wrong}` in `{mode}` mode.")));
    }
    let items = line_items(world, form, &mode)?;
    let currency = text(&items[0], "currency").to_owned();
    if items.iter().any(|item| text(item, "currency") != currency) {
        return Err(Refusal::param("line_items", "All line items must have the same currency."));
    }
    let coupon =
        form.text("discounts[0][coupon]").map(|id| world.named("coupon", id, "discounts[0][coupon]").cloned()).transpose()?;
    let subtotal: i64 = items.iter().map(|item| int(item, "amount_subtotal")).sum();
    let off = coupon.as_ref().map_or(0, |coupon| catalog::discount(coupon, subtotal));
    let expires_at = form.int("expires_at")?;
    let (now, hour) = (world.now(), 3600);
    if expires_at.is_some_and(|at| !(now + hour / 2..=now + 24 * hour).contains(&at)) {
        let message = "The `expires_at` timestamp must be between 30 minutes and 24 hours from Checkout Session creation.";
        return Err(Refusal::param("expires_at", message));
    }
    let trial = trial_end(world, form, "subscription_data[trial_end]", "subscription_data[trial_period_days]")?;

    let mut session = shapes::checkout_session(world, url, form);
    let due_now = if trial.is_some() { 0 } else { subtotal - off };
    session["currency"] = json!(currency);
    session["amount_subtotal"] = json!(if trial.is_some() { 0 } else { subtotal });
    session["amount_total"] = json!(due_now);
    session["metadata"] = metadata(form, "metadata");
    session["allow_promotion_codes"] = json!(form.flag("allow_promotion_codes")?);
    session["total_details"]["amount_discount"] = json!(off);
    if let Some(coupon) = &coupon {
        session["discounts"] = json!([{ "coupon": coupon["id"], "promotion_code": null }]);
    }
    if let Some(at) = expires_at {
        session["expires_at"] = json!(at);
    }
    let id = world.add(session);
    let cart = json!({
        "items": items, "coupon": coupon, "trial_end": trial,
        "subscription_metadata": metadata(form, "subscription_data[metadata]"),
        "payment_metadata": metadata(form, "payment_intent_data[metadata]"),
        "missing_method": form.text("subscription_data[trial_settings][end_behavior][missing_payment_method]"),
    });
    world.carts.insert(id.clone(), cart);
    Ok(world.copy(&id))
}

fn line_items(world: &World, form: &Params, mode: &str) -> Result<Vec<Value>, Refusal> {
    let mut items = Vec::new();
    for n in 0..form.count("line_items") {
        let param = format!("line_items[{n}][price]");
        let price = world.named("price", form.required(&param)?, &param)?;
        let currency = form.text("currency").unwrap_or_else(|| text(price, "currency")).to_lowercase();
        let price = catalog::in_currency(world, price, &currency, "currency")?;
        if mode == "payment" && text(&price, "type") == "recurring" {
            let message = "You specified `payment` mode but passed a recurring price. Either switch to `subscription` mode or use only one-time prices.";
            return Err(Refusal::param("mode", message));
        }
        let quantity = form
            .int(&format!("line_items[{n}][quantity]"))?
            .ok_or_else(|| Refusal::required(&format!("line_items[{n}][quantity]")))?;
        let amount = int(&price, "unit_amount") * quantity;
        let product = world.copy(text(&price, "product"));
        items.push(json!({
            "id": fresh("li_1", 23), "object": "item", "adjustable_quantity": null, "amount_discount": 0, "amount_subtotal": amount,
            "amount_tax": 0, "amount_total": amount, "currency": currency, "description": product["name"], "metadata": {},
            "price": price, "quantity": quantity,
        }));
    }
    let recurring = items.iter().any(|item| text(&item["price"], "type") == "recurring");
    match (items.is_empty(), mode) {
        (true, _) => Err(Refusal::required("line_items")),
        (_, "subscription") if !recurring => {
            Err(Refusal::param("mode", "You must provide at least one recurring price in `subscription` mode when using prices."))
        }
        _ => Ok(items),
    }
}

/// What a session sells, as a list of its own.
pub fn items_of(world: &World, id: &str) -> Value {
    let items = world.carts.get(id).and_then(|cart| cart["items"].as_array()).cloned().unwrap_or_default();
    list_of(items, &format!("/v1/checkout/sessions/{id}/line_items"))
}

/// The buyer has pressed the button.
pub fn complete(world: &mut World, id: &str, way: Way) -> Result<Value, Refusal> {
    let session = world.get("checkout.session", id)?.clone();
    if text(&session, "status") != "open" {
        return Err(Refusal::invalid(format!("This Checkout Session is {}.", text(&session, "status"))));
    }
    let mut cart = world.carts.get(id).cloned().unwrap_or_default();
    if way == Way::FreeCode {
        cart["coupon"] = world.copy(catalog::COUPON_FREE);
        let subtotal = int(&session, "amount_subtotal");
        let totals = json!({ "amount_discount": subtotal, "amount_shipping": 0, "amount_tax": 0 });
        world.set(id, json!({ "amount_total": 0, "total_details": totals, "discounts": [{ "coupon": catalog::COUPON_FREE, "promotion_code": null }] }));
    }
    let session = world.copy(id);
    let customer = buyer(world, &session);
    let method = if way == Way::Delayed { Method::SepaDebit } else { Method::Card };
    let fields = if text(&session, "mode") == "payment" {
        pay_once(world, &session, &cart, customer.as_deref(), method)?
    } else {
        subscribe(world, &session, &cart, &customer.unwrap_or_default(), method)?
    };
    world.set(id, fields);
    let email = session["customer_email"].as_str().map(str::to_owned);
    let email = email.or_else(|| world.copy(text(&world.copy(id), "customer"))["email"].as_str().map(str::to_owned));
    let details = json!({
        "address": null, "business_name": null, "email": email.as_deref().unwrap_or("buyer@example.com"), "individual_name": null,
        "name": "A. Buyer", "phone": null, "tax_exempt": "none", "tax_ids": [],
    });
    world.set(id, json!({ "status": "complete", "url": null, "customer_details": details }));
    world.tell("checkout.session.completed", id);
    Ok(world.copy(id))
}

/// The customer it is for. A payment makes none unless it was told to: it is a guest's.
fn buyer(world: &mut World, session: &Value) -> Option<String> {
    if let Some(customer) = session["customer"].as_str() {
        return Some(customer.to_owned());
    }
    if text(session, "mode") == "payment" && text(session, "customer_creation") != "always" {
        return None;
    }
    let email = session["customer_email"].as_str().unwrap_or("buyer@example.com");
    let made = shapes::customer(world, Some(email), Some("A. Buyer"));
    let id = world.add(made);
    world.tell("customer.created", &id);
    world.set(text(session, "id"), json!({ "customer": id }));
    Some(id)
}

fn pay_once(world: &mut World, session: &Value, cart: &Value, customer: Option<&str>, method: Method) -> Result<Value, Refusal> {
    let amount = int(session, "amount_total");
    if amount == 0 {
        return Ok(json!({ "customer": customer, "payment_status": "no_payment_required" }));
    }
    let made = shapes::payment_method(world, method, None);
    let payment_method = world.add(made);
    // A refused card leaves the intent to the next try.
    let intent = match session["payment_intent"].as_str() {
        Some(intent) => intent.to_owned(),
        None => {
            let metadata = cart["payment_metadata"].clone();
            let currency = text(session, "currency");
            payments::intend(world, Intent { amount, currency, customer, description: "Checkout", metadata })
        }
    };
    world.set(text(session, "id"), json!({ "payment_intent": intent }));
    match payments::pay(world, &intent, &payment_method) {
        Outcome::Declined => Err(Refusal::declined()),
        Outcome::Paid => Ok(json!({ "customer": customer, "payment_status": "paid" })),
        Outcome::Processing => Ok(json!({ "customer": customer, "payment_status": "unpaid" })),
    }
}

fn subscribe(world: &mut World, session: &Value, cart: &Value, customer: &str, method: Method) -> Result<Value, Refusal> {
    // The page tries a card before there is a subscription, so a refused one leaves none behind.
    let refused =
        [customer, "*"].into_iter().find(|whose| world.declines.get(*whose).is_some_and(|left| *left > 0)).map(str::to_owned);
    if let Some(left) = refused.and_then(|whose| world.declines.get_mut(&whose)) {
        *left -= 1;
        return Err(Refusal::declined());
    }
    let made = shapes::payment_method(world, method, Some(customer));
    let payment_method = world.add(made);
    world.tell("payment_method.attached", &payment_method);
    let items = cart["items"].as_array().cloned().unwrap_or_default();
    let recurring = items.iter().filter(|item| text(&item["price"], "type") == "recurring");
    let wanted = Wanted {
        customer,
        items: recurring.map(|item| (item["price"].clone(), int(item, "quantity"))).collect(),
        currency: text(session, "currency"),
        metadata: cart["subscription_metadata"].clone(),
        trial_end: cart["trial_end"].as_i64(),
        method: Some(&payment_method),
        coupon: Some(cart["coupon"].clone()).filter(|coupon| !coupon.is_null()),
        flexible: true,
    };
    let subscription = subscriptions::begin(world, wanted);
    if let Some(behaviour) = cart["missing_method"].as_str() {
        world.set(&subscription, json!({ "trial_settings": { "end_behavior": { "billing_cycle_anchor": null, "missing_payment_method": behaviour } } }));
    }
    customers::set_default_method(world, customer, &payment_method);
    let invoice = text(&world.copy(&subscription), "latest_invoice").to_owned();
    let due = int(&world.copy(&invoice), "amount_due") > 0;
    let outcome = if due { invoices::attempt(world, &invoice, Some(&payment_method)) } else { Outcome::Paid };
    if outcome == Outcome::Processing {
        // Stripe documents that a debit under way already makes the subscription active.
        subscriptions::turn(world, &subscription, "active");
    }
    let status = match (due, outcome) {
        (false, _) => "no_payment_required",
        (true, Outcome::Paid) => "paid",
        (true, _) => "unpaid",
    };
    Ok(json!({ "customer": customer, "subscription": subscription, "invoice": invoice, "payment_status": status }))
}

/// A bank debit was settled: the session that waited for it says so, and only now is it paid.
pub fn payment_settled(world: &mut World, intent: &str, paid: bool) {
    let invoice = invoices::of_intent(world, intent);
    let waits = |one: &Value| {
        let its =
            text(one, "payment_intent") == intent || invoice.as_deref().is_some_and(|invoice| text(one, "invoice") == invoice);
        its && text(one, "status") == "complete" && text(one, "payment_status") == "unpaid"
    };
    for id in world.ids_where("checkout.session", waits) {
        if paid {
            world.set(&id, json!({ "payment_status": "paid" }));
            world.tell("checkout.session.async_payment_succeeded", &id);
        } else {
            world.tell("checkout.session.async_payment_failed", &id);
        }
    }
}

pub fn expire(world: &mut World, id: &str) -> Result<Value, Refusal> {
    let status = text(world.get("checkout.session", id)?, "status").to_owned();
    if status != "open" {
        let message = format!(
            "Only Checkout Sessions with a status in [\"open\"] can be expired. This Checkout Session has a status of \"{status}\"."
        );
        return Err(Refusal::invalid(message));
    }
    world.set(id, json!({ "status": "expired", "url": null }));
    world.tell("checkout.session.expired", id);
    Ok(world.copy(id))
}
