//! The local Kinde as a server, on loopback only: its key, its discovery document, a page that lists its deliveries, and a way
//! to order more of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower_http::csrf::CsrfLayer;

use super::Error;
use super::key::SigningKey;
use super::order::{self, Order};
use super::page::{self, Record};
use super::sender::Sender;

#[derive(Debug, Clone)]
pub struct Settings {
    /// `127.0.0.1:4000`; port 0 takes a free one.
    pub addr: String,
    /// The folder that keeps the signing key.
    pub state: PathBuf,
    /// Where webhooks go. Without it, orders are refused.
    pub webhook_url: Option<String>,
}

/// A local Kinde at work. Dropped, it stops too, without waiting.
pub struct Running {
    url: String,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// Starts it.
///
/// # Errors
/// The address is not loopback or is taken, the webhook URL is none, or the key cannot be had.
pub async fn start(settings: Settings) -> Result<Running, Error> {
    if let Some(url) = &settings.webhook_url {
        check_webhook_url(url)?;
    }
    let listener = listen(&settings.addr).await?;
    let at = listener.local_addr().map_err(|source| Error::Listen { addr: settings.addr.clone(), source })?;
    let url = format!("http://{at}");
    let stop = CancellationToken::new();
    let local = Arc::new(Local {
        url: url.clone(),
        key: SigningKey::load_or_make(&settings.state)?,
        webhook_url: settings.webhook_url,
        sender: Sender::new(OPEN_REQUESTS)?,
        record: Record::default(),
        orders: TaskTracker::new(),
        stop: stop.clone(),
    });
    let served = axum::serve(listener, routes(local)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let task = tokio::spawn(async move {
        // Never an error, by axum's own promise.
        let _ = served.await;
    });
    Ok(Running { url, task, stop: stop.drop_guard() })
}

impl Running {
    /// `http://127.0.0.1:<port>`: what a Kinde domain would be, and the issuer.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Stops listening and drops what still waits to be sent: a retry does not outlive its sender.
    pub async fn stop(self) {
        let Self { mut task, stop, .. } = self;
        drop(stop);
        if tokio::time::timeout(STOPS_WITHIN, &mut task).await.is_err() {
            task.abort();
        }
    }
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

struct Local {
    url: String,
    key: SigningKey,
    webhook_url: Option<String>,
    sender: Sender,
    record: Record,
    orders: TaskTracker,
    stop: CancellationToken,
}

fn routes(local: Arc<Local>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/.well-known/openid-configuration", get(discovery))
        .route("/.well-known/jwks", get(jwks))
        .route("/.well-known/jwks.json", get(jwks))
        .route("/local/send", post(send))
        .layer(CsrfLayer::new())
        .layer(from_fn(only_under_a_local_name))
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

async fn index(State(local): State<Arc<Local>>) -> Response {
    match page::index(&local.url, local.webhook_url.as_deref(), local.orders.len(), &local.record) {
        Ok(page) => Html(page).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn jwks(State(local): State<Arc<Local>>) -> Response {
    Json(local.key.jwks()).into_response()
}

/// Kinde's endpoints under Kinde's names.
async fn discovery(State(local): State<Arc<Local>>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", local.url);
    Json(json!({
        "issuer": local.url,
        "authorization_endpoint": at("/oauth2/auth"),
        "token_endpoint": at("/oauth2/token"),
        "userinfo_endpoint": at("/oauth2/v2/user_profile"),
        "introspection_endpoint": at("/oauth2/introspect"),
        "revocation_endpoint": at("/oauth2/revoke"),
        "end_session_endpoint": at("/logout"),
        "jwks_uri": at("/.well-known/jwks"),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "scopes_supported": ["openid", "profile", "email", "offline"],
        "code_challenge_methods_supported": ["S256"],
    }))
}

/// An order, from a form or as JSON. Answers before anything is sent.
async fn send(State(local): State<Arc<Local>>, request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let from_json = content_type.starts_with("application/json");
    let order = if from_json {
        Json::<Order>::from_request(request, &()).await.map(|Json(order)| order).map_err(IntoResponse::into_response)
    } else {
        Form::<Order>::from_request(request, &()).await.map(|Form(order)| order).map_err(IntoResponse::into_response)
    };
    let order = match order {
        Ok(order) => order,
        Err(refusal) => return refusal,
    };
    match queue(&local, &order) {
        Ok(queued) if from_json => (StatusCode::ACCEPTED, Json(json!({ "queued": queued }))).into_response(),
        Ok(_) => Redirect::to("/").into_response(),
        Err(error @ Error::Usage(_)) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn queue(local: &Arc<Local>, order: &Order) -> Result<Vec<Value>, Error> {
    let Some(to) = &local.webhook_url else {
        return Err(Error::Usage(
            "this local Kinde was started without a webhook URL, so there is nowhere to send events".into(),
        ));
    };
    let manner = order.manner()?;
    let deliveries = order::sign(order.events()?, &local.key, to)?;
    let queued = deliveries
        .iter()
        .map(|one| json!({ "type": one.event_type, "event_id": one.event_id, "webhook_id": one.webhook_id }))
        .collect();
    let carrier = Arc::clone(local);
    local.orders.spawn(async move {
        let record = carrier.record.clone();
        tokio::select! {
            () = carrier.stop.cancelled() => {}
            _ = carrier.sender.deliver(deliveries, manner, move |attempt| record.add(attempt)) => {}
        }
    });
    Ok(queued)
}
