//! What a process that runs tells of itself: the listener that metrics are fetched from, and what sends its traces.

use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::collector;
use crate::config::Config;
use crate::scrape::is_exposed;
use crate::telemetry::spans;

/// At a stop, for all spans that are left.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// The address of the metrics, taken. None: nobody asked for any.
pub async fn bind(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    let Some(addr) = config.signals.metrics else { return Ok(None) };
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("BOTTLE_METRICS_ADDR: {addr} cannot be listened on; stop what uses it, or choose another"))?;
    if is_exposed(addr) {
        tracing::warn!(%addr, "the metrics ask nobody who they are, and this address may be reached from outside; let only Prometheus get there");
    }
    Ok(Some(listener))
}

/// From now on spans are kept and sent, if a collector is set.
pub fn traces(config: &Config, role: &'static str) -> anyhow::Result<()> {
    if let Some(traces) = config.signals.traces.clone() {
        spans::listen(collector::queue(traces, role)?);
    }
    Ok(())
}

/// Sends the spans that are left, if that can be done at once.
pub async fn flush() {
    // A panic in there is no reason to stop in disorder.
    if !spawn_blocking(|| spans::flush(FLUSH_WITHIN)).await.unwrap_or(false) {
        tracing::warn!("the last spans could not be sent to the collector before the stop");
    }
}
