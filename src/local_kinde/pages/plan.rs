//! Somebody's plan page: opened by a portal link for the person themselves, or from the operator page for anyone. What is done on it
//! happens as at Kinde, and is told by the events that Kinde would send.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Form;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::page::{self, Frame};
use super::words::{self, Offer};
use crate::local_kinde::Error;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::oidc::params::Params;
use crate::local_kinde::people::{self, Person};
use crate::local_kinde::plans::{self, Agreement, Deed, InvoiceState};
use crate::local_kinde::state::{State as Known, Visit};

#[derive(Template)]
#[template(path = "local_kinde_plan.html")]
struct PlanPage {
    frame: Frame,
    person: Person,
    /// Where the forms post to.
    here: String,
    back: Back,
    current: Option<Current>,
    offers: Vec<Offer>,
    past: Vec<Past>,
    told: Option<usize>,
    wrong: Option<String>,
    sends: bool,
}

enum Back {
    /// To where the app asked to return.
    App(String),
    Operator,
}

struct Current {
    plan: String,
    agreement_id: String,
    period: String,
    invoice: String,
    costs: bool,
    is_open: bool,
    ends: Option<String>,
}

struct Past {
    plan: String,
    agreement_id: String,
    span: String,
}

/// How long a plan page opened by a link can be used.
const VISIT_LASTS: Duration = Duration::from_hours(1);

#[derive(Debug, serde::Deserialize)]
pub struct DeedForm {
    deed: String,
    #[serde(default)]
    plan: String,
    quantity: Option<u32>,
}

/// A link works once; what it opens stays open for a while.
pub async fn open(State(local): State<Arc<Local>>, Path(secret): Path<String>) -> Response {
    let now = At::now();
    let visit = people::fresh("");
    let opened = local.store.change(|state| {
        let link = state.portal_links.remove(&secret).filter(|link| link.expires > now)?;
        state.visits.insert(visit.clone(), Visit { expires: now.after(VISIT_LASTS), ..link });
        Some(())
    });
    if opened.is_none() {
        let why = "Such a link works once, and for a few minutes only. Go back to the app and ask for a new one.";
        return page::notice(&local, StatusCode::GONE, "This link was used or is too old", why);
    }
    match local.settle().await {
        Ok(()) => Redirect::to(&format!("/plans/{visit}")).into_response(),
        Err(error) => page::trouble(&local, &error),
    }
}

pub async fn show_visit(State(local): State<Arc<Local>>, Path(visit): Path<String>, RawQuery(query): RawQuery) -> Response {
    match find_visit(&local, &visit) {
        Some(visit_found) => show(&local, &visit_found.user_id, format!("/plans/{visit}"), back(&visit_found), query.as_deref()),
        None => over(&local),
    }
}

pub async fn act_in_visit(State(local): State<Arc<Local>>, Path(visit): Path<String>, Form(form): Form<DeedForm>) -> Response {
    match find_visit(&local, &visit) {
        Some(visit_found) => act(&local, &visit_found.user_id, format!("/plans/{visit}"), back(&visit_found), form).await,
        None => over(&local),
    }
}

pub async fn show_person(State(local): State<Arc<Local>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Response {
    show(&local, &id, format!("/people/{id}"), Back::Operator, query.as_deref())
}

pub async fn act_for_person(State(local): State<Arc<Local>>, Path(id): Path<String>, Form(form): Form<DeedForm>) -> Response {
    act(&local, &id, format!("/people/{id}"), Back::Operator, form).await
}

fn find_visit(local: &Local, visit: &str) -> Option<Visit> {
    local.store.read(|state| state.visits.get(visit).filter(|visit| visit.expires > At::now()).cloned())
}

fn over(local: &Local) -> Response {
    let why = "A plan page opened by a link can be used for an hour. Go back to the app and ask for a new link.";
    page::notice(local, StatusCode::GONE, "This visit is over", why)
}

fn back(visit: &Visit) -> Back {
    visit.return_url.clone().map_or(Back::Operator, Back::App)
}

fn show(local: &Local, user_id: &str, here: String, back: Back, query: Option<&str>) -> Response {
    let told = Params::of_query(query).get("told").and_then(|told| told.parse().ok());
    with(local, user_id, here, back, told, None)
}

async fn act(local: &Local, user_id: &str, here: String, back: Back, form: DeedForm) -> Response {
    let now = At::now();
    let done = read(form).and_then(|deed| {
        local.store.change(|state| {
            let told = plans::carry_out(state, user_id, &deed, now)?;
            local.tell(state, &told, now).map(|()| told.len())
        })
    });
    match done {
        Ok(told) => match local.settle().await {
            Ok(()) => Redirect::to(&format!("{here}?told={told}")).into_response(),
            Err(error) => page::trouble(local, &error),
        },
        Err(Error::Usage(why)) => with(local, user_id, here, back, None, Some(why)),
        Err(error) => page::trouble(local, &error),
    }
}

fn read(form: DeedForm) -> Result<Deed, Error> {
    Ok(match form.deed.as_str() {
        "choose" => Deed::Choose { plan: form.plan },
        "cancel_now" => Deed::CancelNow,
        "cancel_at_period_end" => Deed::CancelAtPeriodEnd,
        "let_period_end" => Deed::LetPeriodEnd,
        "bill" => Deed::Bill,
        "pay" => Deed::Pay,
        "fail_payment" => Deed::FailPayment,
        "mark_overdue" => Deed::MarkOverdue,
        "meter_usage" => Deed::MeterUsage { quantity: form.quantity.unwrap_or(1) },
        other => return Err(Error::Usage(format!("nothing here is called `{other}`"))),
    })
}

fn with(local: &Local, user_id: &str, here: String, back: Back, told: Option<usize>, wrong: Option<String>) -> Response {
    let now = At::now();
    let page = local.store.read(|state| {
        let person = state.find_person(user_id)?.clone();
        let current = plans::current(state, user_id, now);
        let status = current.map(|agreement| agreement.plan_code.clone());
        Some(PlanPage {
            frame: Frame::new(local, &format!("The plan of {}", person.name())),
            offers: words::offers(status.as_deref()),
            current: current.map(|agreement| shape(agreement, now)),
            past: past(state, user_id, now),
            sends: local.webhook_url.is_some(),
            person,
            here,
            back,
            told,
            wrong,
        })
    });
    match page {
        Some(page) => {
            let status = if page.wrong.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
            page::answer(local, status, &page)
        }
        None => page::notice(local, StatusCode::NOT_FOUND, "Nobody has this id", "No such person is known to this Kinde."),
    }
}

fn shape(agreement: &Agreement, now: At) -> Current {
    let (start, end) = agreement.starts_at.month_around(now);
    Current {
        plan: words::plan_name(&agreement.plan_code).to_owned(),
        agreement_id: agreement.id.clone(),
        period: format!("{} to {}", start.for_people(), end.for_people()),
        invoice: words::invoice(agreement),
        costs: agreement.costs(),
        is_open: agreement.invoice.state != InvoiceState::Paid,
        ends: agreement.end.as_ref().map(|end| end.at.for_people()),
    }
}

/// Newest first.
fn past(state: &Known, user_id: &str, now: At) -> Vec<Past> {
    let ended = state.agreements.iter().rev().filter(|agreement| agreement.user_id == user_id && !agreement.is_live(now));
    ended
        .map(|agreement| Past {
            plan: words::plan_name(&agreement.plan_code).to_owned(),
            agreement_id: agreement.id.clone(),
            span: format!(
                "{} to {}",
                agreement.starts_at.for_people(),
                agreement.end.as_ref().map_or_else(String::new, |end| end.at.for_people())
            ),
        })
        .collect()
}
