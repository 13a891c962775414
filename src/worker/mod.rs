//! The worker: claims due events and runs each to a verdict. Any number of them, in any number of processes.
//!
//! `process` is one claim from beginning to end, `handle` its transaction, `unsettled` what is written where that gives no
//! verdict; `backoff` and `breaker` decide about failures, `stuck` notices what never fails and never ends; `trouble` says whose
//! fault one is. Here a crew takes its turns: wait, claim, run, and look what the failures have in common.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rand::RngExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::inbox::{history, queue};
use crate::telemetry::labels::Part;
use crate::telemetry::metrics;
use crate::telemetry::spans::{Name, Span};
use crate::wake::Wake;

pub mod backoff;
pub mod breaker;
mod handle;
pub mod pause;
pub mod process;
mod stuck;
pub mod trouble;
mod unsettled;

use breaker::{Advice, Breaker};
use process::{Charge, Engine, Outcome};
use stuck::Stuck;

/// The worker looks by itself this often, woken or not.
const POLL: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(60);

/// The lanes of one process: they claim apart and judge together.
pub struct Crew {
    pub engine: Engine,
    /// Tells this crew from those of other processes.
    id: Uuid,
    breaker: Mutex<Breaker>,
    stuck: Mutex<Stuck>,
    wake: Wake,
}

/// While the breaker is open one lane probes, the others wait until it closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Probing,
    Other,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Worked,
    NothingDue,
    /// The breaker is open; the next probe is due in this time.
    Paused(Duration),
}

/// Runs `lanes` claims side by side until `stop`; then finishes what is under way and returns.
pub async fn run(engine: Engine, lanes: usize, wake: Wake, stop: CancellationToken) {
    let crew = Arc::new(Crew::new(engine, wake));
    crew.rearm_plan_keys().await;
    let mut tasks = JoinSet::new();
    for n in 0..lanes.max(1) {
        let place = if n == 0 { Lane::Probing } else { Lane::Other };
        tasks.spawn(lane(Arc::clone(&crew), place, stop.clone()));
    }
    tasks.spawn(sweep(crew, stop));
    tasks.join_all().await;
}

/// A panic outside an event's run is a fault of ours; it must not leave the process without a worker.
async fn lane(crew: Arc<Crew>, place: Lane, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if AssertUnwindSafe(turns(&crew, place, &stop)).catch_unwind().await.is_err() {
            metrics::panic(Part::Worker);
            tracing::error!(alert = "worker-panic", "a lane of the worker panicked; it starts again");
            idle(POLL, None, &stop).await;
        }
    }
}

async fn turns(crew: &Crew, place: Lane, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        match crew.turn(place, Instant::now()).await {
            Ok(Turn::Worked) => {}
            Ok(Turn::NothingDue) => idle(jittered(POLL), Some(&crew.wake), stop).await,
            Ok(Turn::Paused(pause)) => idle(pause.max(Duration::from_millis(200)), None, stop).await,
            Err(error) => {
                tracing::warn!(%error, "the inbox could not be claimed from; trying again");
                idle(POLL, None, stop).await;
            }
        }
    }
}

impl Crew {
    pub fn new(engine: Engine, wake: Wake) -> Self {
        Self { engine, id: Uuid::new_v4(), breaker: Mutex::default(), stuck: Mutex::default(), wake }
    }

    /// How often the breaker had to tell somebody.
    pub async fn alarms(&self) -> u32 {
        self.breaker.lock().await.alarms()
    }

    /// How often somebody had to be told of an event that the database never lets through.
    pub async fn alarms_of_stuck(&self) -> u32 {
        self.stuck.lock().await.alarms()
    }

    /// One claim, run to its verdicts and judged. `now` is the breaker's clock; the events have the engine's.
    pub async fn turn(&self, place: Lane, now: Instant) -> sqlx::Result<Turn> {
        let pause = self.breaker.lock().await.probe_in(now);
        let (limit, charge) = match (pause, place) {
            (None, _) => (queue::CLAIM_LIMIT, Charge::Charged),
            (Some(Duration::ZERO), Lane::Probing) => (1, Charge::Uncharged),
            (Some(pause), _) => return Ok(Turn::Paused(pause)),
        };
        if pause.is_some() {
            pause::touch(&self.engine.pool, self.id).await?;
        }
        let mut span = Span::root(Name::Claim);
        let claimed = match self.engine.claim(limit).await {
            Ok(claimed) if !claimed.is_empty() => claimed,
            nothing => {
                span.forget();
                return nothing.map(|_| Turn::NothingDue);
            }
        };
        metrics::leases_expired(claimed.iter().filter(|event| event.lease_ended).count());
        span.count("bottle.events", claimed.len());
        for event in &claimed {
            span.about(event.source, &event.key, event.id, &[]);
        }
        let full = i64::try_from(claimed.len()).is_ok_and(|n| n == limit);
        if full {
            self.wake.wake(); // there may be work for another lane
        }
        let outcomes = span.within(self.engine.process(claimed, charge)).await;
        drop(span);
        for outcome in &outcomes {
            metrics::attempt(outcome.as_attempt());
        }
        self.tell_of_stuck(&outcomes).await;
        self.judge(&outcomes, full, now).await;
        Ok(Turn::Worked)
    }

    async fn tell_of_stuck(&self, outcomes: &[Outcome]) {
        let mut stuck = self.stuck.lock().await;
        for outcome in outcomes {
            if let (Some(times), Outcome::Troubled { id, key, error }) = (stuck.saw(outcome), outcome) {
                tracing::error!(
                    event = %key,
                    event_id = %id,
                    alert = "stuck",
                    times,
                    error,
                    "the database never lets this event through; it is tried again until somebody looks"
                );
            }
        }
    }

    async fn judge(&self, outcomes: &[Outcome], full: bool, now: Instant) {
        let mut breaker = self.breaker.lock().await;
        let was_open = breaker.is_open();
        match breaker.saw(outcomes, full) {
            Advice::GoOn if was_open && !breaker.is_open() => self.go_on().await,
            Advice::GoOn => {}
            Advice::Doubt { kind, fingerprint } => match can_apply(&self.engine, &kind).await {
                Proof::Can => {
                    breaker.close();
                    if was_open {
                        self.go_on().await;
                    }
                }
                Proof::CannotTell if !was_open => {}
                Proof::Cannot | Proof::CannotTell => {
                    if breaker.open(now) {
                        tracing::error!(
                            alert = "breaker",
                            fingerprint,
                            "every event fails alike and so does one that was applied before: the worker pauses and probes; no event is charged"
                        );
                        // The log has told it; this is for those who look at the database.
                        if let Err(error) = pause::note(&self.engine.pool, self.id, &fingerprint).await {
                            tracing::warn!(%error, "that the worker is paused could not be noted");
                        }
                    }
                }
            },
        }
    }

    async fn go_on(&self) {
        tracing::info!("events can be applied again; the worker goes on");
        if let Err(error) = pause::end(&self.engine.pool, self.id).await {
            tracing::warn!(%error, "that the worker goes on could not be noted");
        }
    }

    /// Events that waited for a plan key which is configured here.
    async fn rearm_plan_keys(&self) {
        let engine = &self.engine;
        let keys: Vec<&str> = engine.rules.keys.pro.iter().chain(&engine.rules.keys.free).map(String::as_str).collect();
        let rearmed = async {
            let mut conn = engine.pool.acquire().await?;
            let now = engine.clock.now(&mut *conn).await?;
            queue::rearm_plan_keys(&mut conn, &keys, now).await
        };
        match rearmed.await {
            Ok(0) => {}
            Ok(events) => {
                tracing::info!(events, "events that waited for a plan key are due: it is configured now");
                self.wake.wake();
            }
            Err(error) => tracing::warn!(%error, "events waiting for a plan key could not be looked at"),
        }
    }

    async fn rearm_customers(&self) {
        match queue::rearm_sweep(&self.engine.pool, self.engine.clock).await {
            Ok(0) => {}
            Ok(events) => {
                tracing::warn!(events, "the sweep found parked events whose customer is known; they are due now");
                self.wake.wake();
            }
            Err(error) => tracing::warn!(%error, "parked events could not be swept"),
        }
    }
}

enum Proof {
    Can,
    Cannot,
    /// The database gave trouble, which says nothing about the release.
    CannotTell,
}

/// Runs the last applied event of this type again and rolls it back: can this release apply it?
async fn can_apply(engine: &Engine, kind: &str) -> Proof {
    let known_good = async {
        let Some(id) = history::last_applied(&engine.pool, kind).await? else { return Ok(None) };
        Ok::<_, sqlx::Error>(history::as_claimed(&engine.pool, &[id]).await?.pop())
    };
    match known_good.await {
        Err(_) => Proof::CannotTell,
        Ok(None) => Proof::Cannot,
        Ok(Some(event)) => match engine.rehearse(&event).await {
            Ok(_) => Proof::Can,
            Err(trouble) if trouble.is_transient() => Proof::CannotTell,
            Err(_) => Proof::Cannot,
        },
    }
}

/// The net under what re-arms by itself: a restart, a mapping stored by another program, or an older worker that runs beside
/// this one and does not know a plan key yet.
async fn sweep(crew: Arc<Crew>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        crew.rearm_customers().await;
        idle(SWEEP, None, &stop).await;
        crew.rearm_plan_keys().await;
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
