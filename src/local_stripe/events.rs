//! The list of events: what a receiver that was away asks for.

use serde_json::Value;

use super::form::Params;
use super::list;
use super::refusal::Refusal;
use super::world::{World, int, text};

const MOST_TYPES: usize = 20;

pub fn all(world: &World, form: &Params) -> Result<Value, Refusal> {
    let types: Vec<String> = form.under("types").into_iter().map(|(_, name)| name).collect();
    let one = form.text("type");
    if one.is_some() && !types.is_empty() {
        return Err(Refusal::param("types", "You may only specify one of these parameters: type, types."));
    }
    if types.len() > MOST_TYPES {
        return Err(Refusal::param("types", format!("You may only specify up to {MOST_TYPES} types.")));
    }
    let arrived = form.flag("delivery_success")?;
    let fits = |event: &Value| {
        let kind = text(event, "type");
        let named = one.is_none_or(|name| is_of(kind, name)) && (types.is_empty() || types.iter().any(|name| is_of(kind, name)));
        named && arrived.is_none_or(|arrived| (int(event, "pending_webhooks") == 0) == arrived)
    };
    list::page(world, "event", "/v1/events", form, &[], &["type", "types[*]", "delivery_success"], fits)
}

/// `charge.*` names a group.
fn is_of(kind: &str, name: &str) -> bool {
    kind == name || name.strip_suffix('*').is_some_and(|group| group.ends_with('.') && kind.starts_with(group))
}
