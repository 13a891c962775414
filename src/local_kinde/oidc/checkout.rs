//! Choosing a plan on the way back to the app: with `plan_interest` that plan is asked for alone, else the pricing table is shown.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};

use super::authorize;
use super::request::AuthRequest;
use super::session;
use crate::local_kinde::Error;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::pages::page::{self, Frame};
use crate::local_kinde::pages::words::{self, Offer};
use crate::local_kinde::plans::{self, Deed};
use crate::local_kinde::state::Session;

#[derive(Template)]
#[template(path = "local_kinde_checkout.html")]
struct Checkout<'a> {
    frame: Frame,
    query: &'a str,
    name: String,
    offers: Vec<Offer>,
    /// A plan was asked for that is not there.
    unknown: Option<&'a str>,
}

#[derive(Debug, serde::Deserialize)]
pub struct Choice {
    plan: Option<String>,
    refuse: Option<String>,
}

pub async fn show(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let (request, session) = match who(&local, query.as_deref(), &headers) {
        Ok(both) => both,
        Err(other) => return *other,
    };
    let interest = request.plan_interest.as_deref();
    let mut offers = words::offers(None);
    if let Some(plan) = interest.and_then(plans::find) {
        offers.retain(|offer| offer.key == plan.key);
    }
    let name = local.store.read(|state| state.find_person(&session.user_id).map(crate::local_kinde::people::Person::name));
    let unknown = interest.filter(|key| plans::find(key).is_none());
    let page = Checkout {
        frame: Frame::new(&local, "Choose a plan"),
        query: &request.query,
        name: name.unwrap_or_default(),
        offers,
        unknown,
    };
    page::answer(&local, StatusCode::OK, &page)
}

pub async fn submit(
    State(local): State<Arc<Local>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    Form(choice): Form<Choice>,
) -> Response {
    let (request, session) = match who(&local, query.as_deref(), &headers) {
        Ok(both) => both,
        Err(other) => return *other,
    };
    let Some(plan) = choice.plan.filter(|_| choice.refuse.is_none()) else {
        return request.error("access_denied", "the person chose no plan");
    };
    let now = At::now();
    let chosen = local.store.change(|state| {
        // Sent twice, the second choice finds the plan there already, and that is fine.
        if plans::current(state, &session.user_id, now).is_some() {
            return Ok(());
        }
        let told = plans::carry_out(state, &session.user_id, &Deed::Choose { plan }, now)?;
        local.tell(state, &told, now)
    });
    match chosen {
        Ok(()) => authorize::let_in(&local, &request, &session).await,
        Err(Error::Usage(why)) => page::notice(&local, StatusCode::BAD_REQUEST, "That plan cannot be chosen", &why),
        Err(error) => page::trouble(&local, &error),
    }
}

/// Who is choosing; back to the sign-in if nobody is.
fn who(local: &Local, query: Option<&str>, headers: &HeaderMap) -> Result<(AuthRequest, Session), Box<Response>> {
    let request = AuthRequest::read(local, query).map_err(|refusal| Box::new(refusal.answer(local)))?;
    match session::find(local, headers) {
        Some(session) => Ok((request, session)),
        None => Err(Box::new(Redirect::to(&format!("/oauth2/auth?{}", request.query)).into_response())),
    }
}
