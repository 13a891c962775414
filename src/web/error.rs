//! Status codes, and the page that goes with each. People see what to do next and nothing of our insides.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::error_page::{self, Words};
use super::person::Person;
use super::state::AppState;
use crate::reminders;

/// A page that only says that there is nothing to see does not wait longer than this to learn who sees it.
const WHO_WITHIN: Duration = Duration::from_millis(250);

pub const BAD_ADDRESS: StatusCode = StatusCode::BAD_REQUEST;
/// A form that cannot be taken as it is; it comes back with what was typed.
pub const BAD_FORM: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
/// What a form is about has changed since the form was made.
pub const CHANGED: StatusCode = StatusCode::CONFLICT;

pub async fn not_found() -> Response {
    nothing_here()
}

pub(super) fn nothing_here() -> Response {
    say(StatusCode::NOT_FOUND, error_page::not_found())
}

/// The request's own id is not known here; the log has the reason.
pub fn failed() -> Response {
    say(StatusCode::INTERNAL_SERVER_ERROR, error_page::failed(None))
}

pub fn unavailable(sentence: &str) -> Response {
    say(StatusCode::SERVICE_UNAVAILABLE, error_page::unavailable(sentence))
}

/// A form of more than any of ours can be.
pub fn too_large() -> Response {
    say(StatusCode::PAYLOAD_TOO_LARGE, error_page::too_large())
}

/// Something was posted that no page of ours posts.
pub fn no_form() -> Response {
    say(StatusCode::BAD_REQUEST, error_page::no_form())
}

/// What reminders cannot do just now. What is the person's own affair, their page has said already.
pub fn reminders(error: &reminders::Error) -> Response {
    let chain = error as &dyn std::error::Error;
    match error {
        reminders::Error::Unreadable(..) | reminders::Error::Word(..) => {
            tracing::error!(error = chain, "a reminder is stored that cannot be read");
            failed()
        }
        reminders::Error::NotFound => say(StatusCode::NOT_FOUND, error_page::not_found()),
        _ => {
            tracing::warn!(error = chain, "reminders could not be read or written");
            unavailable(
                "Your reminders could not be read or written just now: the database is slow or away. Nothing is lost. Try again \
                 in a moment; a form that is sent again makes no second reminder.",
            )
        }
    }
}

pub fn template(error: &askama::Error) -> Response {
    tracing::error!(%error, "a template could not be rendered");
    failed()
}

/// An error page, around nobody so far.
pub(super) fn say(status: StatusCode, words: Words) -> Response {
    let mut answer = page(status, words.render(None));
    answer.extensions_mut().insert(words);
    answer
}

/// Error pages are made deep inside, where nobody knows who is signed in. Here, on their way out, that is put around them: whoever
/// is signed in and mistypes an address still is. The session was mostly read already; one that cannot be read at once is none.
pub async fn around_whoever_is_signed_in(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let asked = Request::from_parts(parts.clone(), body);
    let mut answer = next.run(asked).await;
    let Some(words) = answer.extensions_mut().remove::<Words>() else { return answer };
    let Ok(Some(person)) = tokio::time::timeout(WHO_WITHIN, Person::of(&mut parts, &app)).await else { return answer };
    let status = answer.status();
    match words.render(Some(&person)) {
        Ok(html) => {
            let mut personal = (status, Html(html)).into_response();
            personal.headers_mut().extend(answer.headers().clone());
            personal
        }
        Err(_) => answer,
    }
}

pub(super) fn page(status: StatusCode, html: Result<String, askama::Error>) -> Response {
    match html {
        Ok(html) => (status, Html(html)).into_response(),
        Err(_) => (status, "Something failed on our side. Try again in a moment.\n").into_response(),
    }
}
