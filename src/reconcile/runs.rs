//! Runs of reconcile as they are kept: begun, taken up again, noted page by page, finished. The SQL of `reconcile_runs`.
//!
//! What pages read: [`latest`], [`find`] and [`page`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::{Date, OffsetDateTime};

use crate::domain::event::{Source, UnknownWord};

/// Whether a run only looks, or also repairs what can be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Look,
    Apply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Under way, or left behind by a process that died.
    Running,
    Finished,
    /// Stopped by `error`, and to be taken up again.
    Failed,
}

/// What was looked at and found, by name: `customers`, `events`, `movements`, `plan_stale`, …
pub type Tallies = BTreeMap<String, i64>;

/// What both sides' books come to in one currency, over what the run looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    pub source: String,
    pub currency: String,
    pub ours_minor: i64,
    pub theirs_minor: i64,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run {
    pub id: RunId,
    /// The night it is for; none for one that somebody asked for.
    pub night: Option<Date>,
    pub sources: Vec<Source>,
    pub since: OffsetDateTime,
    pub until: OffsetDateTime,
    pub mode: Mode,
    pub state: State,
    /// Steps that are done, and where the one under way goes on.
    pub step: i32,
    pub cursor: Option<String>,
    pub tallies: Tallies,
    /// Once it is finished.
    pub totals: Vec<Total>,
    pub error: Option<String>,
    pub begun_at: OffsetDateTime,
    /// When it last got on.
    pub touched_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

/// `reconcile_runs.id`; a later run has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type, Serialize, Deserialize)]
#[sqlx(transparent)]
#[serde(transparent)]
pub struct RunId(pub i64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Mode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Apply => "apply",
        }
    }
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

/// The run that ended last, or, while none has ended yet, the one that was begun last.
///
/// # Errors
/// The database's.
pub async fn latest(conn: &mut PgConnection) -> sqlx::Result<Option<Run>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id: RunId", night, sources, since, until, mode, state, step, cursor, tallies, totals, error, begun_at,
                  touched_at, finished_at
           from reconcile_runs order by finished_at desc nulls last, id desc limit 1"#
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::run).transpose()
}

/// One run.
///
/// # Errors
/// The database's.
pub async fn find(conn: &mut PgConnection, id: RunId) -> sqlx::Result<Option<Run>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id: RunId", night, sources, since, until, mode, state, step, cursor, tallies, totals, error, begun_at,
                  touched_at, finished_at
           from reconcile_runs where id = $1"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::run).transpose()
}

/// Runs, newest first, `limit` of them before the run `before`; none begins with the newest.
///
/// # Errors
/// The database's.
pub async fn page(conn: &mut PgConnection, before: Option<RunId>, limit: i64) -> sqlx::Result<Vec<Run>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: RunId", night, sources, since, until, mode, state, step, cursor, tallies, totals, error, begun_at,
                  touched_at, finished_at
           from reconcile_runs where $1::bigint is null or id < $1 order by id desc limit $2"#,
        before.map(|id| id.0),
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::run).collect()
}

pub(super) struct Row {
    pub id: RunId,
    pub night: Option<Date>,
    pub sources: Vec<String>,
    pub since: OffsetDateTime,
    pub until: OffsetDateTime,
    pub mode: String,
    pub state: String,
    pub step: i32,
    pub cursor: Option<String>,
    pub tallies: serde_json::Value,
    pub totals: serde_json::Value,
    pub error: Option<String>,
    pub begun_at: OffsetDateTime,
    pub touched_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

impl Row {
    pub(super) fn run(self) -> sqlx::Result<Run> {
        let decode = |error: UnknownWord| sqlx::Error::Decode(Box::new(error));
        let json = |error: serde_json::Error| sqlx::Error::Decode(Box::new(error));
        Ok(Run {
            id: self.id,
            night: self.night,
            sources: self.sources.iter().map(|word| word.parse()).collect::<Result<_, _>>().map_err(decode)?,
            since: self.since,
            until: self.until,
            mode: if self.mode == Mode::Apply.as_str() { Mode::Apply } else { Mode::Look },
            state: match self.state.as_str() {
                "finished" => State::Finished,
                "failed" => State::Failed,
                _ => State::Running,
            },
            step: self.step,
            cursor: self.cursor,
            tallies: serde_json::from_value(self.tallies).map_err(json)?,
            totals: serde_json::from_value(self.totals).map_err(json)?,
            error: self.error,
            begun_at: self.begun_at,
            touched_at: self.touched_at,
            finished_at: self.finished_at,
        })
    }
}
