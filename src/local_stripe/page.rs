//! The operator's page: who is there, what they have, what was sent, and the switches.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use jiff::Timestamp;
use serde_json::Value;

use super::buyer::{recurring_prices, what};
use super::delivery::{Delivery, State as Sent};
use super::faults::Fault;
use super::money;
use super::server::Local;
use super::subscriptions;
use super::switches::Switches;
use super::world::{World, int, text};

#[derive(Template)]
#[template(path = "local_stripe.html")]
struct Index {
    url: String,
    webhook_url: Option<String>,
    now: String,
    calls: u64,
    customers: Vec<Customer>,
    subscriptions: Vec<Subscription>,
    prices: Vec<(String, String)>,
    sessions: Vec<Session>,
    charges: Vec<Charge>,
    movements: Vec<Movement>,
    deliveries: Vec<Sending>,
    waiting: usize,
    switches: Switches,
    /// Name, words, and whether it is on.
    toggles: [(&'static str, &'static str, bool); 4],
    orders: [&'static str; 4],
    order: String,
    faults: Vec<Fault>,
    declines: Vec<(String, u32)>,
}

struct Customer {
    id: String,
    who: String,
    credit: String,
    deleted: bool,
}

struct Subscription {
    id: String,
    customer: String,
    what: String,
    status: String,
    until: String,
    ending: bool,
    over: bool,
}

struct Session {
    id: String,
    mode: String,
    status: String,
    total: String,
    waits: bool,
}

struct Charge {
    id: String,
    amount: String,
    refunded: String,
    status: String,
    disputed: bool,
    can_refund: bool,
    pending: bool,
    refunds: Vec<(String, String, String)>,
    disputes: Vec<(String, String, bool)>,
}

struct Movement {
    id: String,
    kind: String,
    amount: String,
    fee: String,
    source: String,
}

struct Sending {
    event: String,
    kind: String,
    copy: u32,
    state: &'static str,
    shape: &'static str,
    attempts: Vec<String>,
}

const SHOWN: usize = 50;

pub async fn index(State(local): State<Arc<Local>>) -> Response {
    rendered(local.look(|world| build(world, &local.url)).render())
}

pub async fn css() -> Response {
    let css = include_str!("../../static/local_stripe.css");
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], css).into_response()
}

pub fn rendered(page: Result<String, askama::Error>) -> Response {
    page.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), |page| Html(page).into_response())
}

fn build(world: &World, url: &str) -> Index {
    let newest = |kind: &str| world.all(kind).into_iter().take(SHOWN).collect::<Vec<_>>();
    Index {
        url: url.to_owned(),
        webhook_url: world.mail.url.clone(),
        now: moment(world.now()),
        calls: world.calls.total(),
        customers: newest("customer").into_iter().map(customer).collect(),
        subscriptions: newest("subscription").into_iter().map(|one| subscription(world, one)).collect(),
        prices: recurring_prices(world),
        sessions: newest("checkout.session").into_iter().map(session).collect(),
        charges: newest("charge").into_iter().map(|one| charge(world, one)).collect(),
        movements: newest("balance_transaction").into_iter().map(movement).collect(),
        deliveries: world.mail.newest_first().take(SHOWN).map(sending).collect(),
        waiting: world.mail.waiting().len(),
        toggles: [
            ("hold", "Hold everything back", world.switches.hold),
            ("tamper", "Sign wrongly", world.switches.tamper),
            ("livemode", "Say it is live", world.switches.livemode),
            ("twins", "Two events for one thing", world.switches.twins),
        ],
        orders: ["together", "as_created", "reversed", "shuffled"],
        switches: world.switches.clone(),
        order: serde_json::to_value(world.switches.order)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default(),
        faults: world.faults.clone(),
        declines: world.declines.iter().filter(|(_, left)| **left > 0).map(|(who, left)| (who.clone(), *left)).collect(),
    }
}

fn customer(one: &Value) -> Customer {
    let balance = int(one, "balance");
    Customer {
        id: text(one, "id").to_owned(),
        who: one["email"].as_str().or(one["name"].as_str()).unwrap_or("—").to_owned(),
        credit: if balance == 0 { String::new() } else { format!("balance {balance}") },
        deleted: one["deleted"] == true,
    }
}

fn subscription(world: &World, one: &Value) -> Subscription {
    Subscription {
        id: text(one, "id").to_owned(),
        customer: text(one, "customer").to_owned(),
        what: what(world, one),
        status: text(one, "status").to_owned(),
        until: date(subscriptions::ends(one)),
        ending: one["cancel_at_period_end"] == true || one["cancel_at"].is_i64(),
        over: subscriptions::is_over(one),
    }
}

fn session(one: &Value) -> Session {
    Session {
        id: text(one, "id").to_owned(),
        mode: text(one, "mode").to_owned(),
        status: format!("{}, {}", text(one, "status"), text(one, "payment_status").replace('_', " ")),
        total: money::in_words(int(one, "amount_total"), text(one, "currency")),
        waits: text(one, "status") == "open",
    }
}

fn charge(world: &World, one: &Value) -> Charge {
    let (id, currency) = (text(one, "id"), text(one, "currency"));
    let (amount, refunded) = (int(one, "amount"), int(one, "amount_refunded"));
    let words = |one: &Value| money::in_words(int(one, "amount"), currency);
    let of = |kind: &str| world.all(kind).into_iter().filter(|other| text(other, "charge") == id).collect::<Vec<_>>();
    let refund = |one: &Value| (text(one, "id").to_owned(), words(one), text(one, "status").to_owned());
    let dispute = |one: &Value| {
        let status = text(one, "status");
        (text(one, "id").to_owned(), status.replace('_', " "), matches!(status, "needs_response" | "warning_needs_response"))
    };
    Charge {
        id: id.to_owned(),
        amount: money::in_words(amount, currency),
        refunded: if refunded == 0 { String::new() } else { money::in_words(refunded, currency) },
        status: text(one, "status").to_owned(),
        disputed: one["disputed"] == true,
        can_refund: text(one, "status") == "succeeded" && refunded < amount && one["disputed"] != true,
        pending: text(one, "status") == "pending",
        refunds: of("refund").into_iter().map(refund).collect(),
        disputes: of("dispute").into_iter().map(dispute).collect(),
    }
}

fn movement(one: &Value) -> Movement {
    let currency = text(one, "currency");
    Movement {
        id: text(one, "id").to_owned(),
        kind: text(one, "reporting_category").replace('_', " "),
        amount: money::in_words(int(one, "amount"), currency),
        fee: money::in_words(int(one, "fee"), currency),
        source: text(one, "source").to_owned(),
    }
}

fn sending(one: &Delivery) -> Sending {
    let (state, shape) = match one.state {
        Sent::Waiting => ("waiting", "waits"),
        Sent::Delivered => ("delivered", "good"),
        Sent::GivenUp => ("given up", "bad"),
        Sent::Lost => ("lost on purpose", "bad"),
    };
    let attempt = |one: &super::delivery::Attempt| {
        let status = one.status.map_or_else(String::new, |status| format!("{status} "));
        let lost = if one.dropped { " (answer lost on purpose)" } else { "" };
        let answer: String = one.answer.chars().take(120).collect();
        format!("{} {status}{answer}{lost}", moment(one.at))
    };
    Sending {
        event: one.event.clone(),
        kind: one.event_type.clone(),
        copy: one.copy,
        state,
        shape,
        attempts: one.attempts.iter().map(attempt).collect(),
    }
}

fn moment(at: i64) -> String {
    Timestamp::from_second(at).map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}

pub fn date(at: i64) -> String {
    Timestamp::from_second(at).map(|at| at.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
}
