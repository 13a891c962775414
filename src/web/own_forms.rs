//! Only our own pages may change anything: a request that is no mere look has to say where it comes from, and that has to be us.
//!
//! Every browser says it. A request that says nothing comes from a program; one that means it can say `Origin` too. So there is
//! no secret in any form, and no form that could lack it. Cookies that are `SameSite=Lax` stand behind this as a second wall.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tower_http::csrf::{CsrfLayer, ProtectionError};

use super::{error, error_page};

/// The layer that compares. `base` is our own address, in case a proxy in front of us changes the host.
pub fn compared(base: &reqwest::Url) -> CsrfLayer<impl FnMut(ProtectionError) -> Response + Clone + Send + Sync + 'static> {
    let layer = CsrfLayer::new();
    // An http or https origin, which is what it takes; without it the host of each request is what counts.
    let layer = layer.add_trusted_origin(base.origin().ascii_serialization()).unwrap_or_default();
    layer.with_rejection_response(|_| refused())
}

/// Refuses what says nothing of where it comes from, which the layer above takes for a harmless program.
pub async fn said(request: Request, next: Next) -> Response {
    if request.method().is_safe() || says_from_where(request.headers()) { next.run(request).await } else { refused() }
}

fn says_from_where(headers: &HeaderMap) -> bool {
    let says = |name: &str| headers.get(name).is_some_and(|value| !value.is_empty());
    says("sec-fetch-site") || says(header::ORIGIN.as_str())
}

fn refused() -> Response {
    error::say(StatusCode::FORBIDDEN, error_page::not_from_here())
}
