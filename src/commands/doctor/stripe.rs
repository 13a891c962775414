//! Stripe: our key and its mode, the prices that are named, and whether it posts to us what we read.

use reqwest::StatusCode;
use serde_json::Value;

use super::chain;
use super::kinde::{clock, get, read};
use super::line::Line;
use crate::config::Config;
use crate::config::stripe::Stripe;
use crate::outbound::{Answer, Client};
use crate::providers::stripe::READ;

pub async fn look(config: &Config) -> Vec<Line> {
    let Some(stripe) = &config.stripe else {
        return vec![Line::ok("stripe", "is not configured: nobody pays through it")];
    };
    let client = match Client::new(&stripe.api_base) {
        Ok(client) => client,
        Err(error) => return vec![Line::wrong("stripe", format!("STRIPE_API_BASE: {error}"), "mend STRIPE_API_BASE")],
    };
    let pro = price(&client, stripe, "STRIPE_PRICE_PRO", &stripe.price_pro, Sold::ByTheMonth);
    let pack = async {
        match &stripe.price_pack {
            Some(id) => price(&client, stripe, "STRIPE_PRICE_PACK", id, Sold::Once).await,
            None => Vec::new(),
        }
    };
    let ours = config.webhook_url("stripe");
    let (pro, pack, endpoint) = tokio::join!(pro, pack, endpoint(&client, stripe, &ours));
    pro.into_iter().chain(pack).chain([endpoint]).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sold {
    ByTheMonth,
    Once,
}

/// Asking for the first price shows as well whether the key is let in, and the time.
async fn price(client: &Client, stripe: &Stripe, setting: &'static str, id: &str, sold: Sold) -> Vec<Line> {
    let mode = if stripe.live { "live" } else { "test" };
    let answer = match ask(client, stripe, &format!("/v1/prices/{id}")).await {
        Ok(answer) => answer,
        Err(line) => return vec![line],
    };
    let price = read(&answer.body);
    let recurs = price["recurring"].is_object();
    let line = match answer.status {
        StatusCode::FORBIDDEN => {
            let words = format!("STRIPE_SECRET_KEY may not look at prices, so {setting} was not checked");
            Line::warning("stripe", words, "let the restricted key read prices, or look at the dashboard")
        }
        StatusCode::NOT_FOUND => {
            let words = format!("{setting}: there is no price {id} in the {mode} mode of this account");
            Line::wrong("stripe", words, format!("put the id of a price of that mode into {setting}"))
        }
        StatusCode::OK if price["livemode"] != stripe.live => {
            Line::wrong("stripe", format!("{setting}: {id} is not of the {mode} mode"), format!("mend {setting}"))
        }
        StatusCode::OK if price["active"] != true => {
            Line::wrong("stripe", format!("{setting}: {id} is no longer sold"), format!("name another price in {setting}"))
        }
        StatusCode::OK if recurs != (sold == Sold::ByTheMonth) => {
            let (is, ought) = if recurs { ("again and again", "once") } else { ("once", "again and again") };
            Line::wrong(
                "stripe",
                format!("{setting}: {id} is paid {is}, not {ought}"),
                format!("name another price in {setting}"),
            )
        }
        StatusCode::OK => Line::ok("stripe", format!("{setting} is sold, in the {mode} mode")),
        status => Line::warning("stripe", format!("{setting}: Stripe answered with status {status}"), "ask again in a moment"),
    };
    let mut lines = vec![line];
    if sold == Sold::ByTheMonth {
        lines.extend(clock("Stripe's", &answer.headers));
    }
    lines
}

async fn endpoint(client: &Client, stripe: &Stripe, ours: &str) -> Line {
    let answer = match ask(client, stripe, "/v1/webhook_endpoints?limit=100").await {
        Ok(answer) => answer,
        Err(line) => return Line { check: "webhook", ..line },
    };
    match answer.status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => {
            let words =
                format!("whether Stripe posts to {ours} is not known: STRIPE_SECRET_KEY may not look at webhook endpoints");
            return Line::warning("webhook", words, "let the restricted key read webhook endpoints, or look at the dashboard");
        }
        status => {
            return Line::warning("webhook", format!("Stripe's list of endpoints: status {status}"), "ask again in a moment");
        }
    }
    let list = read(&answer.body);
    let same = |endpoint: &&Value| endpoint["url"].as_str().is_some_and(|url| url.trim_end_matches('/') == ours);
    let Some(found) = list["data"].as_array().into_iter().flatten().find(same) else {
        let words = format!("Stripe does not post to {ours}");
        return Line::wrong(
            "webhook",
            words,
            "add that endpoint at Stripe, with the events named in .env.example; or mend BOTTLE_URL",
        );
    };
    if found["status"] == "disabled" {
        return Line::wrong(
            "webhook",
            format!("Stripe has switched {ours} off"),
            "switch it on again at Stripe, and look at why deliveries failed",
        );
    }
    let subscribed: Vec<&str> = found["enabled_events"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let missing: Vec<&str> = READ.into_iter().filter(|kind| !subscribed.contains(&"*") && !subscribed.contains(kind)).collect();
    if missing.is_empty() {
        Line::ok("webhook", format!("Stripe posts to {ours} what is read here"))
    } else {
        let words = format!("Stripe does not tell {ours} of {}", missing.join(", "));
        Line::wrong("webhook", words, "add these events to the endpoint at Stripe")
    }
}

/// A key that is not let in is a line of its own, and no answer.
async fn ask(client: &Client, stripe: &Stripe, path: &str) -> Result<Answer, Line> {
    match get(client, path, Some(stripe.secret_key.reveal())).await {
        Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => Err(Line::wrong(
            "stripe",
            "it does not know STRIPE_SECRET_KEY",
            "put in a key of your account that has not been rolled",
        )),
        Ok(answer) => Ok(answer),
        Err(error) => {
            let todo = "look whether this machine may reach api.stripe.com; events wait meanwhile";
            Err(Line::wrong("stripe", format!("it cannot be asked: {}", chain(&error)), todo))
        }
    }
}
