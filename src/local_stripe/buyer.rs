//! The pages a buyer is sent to: the checkout and the portal.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::Value;

use super::checkout;
use super::control::way_of;
use super::delivery::State as Sent;
use super::money;
use super::page::{date, rendered};
use super::portal as rooms;
use super::server::Local;
use super::subscriptions;
use super::world::{World, int, text};

#[derive(Template)]
#[template(path = "local_stripe_checkout.html")]
struct CheckoutPage {
    id: String,
    lines: Vec<(String, String)>,
    total: String,
    subscribes: bool,
    free: bool,
    trial: bool,
    codes: bool,
    who: String,
    cancel_url: String,
    declined: bool,
}

/// A page that only says something.
#[derive(Template)]
#[template(path = "local_stripe_notice.html")]
struct Notice {
    title: &'static str,
    words: String,
}

#[derive(Deserialize)]
pub struct Shown {
    #[serde(default)]
    declined: bool,
}

pub async fn checkout(State(local): State<Arc<Local>>, Path(id): Path<String>, Query(shown): Query<Shown>) -> Response {
    let page = local.look(|world| {
        let session = world.get("checkout.session", &id).ok()?;
        if text(session, "status") != "open" {
            return Some(Err(text(session, "status").to_owned()));
        }
        let line = |item: &Value| {
            let name = format!("{} × {}", int(item, "quantity"), text(item, "description"));
            (name, money::in_words(int(item, "amount_total"), text(item, "currency")))
        };
        let customer = world.copy(text(session, "customer"));
        let total = int(session, "amount_total");
        Some(Ok(CheckoutPage {
            id: id.clone(),
            lines: checkout::items_of(world, &id)["data"].as_array().into_iter().flatten().map(line).collect(),
            total: money::in_words(total, text(session, "currency")),
            subscribes: text(session, "mode") == "subscription",
            free: total == 0,
            trial: world.carts.get(&id).is_some_and(|cart| cart["trial_end"].is_i64()),
            codes: session["allow_promotion_codes"] == true,
            who: customer["email"]
                .as_str()
                .or(session["customer_email"].as_str())
                .unwrap_or("a buyer who is not known yet")
                .to_owned(),
            cancel_url: web_address(text(session, "cancel_url")),
            declined: shown.declined,
        }))
    });
    match page {
        Some(Ok(page)) => rendered(page.render()),
        Some(Err(status)) => notice(StatusCode::OK, "Nothing to pay here", format!("This checkout is {status}.")),
        None => notice(StatusCode::NOT_FOUND, "No such checkout", "There is no checkout at this address.".into()),
    }
}

fn notice(status: StatusCode, title: &'static str, words: String) -> Response {
    (status, rendered(Notice { title, words }.render())).into_response()
}

/// A link may lead to the web only.
fn web_address(url: &str) -> String {
    if url.starts_with("http://") || url.starts_with("https://") { url.to_owned() } else { String::new() }
}

#[derive(Deserialize)]
pub struct Pressed {
    way: String,
}

pub async fn press_at_checkout(
    State(local): State<Arc<Local>>,
    Path(id): Path<String>,
    Form(pressed): Form<Pressed>,
) -> Response {
    let Some(way) = way_of(&pressed.way) else { return StatusCode::BAD_REQUEST.into_response() };
    match local.change(|world| checkout::complete(world, &id, way)) {
        Ok(session) => {
            wait_for_the_webhook(&local, &id).await;
            Redirect::to(&text(&session, "success_url").replace("{CHECKOUT_SESSION_ID}", &id)).into_response()
        }
        Err(refusal) if refusal.status == 402 => Redirect::to(&format!("/c/pay/{id}?declined=true")).into_response(),
        Err(refusal) => notice(StatusCode::BAD_REQUEST, "This did not work", refusal.message),
    }
}

/// Stripe keeps the buyer for up to ten seconds, until the shop has heard of it.
async fn wait_for_the_webhook(local: &Arc<Local>, session: &str) {
    const LONGEST: u32 = 10_000;
    const STEP: u32 = 50;
    for _ in 0..LONGEST / STEP {
        if local.look(|world| world.switches.hold || was_tried(world, session)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(STEP.into())).await;
    }
}

fn was_tried(world: &World, session: &str) -> bool {
    let about = |event: &str| text(&world.copy(event)["data"]["object"], "id") == session;
    let completed = world.mail.newest_first().find(|one| one.event_type == "checkout.session.completed" && about(&one.event));
    completed.is_none_or(|one| one.state == Sent::Lost || !one.attempts.is_empty())
}

#[derive(Template)]
#[template(path = "local_stripe_portal.html")]
struct PortalPage {
    secret: String,
    who: String,
    subscriptions: Vec<Subscription>,
    prices: Vec<(String, String)>,
    return_url: String,
}

struct Subscription {
    id: String,
    status: String,
    what: String,
    until: String,
    ending: bool,
}

pub async fn portal(State(local): State<Arc<Local>>, Path(secret): Path<String>) -> Response {
    let page = local.look(|world| {
        let session = rooms::find(world, &secret)?;
        let customer = text(session, "customer");
        let own =
            world.all("subscription").into_iter().filter(|one| text(one, "customer") == customer && !subscriptions::is_over(one));
        let row = |one: &Value| Subscription {
            id: text(one, "id").to_owned(),
            status: text(one, "status").to_owned(),
            what: what(world, one),
            until: date(subscriptions::ends(one)),
            ending: one["cancel_at_period_end"] == true || one["cancel_at"].is_i64(),
        };
        Some(PortalPage {
            secret: secret.clone(),
            who: world.copy(customer)["email"].as_str().unwrap_or(customer).to_owned(),
            subscriptions: own.map(row).collect(),
            prices: recurring_prices(world),
            return_url: web_address(text(session, "return_url")),
        })
    });
    match page {
        Some(page) => rendered(page.render()),
        None => notice(StatusCode::NOT_FOUND, "This link is over", "Open the portal anew from where you came.".into()),
    }
}

/// `Pro, 12.00 USD a month`
pub fn what(world: &World, subscription: &Value) -> String {
    let items = subscriptions::items(subscription);
    items.iter().map(|item| named_price(world, &item["price"])).collect::<Vec<_>>().join(", ")
}

fn named_price(world: &World, price: &Value) -> String {
    let name = text(&world.copy(text(price, "product")), "name").to_owned();
    let amount = money::in_words(int(price, "unit_amount"), text(price, "currency"));
    format!("{name}, {amount} a {}", text(&price["recurring"], "interval"))
}

/// To choose from. In other currencies they are the same prices' options.
pub fn recurring_prices(world: &World) -> Vec<(String, String)> {
    let prices =
        world.all("price").into_iter().rev().filter(|one| text(one, "type") == "recurring" && text(one, "currency") == "usd");
    prices.map(|one| (text(one, "id").to_owned(), named_price(world, one))).collect()
}

#[derive(Deserialize)]
pub struct Wish {
    #[serde(default)]
    subscription: String,
    action: String,
    #[serde(default)]
    price: String,
}

pub async fn press_at_portal(State(local): State<Arc<Local>>, Path(secret): Path<String>, Form(wish): Form<Wish>) -> Response {
    let done = local.change(|world| {
        let customer = text(rooms::find(world, &secret)?, "customer").to_owned();
        Some(rooms::act(world, &customer, &wish.subscription, &wish.action, &wish.price))
    });
    match done {
        Some(Ok(())) => Redirect::to(&format!("/p/session/{secret}")).into_response(),
        Some(Err(refusal)) => notice(StatusCode::BAD_REQUEST, "This did not work", refusal.message),
        None => Html("").into_response(),
    }
}
