//! The Engine Room's addresses. The page itself is made in `engine_room_view`.

use axum::extract::{RawQuery, State};
use axum::response::{Html, IntoResponse, Redirect, Response};

use crate::engine_room::RoomError;
use crate::engine_room::address::Address;

use super::engine_room_view::{View, render};
use super::error;
use super::person::Person;
use super::state::AppState;

/// Shows the script of the address. A form's fields are answered with the address they amount to, so what stands in the
/// address bar can be shared.
pub async fn show(person: Option<Person>, State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let (address, problem) = match Address::parse(&query) {
        Ok(address) if address.query().trim_start_matches('?') != query => {
            return Redirect::to(&address.to_string()).into_response();
        }
        Ok(address) => (address, None),
        Err(bad) => (Address::default(), Some(bad)),
    };
    match app.room.run(&address.script).await {
        Ok(run) => {
            let every_order = app.room.every_order();
            let view = View {
                person: person.as_ref(),
                run: &run,
                address: &address,
                problem: problem.as_ref(),
                every_order: &every_order,
            };
            match render(&view) {
                Ok(html) if problem.is_some() => (error::BAD_ADDRESS, Html(html)).into_response(),
                Ok(html) => Html(html).into_response(),
                Err(error) => error::template(&error),
            }
        }
        Err(error) => unavailable(&error),
    }
}

/// Starts the run of every order and goes back to where the visitor was.
pub async fn start_every_order(State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    match app.room.start_every_order().await {
        Ok(()) => {
            let address = Address::parse(&query.unwrap_or_default()).unwrap_or_default();
            Redirect::to(&format!("{address}#every")).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

fn unavailable(error: &RoomError) -> Response {
    tracing::warn!(error = error as &dyn std::error::Error, "the Engine Room could not run a script");
    error::unavailable(match error {
        RoomError::Busy => "Somebody else's run takes longer than usual. Try again in a moment.",
        RoomError::Closed => {
            "The Engine Room is closed here: this Bottle may make no schema for it. Whoever runs it can open it."
        }
        _ => "The Engine Room runs on a real database, and that cannot be used right now. Try again in a moment.",
    })
}
