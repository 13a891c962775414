//! The local Stripe as a server, on loopback only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower_http::csrf::CsrfLayer;

use super::Error;
use super::keys::{Keys, Restricted};
use super::signature::Secrets;
use super::state::StateFile;
use super::switches::{NEWEST, Switches, VERSIONS};
use super::world::World;
use super::{buyer, catalog, clock, control, delivery, gate, money, page};

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `127.0.0.1:4000`; port 0 takes a free one.
    pub addr: String,
    /// The folder that keeps everything over a restart. None forgets it.
    pub state: Option<PathBuf>,
    /// Where webhooks go. Without it events are listed only.
    pub webhook_url: Option<String>,
    /// `sk_…`; where there is none, one is made.
    pub secret_keys: Vec<String>,
    /// `rk_test_x=customers:read,checkout_sessions`
    pub restricted_keys: Vec<String>,
    /// `whsec_…`, the newest first; where there is none, one is made.
    pub webhook_secrets: Vec<String>,
    /// Keeps the balance in this currency; none is each charge's own.
    pub settlement_currency: Option<String>,
    /// What the endpoint's payloads are written in; none is the newest version.
    pub endpoint_version: Option<String>,
    /// How fast the waits between attempts pass; 0 is real time.
    pub speed: f64,
    /// Begin this many seconds in the past, so that months can pass without anything lying ahead of the machine's clock.
    pub begin_secs_ago: u32,
}

/// A local Stripe at work. Dropped, it stops too, without waiting.
pub struct Running {
    local: Arc<Local>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// What the parts of the server share.
pub(super) struct Local {
    pub url: String,
    world: Mutex<World>,
    file: Option<StateFile>,
    unsaved: AtomicBool,
    pub http: reqwest::Client,
    /// Told when a switch was turned or a wait was waived.
    pub nudges: watch::Sender<u64>,
    /// Held by whoever sends in order.
    pub turns: tokio::sync::Mutex<()>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

/// Starts it.
///
/// # Errors
/// The address is not loopback or is taken, a setting makes no sense, or the state cannot be had.
pub async fn start(settings: Settings) -> Result<Running, Error> {
    let file = settings.state.as_deref().map(StateFile::in_folder).transpose()?;
    let world = world_of(&settings, file.as_ref())?;
    let listener = listen(&settings.addr).await?;
    let at = listener.local_addr().map_err(|source| Error::Listen { addr: settings.addr.clone(), source })?;
    // Stripe follows no redirect. No proxy: the receiver is usually on this machine.
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
    let stop = CancellationToken::new();
    let local = Arc::new(Local {
        url: format!("http://{at}"),
        world: Mutex::new(world),
        file,
        unsaved: AtomicBool::new(false),
        http: http.map_err(|source| Error::Client { source })?,
        nudges: watch::Sender::new(0),
        turns: tokio::sync::Mutex::new(()),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
    });
    local.save()?;
    let waiting = local.look(|world| world.mail.waiting());
    delivery::send_out(&local, waiting, local.look(|world| world.switches.order));
    local.tasks.spawn(tick(Arc::clone(&local)));
    let served = axum::serve(listener, routes(Arc::clone(&local))).with_graceful_shutdown(stop.clone().cancelled_owned());
    let task = tokio::spawn(async move {
        // Never an error, by axum's own promise.
        let _ = served.await;
    });
    Ok(Running { local, task, stop: stop.drop_guard() })
}

fn world_of(settings: &Settings, file: Option<&StateFile>) -> Result<World, Error> {
    if let Some(url) = &settings.webhook_url {
        check_webhook_url(url)?;
    }
    let restricted: Vec<Restricted> = settings.restricted_keys.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    if let Some(key) = settings.secret_keys.iter().find(|key| !key.starts_with("sk_")) {
        return Err(Error::Key { key: key.clone(), why: "a secret key begins with sk_" });
    }
    if let Some(key) = settings.webhook_secrets.iter().find(|key| !key.starts_with("whsec_")) {
        return Err(Error::Key { key: key.clone(), why: "a webhook secret begins with whsec_" });
    }
    let version = settings.endpoint_version.clone().unwrap_or_else(|| NEWEST.to_owned());
    if !VERSIONS.contains(&version.as_str()) {
        return Err(Error::Version { version });
    }
    if let Some(currency) = settings.settlement_currency.as_ref().filter(|currency| !money::can_settle_in(currency)) {
        return Err(Error::Currency { currency: currency.clone() });
    }
    let kept = file.map(StateFile::load).transpose()?.flatten();
    let mut world = kept
        .unwrap_or_else(|| World::new(Keys::fresh(), Secrets::fresh(), Switches::default(), -i64::from(settings.begin_secs_ago)));
    if !settings.secret_keys.is_empty() {
        world.keys.secret.clone_from(&settings.secret_keys);
    }
    if !settings.webhook_secrets.is_empty() {
        world.secrets = Secrets(settings.webhook_secrets.clone());
    }
    if settings.endpoint_version.is_some() {
        world.switches.endpoint_version = version;
    }
    if settings.speed.is_finite() && settings.speed > 0.0 {
        world.switches.speed = settings.speed;
    }
    world.settlement = settings.settlement_currency.clone().or(world.settlement);
    world.keys.restricted = restricted;
    world.mail.url.clone_from(&settings.webhook_url);
    Ok(world)
}

impl Running {
    /// `http://127.0.0.1:<port>`: what `https://api.stripe.com` would be.
    pub fn url(&self) -> String {
        self.local.url.clone()
    }

    pub fn secret_key(&self) -> String {
        self.local.look(|world| world.keys.secret[0].clone())
    }

    /// Newest first: two while one is being replaced.
    pub fn webhook_secrets(&self) -> Vec<String> {
        self.local.look(|world| world.secrets.0.clone())
    }

    /// The seeded price of a month of Pro.
    pub fn price_pro(&self) -> String {
        catalog::PRICE_PRO.into()
    }

    /// The seeded price of a pack of bottles.
    pub fn price_pack(&self) -> String {
        catalog::PRICE_PACK.into()
    }

    /// Stops listening and sending. What still waits is kept with the state, if that is kept.
    pub async fn stop(self) {
        let Self { local, mut task, stop } = self;
        drop(stop);
        if tokio::time::timeout(STOPS_WITHIN, &mut task).await.is_err() {
            task.abort();
        }
        local.tasks.close();
        let _ = tokio::time::timeout(STOPS_WITHIN, local.tasks.wait()).await;
        local.save_or_say();
    }
}

impl Local {
    /// For looking, and for changes that nobody is told of.
    pub fn look<T>(&self, at: impl FnOnce(&mut World) -> T) -> T {
        at(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A change: it is kept before anybody hears of it, then its events go out.
    pub fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut World) -> T) -> T {
        let (value, numbers, order) = self.look(|world| {
            let value = change(world);
            (value, delivery::address(world), world.switches.order)
        });
        self.save_or_say();
        delivery::send_out(self, numbers, order);
        value
    }

    pub fn nudge(&self) {
        self.nudges.send_modify(|n| *n += 1);
    }

    /// With the next tick: an attempt that is forgotten is only made again.
    pub fn save_soon(&self) {
        self.unsaved.store(true, Ordering::Relaxed);
    }

    fn save(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| self.look(|world| file.save(world)))
    }

    fn save_or_say(&self) {
        self.unsaved.store(false, Ordering::Relaxed);
        if let Err(error) = self.save() {
            tracing::error!(%error, "the local Stripe could not keep its state");
        }
    }
}

/// Time passes here too, without anybody moving the clock.
async fn tick(local: Arc<Local>) {
    loop {
        tokio::select! {
            () = local.stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        let (happened, numbers, order) = local.look(|world| {
            // Nothing is asked for, so nothing can be refused.
            let _ = clock::advance(world, 0);
            (!world.new_events.is_empty(), delivery::address(world), world.switches.order)
        });
        if happened || local.unsaved.load(Ordering::Relaxed) {
            local.save_or_say();
        }
        delivery::send_out(&local, numbers, order);
    }
}

/// Whether webhooks can be posted there.
fn check_webhook_url(url: &str) -> Result<(), Error> {
    match reqwest::Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => Ok(()),
        _ => Err(Error::WebhookUrl { url: url.to_owned() }),
    }
}

const STOPS_WITHIN: Duration = Duration::from_secs(2);
const LARGEST_BODY: usize = 1 << 20;

fn routes(local: Arc<Local>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/local_stripe.css", get(page::css))
        .route("/c/pay/{session}", get(buyer::checkout).post(buyer::press_at_checkout))
        .route("/p/session/{secret}", get(buyer::portal).post(buyer::press_at_portal))
        .route("/local/{*what}", post(control::turn).get(control::look))
        .route("/v1/{*call}", any(gate::enter))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
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
    if !local {
        return (StatusCode::MISDIRECTED_REQUEST, "the local Stripe answers to local names only\n").into_response();
    }
    let mut response = next.run(request).await;
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}
