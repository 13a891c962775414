//! The way in to `/v1`: who calls, in which version, whether the call is to go wrong, and whether it was made before.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestExt as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::api::{self, Call};
use super::calls;
use super::faults::{self, Fault};
use super::form::Params;
use super::refusal::Refusal;
use super::render;
use super::server::Local;
use super::switches::{NEWEST, VERSIONS};
use super::world::{Caller, World, fresh, machine_now};

struct Asked {
    method: String,
    path: String,
    query: String,
    body: String,
    key: Option<String>,
    version: Option<String>,
    idempotency_key: Option<String>,
    wrong_type: bool,
    request_id: String,
}

struct Reply {
    status: u16,
    body: Value,
    headers: Vec<(&'static str, String)>,
}

/// The call is answered even if whoever made it has gone: a caller that ran out of patience must not assume that nothing happened.
pub async fn enter(State(local): State<Arc<Local>>, request: Request) -> Response {
    let (method, uri, headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
    let body: Bytes = match request.extract().await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let content_type = text("content-type").unwrap_or_default();
    let asked = Asked {
        method: method.to_string(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
        key: bearer(&headers),
        version: text("stripe-version"),
        idempotency_key: text("idempotency-key").filter(|key| !key.is_empty() && method == "POST"),
        wrong_type: !body.is_empty() && !content_type.starts_with("application/x-www-form-urlencoded"),
        request_id: fresh("req", 14),
    };
    match tokio::spawn(answer(local, asked)).await {
        Ok(reply) => written(reply),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `Bearer sk_…`, or Basic with the key as the user's name.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(rest.trim()).ok())??;
    Some(String::from_utf8(decoded).ok()?.split(':').next()?.to_owned())
}

async fn answer(local: Arc<Local>, asked: Asked) -> Reply {
    let mut reply = decide(&local, &asked).await;
    reply.headers.push(("request-id", asked.request_id.clone()));
    if let Some(key) = &asked.idempotency_key {
        reply.headers.push(("idempotency-key", key.clone()));
    }
    let call = calls::Call {
        method: asked.method,
        path: asked.path,
        query: asked.query,
        body: asked.body,
        version: asked.version,
        idempotency_key: asked.idempotency_key,
        request_id: asked.request_id,
        status: reply.status,
    };
    local.look(|world| world.calls.add(call));
    reply
}

async fn decide(local: &Arc<Local>, asked: &Asked) -> Reply {
    let refuse = |refusal: &Refusal| Reply { status: refusal.status, body: refusal.body(&asked.request_id), headers: Vec::new() };
    let resource = resource_of(&asked.path);
    if let Err(refusal) = local.look(|world| world.keys.check(asked.key.as_deref(), &asked.method, &resource)) {
        return refuse(&refusal);
    }
    let version = asked.version.clone().unwrap_or_else(|| NEWEST.to_owned());
    if !VERSIONS.contains(&version.as_str()) {
        return refuse(&Refusal::invalid(format!(
            "Invalid Stripe API version: {version}. You do not have permission to use this version."
        )));
    }
    if asked.wrong_type {
        let message = "Invalid request (check that your POST content type is application/x-www-form-urlencoded). If you have any questions, we can help at https://support.stripe.com/.";
        return refuse(&Refusal::invalid(message));
    }
    let fault = local.look(|world| faults::take(&mut world.faults, &asked.method, &asked.path));
    if let Some(fault) = fault.as_ref().filter(|fault| fault.status == 429) {
        let mut reply = refuse(&Refusal::too_many());
        if let Some(refusal) = fault.refusal() {
            reply = refuse(&refusal);
        }
        reply.headers.push((
            "stripe-rate-limited-reason",
            if fault.code == "lock_timeout" { "resource-specific" } else { "global-rate" }.into(),
        ));
        reply.headers.extend(fault.retry_after.map(|secs| ("retry-after", secs.to_string())));
        return reply;
    }
    let mut form = Params::parse(&asked.query);
    form.add(&asked.body);
    let fingerprint = format!("{} {}\n{}", asked.method, asked.path, form.fingerprint());
    let Some(key) = asked.idempotency_key.as_deref() else {
        let (status, body) = carry_out(local, asked, &form, &version, fault.as_ref()).await;
        return Reply { status, body, headers: vec![("stripe-version", version)] };
    };
    let before = local.look(|world| {
        if world.busy.contains(key) {
            return Err(Refusal::key_busy(key));
        }
        let kept = world.answers.find(key, &fingerprint)?.cloned();
        if kept.is_none() {
            world.busy.insert(key.to_owned());
        }
        Ok(kept)
    });
    match before {
        Err(refusal) => refuse(&refusal),
        Ok(Some(kept)) => Reply {
            status: kept.status,
            body: kept.body,
            headers: vec![
                ("stripe-version", version),
                ("idempotent-replayed", "true".into()),
                ("original-request", kept.request_id),
            ],
        },
        Ok(None) => {
            let (status, body) = carry_out(local, asked, &form, &version, fault.as_ref()).await;
            local.change(|world| {
                world.busy.remove(key);
                world.answers.keep(key, &fingerprint, machine_now(), &asked.request_id, status, &body);
            });
            Reply { status, body, headers: vec![("stripe-version", version)] }
        }
    }
}

/// Does it, or fails as it was told to: before anything was done, or after.
async fn carry_out(local: &Arc<Local>, asked: &Asked, form: &Params, version: &str, fault: Option<&Fault>) -> (u16, Value) {
    if let Some(fault) = fault {
        tokio::time::sleep(Duration::from_millis(fault.slow_ms)).await;
    }
    let broken = fault.and_then(Fault::refusal);
    let in_the_way = broken.as_ref().filter(|_| fault.is_some_and(|fault| !fault.done));
    let done = match in_the_way {
        Some(refusal) => Err(refusal.clone()),
        None => {
            let call = Call { method: &asked.method, path: &asked.path, form, url: &local.url };
            let run = |world: &mut World| {
                world.caller =
                    Some(Caller { request_id: asked.request_id.clone(), idempotency_key: asked.idempotency_key.clone() });
                let answer = api::answer(world, &call).map(|mut value| {
                    render::at(world, version, &mut value);
                    value
                });
                world.caller = None;
                answer
            };
            if asked.method == "GET" { local.look(run) } else { local.change(run) }
        }
    };
    match broken.map_or(done, Err) {
        Ok(value) => (200, value),
        Err(refusal) => (refusal.status, refusal.body(&asked.request_id)),
    }
}

/// What a restricted key's right is called: `checkout_sessions`, `customers`.
fn resource_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    match parts.as_slice() {
        [group @ ("checkout" | "billing_portal"), inner, ..] => format!("{group}_{inner}"),
        [first, ..] => (*first).to_owned(),
        [] => String::new(),
    }
}

fn written(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(reply.body)).into_response();
    for (name, value) in reply.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
