//! The Account API: what a person's own access token opens.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::bearer::{self, errors};
use super::{agreements, paging};
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::oidc::params::Params;
use crate::local_kinde::oidc::tokens::ORG;
use crate::local_kinde::people;
use crate::local_kinde::state::Visit;

/// The part of the portal to open; here all of them are one page.
const SUBNAVS: [&str; 9] = [
    "profile",
    "organization_details",
    "organization_members",
    "organization_plan_details",
    "organization_payment_details",
    "organization_plan_selection",
    "payment_details",
    "plan_selection",
    "plan_details",
];

/// A link is for the next click.
const LINK_LASTS: Duration = Duration::from_mins(5);

pub async fn portal_link(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let person = match bearer::person(&local, &headers) {
        Ok((person, _)) => person,
        Err(refusal) => return *refusal,
    };
    let params = Params::of_query(query.as_deref());
    let invalid = |why: &str| errors(StatusCode::BAD_REQUEST, "INVALID_REQUEST", why);
    if params.get("subnav").is_some_and(|subnav| !SUBNAVS.contains(&subnav)) {
        return invalid(&format!("subnav: one of {}", SUBNAVS.join(", ")));
    }
    let return_url = params.get("return_url").map(str::to_owned);
    if return_url.as_ref().is_some_and(|url| !local.app.may_return_to(url)) {
        return invalid(&format!("return_url: an absolute URL under {}", local.app.return_bases.join(", ")));
    }
    let secret = people::fresh("");
    let link = Visit { user_id: person.id, return_url, expires: At::now().after(LINK_LASTS) };
    local.store.change(|state| state.portal_links.insert(secret.clone(), link));
    match local.settle().await {
        Ok(()) => Json(json!({ "url": format!("{}/portal/{secret}", local.url) })).into_response(),
        Err(error) => errors(StatusCode::INTERNAL_SERVER_ERROR, "SERVER_ERROR", &error.to_string()),
    }
}

pub async fn entitlements(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let (plans, all) = match read(&local, &headers) {
        Ok(both) => both,
        Err(refusal) => return *refusal,
    };
    let params = Params::of_query(query.as_deref());
    match paging::page(all, |one| one["id"].as_str().unwrap_or_default(), &params) {
        Ok((page, more)) => {
            let last = page.last().map(|one| one["id"].clone()).filter(|_| more);
            let data = json!({ "org_code": ORG, "plans": plans, "entitlements": page });
            Json(json!({ "data": data, "metadata": { "has_more": more, "next_page_starting_after": last } })).into_response()
        }
        Err(why) => errors(StatusCode::BAD_REQUEST, "INVALID_REQUEST", &why),
    }
}

pub async fn entitlement(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let all = match read(&local, &headers) {
        Ok((_, all)) => all,
        Err(refusal) => return *refusal,
    };
    let params = Params::of_query(query.as_deref());
    let found = all.into_iter().find(|one| one["feature_key"].as_str() == params.get("key"));
    match found {
        Some(one) => Json(json!({ "data": { "org_code": ORG, "entitlement": one }, "metadata": {} })).into_response(),
        None => errors(StatusCode::NOT_FOUND, "NOT_FOUND", "no such entitlement"),
    }
}

/// The person's plans and entitlements.
fn read(local: &Local, headers: &HeaderMap) -> Result<(Vec<Value>, Vec<Value>), Box<Response>> {
    let (person, _) = bearer::person(local, headers)?;
    let now = At::now();
    Ok(local.store.read(|state| {
        let seen = now.before(Duration::from_secs(state.switches.apis.lag_secs));
        let known = agreements::known(state, &person.id, seen);
        (agreements::subscribed(&known, now, "key"), agreements::entitlements(&known, now, "feature_key"))
    }))
}
