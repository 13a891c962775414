//! Every URL, and the layers around them, on one screen.

use std::any::Any;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{self, HeaderName};
use axum::response::Response;
use axum::routing::{get, post};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::csrf::CsrfLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_sessions::cookie::SameSite;
use tower_sessions::service::PlaintextCookie;
use tower_sessions::{Expiry, SessionManagerLayer};

use super::state::AppState;
use super::{assets, engine_room, error, health, home, webhooks};
use crate::sessions::{ABSOLUTE, Sessions};

/// No inline script or style anywhere; forms post to us alone.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub fn app(state: AppState) -> Router {
    let pages = Router::new()
        .route("/", get(home::show))
        .route("/engine-room", get(engine_room::show))
        .route("/engine-room/every-order", post(engine_room::start_every_order))
        .route("/static/{name}", get(assets::serve))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .fallback(error::not_found)
        .layer(ServiceBuilder::new().layer(CompressionLayer::new()).layer(CsrfLayer::new()).layer(sessions(&state)));
    // A provider's post carries no browser's origin, and its answer is read by a machine.
    let endpoint = Router::new().route("/webhooks/{provider}", post(webhooks::receive).fallback(webhooks::post_only));

    let https = state.https;
    let headers = ServiceBuilder::new()
        .layer(always("content-security-policy", POLICY))
        .layer(always("x-content-type-options", "nosniff"))
        // `no-referrer` would make browsers send `Origin: null` with our own forms.
        .layer(always("referrer-policy", "same-origin"))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .option_layer(https.then(|| always("strict-transport-security", "max-age=63072000; includeSubDomains")));
    pages.merge(endpoint).with_state(state).layer(headers.layer(CatchPanicLayer::custom(panicked)))
}

/// The cookie of a session, which only a sign-in makes. `Lax`: with `Strict` it would be missing when Kinde sends people back.
fn sessions(state: &AppState) -> SessionManagerLayer<Sessions, PlaintextCookie> {
    let name = if state.https { "__Host-bottle" } else { "bottle" };
    SessionManagerLayer::new(Sessions::new(state.pool.clone()))
        .with_name(name)
        .with_secure(state.https)
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_path("/")
        .with_expiry(Expiry::OnInactivity(ABSOLUTE.try_into().unwrap_or(time::Duration::DAY)))
}

fn always(name: &'static str, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(HeaderName::from_static(name), HeaderValue::from_static(value))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("no message"), "a request handler panicked");
    error::failed()
}
