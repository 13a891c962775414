//! Lines of an invoice, and the sums they make.

use serde_json::{Value, json};

use super::catalog;
use super::money;
use super::shapes::list_of;
use super::world::{World, fresh, int, text};

/// One period of one item.
pub fn of_item(item: &Value, amount: i64, period: (i64, i64), proration: bool, about: &str) -> Value {
    let price = &item["price"];
    let unit = text(price, "unit_amount_decimal");
    json!({
        "id": fresh("il_1", 23), "object": "line_item", "amount": amount, "currency": price["currency"],
        "description": about, "discount_amounts": [], "discountable": !proration, "discounts": [], "invoice": null,
        "livemode": false, "metadata": {},
        "parent": {
            "invoice_item_details": null,
            "subscription_item_details": {
                "invoice_item": null, "proration": proration, "proration_details": { "credited_items": null },
                "subscription": item["subscription"], "subscription_item": item["id"],
            },
            "type": "subscription_item_details",
        },
        "period": { "end": period.1, "start": period.0 }, "pretax_credit_amounts": [],
        "pricing": {
            "price_details": { "price": price["id"], "product": price["product"] }, "type": "price_details",
            "unit_amount_decimal": unit,
        },
        "quantity": item["quantity"], "quantity_decimal": int(item, "quantity").to_string(), "subscription": item["subscription"],
        "subtotal": amount, "taxes": [],
    })
}

/// The items of a subscription for the period they are in. In a trial they cost nothing.
pub fn of_period(world: &World, subscription: &Value, trial: bool) -> Vec<Value> {
    let items = subscription["items"]["data"].as_array().cloned().unwrap_or_default();
    let line = |item: &Value| {
        let product = world.copy(text(&item["price"], "product"));
        let (name, unit, quantity) = (text(&product, "name"), int(&item["price"], "unit_amount"), int(item, "quantity"));
        let period = (int(item, "current_period_start"), int(item, "current_period_end"));
        let price = money::in_words(unit, text(&item["price"], "currency"));
        let about = if trial { format!("Trial period for {name}") } else { format!("{quantity} × {name} (at {price})") };
        of_item(item, if trial { 0 } else { unit * quantity }, period, false, &about)
    };
    items.iter().map(line).collect()
}

/// Puts lines into a draft and adds them up. A customer's credit is used first; a total below nothing becomes credit.
pub fn put(world: &mut World, invoice: &str, mut lines: Vec<Value>, coupon: Option<&Value>) {
    for line in &mut lines {
        line["invoice"] = json!(invoice);
        let off = coupon.map_or(0, |coupon| catalog::discount(coupon, int(line, "amount")));
        if off > 0 {
            line["discount_amounts"] = json!([{ "amount": off, "discount": coupon.map(|one| one["id"].clone()) }]);
        }
    }
    let subtotal: i64 = lines.iter().map(|line| int(line, "amount")).sum();
    let off: i64 = lines.iter().map(|line| int(&line["discount_amounts"][0], "amount")).sum();
    let total = subtotal - off;
    let credit = int(&world.copy(text(&world.copy(invoice), "customer")), "balance");
    let due = (total + credit).max(0);
    world.set(
        invoice,
        json!({
            "lines": list_of(lines, &format!("/v1/invoices/{invoice}/lines")), "subtotal": subtotal, "subtotal_excluding_tax": subtotal,
            "total": total, "total_excluding_tax": total, "starting_balance": credit, "amount_due": due, "amount_remaining": due,
            "total_discount_amounts": coupon.map_or(json!([]), |one| json!([{ "amount": off, "discount": one["id"] }])),
        }),
    );
}
