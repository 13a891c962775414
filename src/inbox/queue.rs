//! Every statement that moves a stored event between states.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::clock::Clock;
use crate::domain::event::Status;
use crate::domain::ids::{AccountId, CustomerId, EventId, EventKey, LeaseToken};

use super::claimed::{Claimed, ClaimedRow};

/// How long a claimed event is its worker's.
pub const LEASE_SECS: f64 = 30.0;
/// Events taken by one claim.
pub const CLAIM_LIMIT: i64 = 25;

/// Takes up to `limit` due events for a lease. Commits by itself, so no lock is held while anything is asked or done.
///
/// The materialised CTE is a fence: without it the planner may run the limited subquery again and claim more than asked. The
/// states are literals so that a prepared statement's generic plan still matches the partial index. A lease that ended makes
/// its row due again, so a dead worker needs no sweeper.
pub async fn claim(db: impl PgExecutor<'_>, limit: i64, lease_secs: f64, clock: Clock) -> sqlx::Result<Vec<Claimed>> {
    let token = LeaseToken::fresh();
    let rows = sqlx::query_as!(
        ClaimedRow,
        r#"with due as materialized (
               select id, status = 'processing' as lease_ended from inbox_events
               where status in ('received', 'processing', 'failed', 'parked') and due_at <= coalesce($1, now())
               order by due_at, id
               limit $2
               for update skip locked
           )
           update inbox_events e
           set status = 'processing', claims = e.claims + 1, lease_token = $3,
               due_at = coalesce($1, now()) + make_interval(secs => $4)
           from due where e.id = due.id
           returning e.id as "id: EventId", e.source, e.dedupe_key as "key: EventKey", e.type as kind, e.body, e.occurred_ns,
                     e.received_at, e.attempts, e.claims, e.account_id as "account: AccountId", e.replayed_by,
                     coalesce($1, now()) as "claimed_at!", due.lease_ended as "lease_ended!""#,
        clock.param(),
        limit,
        token.0,
        lease_secs
    )
    .fetch_all(db)
    .await?;
    let mut claimed = rows.into_iter().map(|row| Claimed::from_row(row, token)).collect::<sqlx::Result<Vec<_>>>()?;
    claimed.sort_by_key(|c| c.id);
    Ok(claimed)
}

/// Takes one event that this transaction itself has stored, and will settle before it ends.
pub async fn take(conn: &mut PgConnection, id: EventId, token: LeaseToken) -> sqlx::Result<()> {
    sqlx::query!(
        "update inbox_events set status = 'processing', claims = 1, lease_token = $2 where id = $1 and status = 'received'",
        id.0,
        token.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The events of this claim that are still ours, locked until the transaction ends, and the transaction's `now`.
///
/// The first statement of every handler: a worker that slept past its lease finds nothing here and stops, and while we hold
/// the rows a new claim passes them by. Rows are locked in the order in which intake counts copies, so the two never deadlock.
pub async fn hold(
    conn: &mut PgConnection,
    ids: &[EventId],
    token: LeaseToken,
    clock: Clock,
) -> sqlx::Result<(Vec<EventId>, OffsetDateTime)> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"select id as "id: EventId", coalesce($3, now()) as "now!" from inbox_events
           where id = any($1) and lease_token = $2 and status = 'processing'
           order by source, dedupe_key collate "C" for update"#,
        &ids,
        token.0,
        clock.param()
    )
    .fetch_all(conn)
    .await?;
    let now = rows.first().map_or(OffsetDateTime::UNIX_EPOCH, |r| r.now);
    Ok((rows.into_iter().map(|r| r.id).collect(), now))
}

/// A verdict to be written with the effects it speaks of.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub id: EventId,
    pub status: Status,
    pub reason: String,
    pub account: Option<AccountId>,
    /// When a parked event is looked at again; none means when it is re-armed.
    pub due: Option<OffsetDateTime>,
    pub waits_for: Option<String>,
}

/// Marks events, each only if the lease is still ours. Returns how many were marked.
///
/// A replay that is parked with a time of its own is only put off: the run to come is still the one that was asked for.
pub async fn settle(
    conn: &mut PgConnection,
    settlements: &[Settlement],
    token: LeaseToken,
    now: OffsetDateTime,
) -> sqlx::Result<u64> {
    let mut ids = Vec::new();
    let mut statuses = Vec::new();
    let mut reasons = Vec::new();
    let mut accounts = Vec::new();
    let mut dues = Vec::new();
    let mut waits = Vec::new();
    for s in settlements {
        ids.push(s.id.0);
        statuses.push(s.status.as_str());
        reasons.push(s.reason.as_str());
        accounts.push(s.account.map(|a| a.0));
        dues.push(s.due);
        waits.push(s.waits_for.as_deref());
    }
    let done = sqlx::query!(
        r#"update inbox_events e
           set status = s.status, reason = s.reason, account_id = coalesce(s.account, e.account_id), waits_for = s.waits_for,
               due_at = case when s.status = 'parked' then coalesce(s.due, 'infinity') else e.due_at end,
               lease_token = null, claims = 0, processed_at = $8,
               replayed_by = case when s.status = 'parked' and s.due is not null then e.replayed_by end
           from unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::text[])
                as s (id, status, reason, account, due, waits_for)
           where e.id = s.id and e.lease_token = $7 and e.status = 'processing'"#,
        &ids,
        &statuses as &[&str],
        &reasons as &[&str],
        &accounts as &[Option<i64>],
        &dues as &[Option<OffsetDateTime>],
        &waits as &[Option<&str>],
        token.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// What a failed run leaves behind.
#[derive(Debug, Clone)]
pub struct Failure {
    pub status: Status,
    pub attempts: i32,
    pub reason: String,
    pub error: String,
    pub due: OffsetDateTime,
}

/// Records a failure, if the lease is still ours.
pub async fn fail(conn: &mut PgConnection, event: &Claimed, failure: &Failure, now: OffsetDateTime) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        r#"update inbox_events
           set status = $3, attempts = $4, reason = $5, last_error = $6, due_at = $7, processed_at = $8, lease_token = null,
               claims = 0, waits_for = null
           where id = $1 and lease_token = $2 and status = 'processing'"#,
        event.id.0,
        event.token.0,
        failure.status.as_str(),
        failure.attempts,
        failure.reason,
        failure.error,
        failure.due,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives a claim back, uncharged, to be due at once or in `wait_secs`.
pub async fn release(
    db: impl PgExecutor<'_>,
    ids: &[EventId],
    token: LeaseToken,
    wait_secs: f64,
    clock: Clock,
) -> sqlx::Result<u64> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let done = sqlx::query!(
        r#"update inbox_events
           set status = case when attempts > 0 then 'failed' else 'received' end, claims = greatest(claims - 1, 0),
               due_at = coalesce($4, now()) + make_interval(secs => $3), lease_token = null
           where id = any($1) and lease_token = $2 and status = 'processing'"#,
        &ids,
        token.0,
        wait_secs,
        clock.param()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Makes events that waited for one of these customers due. Call it in the transaction that learned the mapping.
pub async fn rearm_customers(conn: &mut PgConnection, customers: &[CustomerId], now: OffsetDateTime) -> sqlx::Result<u64> {
    let waits: Vec<String> = customers.iter().map(|c| waits_for_customer(c.as_str())).collect();
    rearm(conn, &waits, now).await
}

/// Makes events that waited for one of these plan keys due: they are configured now.
pub async fn rearm_plan_keys(conn: &mut PgConnection, keys: &[&str], now: OffsetDateTime) -> sqlx::Result<u64> {
    let waits: Vec<String> = keys.iter().map(|k| waits_for_plan_key(k)).collect();
    rearm(conn, &waits, now).await
}

/// An event that was settled without what it names (a plan key nobody knew, in a change that was not the newest) waits too.
async fn rearm(conn: &mut PgConnection, waits: &[String], now: OffsetDateTime) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        r#"update inbox_events
           set due_at = $2, status = case status when 'parked' then 'parked' else 'received' end
           where waits_for = any($1)
             and (status in ('applied', 'ignored') or status = 'parked' and due_at > $2)"#,
        waits,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// The net under `rearm_customers`: every parked event whose customer is known becomes due.
pub async fn rearm_sweep(db: impl PgExecutor<'_>, clock: Clock) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        r#"update inbox_events e set due_at = coalesce($1, now())
           where e.status = 'parked' and e.due_at = 'infinity' and e.waits_for like 'customer:%'
             and exists (select 1 from customer_map m where m.source = e.source and m.customer_id = substr(e.waits_for, 10))"#,
        clock.param()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

pub fn waits_for_customer(customer: &str) -> String {
    format!("customer:{customer}")
}

pub fn waits_for_plan_key(key: &str) -> String {
    format!("plan_key:{key}")
}

/// Puts stored events back in the queue, the first at `due` and `per_second` of them each second. An event that is being
/// processed, or already waits, is left alone. Returns the ids that were requeued.
///
/// Rows are locked in the order in which `hold` and intake lock them, so that no two of these deadlock.
pub async fn requeue(
    conn: &mut PgConnection,
    ids: &[EventId],
    asked_by: &str,
    per_second: f64,
    due: OffsetDateTime,
) -> sqlx::Result<Vec<EventId>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query_scalar!(
        r#"with locked as materialized (
               select e.id, g.n from inbox_events e join unnest($1::bigint[]) with ordinality as g (id, n) on e.id = g.id
               order by e.source, e.dedupe_key collate "C"
               for update of e
           )
           update inbox_events e
           set status = 'received', attempts = 0, claims = 0, lease_token = null, waits_for = null, replayed_by = $2,
               due_at = $4::timestamptz + make_interval(secs => (l.n - 1) / $3::float8)
           from locked l
           where e.id = l.id and e.status in ('applied', 'ignored', 'dead', 'parked', 'failed')
           returning e.id as "id: EventId""#,
        &ids,
        asked_by,
        per_second,
        due
    )
    .fetch_all(conn)
    .await
}

/// Puts one event of this account back in the queue. Whose it is, whether it may be moved and whether that was done only a
/// moment ago are decided in the one statement that moves it: nothing can change in between.
pub async fn requeue_own(
    conn: &mut PgConnection,
    account: AccountId,
    id: EventId,
    asked_by: &str,
    pause_secs: f64,
    now: OffsetDateTime,
) -> sqlx::Result<Option<EventId>> {
    sqlx::query_scalar!(
        r#"update inbox_events e
           set status = 'received', attempts = 0, claims = 0, lease_token = null, waits_for = null, replayed_by = $3, due_at = $5
           where e.id = $2 and e.account_id = $1 and e.status in ('applied', 'ignored', 'dead', 'parked', 'failed')
             and not exists (select 1 from replays r
                             where r.event_id = e.id and r.requested_at > $5::timestamptz - make_interval(secs => $4))
           returning e.id as "id: EventId""#,
        account.0,
        id.0,
        asked_by,
        pause_secs,
        now
    )
    .fetch_optional(conn)
    .await
}
