//! What a test turns, under `/local`: by JSON, which is answered in JSON, or by a form, which leads back to the page.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Json, RequestExt as _};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::checkout::{self, Way};
use super::delivery;
use super::faults::Fault;
use super::form::Params;
use super::invoices;
use super::refusal::Refusal;
use super::server::Local;
use super::subscriptions;
use super::switches::Switches;
use super::world::{World, int, text};
use super::{clock, customers, disputes, payments, portal, refunds};

/// What was sent along. A form has texts only, so texts are read as what is wanted.
pub struct Fields(Map<String, Value>);

impl Fields {
    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    fn int(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let read = |text: String| text.parse().map_err(|_| Refusal::param(name, format!("{name}: a whole number, not `{text}`")));
        self.text(name).map(read).transpose()
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        let read = |text: String| match text.as_str() {
            "true" | "on" | "1" | "yes" => Ok(true),
            "false" | "off" | "0" | "no" => Ok(false),
            _ => Err(Refusal::param(name, format!("{name}: true or false, not `{text}`"))),
        };
        self.text(name).map(read).transpose()
    }
}

pub async fn turn(State(local): State<Arc<Local>>, Path(what): Path<String>, request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let by_form = content_type.starts_with("application/x-www-form-urlencoded");
    let body: Bytes = match request.extract().await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let fields = match fields(&body, by_form) {
        Ok(fields) => fields,
        Err(refusal) => return refused(&refusal),
    };
    let parts: Vec<&str> = what.trim_matches('/').split('/').collect();
    let done = match parts.as_slice() {
        ["events", id, "resend"] => resend(&local, id),
        _ => local.change(|world| act(world, &parts, &fields)),
    };
    local.nudge();
    match done {
        Ok(_) if by_form => Redirect::to("/").into_response(),
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, Json(refusal.body("req_local"))).into_response()
}

fn fields(body: &[u8], by_form: bool) -> Result<Fields, Refusal> {
    if by_form {
        let form = String::from_utf8_lossy(body);
        return Ok(Fields(Params::parse(&form).flat().map(|(name, value)| (name.to_owned(), json!(value))).collect()));
    }
    if body.is_empty() {
        return Ok(Fields(Map::new()));
    }
    serde_json::from_slice(body).map(Fields).map_err(|error| Refusal::invalid(format!("this is no JSON object: {error}")))
}

fn resend(local: &Arc<Local>, id: &str) -> Result<Value, Refusal> {
    let (n, order) = local.look(|world| (delivery::resend(world, id), world.switches.order));
    let n = n.ok_or_else(|| Refusal::missing("event", id))?;
    delivery::send_out(local, vec![n], order);
    Ok(json!({ "resent": id }))
}

fn act(world: &mut World, parts: &[&str], fields: &Fields) -> Result<Value, Refusal> {
    match *parts {
        ["switches"] => turn_switches(world, fields),
        ["switches", "reset"] => {
            world.switches = Switches { endpoint_version: world.switches.endpoint_version.clone(), ..Switches::default() };
            Ok(json!(world.switches))
        }
        ["faults"] => add_fault(world, fields),
        ["faults", "clear"] => {
            world.faults.clear();
            Ok(json!([]))
        }
        ["clock"] => move_clock(world, fields),
        ["calls", "reset"] => {
            world.calls.reset();
            Ok(world.calls.report())
        }
        ["deliveries", "flush"] => {
            world.mail.waive_waits();
            Ok(json!({ "waiting": world.mail.waiting().len() }))
        }
        ["webhook_secret", "roll"] => {
            let secret = fields.text("secret");
            if secret.as_ref().is_some_and(|secret| !secret.starts_with("whsec_")) {
                return Err(Refusal::param("secret", "a webhook secret begins with whsec_"));
            }
            let keep_old = fields.flag("keep_old")?.unwrap_or(true);
            let newest = world.secrets.roll(secret, keep_old).to_owned();
            Ok(json!({ "secret": newest, "secrets": world.secrets.0 }))
        }
        ["webhook_secret", "expire_old"] => {
            world.secrets.expire_old();
            Ok(json!({ "secrets": world.secrets.0 }))
        }
        ["payments", "decline"] => {
            let whose = fields.text("customer").unwrap_or_else(|| "*".into());
            let times =
                u32::try_from(fields.int("times")?.unwrap_or(1)).map_err(|_| Refusal::param("times", "times: 0 or more"))?;
            world.declines.insert(whose, times);
            Ok(json!(world.declines))
        }
        ["payments", id, "settle"] => {
            let paid = fields.flag("paid")?.unwrap_or(true);
            let intent = intent_behind(world, id).ok_or_else(|| Refusal::missing("payment_intent", id))?;
            payments::settle(world, &intent, paid)?;
            Ok(world.copy(&intent))
        }
        ["charges", id, "refund"] => refunds::at_desk(world, id, fields.int("amount")?, fields.flag("pending")?.unwrap_or(false)),
        ["charges", id, "dispute"] => {
            let reason = fields.text("reason").unwrap_or_else(|| "fraudulent".into());
            disputes::open(world, id, fields.int("amount")?, &reason, fields.flag("inquiry")?.unwrap_or(false))
        }
        ["refunds", id, "succeed"] => refunds::succeed(world, id),
        ["refunds", id, "fail"] => refunds::fail(world, id),
        ["disputes", id, "close"] => disputes::close(world, id, fields.flag("won")?.unwrap_or(false)),
        ["customers", id, "delete"] => customers::delete(world, id),
        ["checkout", id, "expire"] => checkout::expire(world, id),
        ["checkout", id, "complete"] => checkout::complete(world, id, way(fields)?),
        ["subscriptions", id, "renew"] => {
            let ends = subscriptions::ends(world.get("subscription", id)?);
            // An hour for the draft, and a second to be past it.
            let secs = (ends - world.now()).max(0) + 3601;
            clock::advance(world, secs)?;
            Ok(world.copy(id))
        }
        ["subscriptions", id, action] => {
            let customer = text(world.get("subscription", id)?, "customer").to_owned();
            portal::act(world, &customer, id, action, &fields.text("price").unwrap_or_default())?;
            Ok(world.copy(id))
        }
        ["balance_transactions", id, "falsify"] => falsify(world, id, fields),
        ["objects", id, "delete"] => world.remove(id).ok_or_else(|| Refusal::missing("object", id)),
        ["objects", id, "patch"] => {
            world.find(id).ok_or_else(|| Refusal::missing("object", id))?;
            world.set(id, Value::Object(fields.0.clone()));
            Ok(world.copy(id))
        }
        _ => Err(Refusal::no_such_call("POST", &format!("/local/{}", parts.join("/")))),
    }
}

pub fn way_of(name: &str) -> Option<Way> {
    match name {
        "card" => Some(Way::Card),
        "delayed" => Some(Way::Delayed),
        "free" => Some(Way::FreeCode),
        _ => None,
    }
}

fn way(fields: &Fields) -> Result<Way, Refusal> {
    let name = fields.text("way").unwrap_or_else(|| "card".into());
    way_of(&name).ok_or_else(|| Refusal::param("way", format!("way: card, delayed or free, not `{name}`")))
}

/// The payment itself, or that of a charge, an invoice or a session.
fn intent_behind(world: &World, id: &str) -> Option<String> {
    let object = world.find(id)?;
    let of_invoice = |invoice: &str| invoices::intent_of(world, invoice);
    match text(object, "object") {
        "payment_intent" => Some(id.to_owned()),
        "charge" => object["payment_intent"].as_str().map(str::to_owned),
        "invoice" => of_invoice(id),
        "checkout.session" => {
            object["payment_intent"].as_str().map(str::to_owned).or_else(|| of_invoice(text(object, "invoice")))
        }
        _ => None,
    }
}

/// A balance that disagrees: `net` follows, so the row is consistent and wrong.
fn falsify(world: &mut World, id: &str, fields: &Fields) -> Result<Value, Refusal> {
    let row = world.get("balance_transaction", id)?.clone();
    let amount = fields.int("amount")?.unwrap_or_else(|| int(&row, "amount"));
    let fee = fields.int("fee")?.unwrap_or_else(|| int(&row, "fee"));
    world.set(id, json!({ "amount": amount, "fee": fee, "net": amount - fee }));
    Ok(world.copy(id))
}

/// Only what is named changes.
fn turn_switches(world: &mut World, fields: &Fields) -> Result<Value, Refusal> {
    let mut all = json!(world.switches);
    for (name, value) in &fields.0 {
        let value = match (&all[name], value) {
            // From a form.
            (Value::Array(_), Value::String(text)) => json!(text.split(',').map(str::trim).collect::<Vec<_>>()),
            (Value::Bool(_), Value::String(text)) => json!(matches!(text.as_str(), "on" | "true")),
            (Value::Number(_), Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            (_, value) => value.clone(),
        };
        all[name] = value;
    }
    let switches: Switches = serde_json::from_value(all).map_err(|error| Refusal::invalid(error.to_string()))?;
    switches.check().map_err(Refusal::invalid)?;
    world.switches = switches;
    Ok(json!(world.switches))
}

fn add_fault(world: &mut World, fields: &Fields) -> Result<Value, Refusal> {
    let typed = fields.0.iter().filter_map(|(name, value)| {
        let text = fields.text(name)?;
        let is_text = matches!(name.as_str(), "path" | "method" | "code");
        let value = if is_text { json!(text) } else { serde_json::from_str(&text).unwrap_or_else(|_| value.clone()) };
        Some((name.clone(), value))
    });
    let fault: Fault =
        serde_json::from_value(Value::Object(typed.collect())).map_err(|error| Refusal::invalid(error.to_string()))?;
    fault.check().map_err(Refusal::invalid)?;
    if fault.times > 0 {
        world.faults.push(fault);
    }
    Ok(json!(world.faults))
}

/// By a span (`advance`: `32d`, `1h 30m`, or seconds), or to a moment (`to`: unix seconds). Back only while nobody is billed.
fn move_clock(world: &mut World, fields: &Fields) -> Result<Value, Refusal> {
    if let Some(to) = fields.int("to")? {
        if to < world.now() && world.all("subscription").is_empty() {
            world.set_clock(to);
        } else {
            clock::advance(world, to - world.now())?;
        }
    } else {
        let span = fields.text("advance").ok_or_else(|| Refusal::required("advance"))?;
        clock::advance(world, seconds(&span)?)?;
    }
    Ok(json!({ "now": world.now() }))
}

fn seconds(text: &str) -> Result<i64, Refusal> {
    let bad = || Refusal::param("advance", format!("advance: a span such as 32d, 3h or 90s, not `{text}`"));
    if let Ok(secs) = text.parse() {
        return Ok(secs);
    }
    if let Some(days) = text.strip_suffix('d') {
        return days.trim().parse::<i64>().ok().and_then(|days| days.checked_mul(24 * 3600)).ok_or_else(bad);
    }
    text.parse::<SignedDuration>().map(|span| span.as_secs()).map_err(|_| bad())
}

pub async fn look(State(local): State<Arc<Local>>, Path(what): Path<String>) -> Response {
    let parts: Vec<&str> = what.trim_matches('/').split('/').collect();
    let found = local.look(|world| match *parts.as_slice() {
        ["switches"] => Some(json!(world.switches)),
        ["faults"] => Some(json!(world.faults)),
        ["calls"] => Some(world.calls.report()),
        ["clock"] => Some(json!({ "now": world.now() })),
        ["webhook_secret"] => Some(json!({ "secrets": world.secrets.0 })),
        ["deliveries"] => Some(json!({ "data": world.mail.newest_first().collect::<Vec<_>>() })),
        ["objects", id] => world.find(id).cloned(),
        _ => None,
    });
    found.map_or_else(|| refused(&Refusal::no_such_call("GET", &format!("/local/{what}"))), |found| Json(found).into_response())
}
