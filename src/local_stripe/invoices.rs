//! Invoices of subscriptions: drafted, finalised, tried, paid. The payment hangs on an invoice payment, as since basil.

use serde_json::{Value, json};

use super::customers;
use super::dunning;
use super::form::Params;
use super::lines;
use super::payments::{self, Intent, Outcome};
use super::refusal::Refusal;
use super::shapes;
use super::subscriptions;
use super::world::{World, int, text};

/// A draft with these lines and those that waited for it; the subscription names it as its latest.
pub fn draft(world: &mut World, subscription: &str, reason: &str, own: Vec<Value>, coupon: Option<&Value>) -> String {
    let mut invoice = shapes::invoice(world, &world.copy(subscription), reason);
    if reason == "subscription_cycle" {
        // The period an invoice names is the one that has passed; the one that is paid for stands on its lines.
        let before = world.find(text(&world.copy(subscription), "latest_invoice")).map(|last| int(last, "period_end"));
        invoice["period_start"] = json!(before.unwrap_or_else(|| world.now()));
    }
    let id = world.add(invoice);
    let lines = world.waiting_lines.remove(subscription).into_iter().flatten().chain(own).collect();
    lines::put(world, &id, lines, coupon);
    world.set(subscription, json!({ "latest_invoice": id }));
    world.tell("invoice.created", &id);
    id
}

/// Gives it its number and what it is to be paid with. One with nothing to pay is paid.
pub fn finalize(world: &mut World, id: &str) {
    let draft = world.copy(id);
    let (now, due, total) = (world.now(), int(&draft, "amount_due"), int(&draft, "total"));
    let customer_id = text(&draft, "customer").to_owned();
    let customer = world.copy(&customer_id);
    let sequence = int(&customer, "next_invoice_sequence").max(1);
    let number = format!("{}-{sequence:04}", customer["invoice_prefix"].as_str().unwrap_or("LOCAL"));
    let credit_left = (int(&draft, "starting_balance") + total).min(0);
    if customer["deleted"] != true {
        world.set(&customer_id, json!({ "next_invoice_sequence": sequence + 1 }));
        world.update(&customer_id, json!({ "balance": credit_left }), "customer.updated");
    }
    let mut moments = draft["status_transitions"].clone();
    moments["finalized_at"] = json!(now);
    world.set(
        id,
        json!({
            "status": "open", "number": number, "effective_at": now, "status_transitions": moments,
            "automatically_finalizes_at": null, "ending_balance": credit_left,
            "hosted_invoice_url": format!("https://invoice.stripe.com/i/acct_local/test_{id}"),
            "invoice_pdf": format!("https://pay.stripe.com/invoice/acct_local/test_{id}/pdf"),
        }),
    );
    world.tell("invoice.finalized", id);
    if due == 0 {
        mark_paid(world, id);
        return;
    }
    let wanted = Intent {
        amount: due,
        currency: text(&draft, "currency"),
        customer: Some(&customer_id),
        description: "Subscription",
        metadata: json!({}),
    };
    let intent = payments::intend(world, wanted);
    world.add(shapes::invoice_payment(world, &world.copy(id), &intent));
}

/// Tries to have it paid: with this method, or the one that is on file.
pub fn attempt(world: &mut World, id: &str, method: Option<&str>) -> Outcome {
    let invoice = world.copy(id);
    let subscription = world.copy(subscription_of(&invoice));
    let on_file = subscription["default_payment_method"].as_str().map(str::to_owned);
    let on_file = on_file.or_else(|| customers::default_method(world, text(&invoice, "customer")));
    let method = method.map(str::to_owned).or(on_file);
    world.set(id, json!({ "attempted": true, "attempt_count": int(&invoice, "attempt_count") + 1 }));
    let outcome = match (method, intent_of(world, id)) {
        (Some(method), Some(intent)) => payments::pay(world, &intent, &method),
        _ => Outcome::Declined,
    };
    match outcome {
        Outcome::Paid => mark_paid(world, id),
        Outcome::Processing => world.update(id, json!({ "next_payment_attempt": null }), "invoice.updated"),
        Outcome::Declined => dunning::failed(world, id),
    }
    outcome
}

pub fn mark_paid(world: &mut World, id: &str) {
    let invoice = world.copy(id);
    let (now, due) = (world.now(), int(&invoice, "amount_due"));
    let mut moments = invoice["status_transitions"].clone();
    moments["paid_at"] = json!(now);
    let fields = json!({
        "status": "paid", "amount_paid": due, "amount_remaining": 0, "attempted": true, "auto_advance": false,
        "next_payment_attempt": null, "status_transitions": moments,
    });
    let previous = world.set(id, fields);
    for payment in world.ids_where("invoice_payment", |one| text(one, "invoice") == id) {
        let moments = json!({ "canceled_at": null, "paid_at": now });
        world.set(&payment, json!({ "status": "paid", "amount_paid": due, "status_transitions": moments }));
        world.tell("invoice_payment.paid", &payment);
    }
    world.tell_change("invoice.updated", id, previous);
    world.tell("invoice.paid", id);
    world.tell("invoice.payment_succeeded", id);
    subscriptions::invoice_settled(world, subscription_of(&invoice), id);
}

pub fn void(world: &mut World, id: &str, status: &str) {
    let mut moments = world.copy(id)["status_transitions"].clone();
    let (moment, event) = if status == "void" {
        ("voided_at", "invoice.voided")
    } else {
        ("marked_uncollectible_at", "invoice.marked_uncollectible")
    };
    moments[moment] = json!(world.now());
    let fields = json!({ "status": status, "auto_advance": false, "next_payment_attempt": null, "status_transitions": moments });
    let previous = world.set(id, fields);
    world.tell_change(event, id, previous);
}

/// A bank debit for an invoice was settled. Where the first one comes back, the invoice is void and the subscription stays as it
/// is: Stripe documents that it remains active.
pub fn payment_settled(world: &mut World, intent: &str, paid: bool) {
    let Some(id) = of_intent(world, intent) else { return };
    let invoice = world.copy(&id);
    match (paid, text(&invoice, "billing_reason")) {
        (true, _) => mark_paid(world, &id),
        (false, "subscription_create") => {
            world.tell("invoice.payment_failed", &id);
            void(world, &id, "void");
        }
        (false, _) => dunning::failed(world, &id),
    }
}

pub fn of_intent(world: &World, intent: &str) -> Option<String> {
    let payments = world.all("invoice_payment");
    let payment = payments.into_iter().find(|one| text(&one["payment"], "payment_intent") == intent)?;
    Some(text(payment, "invoice").to_owned())
}

pub fn intent_of(world: &World, invoice: &str) -> Option<String> {
    let payments = world.all("invoice_payment");
    let payment = payments.into_iter().find(|one| text(one, "invoice") == invoice)?;
    Some(text(&payment["payment"], "payment_intent").to_owned())
}

pub fn subscription_of(invoice: &Value) -> &str {
    text(&invoice["parent"]["subscription_details"], "subscription")
}

pub fn pay(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["payment_method", "paid_out_of_band"])?;
    let status = text(world.get("invoice", id)?, "status").to_owned();
    match status.as_str() {
        "draft" => finalize(world, id),
        "open" | "uncollectible" => {}
        "paid" => return Err(Refusal::invalid("Invoice is already paid").coded("invoice_already_paid")),
        other => return Err(Refusal::invalid(format!("This invoice is {other} and cannot be paid."))),
    }
    if form.flag("paid_out_of_band")? == Some(true) {
        mark_paid(world, id);
    } else if text(&world.copy(id), "status") != "paid" {
        if let Some(method) = form.text("payment_method") {
            world.named("payment_method", method, "payment_method")?;
        }
        if attempt(world, id, form.text("payment_method")) == Outcome::Declined {
            return Err(Refusal::declined());
        }
    }
    Ok(world.copy(id))
}

/// `finalize`, `void` and `mark_uncollectible`.
pub fn act(world: &mut World, id: &str, action: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["auto_advance"])?;
    let status = text(world.get("invoice", id)?, "status").to_owned();
    match (action, status.as_str()) {
        ("finalize", "draft") => finalize(world, id),
        ("void", "open" | "uncollectible") => void(world, id, "void"),
        ("mark_uncollectible", "open") => {
            void(world, id, "uncollectible");
            let subscription = subscription_of(&world.copy(id)).to_owned();
            subscriptions::invoice_settled(world, &subscription, id);
        }
        _ => return Err(Refusal::invalid(format!("You can't {action} an invoice that is {status}."))),
    }
    Ok(world.copy(id))
}
