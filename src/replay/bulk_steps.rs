//! A bulk replay, carried out: a few events a step, each step one transaction that moves the events, notes their replays and
//! says how far it came. So a crash loses no step and repeats none, and whoever takes it up goes on where the last commit was.
//!
//! A lower lane: the queue runs what is due longest first, so replays put back in bulk would stand before every delivery that
//! arrives after them. Instead at most [`IN_FLIGHT`] of them are in the queue at any time, whatever there is to replay: a
//! delivery never waits for more than those. A worker that is slow, or paused, slows the replay down and nothing else.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::ids::EventId;
use crate::domain::reason;
use crate::inbox::queue;
use crate::inbox::search::{self, Filter, Rest};

use super::{PER_SECOND, note};

/// Its events that may be in the queue at once.
pub const IN_FLIGHT: i32 = 3;
/// How long a bulk replay is its worker's. Each step renews it.
const LEASE_SECS: i64 = 15;
/// Different reasons that are counted apart.
const REASONS_MAX: i64 = 50;
const OTHER_REASONS: &str = "other reasons";

/// A bulk replay in the hands of whoever carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub id: i64,
    token: Uuid,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// So many events were put back in the queue.
    On(usize),
    /// It only waits for events that run.
    Waits,
    Over,
    /// Somebody else has it by now.
    Lost,
}

/// Takes the oldest bulk replay that is not over, unless somebody has it. One at a time, so that their paces do not add up.
///
/// # Errors
/// The database's.
pub async fn take(conn: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Option<Taken>> {
    let token = Uuid::new_v4();
    let id = sqlx::query_scalar!(
        "with oldest as materialized (
             select id from bulk_replays where id = (
                 select id from bulk_replays where status in ('waiting', 'running', 'stopping') order by id limit 1)
             and (leased_until is null or leased_until < $2)
             for update skip locked
         )
         update bulk_replays b
         set status = case b.status when 'waiting' then 'running' else b.status end,
             started_at = coalesce(started_at, $2), lease_token = $1, leased_until = $2::timestamptz + $3::interval
         from oldest where b.id = oldest.id and b.status in ('waiting', 'running', 'stopping')
         returning b.id",
        token,
        now,
        lease()
    )
    .fetch_optional(conn)
    .await?;
    Ok(id.map(|id| Taken { id, token }))
}

/// One step, in the caller's transaction.
///
/// # Errors
/// The database's; the caller rolls back, and nothing has happened.
pub async fn step(conn: &mut PgConnection, taken: Taken, now: OffsetDateTime) -> sqlx::Result<Stepped> {
    let Some(mut at) = hold(conn, taken).await? else { return Ok(Stepped::Lost) };
    at.in_flight = settle(conn, taken.id, at.in_flight).await?;
    let requeued = if at.stopping || at.walked { 0 } else { walk(conn, taken.id, &mut at, now).await? };
    let over = (at.walked || at.stopping) && at.in_flight.is_empty();
    sqlx::query!(
        "update bulk_replays
         set looked_to = $2, walked = $3, requeued = requeued + $4, passed_over = passed_over + $5, in_flight = $6,
             status = case when $7::bool then case status when 'stopping' then 'cancelled' else 'done' end else status end,
             finished_at = case when $7 then $8::timestamptz end, leased_until = case when $7 then null else $8::timestamptz + $9::interval end,
             last_error = null
         where id = $1",
        taken.id,
        at.looked_to,
        at.walked,
        i32::try_from(requeued).unwrap_or(i32::MAX),
        at.passed_over,
        &at.in_flight,
        over,
        now,
        lease()
    )
    .execute(conn)
    .await?;
    Ok(match (over, requeued) {
        (true, _) => Stepped::Over,
        // A stretch without a match is a step too.
        (false, 0) if at.walked || at.stopping || at.is_full() => Stepped::Waits,
        (false, requeued) => Stepped::On(requeued),
    })
}

/// Notes why a step failed, for the page. It is tried again.
///
/// # Errors
/// The database's.
pub async fn note_error(conn: &mut PgConnection, taken: Taken, error: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "update bulk_replays set last_error = $3 where id = $1 and lease_token = $2 and status in ('running', 'stopping')",
        taken.id,
        taken.token,
        error
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives it back, so that another need not wait for the lease to end.
///
/// # Errors
/// The database's.
pub async fn give_back(conn: &mut PgConnection, taken: Taken) -> sqlx::Result<()> {
    sqlx::query!(
        "update bulk_replays set leased_until = null where id = $1 and lease_token = $2 and status in ('running', 'stopping')",
        taken.id,
        taken.token
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Where a bulk replay stands at a step.
struct At {
    filter: Filter,
    asked_by: String,
    up_to: EventId,
    /// Events that may still be put back.
    left: i32,
    looked_to: i64,
    walked: bool,
    stopping: bool,
    passed_over: i32,
    in_flight: Vec<i64>,
}

impl At {
    fn room(&self) -> i32 {
        IN_FLIGHT.saturating_sub(i32::try_from(self.in_flight.len()).unwrap_or(i32::MAX)).max(0)
    }

    fn is_full(&self) -> bool {
        self.room() == 0
    }
}

/// Locks the row if it still is ours.
async fn hold(conn: &mut PgConnection, taken: Taken) -> sqlx::Result<Option<At>> {
    let row = sqlx::query!(
        r#"select filter as "filter: Json<Filter>", asked_by, up_to as "up_to: EventId", cap - requeued as "left!", looked_to, walked,
                  status = 'stopping' as "stopping!", in_flight
           from bulk_replays where id = $1 and lease_token = $2 and status in ('running', 'stopping') for update"#,
        taken.id,
        taken.token
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| At {
        filter: row.filter.0,
        asked_by: row.asked_by,
        up_to: row.up_to,
        left: row.left,
        looked_to: row.looked_to,
        walked: row.walked,
        stopping: row.stopping,
        passed_over: 0,
        in_flight: row.in_flight,
    }))
}

/// Puts back as many as there is room for and looks no further than it has to. Returns how many.
async fn walk(conn: &mut PgConnection, id: i64, at: &mut At, now: OffsetDateTime) -> sqlx::Result<usize> {
    let limit = at.room().min(at.left);
    if limit == 0 {
        at.walked = at.left == 0;
        return Ok(0);
    }
    let found = search::oldest(&mut *conn, &at.filter, EventId(at.looked_to), at.up_to, i64::from(limit)).await?;
    let ids: Vec<EventId> = found.events.iter().map(|event| event.id).collect();
    let requeued = queue::requeue(&mut *conn, &ids, &at.asked_by, PER_SECOND, now).await?;
    note(conn, &requeued, &at.asked_by, Some(id), now).await?;
    match found.rest {
        Rest::Nothing => (at.looked_to, at.walked) = (at.up_to.0, true),
        Rest::More(last) | Rest::NotLookedAt(last) => at.looked_to = last.0,
    }
    at.walked |= i32::try_from(requeued.len()).is_ok_and(|n| n >= at.left);
    at.passed_over = i32::try_from(ids.len() - requeued.len()).unwrap_or(i32::MAX);
    at.in_flight.extend(requeued.iter().map(|id| id.0));
    Ok(requeued.len())
}

/// Counts what came to a verdict. Returns what has none yet.
async fn settle(conn: &mut PgConnection, id: i64, in_flight: Vec<i64>) -> sqlx::Result<Vec<i64>> {
    if in_flight.is_empty() {
        return Ok(in_flight);
    }
    let rows =
        sqlx::query!("select id, status, reason from inbox_events where id = any($1)", &in_flight).fetch_all(&mut *conn).await?;
    let (open, ended): (Vec<_>, Vec<_>) = rows.into_iter().partition(|r| matches!(r.status.as_str(), "received" | "processing"));
    let mut counts: BTreeMap<(String, String), i32> = BTreeMap::new();
    for row in ended {
        *counts.entry((row.status, reason::gist(row.reason.as_deref().unwrap_or_default()))).or_default() += 1;
    }
    for ((status, reason), events) in counts {
        sqlx::query!(
            "insert into bulk_replay_results as r (bulk_replay_id, status, reason, events)
             select $1, $2, case when exists (select 1 from bulk_replay_results where bulk_replay_id = $1 and status = $2 and reason = $3)
                                   or (select count(*) from bulk_replay_results where bulk_replay_id = $1) < $5 then $3 else $6 end, $4
             on conflict (bulk_replay_id, status, reason) do update set events = r.events + excluded.events",
            id,
            status,
            reason,
            events,
            REASONS_MAX,
            OTHER_REASONS
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(open.into_iter().map(|row| row.id).collect())
}

fn lease() -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: LEASE_SECS * 1_000_000 }
}
