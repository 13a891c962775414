//! Reads of the inbox: what is stored, how it went, what waits.

use sqlx::PgExecutor;
use time::OffsetDateTime;

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey, LeaseToken};

use super::claimed::{Claimed, ClaimedRow};

/// A stored event as people look at it.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: EventId,
    pub source: Source,
    pub key: EventKey,
    pub kind: String,
    pub status: Status,
    pub reason: Option<String>,
    pub attempts: i32,
    pub claims: i32,
    pub seen_count: i32,
    pub received_at: OffsetDateTime,
    pub account: Option<AccountId>,
}

/// Which events a person means. Empty lists and none mean "any".
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub keys: Vec<String>,
    pub since: Option<OffsetDateTime>,
    pub statuses: Vec<Status>,
    pub kinds: Vec<String>,
}

/// The events that match, oldest first, up to `limit`. A key may be the provider's event id or ours.
pub async fn find(db: impl PgExecutor<'_>, filter: &Filter, limit: i64) -> sqlx::Result<Vec<Event>> {
    let ids: Vec<i64> = filter.keys.iter().filter_map(|key| key.parse().ok()).collect();
    let statuses: Vec<&str> = filter.statuses.iter().map(|s| s.as_str()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: EventId", source, dedupe_key as "key: EventKey", type as kind, status, reason, attempts, claims,
                  seen_count, received_at, account_id as "account: AccountId"
           from inbox_events
           where (cardinality($1::text[]) = 0 and cardinality($6::bigint[]) = 0 or id = any($6)
                  or source in ('kinde', 'stripe', 'bottle') and dedupe_key = any($1))
             and ($2::timestamptz is null or received_at >= $2)
             and (cardinality($3::text[]) = 0 or status = any($3))
             and (cardinality($4::text[]) = 0 or type = any($4))
           order by id limit $5"#,
        &filter.keys,
        filter.since,
        &statuses as &[&str],
        &filter.kinds,
        limit,
        &ids
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Row::event).collect()
}

/// The events that arrived last, oldest first.
pub async fn latest(db: impl PgExecutor<'_>, limit: i64) -> sqlx::Result<Vec<Event>> {
    let mut rows = sqlx::query_as!(
        Row,
        r#"select id as "id: EventId", source, dedupe_key as "key: EventKey", type as kind, status, reason, attempts, claims,
                  seen_count, received_at, account_id as "account: AccountId"
           from inbox_events order by id desc limit $1"#,
        limit
    )
    .fetch_all(db)
    .await?;
    rows.reverse();
    rows.into_iter().map(Row::event).collect()
}

struct Row {
    id: EventId,
    source: String,
    key: EventKey,
    kind: String,
    status: String,
    reason: Option<String>,
    attempts: i32,
    claims: i32,
    seen_count: i32,
    received_at: OffsetDateTime,
    account: Option<AccountId>,
}

impl Row {
    fn event(self) -> sqlx::Result<Event> {
        Ok(Event {
            id: self.id,
            source: self.source.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            key: self.key,
            kind: self.kind,
            status: self.status.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            reason: self.reason,
            attempts: self.attempts,
            claims: self.claims,
            seen_count: self.seen_count,
            received_at: self.received_at,
            account: self.account,
        })
    }
}

/// Events as a worker would get them, without claiming them: for a rehearsal that is rolled back. Nobody is asked for
/// one, so there is no claim by whose moment to ask.
pub async fn as_claimed(db: impl PgExecutor<'_>, ids: &[EventId]) -> sqlx::Result<Vec<Claimed>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as!(
        ClaimedRow,
        r#"select id as "id: EventId", source, dedupe_key as "key: EventKey", type as kind, body, occurred_ns, received_at,
                  received_at as claimed_at, attempts, 1 as "claims!", false as "lease_ended!", account_id as "account: AccountId", null::text as replayed_by
           from inbox_events where id = any($1) order by id"#,
        &ids
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(|row| Claimed::from_row(row, LeaseToken(uuid::Uuid::nil()))).collect()
}

/// How many of these events still have to run or are running.
pub async fn waiting(db: impl PgExecutor<'_>, ids: &[EventId]) -> sqlx::Result<i64> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from inbox_events where id = any($1) and status in ('received', 'processing')"#,
        &ids
    )
    .fetch_one(db)
    .await
}

/// These events, oldest first.
pub async fn of_ids(db: impl PgExecutor<'_>, ids: &[EventId]) -> sqlx::Result<Vec<Event>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: EventId", source, dedupe_key as "key: EventKey", type as kind, status, reason, attempts, claims,
                  seen_count, received_at, account_id as "account: AccountId"
           from inbox_events where id = any($1) order by id"#,
        &ids
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Row::event).collect()
}

/// The event of this type that was applied last, if that is not long ago: proof that this release can still apply one.
pub async fn last_applied(db: impl PgExecutor<'_>, kind: &str) -> sqlx::Result<Option<EventId>> {
    sqlx::query_scalar!(
        r#"select id as "id: EventId" from inbox_events where status = 'applied' and type = $1 and id > (select coalesce(max(id), 0) - 100000 from inbox_events)
           order by id desc limit 1"#,
        kind
    )
    .fetch_optional(db)
    .await
}

/// How many open events there are, and how many of them are due.
pub async fn depth(db: impl PgExecutor<'_>) -> sqlx::Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"select count(*) as "open!", count(*) filter (where due_at <= now()) as "due!" from inbox_events
           where status in ('received', 'processing', 'failed', 'parked')"#
    )
    .fetch_one(db)
    .await?;
    Ok((row.open, row.due))
}
