//! `expand[]`: an id is replaced by its object, along a path, and a few lists come only when they are asked for.

use serde_json::{Value, json};

use super::checkout;
use super::form::Params;
use super::refusal::Refusal;
use super::shapes::list_of;
use super::world::{World, text};

const DEEPEST: usize = 4;

pub fn all(world: &World, form: &Params, value: &mut Value) -> Result<(), Refusal> {
    let mut paths: Vec<String> = form.under("expand").into_iter().map(|(_, path)| path).collect();
    // Shorter ones first, so that `a.b` finds `a` opened.
    paths.sort_by_key(|path| path.split('.').count());
    for path in paths {
        let parts: Vec<&str> = path.split('.').collect();
        if parts.len() > DEEPEST {
            return Err(Refusal::param(
                "expand",
                format!("You cannot expand more than {DEEPEST} levels of a property. Property: {path}"),
            ));
        }
        one(world, value, &parts, &path)?;
    }
    Ok(())
}

fn one(world: &World, value: &mut Value, path: &[&str], whole: &str) -> Result<(), Refusal> {
    let Some((field, rest)) = path.split_first() else { return Ok(()) };
    if let Value::Array(elements) = value {
        return elements.iter_mut().try_for_each(|element| one(world, element, path, whole));
    }
    if value.is_null() {
        return Ok(());
    }
    if let Some(list) = asked_for(world, value, field) {
        value[*field] = list;
    } else if let Some(object) = value[*field].as_str().and_then(|id| world.find(id)) {
        value[*field] = object.clone();
    } else if !is_known(value, field) {
        let message =
            format!("This property cannot be expanded ({whole}). You may want to try expanding 'data.{whole}' instead.");
        return Err(Refusal::param("expand", message));
    }
    one(world, &mut value[*field], rest, whole)
}

/// Opened already, null, a list to walk through, or the id of something that is gone.
fn is_known(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|inner| {
        inner.is_object() || inner.is_array() || inner.is_null() || inner.as_str().is_some_and(|id| id.contains('_'))
    })
}

/// Lists that an object has, and does not show unasked.
fn asked_for(world: &World, value: &Value, field: &str) -> Option<Value> {
    if value.get(field).is_some_and(Value::is_object) {
        return None;
    }
    let id = text(value, "id");
    let those = |kind: &str, of: &str| world.all(kind).into_iter().filter(|one| text(one, of) == id).cloned().collect::<Vec<_>>();
    match (text(value, "object"), field) {
        ("charge", "refunds") => Some(list_of(those("refund", "charge"), &format!("/v1/charges/{id}/refunds"))),
        ("invoice", "payments") => {
            Some(list_of(those("invoice_payment", "invoice"), &format!("/v1/invoice_payments?invoice={id}")))
        }
        ("checkout.session", "line_items") => Some(checkout::items_of(world, id)),
        ("customer", "subscriptions") => {
            let live = those("subscription", "customer").into_iter().filter(|one| one["status"] != "canceled").collect();
            Some(list_of(live, &format!("/v1/customers/{id}/subscriptions")))
        }
        ("price", "currency_options") => Some(world.currency_options.get(id).cloned().unwrap_or_else(|| json!({}))),
        _ => None,
    }
}
