//! The local Kinde as a server, on loopback only: every address it answers, who may ask, and how it starts and stops.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_http::csrf::CsrfLayer;

use super::Error;
use super::api::{account, management, trouble};
use super::app::App;
use super::dispatch;
use super::key::SigningKey;
use super::local::Local;
use super::oidc::{authorize, checkout, discovery, inspect, logout, profile, sign_in, token};
use super::pages::{operator, page, plan};
use super::sender::Sender;
use super::state::{Credentials, State};
use super::store::Store;

#[derive(Debug, Clone)]
pub struct Settings {
    /// `127.0.0.1:4000`; port 0 takes a free one.
    pub addr: String,
    /// The folder that keeps the signing key and the state.
    pub state: PathBuf,
    /// Where webhooks go. Without it, orders are refused.
    pub webhook_url: Option<String>,
    /// Who signs people in here. Without an address, nobody does.
    pub app: App,
}

/// An address that is taken, so that nobody else can, before the rest is ready.
pub struct Bound {
    listener: TcpListener,
    url: String,
}

/// A local Kinde at work. Dropped, it stops too, without waiting.
pub struct Running {
    url: String,
    credentials: Credentials,
    store: Arc<Store>,
    served: JoinHandle<()>,
    stop: DropGuard,
    written: DropGuard,
}

/// Takes the address.
///
/// # Errors
/// It is not loopback, or taken.
pub async fn bind(addr: &str) -> Result<Bound, Error> {
    let listener = listen(addr).await?;
    let at = listener.local_addr().map_err(|source| Error::Listen { addr: addr.to_owned(), source })?;
    Ok(Bound { listener, url: format!("http://{at}") })
}

/// Takes the address and starts.
///
/// # Errors
/// The address is not loopback or is taken, the webhook URL is none, or the key or the state cannot be had.
pub async fn start(settings: Settings) -> Result<Running, Error> {
    if let Some(url) = &settings.webhook_url {
        check_webhook_url(url)?;
    }
    bind(&settings.addr).await?.start(settings)
}

impl Bound {
    /// `http://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Starts on the address that was taken; the one in `settings` is not looked at.
    ///
    /// # Errors
    /// The webhook URL is none, or the key or the state cannot be had.
    pub fn start(self, settings: Settings) -> Result<Running, Error> {
        if let Some(url) = &settings.webhook_url {
            check_webhook_url(url)?;
        }
        let Self { listener, url } = self;
        let key = SigningKey::load_or_make(&settings.state)?;
        let store = Arc::new(Store::open(&settings.state)?);
        let credentials = store.change(|state| credentials(state, &settings.app));
        let local = Arc::new(Local {
            url: url.clone(),
            folder: settings.state,
            app: settings.app,
            credentials: credentials.clone(),
            webhook_url: settings.webhook_url,
            store: Arc::clone(&store),
            key: RwLock::new(Arc::new(key)),
            sender: Sender::new(OPEN_REQUESTS)?,
            wake: Notify::new(),
        });
        let (stop, written) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(Arc::clone(&store).keep_writing(written.clone()));
        tokio::spawn(dispatch::run(Arc::clone(&local), stop.clone()));
        let serving = axum::serve(listener, routes(local)).with_graceful_shutdown(stop.clone().cancelled_owned());
        let served = tokio::spawn(async move {
            // Never an error, by axum's own promise.
            let _ = serving.await;
        });
        Ok(Running { url, credentials, store, served, stop: stop.drop_guard(), written: written.drop_guard() })
    }
}

impl Running {
    /// `http://127.0.0.1:<port>`: what a Kinde domain would be, and the issuer.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub fn client_id(&self) -> String {
        self.credentials.client_id.clone()
    }

    pub fn client_secret(&self) -> String {
        self.credentials.client_secret.clone()
    }

    pub fn m2m_client_id(&self) -> String {
        self.credentials.m2m_client_id.clone()
    }

    pub fn m2m_client_secret(&self) -> String {
        self.credentials.m2m_client_secret.clone()
    }

    /// Stops listening and sending, and writes its state a last time: what still waits to be sent is sent after the next start.
    pub async fn stop(self) {
        let Self { store, mut served, stop, written, .. } = self;
        drop(stop);
        if tokio::time::timeout(STOPS_WITHIN, &mut served).await.is_err() {
            served.abort();
        }
        store.close().await;
        drop(written);
    }
}

/// The machine-to-machine credentials (id, secret) of the local Kinde that keeps its state in this folder, for a command beside the
/// Bottle that it runs in. None: there is none, or it cannot be read.
pub fn machine_credentials(folder: &Path) -> Option<(String, String)> {
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("state.json")).ok()?).ok()?;
    let text = |name: &str| kept["credentials"][name].as_str().map(str::to_owned);
    text("m2m_client_id").zip(text("m2m_client_secret"))
}

/// Whether webhooks can be posted there.
///
/// # Errors
/// They cannot.
pub fn check_webhook_url(url: &str) -> Result<(), Error> {
    match reqwest::Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => Ok(()),
        _ => Err(Error::WebhookUrl { url: url.to_owned() }),
    }
}

const OPEN_REQUESTS: usize = 8;
const STOPS_WITHIN: Duration = Duration::from_secs(2);

/// What was chosen replaces what was made by chance, and stays.
fn credentials(state: &mut State, app: &App) -> Credentials {
    let known = &mut state.credentials;
    for (chosen, kept) in [
        (&app.client_id, &mut known.client_id),
        (&app.client_secret, &mut known.client_secret),
        (&app.m2m_client_id, &mut known.m2m_client_id),
        (&app.m2m_client_secret, &mut known.m2m_client_secret),
    ] {
        if let Some(chosen) = chosen {
            kept.clone_from(chosen);
        }
    }
    known.clone()
}

fn routes(local: Arc<Local>) -> Router {
    let apis = Router::new()
        .route("/account_api/v1/portal_link", get(account::portal_link))
        .route("/account_api/v1/entitlements", get(account::entitlements))
        .route("/account_api/v1/entitlement", get(account::entitlement))
        .route("/api/v1/billing/agreements", get(management::billing_agreements))
        .route("/api/v1/billing/entitlements", get(management::billing_entitlements))
        .route("/api/v1/user", get(management::user))
        .route("/api/v1/users", get(management::users))
        .route("/api/v1/events/{event_id}", get(management::event))
        .route("/api/v1/event_types", get(management::event_types))
        .route("/api/v1/webhooks", get(management::webhooks))
        .layer(from_fn_with_state(Arc::clone(&local), trouble::meet));
    Router::new()
        .route("/.well-known/openid-configuration", get(discovery::document))
        .route("/.well-known/jwks", get(discovery::jwks))
        .route("/.well-known/jwks.json", get(discovery::jwks))
        .route("/oauth2/auth", get(authorize::show).post(sign_in::submit))
        .route("/oauth2/token", post(token::answer))
        .route("/oauth2/revoke", post(inspect::revoke))
        .route("/oauth2/introspect", post(inspect::introspect))
        .route("/oauth2/v2/user_profile", get(profile::answer))
        .route("/logout", get(logout::answer))
        .merge(apis)
        .route("/portal/{secret}", get(plan::open))
        .route("/plans/{visit}", get(plan::show_visit).post(plan::act_in_visit))
        .route("/people/{id}", get(plan::show_person).post(plan::act_for_person))
        .route("/", get(operator::index))
        .route("/local/checkout", get(checkout::show).post(checkout::submit))
        .route("/local/send", post(operator::send))
        .route("/local/events/{event_id}/again", post(operator::again))
        .route("/local/hold", post(operator::hold))
        .route("/local/switches/deliveries", post(operator::set_deliveries))
        .route("/local/switches/apis", post(operator::set_apis))
        .route("/local/switches/lifetimes", post(operator::set_lifetimes))
        .route("/local/keys/rotate", post(operator::rotate))
        .route("/local/keys/drop-retired", post(operator::drop_retired))
        .route("/local/style.css", get(page::style))
        .route("/local/icon.svg", get(page::icon))
        .fallback(page::lost)
        .layer(CsrfLayer::new())
        .layer(from_fn(only_under_a_local_name))
        .layer(from_fn(page::guard))
        .with_state(local)
}

/// The first loopback address of the name; none of them may lie elsewhere.
async fn listen(addr: &str) -> Result<TcpListener, Error> {
    let found = tokio::net::lookup_host(addr).await.map_err(|source| Error::NotAnAddress { addr: addr.to_owned(), source })?;
    let mut found: Vec<SocketAddr> = found.collect();
    if found.is_empty() || !found.iter().all(|at| at.ip().is_loopback()) {
        return Err(Error::NotLoopback { addr: addr.to_owned() });
    }
    found.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(&*found).await.map_err(|source| Error::Listen { addr: addr.to_owned(), source })
}

/// A page from elsewhere whose name was made to point at 127.0.0.1 is same-origin to a browser, so the name is looked at too.
async fn only_under_a_local_name(request: Request, next: Next) -> Response {
    let host =
        request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.parse::<Authority>().ok());
    let local = host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    if local {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, "the local Kinde answers to local names only\n").into_response()
    }
}
