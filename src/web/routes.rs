//! Every URL, and the layers around them, on one screen.

use std::any::Any;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::http::header::{self, HeaderName};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_sessions::cookie::SameSite;
use tower_sessions::service::PlaintextCookie;
use tower_sessions::{Expiry, SessionManagerLayer};

use super::state::AppState;
use super::{
    account, assets, calendar, callback, checkout, engine_room, error, event, health, home, live, login, manage_billing,
    money_file, ops, own_forms, portal, reminder, reminders, webhooks,
};
use crate::sessions::{ABSOLUTE, Sessions};
use crate::telemetry::labels::Part;
use crate::telemetry::metrics;

/// No inline script or style anywhere; forms post to us alone, and what they are answered with may lead to Kinde.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// The longest form of ours, all its characters encoded, with room to spare.
const FORM_BYTES_MAX: usize = 64 * 1024;

pub fn app(state: AppState) -> Router {
    let pages = Router::new()
        .route("/", get(home::show))
        .route("/login", get(login::begin))
        .route("/callback", get(callback::arrive))
        .route("/logout", post(login::end))
        .route("/account/billing", get(manage_billing::show).post(manage_billing::go))
        .route("/account", get(account::show))
        .route("/account/checkout", post(checkout::begin))
        .route("/account/checkout/{id}", get(checkout::show))
        .route("/account/portal", post(portal::go))
        .route("/account/money.csv", get(money_file::send))
        .route("/account/events/{id}", get(event::show))
        .route("/account/events/{id}/payload", get(event::payload))
        .route("/account/events/{id}/replay", get(event::replayed).post(event::replay))
        .route("/reminders", get(reminders::show).post(reminders::create))
        .route("/reminders/{id}", get(reminder::show).post(reminder::edit))
        .route("/reminders/{id}/done", post(reminder::done))
        .route("/reminders/{id}/snooze", post(reminder::snooze))
        .route("/reminders/{id}/resume", post(reminder::resume))
        .route("/reminders/{id}/delete", post(reminder::delete))
        .route("/reminders/calendar", get(calendar::show).post(calendar::make))
        .route("/reminders/calendar/revoke", post(calendar::revoke))
        .route("/live", get(live::stream))
        .route("/engine-room", get(engine_room::show))
        .route("/engine-room/every-order", post(engine_room::start_every_order))
        .route("/static/{name}", get(assets::serve))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .merge(operators(&state))
        // Around what is there: a sender that posts to an address of none should hear that, not that its form is foreign.
        .route_layer(ServiceBuilder::new().layer(from_fn(own_forms::said)).layer(own_forms::compared(&state.base)))
        .fallback(error::not_found)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(
            ServiceBuilder::new()
                .layer(CompressionLayer::new())
                .layer(sessions(&state))
                .layer(from_fn_with_state(state.clone(), error::around_whoever_is_signed_in)),
        );
    // A provider's post carries no browser's origin, and its answer is read by a machine.
    let endpoint = Router::new().route("/webhooks/{provider}", post(webhooks::receive).fallback(webhooks::post_only));

    // Its address is a key, and the layers above write addresses down, if only into the most talkative of logs.
    let feed =
        Router::new().route("/calendar/{file}", get(calendar::serve).fallback(error::not_found)).layer(CompressionLayer::new());

    let https = state.https;
    let headers = ServiceBuilder::new()
        .layer(always("content-security-policy", policy(&state)))
        .layer(always("x-content-type-options", HeaderValue::from_static("nosniff")))
        // `no-referrer` would make browsers send `Origin: null` with our own forms.
        .layer(always("referrer-policy", HeaderValue::from_static("same-origin")))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .option_layer(
            https.then(|| always("strict-transport-security", HeaderValue::from_static("max-age=63072000; includeSubDomains"))),
        );
    pages.merge(endpoint).merge(feed).with_state(state).layer(headers.layer(CatchPanicLayer::custom(panicked)))
}

/// What operators see. For everybody else there is nothing here, whatever the method.
fn operators(state: &AppState) -> Router<AppState> {
    Router::new()
        .route("/ops", get(ops::overview::show))
        .route("/ops/live", get(live::stream_for_operators))
        .route("/ops/events", get(ops::events::show))
        .route("/ops/events/{id}", get(ops::event::show))
        .route("/ops/events/{id}/payload", get(ops::event::payload))
        .route("/ops/events/{id}/replay", post(ops::event_forms::replay))
        .route("/ops/events/{id}/note", post(ops::event_forms::note))
        .route("/ops/events/{id}/acknowledge", post(ops::event_forms::acknowledge))
        .route("/ops/dead", get(ops::boxes::dead))
        .route("/ops/parked", get(ops::boxes::parked))
        .route("/ops/replay", get(ops::bulk_form::show))
        .route("/ops/replays", get(ops::bulk::list).post(ops::bulk_form::ask))
        .route("/ops/replays/{id}", get(ops::bulk::show))
        .route("/ops/replays/{id}/cancel", post(ops::bulk::cancel))
        .route("/ops/actions", get(ops::actions::show))
        .route("/ops/reconcile", get(ops::reconcile::list))
        .route("/ops/reconcile/{id}", get(ops::reconcile::show))
        .route_layer(from_fn_with_state(state.clone(), ops::guard::operators_only))
}

/// The cookie of a session, which only a sign-in makes. `Lax`: with `Strict` it would be missing when Kinde sends people back.
pub fn sessions(state: &AppState) -> SessionManagerLayer<Sessions, PlaintextCookie> {
    let name = if state.https { "__Host-bottle" } else { "bottle" };
    SessionManagerLayer::new(Sessions::new(state.pool.clone()))
        .with_name(name)
        .with_secure(state.https)
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_path("/")
        .with_expiry(Expiry::OnInactivity(ABSOLUTE.try_into().unwrap_or(time::Duration::DAY)))
}

/// Browsers hold a form to this list through every redirect of its answer, so signing out needs the tenant on it, and buying the
/// pages on which it is paid.
fn policy(state: &AppState) -> HeaderValue {
    let tenant = state.sign_in.iter().flat_map(|sign_in| sign_in.oidc.origins());
    let policy = tenant.fold(POLICY.to_owned(), |policy, origin| policy + " " + origin);
    let pages = state.providers.all().flat_map(|(_, provider)| provider.origins());
    let policy = pages.fold(policy, |policy, origin| policy + " " + &origin);
    HeaderValue::from_str(&policy).expect("origins are printable ASCII")
}

fn always(name: &'static str, value: HeaderValue) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(HeaderName::from_static(name), value)
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    metrics::panic(Part::Web);
    tracing::error!(panic = text.unwrap_or("no message"), "a request handler panicked");
    error::failed()
}
