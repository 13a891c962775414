//! `GET /ops`: how it does, on one screen: what waits, what failed, what is wrong, and where to go from there.

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

use super::bulk::BulkView;
use super::guard::Operator;
use super::said::{Notice, Said};
use super::trouble::{Trouble, answered, look};
use super::words::{ago, span, up_to};
use crate::alerts::board::{self, Alert, Board};
use crate::engine_room::report::thousands;
use crate::inbox::health::{self, COUNTED_TO, Health, RUNS_LOOKED_AT, Waiting};
use crate::operators::boxes::{self, Pile, Tally};
use crate::reconcile::{findings, runs};
use crate::replay::bulk;
use crate::web::account::zone_of;
use crate::web::assets;
use crate::web::live;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::when::{When, Zone};

/// A worker that runs takes what is due within seconds.
const SLOW: Duration = Duration::seconds(60);
/// What has been due longest is listed up to this.
const LONGEST: i64 = 5;
/// A transaction this old keeps the inbox from being cleaned up.
const OLD_TRANSACTION_SECS: i64 = 300;

#[derive(Template)]
#[template(path = "ops.html")]
struct Overview<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    js: String,
    version: &'a str,
    here: &'static str,
    zone: &'a str,
    now: When,
    gauges: Vec<Gauge>,
    alerts: Vec<AlertView>,
    over: Vec<AlertView>,
    paused: Vec<String>,
    waiting: Vec<WaitingView>,
    bulks: Vec<BulkView>,
}

/// One number of the strip. `word` says what `tone` shows.
struct Gauge {
    name: &'static str,
    value: String,
    more: String,
    tone: &'static str,
    word: &'static str,
    address: Option<&'static str>,
}

struct AlertView {
    condition: String,
    sentence: String,
    events: Vec<i64>,
    raised: When,
    ago: String,
    lasted: Option<String>,
}

struct WaitingView {
    id: i64,
    kind: String,
    key: String,
    since: String,
}

pub async fn show(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri).await)
}

async fn page(app: &AppState, operator: &Operator, uri: &Uri) -> Result<Response, Trouble> {
    let mut tx = look(&app.pool).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let health = health::health(&mut tx).await?;
    let (dead, parked) = (boxes::tally(&mut tx, Pile::Dead).await?, boxes::tally(&mut tx, Pile::Parked).await?);
    let board = board::board(&mut tx).await?;
    let waiting = health::longest(&mut tx, LONGEST).await?;
    let bulks = bulk::latest(&mut tx).await?;
    let compared = compared(&mut tx, health.now).await?;
    let version = live::version_for_operators(&mut tx).await?;
    tx.rollback().await?;
    let now = health.now;
    let html = Overview {
        frame: Frame::new("Operators · Bottle", "ops").of(Some(operator.person())),
        tab: "overview",
        notice: Said::of(uri),
        js: assets::url("live.js"),
        version: &version,
        here: "/ops",
        zone: &zone.name,
        now: zone.when(now),
        gauges: gauges(&health, dead, parked, &board).into_iter().chain([compared]).collect(),
        alerts: board.open.iter().map(|alert| AlertView::new(alert, &zone, now)).collect(),
        over: board.over.iter().take(5).map(|alert| AlertView::new(alert, &zone, now)).collect(),
        paused: board.paused.iter().map(|fingerprint| shown(fingerprint, 300)).collect(),
        waiting: waiting.iter().filter(|event| now - event.due_at > SLOW).map(|event| WaitingView::new(event, now)).collect(),
        bulks: bulks.iter().filter(|bulk| !bulk.state.is_over()).map(|bulk| BulkView::new(bulk, &zone, now)).collect(),
    };
    Ok(Html(html.render()?).into_response())
}

/// How the last comparison with the providers ended.
async fn compared(conn: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Gauge> {
    let gauge = |value: String, more: String, (tone, word)| Gauge {
        name: "Last reconcile",
        value,
        more,
        tone,
        word,
        address: Some("/ops/reconcile"),
    };
    let Some(run) = runs::latest(&mut *conn).await? else {
        return Ok(gauge("never".to_owned(), "bottle reconcile compares with the providers".to_owned(), ("", "not yet")));
    };
    let counts = findings::counts(conn, run.id).await?;
    let drift: i64 = counts.iter().map(|(_, all, repaired)| all - repaired).sum();
    let begun = ago(run.finished_at.unwrap_or(run.begun_at), now);
    Ok(match run.state {
        runs::State::Running => {
            gauge("running".to_owned(), format!("begun {begun}; {} differ so far", thousands(drift)), ("wait", "not done"))
        }
        runs::State::Failed => gauge("stopped".to_owned(), "it is taken up again by itself".to_owned(), ("bad", "look at it")),
        runs::State::Finished if drift == 0 => gauge(begun, "nothing differs".to_owned(), FINE),
        runs::State::Finished => gauge(begun, format!("{} differ and are not repaired", thousands(drift)), ("bad", "drift")),
    })
}

const FINE: (&str, &str) = ("good", "fine");

fn gauges(health: &Health, dead: Tally, parked: Tally, board: &Board) -> Vec<Gauge> {
    let gauge = |name, value: String, more: String, (tone, word): (&'static str, &'static str), address| Gauge {
        name,
        value,
        more,
        tone,
        word,
        address,
    };
    let marked = |is_fine: bool, otherwise| if is_fine { FINE } else { otherwise };
    let oldest = health.oldest.as_ref().map(|event| health.now - event.due_at);
    let (runs, failed) = (health.runs.all, health.runs.failed);
    let rate = if runs == 0 { "none".to_owned() } else { format!("{}.{} %", failed * 100 / runs, failed * 1000 / runs % 10) };
    let since = health.runs.since.map(|at| format!(", since {}", ago(at, health.now))).unwrap_or_default();
    let boxed = |tally: Tally| {
        let more = if tally.more { " or more" } else { "" };
        (format!("{}{more}", thousands(tally.waiting)), format!("{} acknowledged", thousands(tally.acknowledged)))
    };
    let ((dead_now, dead_more), (parked_now, parked_more)) = (boxed(dead), boxed(parked));
    let stale = health.oldest_transaction_secs >= OLD_TRANSACTION_SECS;
    vec![
        gauge(
            "Oldest waiting",
            oldest.map_or_else(|| "nothing".to_owned(), span),
            "since it fell due, and no worker has it".to_owned(),
            marked(oldest.is_none_or(|age| age < SLOW), ("bad", "late")),
            None,
        ),
        gauge(
            "In the queue",
            up_to(health.due, COUNTED_TO),
            format!("due now; {} in a worker's hands", thousands(health.in_hand)),
            marked(health.due < COUNTED_TO, ("wait", "full")),
            Some("/ops/events?status=received&status=processing"),
        ),
        gauge(
            "Failed runs",
            rate,
            format!("{} of the last {}{since}", thousands(failed), thousands(runs.min(RUNS_LOOKED_AT))),
            marked(failed * 20 <= runs, ("bad", "many")),
            Some("/ops/events?status=failed"),
        ),
        gauge(
            "Will be tried again",
            up_to(health.failed, COUNTED_TO),
            "failed, and their next try is set".to_owned(),
            marked(health.failed == 0, ("wait", "some")),
            Some("/ops/events?status=failed"),
        ),
        gauge("Dead", dead_now, dead_more, marked(dead.waiting == 0, ("bad", "look at them")), Some("/ops/dead")),
        gauge("Parked", parked_now, parked_more, marked(parked.waiting == 0, ("wait", "waiting")), Some("/ops/parked")),
        gauge(
            "Leases that ended",
            thousands(health.leases_ended),
            format!("their worker died or hangs; {} were claimed again", thousands(health.claimed_again)),
            marked(health.leases_ended + health.claimed_again == 0, ("wait", "some")),
            None,
        ),
        gauge(
            "Alerts open",
            board.open.len().to_string(),
            "told once each, until they clear".to_owned(),
            marked(board.open.is_empty(), ("bad", "see below")),
            None,
        ),
        gauge(
            "Workers paused",
            board.paused.len().to_string(),
            "every event failed alike; they probe".to_owned(),
            marked(board.paused.is_empty(), ("bad", "see below")),
            None,
        ),
        gauge(
            "Stored events",
            health.about.map_or_else(|| "not known yet".to_owned(), |about| format!("about {}", thousands(about))),
            format!("about {} row versions to clean up", thousands(health.dead_tuples)),
            FINE,
            Some("/ops/events"),
        ),
        gauge(
            "Oldest transaction",
            span(Duration::seconds(health.oldest_transaction_secs)),
            "an old one keeps the queue from being cleaned up".to_owned(),
            marked(!stale, ("bad", "too old")),
            None,
        ),
    ]
}

impl AlertView {
    fn new(alert: &Alert, zone: &Zone, now: OffsetDateTime) -> Self {
        Self {
            condition: shown(&alert.condition, 60),
            sentence: shown(&alert.sentence, 400),
            events: alert.events.iter().map(|event| event.0).collect(),
            raised: zone.when(alert.raised_at),
            ago: ago(alert.raised_at, now),
            lasted: alert.cleared_at.map(|cleared| span(cleared - alert.raised_at)),
        }
    }
}

impl WaitingView {
    fn new(event: &Waiting, now: OffsetDateTime) -> Self {
        Self { id: event.id.0, kind: shown(&event.kind, 60), key: shown(event.key.as_str(), 60), since: span(now - event.due_at) }
    }
}
