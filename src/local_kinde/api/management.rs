//! The Management API, as far as a billing back end reads it: agreements, entitlements, users, events, webhooks.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::bearer::{self, errors};
use super::{agreements, paging};
use crate::local_kinde::events;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::oidc::params::Params;
use crate::local_kinde::oidc::tokens::ORG;
use crate::local_kinde::people::{self, Person};
use crate::local_kinde::plans::Agreement;

pub async fn billing_agreements(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let params = Params::of_query(query.as_deref());
    let (known, now) = match of_customer(&local, &headers, "read:billing_agreements", &params) {
        Ok(both) => both,
        Err(refusal) => return *refusal,
    };
    let wanted = |agreement: &Agreement| {
        params.get("feature_code").is_none_or(|code| code == agreements::FEATURE) && !agreement.id.is_empty()
    };
    let known: Vec<Agreement> = known.into_iter().filter(wanted).collect();
    match paging::page(known, |agreement| &agreement.id, &params) {
        Ok((page, more)) => {
            let page: Vec<Value> = page.iter().map(|agreement| agreements::shape(agreement, now)).collect();
            ok(json!({ "has_more": more, "agreements": page }))
        }
        Err(why) => invalid(&why),
    }
}

pub async fn billing_entitlements(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let params = Params::of_query(query.as_deref());
    let (known, now) = match of_customer(&local, &headers, "read:billing_entitlements", &params) {
        Ok(both) => both,
        Err(refusal) => return *refusal,
    };
    let all = agreements::entitlements(&known, now, "feature_code");
    match paging::page(all, |one| one["id"].as_str().unwrap_or_default(), &params) {
        Ok((page, more)) => {
            let mut answer = json!({ "has_more": more, "entitlements": page });
            if expands(&params, "plans") {
                answer["plans"] = json!(agreements::subscribed(&known, now, "code"));
            }
            ok(answer)
        }
        Err(why) => invalid(&why),
    }
}

pub async fn user(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    if let Err(refusal) = bearer::machine(&local, &headers, "read:users") {
        return *refusal;
    }
    let params = Params::of_query(query.as_deref());
    let Some(id) = params.get("id") else {
        return invalid("id is missing");
    };
    match local.store.read(|state| state.find_person(id).cloned()) {
        // This one answer is bare, without code and message.
        Some(person) => Json(user_shape(&person, "preferred_email", expands(&params, "billing"))).into_response(),
        None => errors(StatusCode::NOT_FOUND, "USER_NOT_FOUND", "no such user"),
    }
}

pub async fn users(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    if let Err(refusal) = bearer::machine(&local, &headers, "read:users") {
        return *refusal;
    }
    let params = Params::of_query(query.as_deref());
    let size = match paging::size(&params) {
        Ok(size) => size,
        Err(why) => return invalid(&why),
    };
    // The token is where the next page begins.
    let from = match params.get("next_token").map(str::parse::<usize>) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => return invalid("next_token is none of ours"),
    };
    let all = local.store.read(|state| state.people.clone());
    let wanted = |person: &&Person| {
        params.get("user_id").is_none_or(|id| id == person.id)
            && params.get("email").is_none_or(|email| person.email.as_ref().is_some_and(|has| has.eq_ignore_ascii_case(email)))
    };
    let all: Vec<&Person> = all.iter().filter(wanted).collect();
    let shape = |person: &&Person| user_shape(person, "email", expands(&params, "billing"));
    let page: Vec<Value> = all.iter().skip(from).take(size).map(shape).collect();
    let next = (from + size < all.len()).then(|| (from + size).to_string());
    ok(json!({ "users": page, "next_token": next }))
}

pub async fn event(State(local): State<Arc<Local>>, Path(event_id): Path<String>, headers: HeaderMap) -> Response {
    if let Err(refusal) = bearer::machine(&local, &headers, "read:events") {
        return *refusal;
    }
    let token =
        local.store.read(|state| state.events.iter().find(|event| event.event_id == event_id).map(|event| event.token.clone()));
    let claims = token.and_then(|token| {
        let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        serde_json::from_slice::<Value>(&payload).ok()
    });
    let Some(claims) = claims else {
        return errors(StatusCode::NOT_FOUND, "EVENT_NOT_FOUND", "no such event");
    };
    let fields = ["type", "source", "event_id", "timestamp", "data"];
    let event: Value = fields.iter().map(|name| ((*name).to_owned(), claims[*name].clone())).collect();
    ok(json!({ "event": event }))
}

pub async fn event_types(State(local): State<Arc<Local>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = bearer::machine(&local, &headers, "read:event_types") {
        return *refusal;
    }
    let one = |code: String| {
        let words = code.replace(['.', '_'], " ");
        json!({ "id": people::derived("event_type_", &[&code]), "code": code, "name": words, "origin": "kinde", "schema": {} })
    };
    ok(json!({ "event_types": subscribed().map(one).collect::<Vec<Value>>() }))
}

pub async fn webhooks(State(local): State<Arc<Local>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = bearer::machine(&local, &headers, "read:webhooks") {
        return *refusal;
    }
    let made_at = local.store.read(|state| state.made_at);
    let one = |endpoint: &String| {
        json!({
            "id": people::derived("webhook_", &["endpoint", endpoint]),
            "name": "Bottle",
            "endpoint": endpoint,
            "description": "The webhook that the local Kinde was started with",
            "event_types": subscribed().collect::<Vec<String>>(),
            "created_on": made_at.utc(),
        })
    };
    ok(json!({ "webhooks": local.webhook_url.iter().map(one).collect::<Vec<Value>>() }))
}

/// What is sent at all.
fn subscribed() -> impl Iterator<Item = String> {
    events::NAMES.iter().filter(|name| **name != "upgrade").map(|name| format!("customer.{name}"))
}

/// What was known of a customer's agreements, so long ago as the lag says.
fn of_customer(local: &Local, headers: &HeaderMap, scope: &str, params: &Params) -> Result<(Vec<Agreement>, At), Box<Response>> {
    bearer::machine(local, headers, scope)?;
    let Some(customer_id) = params.get("customer_id") else {
        return Err(Box::new(invalid("customer_id is missing")));
    };
    let now = At::now();
    let known = local.store.read(|state| {
        let person = state.people.iter().find(|person| person.customer_id() == customer_id)?;
        let seen = now.before(Duration::from_secs(state.switches.apis.lag_secs));
        Some(agreements::known(state, &person.id, seen))
    });
    match known {
        Some(known) => Ok((known, now)),
        None => Err(Box::new(errors(StatusCode::NOT_FOUND, "CUSTOMER_NOT_FOUND", "no such customer"))),
    }
}

fn user_shape(person: &Person, email_field: &str, with_billing: bool) -> Value {
    let mut user = json!({
        "id": person.id,
        "provided_id": Value::Null,
        email_field: person.email,
        "username": Value::Null,
        "phone": Value::Null,
        "first_name": person.given_name,
        "last_name": person.family_name,
        "is_suspended": false,
        "picture": Value::Null,
        "total_sign_ins": person.sign_ins,
        "failed_sign_ins": 0,
        "last_signed_in": person.last_sign_in.map(At::utc),
        "created_on": person.made_at.utc(),
        "organizations": [ORG],
        "identities": person.email.iter().map(|email| json!({ "type": "email", "identity": email })).collect::<Vec<Value>>(),
    });
    if with_billing {
        user["billing"] = json!({ "customer_id": person.customer_id() });
    }
    user
}

fn expands(params: &Params, what: &str) -> bool {
    params.get("expand").is_some_and(|list| list.split(',').any(|one| one.trim() == what))
}

fn ok(mut answer: Value) -> Response {
    answer["code"] = json!("OK");
    answer["message"] = json!("Success");
    Json(answer).into_response()
}

fn invalid(why: &str) -> Response {
    errors(StatusCode::BAD_REQUEST, "INVALID_REQUEST", why)
}
