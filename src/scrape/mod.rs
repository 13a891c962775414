//! What Prometheus fetches: `/metrics`, on a listener of its own, in every kind of process.
//!
//! The counters are this process's and cost nothing to read. What only the database knows (`stored`) is read at most every few
//! seconds, through a connection of its own with a short limit, whoever fetches and however often; if it cannot be read, the rest
//! is told all the same. Nobody is asked who they are: the address is for inside.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::db;
use crate::telemetry::metrics::{self, PoolUse};

mod process;
mod stored;

use stored::Database;

const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// More than any number of Prometheuses; others wait.
const CONNECTIONS_MAX: usize = 16;

/// What there is to tell of.
pub struct Scrape {
    pools: Vec<(db::Use, PgPool)>,
    database: Database,
}

impl Scrape {
    /// `pools` are those that are watched, `own` is the one that this room reads through.
    pub fn new(pools: Vec<(db::Use, PgPool)>, own: PgPool) -> Self {
        process::begin();
        Self { pools, database: Database::new(own) }
    }

    /// All of it, as Prometheus reads it.
    pub async fn text(&self) -> String {
        let stored = self.database.read().await;
        let pools: Vec<PoolUse> = self.pools.iter().map(|(purpose, pool)| in_use(*purpose, pool)).collect();
        metrics::write(&pools, stored.as_deref(), process::read())
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), request.method()) {
            ("/metrics", &Method::GET | &Method::HEAD) => {
                let mut response = Response::new(Full::from(self.text().await));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(prometheus_text::CONTENT_TYPE));
                response
            }
            ("/metrics", _) => {
                let mut response = told(StatusCode::METHOD_NOT_ALLOWED, "metrics are fetched\n");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
            _ => told(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
        }
    }
}

fn told(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

fn in_use(purpose: db::Use, pool: &PgPool) -> PoolUse {
    let idle = u32::try_from(pool.num_idle()).unwrap_or(u32::MAX);
    PoolUse { pool: purpose.label(), max: purpose.connections(), open: pool.size(), idle }
}

/// Whether others than this machine and its neighbours may be able to fetch what is told here.
pub fn is_exposed(addr: SocketAddr) -> bool {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_private() || ip.is_link_local()),
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
    }
}

/// Answers until `stop`.
pub async fn serve(listener: TcpListener, scrape: Scrape, stop: CancellationToken) {
    let (scrape, places) = (Arc::new(scrape), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let socket = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the metrics could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (scrape, stop) = (Arc::clone(&scrape), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(|request: Request<Incoming>| {
                let scrape = Arc::clone(&scrape);
                async move { Ok::<_, Infallible>(scrape.answer(&request).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            tokio::select! {
                // What ends a connection is its client's affair.
                _ = http.serve_connection(TokioIo::new(socket), service) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
