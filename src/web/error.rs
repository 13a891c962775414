//! Error pages. People see what to do next and nothing of our insides.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;

pub async fn not_found() -> Response<Body> {
    page(StatusCode::NOT_FOUND, "There is no page here", "The address may be mistyped, or what it showed is gone.")
}

pub fn server_error() -> Response<Body> {
    page(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Something went wrong here",
        "It was logged, and nothing you sent was half-saved. Trying again in a moment is safe.",
    )
}

fn page(status: StatusCode, title: &str, text: &str) -> Response<Body> {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{title}\n\n{text}\n")).into_response()
}
