//! The worker: claims due events and runs each to a verdict. Any number of them, in any number of processes.
//!
//! `process` is one claim from beginning to end; `backoff` and `breaker` decide about failures; `trouble` says whose fault one
//! is. The loop here only waits, claims and stops.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::inbox::{history, queue};
use crate::wake::Wake;

pub mod backoff;
pub mod breaker;
pub mod process;
pub mod trouble;

use breaker::{Advice, Breaker};
use process::{Charge, Engine, Outcome};

/// The worker looks by itself this often, woken or not.
const POLL: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(60);

/// Runs `lanes` claims side by side until `stop`; then finishes what is under way and returns.
pub async fn run(engine: Engine, lanes: usize, wake: Wake, stop: CancellationToken) {
    let breaker = Arc::new(Mutex::new(Breaker::default()));
    rearm_plan_keys(&engine).await;
    let mut tasks = JoinSet::new();
    for n in 0..lanes.max(1) {
        tasks.spawn(lane(engine.clone(), n == 0, Arc::clone(&breaker), wake.clone(), stop.clone()));
    }
    tasks.spawn(sweep(engine, wake, stop));
    tasks.join_all().await;
}

async fn lane(engine: Engine, probes: bool, breaker: Arc<Mutex<Breaker>>, wake: Wake, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let pause = breaker.lock().await.probe_in();
        let (limit, charge) = match pause {
            None => (queue::CLAIM_LIMIT, Charge::Charged),
            // Open: one lane probes with one event, the others wait until it closes.
            Some(pause) if probes && pause.is_zero() => (1, Charge::Uncharged),
            Some(pause) => {
                idle(pause.max(Duration::from_millis(200)), None, &stop).await;
                continue;
            }
        };
        let claimed = match engine.claim(limit).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "the inbox could not be claimed from; trying again");
                idle(POLL, None, &stop).await;
                continue;
            }
        };
        if claimed.is_empty() {
            idle(jittered(POLL), Some(&wake), &stop).await;
            continue;
        }
        let full = i64::try_from(claimed.len()).is_ok_and(|n| n == limit);
        if full {
            wake.wake(); // there may be work for another lane
        }
        let outcomes = engine.process(claimed, charge).await;
        judge(&engine, &breaker, &outcomes, full).await;
    }
}

async fn judge(engine: &Engine, breaker: &Mutex<Breaker>, outcomes: &[Outcome], full: bool) {
    let mut breaker = breaker.lock().await;
    let was_open = breaker.is_open();
    match breaker.saw(outcomes, full) {
        Advice::GoOn if was_open && !breaker.is_open() => tracing::info!("events can be applied again; the worker goes on"),
        Advice::GoOn => {}
        Advice::Doubt { kind, fingerprint } => {
            if can_apply(engine, &kind).await {
                breaker.close();
            } else if breaker.open() {
                tracing::error!(
                    alert = "breaker",
                    fingerprint,
                    "every event fails alike and so does one that was applied before: the worker pauses and probes; no event is charged"
                );
            }
        }
    }
}

/// Runs the last applied event of this type again and rolls it back: can this release apply it?
async fn can_apply(engine: &Engine, kind: &str) -> bool {
    let known_good = async {
        let id = history::last_applied(&engine.pool, kind).await.ok()??;
        history::as_claimed(&engine.pool, &[id]).await.ok()?.pop()
    };
    match known_good.await {
        None => false,
        Some(event) => engine.rehearse(&event).await.is_ok(),
    }
}

/// Events that waited for a plan key which is configured now.
async fn rearm_plan_keys(engine: &Engine) {
    let keys: Vec<&str> = engine.rules.keys.pro.iter().chain(&engine.rules.keys.free).map(String::as_str).collect();
    let rearmed = async {
        let mut conn = engine.pool.acquire().await?;
        let now = engine.clock.now(&mut *conn).await?;
        queue::rearm_plan_keys(&mut conn, &keys, now).await
    };
    match rearmed.await {
        Ok(0) => {}
        Ok(events) => tracing::info!(events, "events that waited for a plan key are due: it is configured now"),
        Err(error) => tracing::warn!(%error, "events waiting for a plan key could not be looked at"),
    }
}

async fn sweep(engine: Engine, wake: Wake, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match queue::rearm_sweep(&engine.pool, engine.clock).await {
            Ok(0) => {}
            Ok(events) => {
                tracing::warn!(events, "the sweep found parked events whose customer is known; they are due now");
                wake.wake();
            }
            Err(error) => tracing::warn!(%error, "parked events could not be swept"),
        }
        idle(SWEEP, None, &stop).await;
    }
}

async fn idle(span: Duration, wake: Option<&Wake>, stop: &CancellationToken) {
    let woken = async {
        match wake {
            Some(wake) => wake.woken().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = tokio::time::sleep(span) => {}
        () = woken => {}
        () = stop.cancelled() => {}
    }
}

/// Many workers do not look at the same moment.
fn jittered(span: Duration) -> Duration {
    span.mul_f64(rand::rng().random_range(0.8..1.2))
}
