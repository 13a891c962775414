//! `bottle serve`, `bottle web`, `bottle worker`: starts the parts, waits, stops them in the order that loses nothing.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::alerts::{self, Alerts};
use crate::bell;
use crate::checkpoint::Checkpoints;
use crate::config::{Client, Config, Kinde, M2m, Operators, Secret};
use crate::courier;
use crate::db;
use crate::engine_room::visits::Visits;
use crate::housekeeping;
use crate::intake::Intake;
use crate::local_kinde;
use crate::reconcile;
use crate::replayer;
use crate::scrape::{self, Scrape};
use crate::sessions::{self, Sessions};
use crate::wake::Wake;
use crate::web::live::Live;
use crate::web::{routes, server, state::AppState};
use crate::worker;

use super::database::Database;
use super::parts::{self, Keys};
use super::session_key;
use super::signals;

/// Claims side by side in one process.
const WORKER_LANES: usize = 2;

#[derive(Debug, Clone, Copy)]
pub struct Roles {
    pub web: bool,
    pub worker: bool,
}

impl Roles {
    const fn name(self) -> &'static str {
        match (self.web, self.worker) {
            (true, false) => "web",
            (false, true) => "worker",
            _ => "serve",
        }
    }
}

pub async fn run(mut config: Config, roles: Roles) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch()?;
    if roles.web {
        session_key::check(&config)?;
    }
    for doubt in config.doubts() {
        tracing::warn!(setting = doubt.setting(), "{}", doubt.problem());
    }
    // Taken first: a port in use should not cost a database start.
    let listener = match roles.web {
        true => Some(TcpListener::bind(config.web.addr).await.with_context(|| {
            format!("BOTTLE_ADDR: {} cannot be listened on; stop what uses it, or choose another", config.web.addr)
        })?),
        false => None,
    };
    if let Some(listener) = &listener {
        config.listens_on(listener.local_addr()?);
    }
    let metrics = signals::bind(&config).await?;
    signals::traces(&config, roles.name())?;
    let local_kinde_at = match roles.web && config.wants_local_kinde() {
        true => Some(local_kinde::server::bind(&config.local_kinde_addr).await.context(LOCAL_KINDE_PORT)?),
        false => None,
    };
    let database = tokio::select! {
        database = Database::start(&config) => database?,
        // A server that is half-way up stops by itself.
        () = signals.come() => return Ok(ExitCode::SUCCESS),
    };
    let local_kinde = local_kinde_at.map(|at| start_local_kinde(at, &config)).transpose()?;
    let kinde = local_kinde.as_ref().map(as_tenant).or_else(|| tenant(&config));

    let stop = CancellationToken::new();
    let wake = Wake::default();
    let checkpoints = checkpoints();
    let keys = if roles.web { Keys::AtOnce } else { Keys::WhenNeeded };
    let jwks = kinde.as_ref().map(|kinde| parts::keys(kinde, keys)).transpose()?;
    let kinde = kinde.as_ref().zip(jwks.as_ref());
    let providers = Arc::new(parts::providers(&config, kinde)?);
    let mut running = tokio::task::JoinSet::new();
    let mut pools = Vec::new();

    if roles.worker {
        let pool = db::pool(&database.options, db::Use::Worker);
        pools.push((db::Use::Worker, pool.clone()));
        let rules = parts::rules(&config);
        parts::check_tenant(&pool, &rules).await?;
        let sources = providers.configured();
        let channels = parts::channels(&config)?;
        let night = parts::night(&config, &rules, &providers);
        let watched = Alerts { pool: pool.clone(), providers: sources, nightly: night.is_some(), channels };
        running.spawn(alerts::run(watched, stop.clone()));
        if let Some(minute) = night {
            let pool = db::pool(&database.options, db::Use::Reconcile);
            pools.push((db::Use::Reconcile, pool.clone()));
            let reconciler = parts::reconciler(pool, Arc::clone(&providers), rules.clone(), wake.clone(), stop.clone());
            running.spawn(reconcile::night::run(reconciler, minute));
        }
        running.spawn(housekeeping::run(pool.clone(), config.retention, stop.clone()));
        running.spawn(replayer::run(parts::replayer(pool.clone(), &wake), stop.clone()));
        let bell = parts::bell(db::pool(&database.options, db::Use::Reminders), &config, rules.clone(), checkpoints.clone());
        pools.push((db::Use::Reminders, bell.pool.clone()));
        if let Some(courier) = parts::courier(&bell.pool, &config, checkpoints.clone())? {
            running.spawn(courier::run(courier, stop.clone()));
        }
        running.spawn(bell::run(bell, stop.clone()));
        let engine = parts::engine(pool, Arc::clone(&providers), rules, checkpoints.clone());
        running.spawn(worker::run(engine, WORKER_LANES, wake.clone(), stop.clone()));
    }
    if let Some(listener) = listener {
        let sign_in = kinde.map(|(kinde, jwks)| parts::sign_in(&config, kinde, jwks, &providers, &wake)).transpose()?.flatten();
        let pool = db::pool(&database.options, db::Use::Web);
        pools.push((db::Use::Web, pool.clone()));
        if sign_in.is_some() {
            parts::check_tenant(&pool, &parts::rules(&config)).await?;
        }
        running.spawn(sessions::clean(Sessions::new(pool.clone()), stop.clone()));
        let intake_pool = db::pool(&database.options, db::Use::Intake);
        pools.push((db::Use::Intake, intake_pool.clone()));
        let intake = Intake::start(intake_pool, Arc::clone(&providers), wake.clone(), checkpoints);
        let state = AppState {
            live: Live::new(pool.clone(), stop.clone()),
            pool,
            intake,
            providers,
            rules: Arc::new(parts::rules(&config)),
            wake,
            room: Arc::new(Visits::new(database.options.clone())),
            local_kinde: local_kinde.as_ref().map(local_kinde::server::Running::url),
            base: config.web.url.clone(),
            sign_in: sign_in.map(Arc::new),
            operators: Arc::new(operators(&config, local_kinde.is_some())),
            https: config.is_production(),
        };
        let address = listener.local_addr()?;
        running.spawn(server::serve(listener, routes::app(state), stop.clone()));
        announce(&config, address, local_kinde.as_ref());
    } else {
        say!("The worker runs. Ctrl-C stops it.");
    }
    if let Some(listener) = metrics {
        say!("Metrics are at http://{}/metrics.", listener.local_addr()?);
        let scrape = Scrape::new(pools, db::pool(&database.options, db::Use::Scrape));
        running.spawn(scrape::serve(listener, scrape, stop.clone()));
    }

    let ended_by_itself = tokio::select! {
        () = signals.come() => false,
        // Only a panic does that. Better to be started again whole than to go on as half a Bottle.
        Some(_) = running.join_next() => true,
    };
    if ended_by_itself {
        tracing::error!(alert = "part-ended", "a part of Bottle ended by itself; the others stop too");
    }
    tracing::info!("stopping: finishing what is under way");
    stop.cancel();
    tokio::select! {
        () = async { while running.join_next().await.is_some() {} } => {}
        _ = signals.interrupt.recv() => tracing::warn!("stopped at once; leases end by themselves"),
    }
    // After all that makes spans.
    signals::flush().await;
    if let Some(local_kinde) = local_kinde {
        local_kinde.stop().await;
    }
    database.stop().await?;
    Ok(if ended_by_itself { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn announce(config: &Config, address: std::net::SocketAddr, local_kinde: Option<&local_kinde::server::Running>) {
    say!("Bottle is ready at {} (listening on {address}).", config.web.url.as_str().trim_end_matches('/'));
    match local_kinde {
        Some(local) => say!("No Kinde is configured, so a local one runs at {}.", local.url()),
        None => match &config.kinde {
            None => say!("No Kinde is configured: set KINDE_DOMAIN to receive its webhooks."),
            Some(kinde) if kinde.client.is_none() => {
                say!("Nobody can sign in yet: set KINDE_CLIENT_ID and KINDE_CLIENT_SECRET for that.");
            }
            Some(_) => {}
        },
    }
    say!("Ctrl-C stops it.");
}

/// Ctrl-C and SIGTERM. Caught before anything starts: uncaught, they would end the process wherever it is.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

const LOCAL_KINDE_PORT: &str = "the local Kinde (BOTTLE_LOCAL_KINDE_ADDR chooses its port)";

fn start_local_kinde(at: local_kinde::server::Bound, config: &Config) -> anyhow::Result<local_kinde::server::Running> {
    let settings = local_kinde::server::Settings {
        addr: config.local_kinde_addr.clone(),
        state: config.database.data.join("local-kinde"),
        webhook_url: Some(config.webhook_url("kinde")),
        app: local_kinde::app::App::at(config.web.url.as_str()),
    };
    at.start(settings).context("the local Kinde")
}

/// Who may see the operators' pages. Where nobody was named and the Kinde is our own, one of its sample people is.
fn operators(config: &Config, with_local_kinde: bool) -> Operators {
    match &config.people.operators {
        named if *named == Operators::default() && with_local_kinde => Operators::read(local_kinde::people::OPERATOR),
        named => named.clone(),
    }
}

/// The local Kinde as the tenant, and what we are there.
fn as_tenant(local: &local_kinde::server::Running) -> Kinde {
    let client = Client { id: local.client_id(), secret: Secret::new(local.client_secret()) };
    let m2m = M2m { client_id: local.m2m_client_id(), client_secret: Secret::new(local.m2m_client_secret()) };
    Kinde { domain: local.url(), issuer: None, client: Some(client), m2m: Some(m2m) }
}

/// The tenant: the one that is configured, or the local Kinde that runs beside `bottle serve` or `bottle web`.
pub fn tenant(config: &Config) -> Option<Kinde> {
    let local = || config.wants_local_kinde().then(|| format!("http://{}", config.local_kinde_addr));
    config.kinde.clone().or_else(|| local().map(|domain| Kinde { domain, issuer: None, client: None, m2m: None }))
}

/// A debug build can be told to die at a step of the pipeline, so that a test can kill the real process there.
#[cfg(debug_assertions)]
fn checkpoints() -> Checkpoints {
    crate::checkpoint::dying::from_env().map_or_else(Checkpoints::default, Checkpoints::observed_by)
}

#[cfg(not(debug_assertions))]
fn checkpoints() -> Checkpoints {
    Checkpoints::default()
}
