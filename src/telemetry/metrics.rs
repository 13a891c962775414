//! Every metric there is, by name, with what it means; and the small functions by which rooms count.
//!
//! Names follow Prometheus: `bottle_`, a base unit as the suffix, `_total` for what only goes up. They are an interface: dashboards
//! and alert rules live elsewhere, so a name is added or dropped, never given another meaning. Counters are this process's; what
//! several processes share (the queue, alerts) is read from the database by `scrape`, and every process says the same of it.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{
    Arrival, Attempt, Call, CallEnd, Channel, Condition, Connection, Endpoint, Fetch, Letter, Level, Open, Part, Pool, SOURCES,
    SpanEnd, Waiting,
};
use super::registry::{Closed, read};
use crate::domain::event::Source;
use crate::domain::reason_code::Code;

const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

type Counters<const N: usize> = Closed<N, Counter>;
type Histograms<const N: usize> = Closed<N, Histogram>;

/// Up to the time within which every delivery is answered.
fn answers() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5])
}

fn work() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// From a moment to half a day.
fn lags() -> Histogram {
    Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 43_200.0])
}

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

struct Metrics {
    deliveries: Counters<2>,
    acknowledgement: Histograms<1>,
    attempts: Counters<1>,
    verdicts: Counters<2>,
    handler: Histograms<0>,
    lag: Histograms<1>,
    leases: Counters<0>,
    jwks: Counters<1>,
    calls: Counters<2>,
    call_time: Histograms<1>,
    pool_wait: Histograms<1>,
    pool_timeouts: Counters<1>,
    reminders: Counters<0>,
    letters: Counters<1>,
    alert_messages: Counters<2>,
    panics: Counters<1>,
    log_lines: Counters<1>,
    spans: Counters<1>,
    registry: Registry,
}

impl Metrics {
    /// The library puts `_total` behind a counter's name.
    fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        Self {
            deliveries: Closed::new(
                r,
                "bottle_deliveries",
                "Deliveries posted to the webhook endpoints, by what became of them",
                [("source", Endpoint::WORDS), ("outcome", Arrival::WORDS)],
                Counter::default,
            ),
            acknowledgement: Closed::new(
                r,
                "bottle_acknowledgement_seconds",
                "Time from a delivery's last header to its 200",
                [("source", Endpoint::WORDS)],
                answers,
            ),
            attempts: Closed::new(
                r,
                "bottle_event_attempts",
                "Runs of stored events, by how they ended",
                [("outcome", Attempt::WORDS)],
                Counter::default,
            ),
            verdicts: Closed::new(
                r,
                "bottle_event_verdicts",
                "What was written of events after a run, by the stable name of its reason",
                [("source", SOURCES), ("reason", Code::WORDS)],
                Counter::default,
            ),
            handler: Closed::new(
                r,
                "bottle_handler_seconds",
                "Time of a handler's transaction, rolled back or not; up to 25 events share one",
                [],
                work,
            ),
            lag: Closed::new(
                r,
                "bottle_event_lag_seconds",
                "Time from an event's arrival to its verdict, replays left out",
                [("source", SOURCES)],
                lags,
            ),
            leases: Closed::new(
                r,
                "bottle_leases_expired",
                "Events taken over because whoever had them gave no verdict before the lease ended",
                [],
                Counter::default,
            ),
            jwks: Closed::new(
                r,
                "bottle_jwks_fetches",
                "Fetches of an issuer's public keys",
                [("result", Fetch::WORDS)],
                Counter::default,
            ),
            calls: Closed::new(
                r,
                "bottle_provider_calls",
                "Calls to outside parties, by how they ended",
                [("call", Call::WORDS), ("result", CallEnd::WORDS)],
                Counter::default,
            ),
            call_time: Closed::new(
                r,
                "bottle_provider_call_seconds",
                "Time of calls to outside parties",
                [("call", Call::WORDS)],
                work,
            ),
            pool_wait: Closed::new(
                r,
                "bottle_pool_wait_seconds",
                "Time that deliveries and handlers waited for a connection",
                [("pool", Pool::WORDS)],
                answers,
            ),
            pool_timeouts: Closed::new(
                r,
                "bottle_pool_timeouts",
                "Times that a delivery or a handler got no connection",
                [("pool", Pool::WORDS)],
                Counter::default,
            ),
            reminders: Closed::new(r, "bottle_reminders_rung", "Reminders that rang", [], Counter::default),
            letters: Closed::new(
                r,
                "bottle_letters",
                "Attempts to send a letter, by outcome",
                [("outcome", Letter::WORDS)],
                Counter::default,
            ),
            alert_messages: Closed::new(
                r,
                "bottle_alert_messages",
                "Attempts to send a message about an alert",
                [("channel", Channel::WORDS), ("result", Fetch::WORDS)],
                Counter::default,
            ),
            panics: Closed::new(r, "bottle_panics", "Panics that were caught", [("part", Part::WORDS)], Counter::default),
            log_lines: Closed::new(
                r,
                "bottle_log_lines",
                "Log lines written, by level; an error needs a person",
                [("level", Level::WORDS)],
                Counter::default,
            ),
            spans: Closed::new(
                r,
                "bottle_trace_spans",
                "Finished spans, by what became of them; none while no collector is set",
                [("outcome", SpanEnd::WORDS)],
                Counter::default,
            ),
            registry,
        }
    }
}

/// `took` counts as the time of an acknowledgement only if it is one.
pub fn delivery(source: Endpoint, outcome: Arrival, took: Duration) {
    METRICS.deliveries.of([source.as_str(), outcome.as_str()]).inc();
    if outcome.is_acknowledged() {
        METRICS.acknowledgement.of([source.as_str()]).observe(took.as_secs_f64());
    }
}

pub fn attempt(outcome: Attempt) {
    METRICS.attempts.of([outcome.as_str()]).inc();
}

pub fn verdict(source: Source, reason: Code) {
    METRICS.verdicts.of([source.as_str(), reason.as_str()]).inc();
}

pub fn handler(took: Duration) {
    METRICS.handler.of([]).observe(took.as_secs_f64());
}

pub fn lag(source: Source, took: Duration) {
    METRICS.lag.of([source.as_str()]).observe(took.as_secs_f64());
}

pub fn leases_expired(events: usize) {
    METRICS.leases.of([]).inc_by(u64::try_from(events).unwrap_or(u64::MAX));
}

pub fn jwks_fetch(result: Fetch) {
    METRICS.jwks.of([result.as_str()]).inc();
}

pub fn call(call: Call, result: CallEnd, took: Duration) {
    METRICS.calls.of([call.as_str(), result.as_str()]).inc();
    METRICS.call_time.of([call.as_str()]).observe(took.as_secs_f64());
}

/// `got`: a connection came.
pub fn pool_wait(pool: Pool, took: Duration, got: bool) {
    METRICS.pool_wait.of([pool.as_str()]).observe(took.as_secs_f64());
    if !got {
        METRICS.pool_timeouts.of([pool.as_str()]).inc();
    }
}

pub fn reminders_rung(count: usize) {
    METRICS.reminders.of([]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
}

pub fn letter(outcome: Letter) {
    METRICS.letters.of([outcome.as_str()]).inc();
}

pub fn alert_message(channel: Channel, result: Fetch) {
    METRICS.alert_messages.of([channel.as_str(), result.as_str()]).inc();
}

pub fn panic(part: Part) {
    METRICS.panics.of([part.as_str()]).inc();
}

pub fn log_line(level: Level) {
    METRICS.log_lines.of([level.as_str()]).inc();
}

pub fn spans(outcome: SpanEnd, count: usize) {
    METRICS.spans.of([outcome.as_str()]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
}

/// A pool at one moment.
#[derive(Debug, Clone, Copy)]
pub struct PoolUse {
    pub pool: Pool,
    pub max: u32,
    pub open: u32,
    pub idle: u32,
}

/// What only the database knows.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    pub queue: Vec<(&'static str, i64)>,
    pub oldest_due: Duration,
    pub letters_waiting: i64,
    pub letters_dead: i64,
    /// The condition of each open alert.
    pub alerts: Vec<String>,
    pub workers_paused: usize,
    /// What the latest runs of reconcile left open, by each class.
    pub drift: Vec<(&'static str, i64)>,
}

/// What the machine knows of this process. None: it does not say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process {
    pub started_secs: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub open_files: Option<f64>,
}

/// All of it, in the text format of Prometheus. `stored` is none if the database could not be read.
pub fn write(pools: &[PoolUse], stored: Option<&Stored>, process: Process) -> String {
    let mut readings = Registry::default();
    let now = &mut readings;
    let version = [env!("CARGO_PKG_VERSION"), PROFILE];
    read(now, "bottle_build_info", "Always 1; which version runs", ["version", "profile"], [(version, 1.0)]);
    let connections = pools.iter().flat_map(|of| {
        let states = [(Connection::Idle, of.idle), (Connection::Busy, of.open.saturating_sub(of.idle))];
        states.map(|(state, count)| ([of.pool.as_str(), state.as_str()], f64::from(count)))
    });
    read(now, "bottle_pool_connections", "Connections that a pool holds", ["pool", "state"], connections);
    let most = pools.iter().map(|of| ([of.pool.as_str()], f64::from(of.max)));
    read(now, "bottle_pool_connections_max", "Connections that a pool may hold", ["pool"], most);
    let help = "1 if what the database knows could be read for this scrape; if 0, the metrics that come from it are left out";
    read(now, "bottle_scrape_database_read", help, [], [([], f64::from(u8::from(stored.is_some())))]);
    if let Some(stored) = stored {
        read_stored(now, stored);
    }
    let help = "When the process started, in seconds since 1970";
    read(now, "process_start_time_seconds", help, [], process.started_secs.map(|secs| ([], secs)));
    let bytes = process.memory_bytes.map(|bytes| ([], bytes));
    read(now, "process_resident_memory_bytes", "Memory that the process holds", [], bytes);
    read(now, "process_open_fds", "Open file descriptors", [], process.open_files.map(|files| ([], files)));

    let mut text = String::new();
    for registry in [&METRICS.registry, &readings] {
        prometheus_text::encode(&mut text, registry).expect("a text takes whatever is written to it");
    }
    text
}

fn read_stored(now: &mut Registry, stored: &Stored) {
    let queue = Open::WORDS.iter().map(|word| {
        let count = stored.queue.iter().find(|(status, _)| status == word).map_or(0, |(_, count)| *count);
        ([*word], number(count))
    });
    let help = "Events without a final verdict and dead ones, by status; at most 50000 are counted";
    read(now, "bottle_queue_events", help, ["status"], queue);
    let help = "How long the event that waits longest has been due; 0 while none is";
    read(now, "bottle_queue_oldest_due_seconds", help, [], [([], stored.oldest_due.as_secs_f64())]);
    let letters = [(Waiting::Waiting, stored.letters_waiting), (Waiting::Dead, stored.letters_dead)];
    let letters = letters.map(|(state, count)| ([state.as_str()], number(count)));
    read(now, "bottle_outbox_letters", "Letters that were not sent", ["state"], letters);
    let alerts = Condition::WORDS.iter().map(|word| {
        let open = stored.alerts.iter().filter(|condition| Condition::of(condition) == *word).count();
        ([*word], number(i64::try_from(open).unwrap_or(i64::MAX)))
    });
    read(now, "bottle_alerts_open", "Alerts that are open", ["condition"], alerts);
    let paused = number(i64::try_from(stored.workers_paused).unwrap_or(i64::MAX));
    read(now, "bottle_workers_paused", "Workers that pause because every event fails alike", [], [([], paused)]);
    let drift = stored.drift.iter().map(|(class, open)| ([*class], number(*open)));
    let help = "Differences from the providers that the latest runs of reconcile found and nothing repaired";
    read(now, "bottle_reconcile_drift", help, ["class"], drift);
}

/// A count as Prometheus has it: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "nobody has so many rows")]
fn number(count: i64) -> f64 {
    count as f64
}
