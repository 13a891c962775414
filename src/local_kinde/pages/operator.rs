//! The front page, for whoever runs this Kinde: people, events, switches, deliveries, keys. And what its buttons do.

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest as _, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Form, Json};
use serde_json::{Value, json};

use super::deliveries::{self, SHOWN, Sent};
use super::page::{self, Frame};
use super::words;
use crate::local_kinde::Error;
use crate::local_kinde::events;
use crate::local_kinde::journeys;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::order::Order;
use crate::local_kinde::people;
use crate::local_kinde::switches::{Apis, Deliveries, Lifetimes, PlanField, Spelling, Switches, Trouble, Whose};

#[derive(Template)]
#[template(path = "local_kinde.html")]
struct Index<'a> {
    frame: Frame,
    local: &'a Local,
    events: &'a [&'a str],
    users: &'a [&'a str],
    people: Vec<Known>,
    switches: Switches,
    sent: Vec<Sent>,
    earlier: Vec<Sent>,
    open: usize,
    shown: usize,
    keys: Vec<KeyRow>,
}

struct Known {
    id: String,
    name: String,
    email: String,
    note: String,
}

struct KeyRow {
    kid: String,
    /// None: the one that signs.
    retired_at: Option<String>,
}

pub async fn index(State(local): State<Arc<Local>>) -> Response {
    let signs = local.key().kid().to_owned();
    let page = local.store.read(|state| {
        let known = |person: &people::Person| Known {
            id: person.id.clone(),
            name: person.name(),
            email: person.email.clone().unwrap_or_else(|| person.id.clone()),
            note: words::about(state, person),
        };
        let (sent, earlier) = deliveries::list(state);
        let retired = state.retired_keys.iter().filter(|key| key.jwk.kid != signs);
        let retired = retired.map(|key| KeyRow { kid: key.jwk.kid.clone(), retired_at: Some(key.retired_at.for_people()) });
        Index {
            frame: Frame::new(&local, "Operator page"),
            local: &local,
            events: &events::NAMES,
            users: &people::NAMES,
            people: state.people.iter().map(known).collect(),
            switches: state.switches.clone(),
            sent,
            earlier,
            open: state.journeys.iter().filter(|journey| journey.is_open()).count(),
            shown: SHOWN,
            keys: std::iter::once(KeyRow { kid: signs.clone(), retired_at: None }).chain(retired).collect(),
        }
    });
    page::answer(&local, StatusCode::OK, &page)
}

/// An order, from a form or as JSON. Answers before anything is sent.
pub async fn send(State(local): State<Arc<Local>>, request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let from_json = content_type.starts_with("application/json");
    let order = if from_json {
        Json::<Order>::from_request(request, &()).await.map(|Json(order)| order).map_err(IntoResponse::into_response)
    } else {
        Form::<Order>::from_request(request, &()).await.map(|Form(order)| order).map_err(|_| unreadable(&local))
    };
    let order = match order {
        Ok(order) => order,
        Err(refusal) => return refusal,
    };
    let taken = match local.take(&order) {
        Ok(taken) => local.settle().await.map(|()| taken),
        Err(error) => Err(error),
    };
    match taken {
        Ok(taken) if from_json => {
            let shape = |[kind, event_id, webhook_id]: &[String; 3]| json!({ "type": kind, "event_id": event_id, "webhook_id": webhook_id });
            let queued: Vec<Value> = taken.iter().map(shape).collect();
            (StatusCode::ACCEPTED, Json(json!({ "queued": queued }))).into_response()
        }
        Ok(_) => Redirect::to("/").into_response(),
        Err(error) if from_json => {
            let status =
                if matches!(error, Error::Usage(_)) { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
            (status, format!("{error}\n")).into_response()
        }
        Err(error) => wrong(&local, &error),
    }
}

/// One more delivery of an event.
pub async fn again(State(local): State<Arc<Local>>, Path(event_id): Path<String>) -> Response {
    let to = local.webhook_url.clone();
    let found = to.is_some_and(|to| local.store.change(|state| journeys::again(state, &event_id, &to, At::now())));
    if found {
        return done(&local, "/#deliveries").await;
    }
    page::notice(&local, StatusCode::NOT_FOUND, "No such event", &format!("{event_id} is not remembered here."))
}

/// A form as it came. Browsers hold people to what its fields take; nothing holds anybody else to it.
type Filled<T> = Result<Form<T>, FormRejection>;

#[derive(Debug, serde::Deserialize)]
pub struct Hold {
    hold: bool,
}

pub async fn hold(State(local): State<Arc<Local>>, form: Filled<Hold>) -> Response {
    let Ok(Form(form)) = form else { return unreadable(&local) };
    local.store.change(|state| state.switches.deliveries.hold = form.hold);
    done(&local, "/#deliveries").await
}

/// A box that is not ticked is not in the form.
#[derive(Debug, serde::Deserialize)]
pub struct DeliveriesForm {
    copies: u32,
    late_secs: u64,
    drop_answers: u32,
    shuffle: Option<String>,
    speed: f64,
    plan: PlanField,
    whose: Whose,
}

pub async fn set_deliveries(State(local): State<Arc<Local>>, form: Filled<DeliveriesForm>) -> Response {
    let Ok(Form(form)) = form else { return unreadable(&local) };
    let DeliveriesForm { copies, late_secs, drop_answers, shuffle, speed, plan, whose } = form;
    let wanted = Deliveries { copies, late_secs, drop_answers, shuffle: shuffle.is_some(), speed, hold: false };
    match wanted.check() {
        Ok(wanted) => {
            local.store.change(|state| {
                let hold = state.switches.deliveries.hold;
                state.switches.deliveries = Deliveries { hold, ..wanted };
                state.switches.spelling = Spelling { plan, whose };
            });
            done(&local, "/#switches").await
        }
        Err(error) => wrong(&local, &error),
    }
}

pub async fn set_apis(State(local): State<Arc<Local>>, form: Filled<Apis>) -> Response {
    let Ok(Form(form)) = form else { return unreadable(&local) };
    match form.check() {
        Ok(wanted) => {
            local.store.change(|state| state.switches.apis = wanted);
            done(&local, "/#switches").await
        }
        Err(error) => wrong(&local, &error),
    }
}

pub async fn set_lifetimes(State(local): State<Arc<Local>>, form: Filled<Lifetimes>) -> Response {
    let Ok(Form(form)) = form else { return unreadable(&local) };
    match form.check() {
        Ok(wanted) => {
            local.store.change(|state| state.switches.lifetimes = wanted);
            done(&local, "/#switches").await
        }
        Err(error) => wrong(&local, &error),
    }
}

pub async fn rotate(State(local): State<Arc<Local>>) -> Response {
    match local.rotate().await {
        Ok(()) => done(&local, "/#keys").await,
        Err(error) => page::trouble(&local, &error),
    }
}

/// What they signed can be verified by nobody from now on.
pub async fn drop_retired(State(local): State<Arc<Local>>) -> Response {
    local.store.change(|state| state.retired_keys.clear());
    done(&local, "/#keys").await
}

async fn done(local: &Local, place: &str) -> Response {
    match local.settle().await {
        Ok(()) => Redirect::to(place).into_response(),
        Err(error) => page::trouble(local, &error),
    }
}

fn unreadable(local: &Local) -> Response {
    let why = "A field of the form is missing, or holds what it does not take: a number below zero, or none at all. Nothing was changed.";
    page::notice(local, StatusCode::BAD_REQUEST, "That form cannot be read", why)
}

fn wrong(local: &Local, error: &Error) -> Response {
    match error {
        Error::Usage(why) => page::notice(local, StatusCode::BAD_REQUEST, "That makes no sense here", why),
        other => page::trouble(local, other),
    }
}
