//! Every call of the API, on one screen.

use serde_json::{Value, json};

use super::form::Params;
use super::refusal::Refusal;
use super::world::{World, text};
use super::{catalog, checkout, customers, events, expand, invoices, list, portal, refunds, subscription_calls as subscriptions};

pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub form: &'a Params,
    /// Where this Stripe is: the pages of a buyer are under it.
    pub url: &'a str,
}

/// What Stripe answers, in the newest shape.
pub fn answer(world: &mut World, call: &Call<'_>) -> Result<Value, Refusal> {
    let mut value = dispatch(world, call)?;
    expand::all(world, call.form, &mut value)?;
    Ok(value)
}

fn dispatch(world: &mut World, call: &Call<'_>) -> Result<Value, Refusal> {
    let (form, url) = (call.form, call.url);
    let inner = call.path.strip_prefix("/v1/").unwrap_or_default().trim_end_matches('/');
    let parts: Vec<&str> = inner.split('/').collect();
    match (call.method, parts.as_slice()) {
        ("GET", ["account"]) => Ok(account(world)),
        ("POST", ["customers"]) => customers::create(world, form),
        ("POST", ["customers", id]) => customers::update(world, id, form),
        ("DELETE", ["customers", id]) => customers::delete(world, id),
        ("POST", ["products"]) => catalog::create_product(world, form),
        ("POST", ["prices"]) => catalog::create_price(world, form),
        ("POST", ["checkout", "sessions"]) => checkout::create(world, url, form),
        ("GET", ["checkout", "sessions", id, "line_items"]) => {
            world.get("checkout.session", id)?;
            Ok(checkout::items_of(world, id))
        }
        ("POST", ["checkout", "sessions", id, "expire"]) => checkout::expire(world, id),
        ("POST", ["billing_portal", "sessions"]) => portal::create(world, url, form),
        ("POST", ["subscriptions"]) => subscriptions::create(world, form),
        ("POST", ["subscriptions", id]) => subscriptions::update(world, id, form),
        ("DELETE", ["subscriptions", id]) => subscriptions::cancel(world, id, form),
        ("POST", ["subscriptions", id, "resume"]) => subscriptions::resume(world, id, form),
        ("POST", ["invoices", id, "pay"]) => invoices::pay(world, id, form),
        ("POST", ["invoices", id, action @ ("finalize" | "void" | "mark_uncollectible")]) => {
            invoices::act(world, id, action, form)
        }
        ("GET", ["invoices", id, "lines"]) => Ok(world.get("invoice", id)?["lines"].clone()),
        ("POST", ["refunds"]) => refunds::create(world, form),
        ("POST", ["refunds", id]) => refunds::update(world, id, form),
        ("POST", ["disputes", id, "close"]) => {
            form.only(&[])?;
            super::disputes::close(world, id, false)
        }
        ("GET", ["webhook_endpoints"]) => Ok(webhook_endpoints(world)),
        ("GET", ["events"]) => events::all(world, form),
        ("GET", ["subscriptions"]) => list_subscriptions(world, form),
        ("GET", ["invoice_payments"]) => list_invoice_payments(world, form),
        ("GET", [..]) => look(world, call, &parts),
        _ => Err(Refusal::no_such_call(call.method, call.path)),
    }
}

/// Path, kind of object, and the fields its list can be asked for.
const LOOKED_AT: &[(&str, &str, &[&str])] = &[
    ("customers", "customer", &["email"]),
    ("products", "product", &["active"]),
    ("prices", "price", &["active", "currency", "product", "type"]),
    ("coupons", "coupon", &[]),
    ("checkout/sessions", "checkout.session", &["customer", "payment_intent", "status", "subscription"]),
    ("subscriptions", "subscription", &[]),
    ("invoices", "invoice", &["customer", "status", "collection_method"]),
    ("invoice_payments", "invoice_payment", &[]),
    ("payment_intents", "payment_intent", &["customer"]),
    ("payment_methods", "payment_method", &["customer", "type"]),
    ("charges", "charge", &["customer", "payment_intent"]),
    ("refunds", "refund", &["charge", "payment_intent"]),
    ("disputes", "dispute", &["charge", "payment_intent"]),
    ("balance_transactions", "balance_transaction", &["currency", "source", "type"]),
    ("events", "event", &[]),
];

/// One object, or a list of its kind.
fn look(world: &World, call: &Call<'_>, parts: &[&str]) -> Result<Value, Refusal> {
    for (path, kind, plain) in LOOKED_AT {
        let names: Vec<&str> = path.split('/').collect();
        match parts.strip_prefix(names.as_slice()) {
            Some([]) => {
                let of = call.form.text("subscription").filter(|_| *kind == "invoice");
                let fits = |one: &Value| of.is_none_or(|id| invoices::subscription_of(one) == id);
                let other: &[&str] = match *kind {
                    "invoice" => &["subscription"],
                    "price" => &["lookup_keys[*]"],
                    _ => &[],
                };
                let keys: Vec<String> = call.form.under("lookup_keys").into_iter().map(|(_, key)| key).collect();
                let named = |one: &Value| keys.is_empty() || keys.iter().any(|key| text(one, "lookup_key") == key);
                return list::page(world, kind, &format!("/v1/{path}"), call.form, plain, other, |one| fits(one) && named(one));
            }
            Some([id]) if *kind != "event" || id.starts_with("evt_") => {
                call.form.only(&[])?;
                return world.get(kind, id).cloned();
            }
            _ => {}
        }
    }
    Err(Refusal::no_such_call(call.method, call.path))
}

/// Canceled ones are left out unless they are asked for.
fn list_subscriptions(world: &World, form: &Params) -> Result<Value, Refusal> {
    let (status, price) = (form.text("status"), form.text("price"));
    if let Some(customer) = form.text("customer").filter(|id| world.find(id).is_none()) {
        return Err(Refusal::names_nothing("customer", customer, "customer"));
    }
    let fits = |one: &Value| {
        let of_status = match status {
            None => !matches!(text(one, "status"), "canceled" | "incomplete_expired"),
            Some("all") => true,
            Some("ended") => matches!(text(one, "status"), "canceled" | "incomplete_expired"),
            Some(wanted) => text(one, "status") == wanted,
        };
        let has = |price: &str| {
            one["items"]["data"].as_array().is_some_and(|items| items.iter().any(|item| item["price"]["id"] == price))
        };
        of_status && price.is_none_or(has)
    };
    list::page(world, "subscription", "/v1/subscriptions", form, &["customer"], &["status", "price"], fits)
}

/// The way from a payment to its invoice.
fn list_invoice_payments(world: &World, form: &Params) -> Result<Value, Refusal> {
    let intent = form.text("payment[payment_intent]");
    if form.has("payment[payment_intent]") && form.text("payment[type]").is_none() {
        return Err(Refusal::required("payment[type]"));
    }
    let fits = |one: &Value| intent.is_none_or(|intent| text(&one["payment"], "payment_intent") == intent);
    let other = &["payment[type]", "payment[payment_intent]"];
    list::page(world, "invoice_payment", "/v1/invoice_payments", form, &["invoice", "status"], other, fits)
}

/// The one that it was started with, subscribed to everything.
fn webhook_endpoints(world: &World) -> Value {
    let one = |url: &String| {
        json!({
            "id": "we_1Local", "object": "webhook_endpoint", "api_version": world.switches.endpoint_version, "application": null,
            "created": world.now(), "description": null, "enabled_events": ["*"], "livemode": false, "metadata": {},
            "status": "enabled", "url": url,
        })
    };
    let data: Vec<Value> = world.mail.url.iter().map(one).collect();
    json!({ "object": "list", "url": "/v1/webhook_endpoints", "has_more": false, "data": data })
}

fn account(world: &World) -> Value {
    let currency = world.settlement.as_deref().unwrap_or("usd");
    json!({
        "id": "acct_1Local", "object": "account", "charges_enabled": true, "country": "US", "default_currency": currency,
        "details_submitted": true, "email": null, "payouts_enabled": true, "type": "standard",
    })
}
