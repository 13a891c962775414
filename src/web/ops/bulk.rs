//! `GET /ops/replays`, `/ops/replays/{id}` and its cancel: how bulk replays get on, and what came of them.

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Redirect, Response};
use time::{Duration, OffsetDateTime};

use super::guard::Operator;
use super::said::{Notice, Said};
use super::trouble::{Trouble, answered, look};
use super::words::span;
use crate::clock::Clock;
use crate::engine_room::report::thousands;
use crate::operators::actions::{self, Action, Deed};
use crate::replay::bulk::{self, Bulk, Ended, State as Stage};
use crate::web::account::zone_of;
use crate::web::assets;
use crate::web::event::{Id, event_id};
use crate::web::live;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::status_mark::{StatusMark, mark};
use crate::web::when::{When, Zone};

/// A worker that runs takes a bulk replay up sooner.
const TAKEN_UP_WITHIN: Duration = Duration::seconds(15);

#[derive(Template)]
#[template(path = "ops_bulk.html")]
struct BulkPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    js: String,
    version: &'a str,
    here: String,
    zone: &'a str,
    bulk: BulkView,
    results: Vec<ResultRow>,
}

#[derive(Template)]
#[template(path = "ops_bulks.html")]
struct BulksPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    js: String,
    version: &'a str,
    here: &'static str,
    zone: &'a str,
    bulks: Vec<BulkView>,
}

/// A bulk replay in words.
pub(super) struct BulkView {
    pub id: i64,
    pub word: &'static str,
    pub tone: &'static str,
    pub sentence: String,
    pub is_over: bool,
    pub by: String,
    pub asked: When,
    pub address: String,
    pub replayed: String,
    /// For a bar: how many of how many.
    pub done: i32,
    pub of: i32,
    pub passed_over: i32,
    pub last_error: Option<String>,
    pub finished: Option<When>,
    pub took: Option<String>,
}

struct ResultRow {
    mark: StatusMark,
    reason: String,
    events: String,
}

pub async fn list(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(all(&app, &operator, &uri).await)
}

async fn all(app: &AppState, operator: &Operator, uri: &Uri) -> Result<Response, Trouble> {
    let mut tx = look(&app.pool).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let bulks = bulk::latest(&mut tx).await?;
    let version = live::version_for_operators(&mut tx).await?;
    tx.rollback().await?;
    let html = BulksPage {
        frame: Frame::new("Replays of many · Operators · Bottle", "ops").of(Some(operator.person())),
        tab: "replays",
        notice: Said::of(uri),
        js: assets::url("live.js"),
        version: &version,
        here: "/ops/replays",
        zone: &zone.name,
        bulks: bulks.iter().map(|bulk| BulkView::new(bulk, &zone, now)).collect(),
    };
    Ok(Html(html.render()?).into_response())
}

pub async fn show(operator: Operator, State(app): State<AppState>, id: Id, uri: Uri) -> Response {
    answered(one(&app, &operator, id, &uri).await)
}

async fn one(app: &AppState, operator: &Operator, id: Id, uri: &Uri) -> Result<Response, Trouble> {
    let id = event_id(id).ok_or(Trouble::Nothing)?.0;
    let mut tx = look(&app.pool).await?;
    let bulk = bulk::find(&mut tx, id).await?.ok_or(Trouble::Nothing)?;
    let results = bulk::results(&mut tx, id).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let version = live::version_for_operators(&mut tx).await?;
    tx.rollback().await?;
    let row = |ended: &Ended| ResultRow {
        mark: mark(ended.status),
        reason: shown(&ended.reason, 200),
        events: thousands(i64::from(ended.events)),
    };
    let html = BulkPage {
        frame: Frame::new(format!("Replay {id} · Operators · Bottle"), "ops").of(Some(operator.person())),
        tab: "replays",
        notice: Said::of(uri),
        js: assets::url("live.js"),
        version: &version,
        here: format!("/ops/replays/{id}"),
        zone: &zone.name,
        bulk: BulkView::new(&bulk, &zone, now),
        results: results.iter().map(row).collect(),
    };
    Ok(Html(html.render()?).into_response())
}

pub async fn cancel(operator: Operator, State(app): State<AppState>, id: Id) -> Response {
    answered(called_off(&app, &operator, id).await)
}

async fn called_off(app: &AppState, operator: &Operator, id: Id) -> Result<Response, Trouble> {
    let id = event_id(id).ok_or(Trouble::Nothing)?.0;
    let by = operator.by();
    let mut tx = app.pool.begin().await?;
    bulk::find(&mut tx, id).await?.ok_or(Trouble::Nothing)?;
    let now = Clock::Database.now(&mut *tx).await?;
    let said = if bulk::cancel(&mut tx, id, now).await? {
        let deed = Deed { by: &by, action: Action::Cancel, event: None, bulk_replay: Some(id), detail: None };
        actions::record(&mut tx, deed, now).await?;
        tx.commit().await?;
        tracing::info!(bulk_replay = id, by, "bulk replay called off");
        Said::Cancelled
    } else {
        Said::Over
    };
    Ok(Redirect::to(&format!("/ops/replays/{id}?said={}", said.as_str())).into_response())
}

impl BulkView {
    pub(super) fn new(bulk: &Bulk, zone: &Zone, now: OffsetDateTime) -> Self {
        let (word, tone) = match bulk.state {
            Stage::Waiting => ("Waiting", "wait"),
            Stage::Running => ("Running", "wait"),
            Stage::Stopping => ("Stopping", "wait"),
            Stage::Done => ("Done", "good"),
            Stage::Cancelled => ("Called off", ""),
        };
        // What is known to be there, or may be: never less than what was done already.
        let of = if bulk.counted_all { bulk.counted.min(bulk.cap) } else { bulk.cap }.max(bulk.requeued).max(1);
        Self {
            id: bulk.id,
            word,
            tone,
            sentence: sentence(bulk, now),
            is_over: bulk.state.is_over(),
            by: shown(&bulk.asked_by, 100),
            asked: zone.when(bulk.asked_at),
            address: bulk.address.clone(),
            replayed: thousands(i64::from(bulk.requeued)),
            done: bulk.requeued - bulk.in_flight,
            of,
            passed_over: bulk.passed_over,
            last_error: bulk.last_error.as_deref().map(|error| shown(error, 300)),
            finished: bulk.finished_at.map(|at| zone.when(at)),
            took: bulk.started_at.zip(bulk.finished_at).map(|(from, to)| span(to - from)),
        }
    }
}

fn sentence(bulk: &Bulk, now: OffsetDateTime) -> String {
    let (requeued, cap) = (thousands(i64::from(bulk.requeued)), thousands(i64::from(bulk.cap)));
    let at_most = if bulk.counted_all && bulk.counted < bulk.cap {
        format!("{} matched when it was asked for", thousands(i64::from(bulk.counted)))
    } else {
        format!("{cap} at most")
    };
    match bulk.state {
        Stage::Waiting if now - bulk.asked_at > TAKEN_UP_WITHIN => {
            "No worker has taken it up yet. Is one running, or is it busy with an earlier one?".to_owned()
        }
        Stage::Waiting => "A worker takes it up within seconds.".to_owned(),
        Stage::Running => format!(
            "{requeued} put back in the queue so far, {at_most}; {} of them are running or about to. It looks at the oldest first.",
            bulk.in_flight
        ),
        Stage::Stopping => {
            format!("Called off: nothing more is put back. {} of {requeued} still have to come to their verdict.", bulk.in_flight)
        }
        Stage::Done if bulk.requeued == bulk.cap && !(bulk.counted_all && bulk.counted <= bulk.cap) => {
            format!("{requeued} were replayed, which is the limit it was given. There may be more that match.")
        }
        Stage::Done => format!("Everything that matched was looked at; {requeued} were replayed."),
        Stage::Cancelled => format!("It was called off after {requeued}."),
    }
}
