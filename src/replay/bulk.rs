//! A replay of everything that matches a filter, as it is asked for, looked at and called off. A worker carries it out
//! (`bulk_steps`). The SQL of `bulk_replays` and `bulk_replay_results`, with that.
//!
//! ```text
//! waiting ─▶ running ─ everything that matched has its verdict ─▶ done
//!    │          └──── called off ─▶ stopping ─ what ran already has its verdict ─▶ cancelled
//!    └─ called off ─▶ cancelled
//! ```

use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::event::Status;
use crate::domain::ids::EventId;
use crate::inbox::search::Filter;

/// More than this in one go is somebody's mistake.
pub const CAP_MAX: i32 = 100_000;
/// Bulk replays a list shows.
const LISTED: i64 = 50;

/// A bulk replay to be asked for.
#[derive(Debug)]
pub struct Wish<'a> {
    /// Of the form: one that is sent twice asks once.
    pub form: Uuid,
    pub by: &'a str,
    pub filter: &'a Filter,
    /// The same, as the address of the page that lists what it means.
    pub address: &'a str,
    /// The newest event that is meant.
    pub up_to: EventId,
    pub cap: i32,
    /// What matched, as far as it was counted, and whether that was all.
    pub counted: i32,
    pub counted_all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Now(i64),
    /// By the same form before.
    Before(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Running,
    /// Called off; what was put back in the queue still runs.
    Stopping,
    Done,
    Cancelled,
}

impl State {
    const ALL: [(&'static str, Self); 5] = [
        ("waiting", Self::Waiting),
        ("running", Self::Running),
        ("stopping", Self::Stopping),
        ("done", Self::Done),
        ("cancelled", Self::Cancelled),
    ];

    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    fn read(text: &str) -> sqlx::Result<Self> {
        let found = Self::ALL.iter().find(|(word, _)| *word == text);
        found.map(|(_, state)| *state).ok_or_else(|| sqlx::Error::Decode(format!("no state of a bulk replay: {text}").into()))
    }
}

/// A bulk replay as it stands.
#[derive(Debug, Clone)]
pub struct Bulk {
    pub id: i64,
    pub asked_by: String,
    pub asked_at: OffsetDateTime,
    pub address: String,
    pub up_to: EventId,
    pub cap: i32,
    pub counted: i32,
    pub counted_all: bool,
    pub state: State,
    pub looked_to: EventId,
    pub walked: bool,
    pub requeued: i32,
    pub passed_over: i32,
    pub in_flight: i32,
    pub started_at: Option<OffsetDateTime>,
    pub finished_at: Option<OffsetDateTime>,
    pub last_error: Option<String>,
}

/// How many of its events ended so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub status: Status,
    pub reason: String,
    pub events: i32,
}

/// What a filter without a state means: as with `bottle replay --since`, not what is applied or ignored.
#[must_use]
pub fn meant(filter: Filter) -> Filter {
    if filter.statuses.is_empty() {
        return Filter { statuses: vec![Status::Failed, Status::Parked, Status::Dead], ..filter };
    }
    filter
}

/// # Errors
/// The database's.
pub async fn ask(conn: &mut PgConnection, wish: &Wish<'_>, now: OffsetDateTime) -> sqlx::Result<Asked> {
    let made = sqlx::query_scalar!(
        "insert into bulk_replays (form_key, asked_by, asked_at, filter, address, up_to, cap, counted, counted_all)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         on conflict (form_key) do nothing returning id",
        wish.form,
        wish.by,
        now,
        Json(wish.filter) as _,
        wish.address,
        wish.up_to.0,
        wish.cap,
        wish.counted,
        wish.counted_all
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(id) = made {
        return Ok(Asked::Now(id));
    }
    sqlx::query_scalar!("select id from bulk_replays where form_key = $1", wish.form).fetch_one(conn).await.map(Asked::Before)
}

/// Calls it off: from now on nothing more is put back in the queue. False: it is over, or is none.
///
/// # Errors
/// The database's.
pub async fn cancel(conn: &mut PgConnection, id: i64, now: OffsetDateTime) -> sqlx::Result<bool> {
    // A step that is under way holds the row: it is committed first, and the next one finds that it was called off.
    let done = sqlx::query!(
        "update bulk_replays
         set status = case when in_flight = '{}' then 'cancelled' else 'stopping' end,
             finished_at = case when in_flight = '{}' then $2 else finished_at end
         where id = $1 and status in ('waiting', 'running')",
        id,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// # Errors
/// The database's.
pub async fn find(conn: &mut PgConnection, id: i64) -> sqlx::Result<Option<Bulk>> {
    let row = sqlx::query_as!(
        Row,
        r#"/* operators */ select id, asked_by, asked_at, address, up_to as "up_to: EventId", cap, counted, counted_all, status, looked_to as "looked_to: EventId", walked,
                  requeued, passed_over, cardinality(in_flight) as "in_flight!", started_at, finished_at, last_error
           from bulk_replays where id = $1"#,
        id
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::bulk).transpose()
}

/// The last ones, newest first.
///
/// # Errors
/// The database's.
pub async fn latest(conn: &mut PgConnection) -> sqlx::Result<Vec<Bulk>> {
    let rows = sqlx::query_as!(
        Row,
        r#"/* operators */ select id, asked_by, asked_at, address, up_to as "up_to: EventId", cap, counted, counted_all, status, looked_to as "looked_to: EventId", walked,
                  requeued, passed_over, cardinality(in_flight) as "in_flight!", started_at, finished_at, last_error
           from bulk_replays order by id desc limit $1"#,
        LISTED
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::bulk).collect()
}

/// What became of its events so far, the most frequent first.
///
/// # Errors
/// The database's.
pub async fn results(conn: &mut PgConnection, id: i64) -> sqlx::Result<Vec<Ended>> {
    let rows = sqlx::query!(
        "/* operators */ select status, reason, events from bulk_replay_results where bulk_replay_id = $1
         order by events desc, status, reason",
        id
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let status = row.status.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
            Ok(Ended { status, reason: row.reason, events: row.events })
        })
        .collect()
}

/// A number that differs when one of the last has moved: cheap, for open pages.
///
/// # Errors
/// The database's.
pub async fn version(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"/* operators */ select coalesce(sum(hashtextextended(concat_ws(' ', id, status, requeued, looked_to, in_flight, last_error), 0) % 1000003), 0)::bigint as "version!"
           from (select id, status, requeued, looked_to, in_flight, last_error from bulk_replays order by id desc limit 20) b"#
    )
    .fetch_one(conn)
    .await
}

struct Row {
    id: i64,
    asked_by: String,
    asked_at: OffsetDateTime,
    address: String,
    up_to: EventId,
    cap: i32,
    counted: i32,
    counted_all: bool,
    status: String,
    looked_to: EventId,
    walked: bool,
    requeued: i32,
    passed_over: i32,
    in_flight: i32,
    started_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
    last_error: Option<String>,
}

impl Row {
    fn bulk(self) -> sqlx::Result<Bulk> {
        Ok(Bulk {
            id: self.id,
            asked_by: self.asked_by,
            asked_at: self.asked_at,
            address: self.address,
            up_to: self.up_to,
            cap: self.cap,
            counted: self.counted,
            counted_all: self.counted_all,
            state: State::read(&self.status)?,
            looked_to: self.looked_to,
            walked: self.walked,
            requeued: self.requeued,
            passed_over: self.passed_over,
            in_flight: self.in_flight,
            started_at: self.started_at,
            finished_at: self.finished_at,
            last_error: self.last_error,
        })
    }
}
