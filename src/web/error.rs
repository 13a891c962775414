//! Status codes, and the page that goes with each. People see what to do next and nothing of our insides.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use super::error_page;

pub const BAD_ADDRESS: StatusCode = StatusCode::BAD_REQUEST;

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
