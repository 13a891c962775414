//! Status codes, and the page that goes with each. People see what to do next and nothing of our insides.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use super::error_page;
use crate::reminders;

pub const BAD_ADDRESS: StatusCode = StatusCode::BAD_REQUEST;
/// A form that cannot be taken as it is; it comes back with what was typed.
pub const BAD_FORM: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
/// What a form is about has changed since the form was made.
pub const CHANGED: StatusCode = StatusCode::CONFLICT;

pub async fn not_found() -> Response {
    page(StatusCode::NOT_FOUND, error_page::not_found())
}

/// The request's own id is not known here; the log has the reason.
pub fn failed() -> Response {
    page(StatusCode::INTERNAL_SERVER_ERROR, error_page::failed(None))
}

pub fn unavailable(sentence: &str) -> Response {
    page(StatusCode::SERVICE_UNAVAILABLE, error_page::unavailable(sentence))
}

/// A form of more than any of ours can be.
pub fn too_large() -> Response {
    page(StatusCode::PAYLOAD_TOO_LARGE, error_page::too_large())
}

/// Something was posted that no page of ours posts.
pub fn no_form() -> Response {
    page(StatusCode::BAD_REQUEST, error_page::no_form())
}

/// What reminders cannot do just now. What is the person's own affair, their page has said already.
pub fn reminders(error: &reminders::Error) -> Response {
    let chain = error as &dyn std::error::Error;
    match error {
        reminders::Error::Unreadable(..) | reminders::Error::Word(..) => {
            tracing::error!(error = chain, "a reminder is stored that cannot be read");
            failed()
        }
        reminders::Error::NotFound => page(StatusCode::NOT_FOUND, error_page::not_found()),
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

pub(super) fn page(status: StatusCode, html: Result<String, askama::Error>) -> Response {
    match html {
        Ok(html) => (status, Html(html)).into_response(),
        Err(_) => (status, "Something failed on our side. Try again in a moment.\n").into_response(),
    }
}
