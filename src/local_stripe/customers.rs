//! Customers. One that is deleted leaves a stub, and its subscriptions end at once.

use serde_json::{Value, json};

use super::catalog::{metadata, metadata_updated};
use super::form::Params;
use super::refusal::Refusal;
use super::shapes;
use super::subscriptions::{self, Why};
use super::world::{World, text};

const FIELDS: [&str; 4] = ["email", "name", "description", "phone"];

pub fn create(world: &mut World, form: &Params) -> Result<Value, Refusal> {
    form.only(&["email", "name", "description", "phone", "metadata[*]"])?;
    let mut customer = shapes::customer(world, None, None);
    for field in FIELDS {
        customer[field] = json!(form.text(field));
    }
    customer["metadata"] = metadata(form, "metadata");
    let id = world.add(customer);
    world.tell("customer.created", &id);
    Ok(world.copy(&id))
}

pub fn update(world: &mut World, id: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["email", "name", "description", "phone", "metadata[*]", "balance", "invoice_settings[default_payment_method]"])?;
    let before = world.get("customer", id)?.clone();
    if before["deleted"] == true {
        return Err(Refusal::missing("customer", id));
    }
    let mut fields = json!({ "metadata": metadata_updated(&before["metadata"], form) });
    for field in FIELDS.into_iter().filter(|field| form.has(field)) {
        fields[field] = json!(form.text(field));
    }
    if let Some(balance) = form.int("balance")? {
        fields["balance"] = json!(balance);
    }
    if let Some(method) = form.text("invoice_settings[default_payment_method]") {
        world.named("payment_method", method, "invoice_settings[default_payment_method]")?;
        let mut settings = before["invoice_settings"].clone();
        settings["default_payment_method"] = json!(method);
        fields["invoice_settings"] = settings;
    }
    world.update(id, fields, "customer.updated");
    Ok(world.copy(id))
}

/// Its subscriptions are canceled first, as Stripe does.
pub fn delete(world: &mut World, id: &str) -> Result<Value, Refusal> {
    let before = world.get("customer", id)?.clone();
    if before["deleted"] == true {
        return Err(Refusal::missing("customer", id));
    }
    for subscription in world.ids_where("subscription", |one| text(one, "customer") == id) {
        subscriptions::end(world, &subscription, Why::Requested);
    }
    let stub = json!({ "id": id, "object": "customer", "deleted": true });
    world.replace(id, stub.clone());
    world.tell_of("customer.deleted", before, None);
    Ok(stub)
}

/// The way this customer pays without being asked.
pub fn default_method(world: &World, id: &str) -> Option<String> {
    let method = &world.find(id)?["invoice_settings"]["default_payment_method"];
    method.as_str().map(str::to_owned)
}

pub fn set_default_method(world: &mut World, id: &str, method: &str) {
    let mut settings = world.copy(id)["invoice_settings"].clone();
    settings["default_payment_method"] = json!(method);
    world.update(id, json!({ "invoice_settings": settings }), "customer.updated");
}
