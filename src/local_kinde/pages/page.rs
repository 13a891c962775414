//! What all pages share: their frame, their style, their headers, and the page that only says something.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use crate::local_kinde::Error;
use crate::local_kinde::local::Local;

pub struct Frame {
    pub title: String,
    pub app_url: Option<String>,
}

impl Frame {
    pub fn new(local: &Local, title: &str) -> Self {
        Self { title: title.to_owned(), app_url: local.app.url.clone() }
    }
}

#[derive(Template)]
#[template(path = "local_kinde_notice.html")]
struct Notice<'a> {
    frame: Frame,
    why: &'a str,
}

/// A page that only says something.
pub fn notice(local: &Local, status: StatusCode, title: &str, why: &str) -> Response {
    answer(local, status, &Notice { frame: Frame::new(local, title), why })
}

/// Something failed that is no fault of who asked.
pub fn trouble(local: &Local, error: &Error) -> Response {
    tracing::error!(%error, "the local Kinde could not answer");
    notice(local, StatusCode::INTERNAL_SERVER_ERROR, "That did not work", &error.to_string())
}

/// The page, under its policy.
pub fn answer(local: &Local, status: StatusCode, page: &impl Template) -> Response {
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "a page of the local Kinde could not be written out");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = (status, Html(html)).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy(local)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// A form here may end at the app, by a redirect, and browsers look at that too.
fn policy(local: &Local) -> String {
    let ends = local.app.origins().join(" ");
    format!(
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self' {ends}; base-uri 'none'; frame-ancestors 'none'"
    )
}

/// On every answer.
pub async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        // `no-referrer` would take the origin from posts as well, and by it they are told from foreign ones.
        ("referrer-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

pub async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../../../static/local_kinde.css"))
}

pub async fn icon() -> Response {
    file("image/svg+xml", include_str!("../../../static/local_kinde.svg"))
}

fn file(content_type: &'static str, content: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")], content).into_response()
}

pub async fn lost(State(local): State<Arc<Local>>) -> Response {
    notice(&local, StatusCode::NOT_FOUND, "Nothing is here", "The local Kinde has no page at this address.")
}
