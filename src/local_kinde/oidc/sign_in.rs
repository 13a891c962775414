//! The sign-in page: no passwords. Whoever is on this machine may be anybody it knows, or somebody new.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::authorize;
use super::request::{AuthRequest, Prompt};
use super::session;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::pages::page::{self, Frame};
use crate::local_kinde::pages::words;
use crate::local_kinde::people::{self, Person};
use crate::local_kinde::state::State as Known;

#[derive(Template)]
#[template(path = "local_kinde_sign_in.html")]
struct SignIn<'a> {
    frame: Frame,
    query: &'a str,
    new_first: bool,
    people: Vec<Choice>,
    form: &'a SignUp,
    wrong: Option<&'a str>,
}

struct Choice {
    id: String,
    name: String,
    email: String,
    note: String,
    hinted: bool,
}

/// One of three forms: whose fields are filled tells which.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct SignUp {
    person: Option<String>,
    refuse: Option<String>,
    given_name: String,
    family_name: String,
    email: String,
    unverified: Option<String>,
}

pub fn show(local: &Local, request: &AuthRequest) -> Response {
    let form =
        SignUp { email: request.login_hint.clone().filter(|hint| hint.contains('@')).unwrap_or_default(), ..SignUp::default() };
    page_with(local, request, &form, None)
}

pub async fn submit(
    State(local): State<Arc<Local>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    Form(form): Form<SignUp>,
) -> Response {
    let request = match AuthRequest::read(&local, query.as_deref()) {
        Ok(request) => request,
        Err(refusal) => return refusal.answer(&local),
    };
    if form.refuse.is_some() {
        return request.error("access_denied", "the person refused to sign in");
    }
    let now = At::now();
    let begun = local.store.change(|state| {
        let user_id = match &form.person {
            Some(id) if state.find_person(id).is_some() => id.clone(),
            Some(_) => return Ok(Err("Nobody here has that id.".to_owned())),
            None => match sign_up(state, &form, now) {
                Ok(id) => id,
                Err(why) => return Ok(Err(why)),
            },
        };
        session::begin(&local, state, session::cookie(&headers), &user_id, now).map(Ok)
    });
    let id = match begun {
        Ok(Ok(id)) => id,
        Ok(Err(why)) => return page_with(&local, &request, &form, Some(&why)),
        Err(error) => return page::trouble(&local, &error),
    };
    if let Err(error) = local.settle().await {
        return page::trouble(&local, &error);
    }
    let Some(begun) = local.store.read(|state| state.find_session(Some(&id), now).cloned()) else {
        return page::notice(&local, StatusCode::CONFLICT, "Signed out meanwhile", "This session was ended before it began.");
    };
    let mut response = authorize::go_on(&local, &request, &begun).await;
    session::set(&mut response, &id);
    response
}

fn sign_up(state: &mut Known, form: &SignUp, now: At) -> Result<String, String> {
    let (given, family, email) = (form.given_name.trim(), form.family_name.trim(), form.email.trim());
    if given.is_empty() || given.len() > 100 || family.len() > 100 {
        return Err("Give a first name; a name has at most 100 characters.".to_owned());
    }
    let parts: Vec<&str> = email.split('@').collect();
    let looks_right = matches!(&*parts, [name, domain] if !name.is_empty() && !domain.is_empty());
    if !looks_right || email.len() > 254 || email.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("`{email}` is not an e-mail address."));
    }
    if state.people.iter().any(|person| person.email.as_ref().is_some_and(|taken| taken.eq_ignore_ascii_case(email))) {
        return Err(format!("{email} has an account already: sign in with it."));
    }
    let mut person = Person::new(people::fresh("kp_"), given, family, Some(email.to_owned()), now);
    person.email_verified = form.unverified.is_none();
    let id = person.id.clone();
    state.people.push(person);
    Ok(id)
}

fn page_with(local: &Local, request: &AuthRequest, form: &SignUp, wrong: Option<&str>) -> Response {
    let hint = request.login_hint.as_deref().unwrap_or_default();
    let people = local.store.read(|state| {
        let choice = |person: &Person| Choice {
            id: person.id.clone(),
            name: person.name(),
            email: person.email.clone().unwrap_or_else(|| person.id.clone()),
            note: words::about(state, person),
            hinted: !hint.is_empty() && person.email.as_deref() == Some(hint),
        };
        let mut people: Vec<Choice> = state.people.iter().map(choice).collect();
        people.sort_by_key(|choice| !choice.hinted);
        people
    });
    let new_first = request.prompt == Prompt::Create;
    let title = if new_first { "Make an account" } else { "Sign in" };
    let page = SignIn { frame: Frame::new(local, title), query: &request.query, new_first, people, form, wrong };
    page::answer(local, if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &page)
}
