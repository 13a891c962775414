//! The billing portal: a session per visit, and what a customer can do there.

use serde_json::{Value, json};

use super::catalog;
use super::customers;
use super::form::Params;
use super::refusal::Refusal;
use super::shapes::{self, Method};
use super::subscriptions::{self, Prorate, Why};
use super::world::{World, fresh, int, random, text};

const CONFIGURATION: &str = "bpc_1LocalDefault";

pub fn create(world: &mut World, url: &str, form: &Params) -> Result<Value, Refusal> {
    form.only(&["customer", "return_url", "configuration", "locale"])?;
    let customer = form.required("customer")?;
    world.named("customer", customer, "customer")?;
    if form.text("configuration").is_some_and(|id| id != CONFIGURATION) {
        return Err(Refusal::names_nothing("configuration", form.text("configuration").unwrap_or_default(), "configuration"));
    }
    let id = world.add(json!({
        "id": fresh("bps_1", 23), "object": "billing_portal.session", "configuration": CONFIGURATION, "created": world.now(),
        "customer": customer, "customer_account": null, "flow": null, "livemode": false, "locale": form.text("locale"),
        "on_behalf_of": null, "return_url": form.text("return_url"), "url": format!("{url}/p/session/test_{}", random(40)),
    }));
    Ok(world.copy(&id))
}

/// A visit lasts an hour; its address is never to be kept.
const LASTS: i64 = 3600;

pub fn find<'a>(world: &'a World, secret: &str) -> Option<&'a Value> {
    let end = format!("/p/session/{secret}");
    let fits = |one: &&Value| text(one, "url").ends_with(&end) && world.now() < int(one, "created") + LASTS;
    world.all("billing_portal.session").into_iter().find(fits)
}

/// What can be pressed there.
pub fn act(world: &mut World, customer: &str, subscription: &str, action: &str, price: &str) -> Result<(), Refusal> {
    if action == "card" {
        let made = shapes::payment_method(world, Method::Card, Some(customer));
        let method = world.add(made);
        world.tell("payment_method.attached", &method);
        customers::set_default_method(world, customer, &method);
        world.declines.remove(customer);
        let subscriptions =
            world.ids_where("subscription", |one| text(one, "customer") == customer && !subscriptions::is_over(one));
        for id in subscriptions {
            world.update(&id, json!({ "default_payment_method": method }), "customer.subscription.updated");
        }
        return Ok(());
    }
    let before = world.get("subscription", subscription)?.clone();
    if text(&before, "customer") != customer || subscriptions::is_over(&before) {
        return Err(Refusal::missing("subscription", subscription));
    }
    let by_date = text(&before["billing_mode"], "type") == "flexible";
    match action {
        "cancel" => subscriptions::end(world, subscription, Why::Requested),
        "cancel_at_period_end" => subscriptions::end_with_period(world, subscription, true, by_date),
        "resume" => subscriptions::end_with_period(world, subscription, false, by_date),
        "change" => {
            let items = subscriptions::items(&before);
            let item = items.first().ok_or_else(|| Refusal::missing("subscription", subscription))?;
            let price = catalog::in_currency(world, world.named("price", price, "price")?, text(&before, "currency"), "price")?;
            subscriptions::change_item(world, subscription, text(item, "id"), &price, int(item, "quantity"), Prorate::Now);
        }
        other => return Err(Refusal::invalid(format!("The portal has no `{other}`."))),
    }
    Ok(())
}
