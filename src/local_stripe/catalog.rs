//! Products and prices: a Pro plan by the month and by the year, a larger one to change to, packs of bottles, and a coupon that
//! takes everything off. Each price exists in several currencies, as one with options and as one of its own.

use serde_json::{Value, json};

use super::form::Params;
use super::money;
use super::refusal::Refusal;
use super::world::{World, fresh, int, text};

/// What the seeded catalogue calls its prices: what to put into a configuration.
pub const PRICE_PRO: &str = "price_1LocalProMonthUsd";
pub const PRICE_PACK: &str = "price_1LocalPackUsd";
/// A coupon of 100 %.
pub const COUPON_FREE: &str = "LOCALFREE";

/// Currency, and how many of its minor units a US dollar is here.
const CURRENCIES: &[(&str, i64)] = &[("usd", 100), ("eur", 90), ("jpy", 150), ("kwd", 310)];

pub fn stock(world: &mut World) {
    let catalogue = [
        ("prod_LocalPro", "Pro", vec![("ProMonth", 12, Some("month")), ("ProYear", 120, Some("year"))]),
        ("prod_LocalMax", "Max", vec![("MaxMonth", 30, Some("month"))]),
        ("prod_LocalPack", "A pack of bottles", vec![("Pack", 5, None)]),
    ];
    for (product, name, prices) in catalogue {
        let made = product_of(world, product, name);
        world.add(made);
        for (key, dollars, interval) in prices {
            for (currency, per_dollar) in CURRENCIES {
                let id = format!("price_1Local{key}{}", capitalised(currency));
                let mut price = price_of(world, &id, product, currency, dollars * per_dollar);
                price["lookup_key"] = json!(format!("{}_{currency}", key.to_lowercase()));
                if let Some(interval) = interval {
                    recur(&mut price, interval, 1);
                }
                if *currency == "usd" {
                    let others = CURRENCIES.iter().map(|(other, per)| ((*other).to_owned(), option_of(dollars * per)));
                    world.currency_options.insert(id, Value::Object(others.collect()));
                }
                world.add(price);
            }
        }
    }
    world.add(json!({
        "id": COUPON_FREE, "object": "coupon", "amount_off": null, "created": world.now(), "currency": null, "duration": "once",
        "duration_in_months": null, "livemode": false, "max_redemptions": null, "metadata": {}, "name": "Everything off",
        "percent_off": 100, "redeem_by": null, "times_redeemed": 0, "valid": true,
    }));
}

fn capitalised(currency: &str) -> String {
    let (first, rest) = currency.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

fn product_of(world: &World, id: &str, name: &str) -> Value {
    json!({
        "id": id, "object": "product", "active": true, "created": world.now(), "default_price": null, "description": null,
        "images": [], "livemode": false, "marketing_features": [], "metadata": {}, "name": name, "package_dimensions": null,
        "shippable": null, "statement_descriptor": null, "tax_code": null, "tax_details": null, "type": "service", "unit_label": null,
        "updated": world.now(), "url": null,
    })
}

fn price_of(world: &World, id: &str, product: &str, currency: &str, amount: i64) -> Value {
    json!({
        "id": id, "object": "price", "active": true, "billing_scheme": "per_unit", "created": world.now(), "currency": currency,
        "custom_unit_amount": null, "livemode": false, "lookup_key": null, "metadata": {}, "nickname": null, "product": product,
        "recurring": null, "tax_behavior": "unspecified", "tiers_mode": null, "transform_quantity": null, "type": "one_time",
        "unit_amount": amount, "unit_amount_decimal": amount.to_string(),
    })
}

fn option_of(amount: i64) -> Value {
    json!({ "custom_unit_amount": null, "tax_behavior": "unspecified", "unit_amount": amount, "unit_amount_decimal": amount.to_string() })
}

fn recur(price: &mut Value, interval: &str, count: i64) {
    price["type"] = json!("recurring");
    price["recurring"] = json!({
        "interval": interval, "interval_count": count, "meter": null, "trial_period_days": null, "usage_type": "licensed",
    });
}

/// A price as it is in one of its currencies.
pub fn in_currency(world: &World, price: &Value, currency: &str, param: &str) -> Result<Value, Refusal> {
    let mut price = price.clone();
    if text(&price, "currency") != currency {
        let option = world.currency_options.get(text(&price, "id")).and_then(|options| options.get(currency));
        let Some(option) = option else {
            let message = format!("The price `{}` does not support the currency `{currency}`.", text(&price, "id"));
            return Err(Refusal::param(param, message));
        };
        price["currency"] = json!(currency);
        price["unit_amount"] = option["unit_amount"].clone();
        price["unit_amount_decimal"] = option["unit_amount_decimal"].clone();
    }
    Ok(price)
}

pub fn create_product(world: &mut World, form: &Params) -> Result<Value, Refusal> {
    form.only(&["name", "id", "active", "description", "metadata[*]"])?;
    let id = form.text("id").map_or_else(|| fresh("prod", 14), str::to_owned);
    if world.find(&id).is_some() {
        return Err(Refusal::param("id", "Product already exists.").coded("resource_already_exists"));
    }
    let mut product = product_of(world, &id, form.required("name")?);
    product["active"] = json!(form.flag("active")?.unwrap_or(true));
    product["description"] = json!(form.text("description"));
    product["metadata"] = metadata(form, "metadata");
    world.add(product);
    world.tell("product.created", &id);
    Ok(world.copy(&id))
}

pub fn create_price(world: &mut World, form: &Params) -> Result<Value, Refusal> {
    form.only(&[
        "currency",
        "product",
        "unit_amount",
        "recurring[interval]",
        "recurring[interval_count]",
        "lookup_key",
        "nickname",
        "active",
        "metadata[*]",
    ])?;
    let (currency, product) = (form.required("currency")?.to_lowercase(), form.required("product")?);
    money::check_currency(&currency, "currency")?;
    world.named("product", product, "product")?;
    let amount = form.int("unit_amount")?.ok_or_else(|| Refusal::required("unit_amount"))?;
    money::check(amount, &currency, "unit_amount")?;
    let mut price = price_of(world, &fresh("price_1", 23), product, &currency, amount);
    if let Some(interval) = form.one_of("recurring[interval]", &["day", "week", "month", "year"])? {
        recur(&mut price, interval, form.int("recurring[interval_count]")?.unwrap_or(1).clamp(1, 36));
    }
    price["active"] = json!(form.flag("active")?.unwrap_or(true));
    price["lookup_key"] = json!(form.text("lookup_key"));
    price["nickname"] = json!(form.text("nickname"));
    price["metadata"] = metadata(form, "metadata");
    let id = world.add(price);
    world.tell("price.created", &id);
    Ok(world.copy(&id))
}

/// Keys with values; an empty value takes a key away.
pub fn metadata(form: &Params, name: &str) -> Value {
    let given = form.under(name).into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(given.map(|(key, value)| (key, json!(value))).collect())
}

/// What is kept after an update: keys stay unless they are named.
pub fn metadata_updated(before: &Value, form: &Params) -> Value {
    let mut kept = before.as_object().cloned().unwrap_or_default();
    for (key, value) in form.under("metadata") {
        if value.is_empty() {
            kept.remove(&key);
        } else {
            kept.insert(key, json!(value));
        }
    }
    Value::Object(kept)
}

/// `amount` after the coupon: what it takes off.
pub fn discount(coupon: &Value, amount: i64) -> i64 {
    match coupon["percent_off"].as_i64() {
        Some(percent) => money::part(amount, percent, 100),
        None => int(coupon, "amount_off").min(amount),
    }
}
