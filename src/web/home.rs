//! The front door.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};

use super::error;
use super::gauge::Gauge;
use super::page::Frame;
use super::person::Person;
use super::state::AppState;
use crate::engine_room::naive::{self, Repairs};
use crate::engine_room::report::thousands;
use crate::engine_room::scenario::Script;

#[derive(Template)]
#[template(path = "home.html")]
struct Home<'a> {
    frame: Frame,
    naive: Gauge,
    naive_balance: String,
    ours: Gauge,
    owed: String,
    too_many: String,
    /// Whether anybody can sign in here.
    can_sign_in: bool,
    /// On a fresh checkout: this is the visitor's own machine.
    local_kinde: Option<&'a str>,
}

pub async fn show(person: Option<Person>, State(app): State<AppState>) -> Response {
    match render(person.as_ref(), app.local_kinde.as_deref(), app.sign_in.is_some()) {
        Ok(html) => Html(html).into_response(),
        Err(error) => error::template(&error),
    }
}

/// # Errors
/// Only if the template itself fails.
pub fn render(person: Option<&Person>, local_kinde: Option<&str>, can_sign_in: bool) -> Result<String, askama::Error> {
    let script = Script::article();
    let end = naive::last(&script, Repairs::default()).balance;
    let owed = script.owed().balance;
    Home {
        frame: Frame::new("Bottle", "home").of(person),
        naive: Gauge::new("naive", "naive", end),
        naive_balance: thousands(end),
        ours: Gauge::new("ours", "ours", owed),
        owed: thousands(owed),
        too_many: thousands(end - owed),
        can_sign_in,
        local_kinde,
    }
    .render()
}
