//! What in the inbox a person may have to look after. Each read stays small however large the inbox is.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::db::interval;
use crate::domain::event::{Delivery, Source, Status};
use crate::domain::ids::EventId;

/// Ids that are named; there may be more.
pub const NAMED: i64 = 20;

/// Rows that are counted at most.
const COUNTED: i64 = 50_000;

/// Events that died and were not run again, newest first.
///
/// # Errors
/// The database's.
pub async fn dead(conn: &mut PgConnection) -> sqlx::Result<Vec<EventId>> {
    sqlx::query_scalar!(r#"select id as "id: EventId" from inbox_events where status = 'dead' order by id desc limit $1"#, NAMED)
        .fetch_all(conn)
        .await
}

/// Events that arrived longer ago than `age` and still wait for what would tell whose they are, oldest first.
///
/// # Errors
/// The database's.
pub async fn parked(conn: &mut PgConnection, age: Duration) -> sqlx::Result<Vec<EventId>> {
    sqlx::query_scalar!(
        r#"select id as "id: EventId" from inbox_events where status = 'parked' and received_at < now() - $1::interval
           order by received_at limit $2"#,
        interval(age),
        NAMED
    )
    .fetch_all(conn)
    .await
}

/// Events that fell due longer ago than `age` and that no worker took, oldest first.
///
/// # Errors
/// The database's.
pub async fn overdue(conn: &mut PgConnection, age: Duration) -> sqlx::Result<Vec<EventId>> {
    sqlx::query_scalar!(
        r#"select id as "id: EventId" from inbox_events
           where status in ('received', 'processing', 'failed', 'parked') and due_at < now() - $1::interval
           order by due_at, id limit $2"#,
        interval(age),
        NAMED
    )
    .fetch_all(conn)
    .await
}

/// Events of which a delivery said something else under the same id within `age`, newest first.
///
/// # Errors
/// The database's.
pub async fn conflicting(conn: &mut PgConnection, age: Duration) -> sqlx::Result<Vec<EventId>> {
    sqlx::query_scalar!(
        r#"select event_id as "id: EventId" from conflicts where received_at > now() - $1::interval
           order by received_at desc limit $2"#,
        interval(age),
        NAMED
    )
    .fetch_all(conn)
    .await
}

/// The newest event that arrived from a source after the row `after`. One that we fetched ourselves did not arrive.
///
/// # Errors
/// The database's.
pub async fn heard_after(conn: &mut PgConnection, source: Source, after: EventId) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select max(received_at) from inbox_events where id > $1 and source = $2 and digest <> $3",
        after.0,
        source.as_str(),
        &Delivery::FETCHED[..]
    )
    .fetch_one(conn)
    .await
}

/// The newest row; zero while there is none.
///
/// # Errors
/// The database's.
pub async fn newest(conn: &mut PgConnection) -> sqlx::Result<EventId> {
    sqlx::query_scalar!(r#"select coalesce(max(id), 0) as "id!: EventId" from inbox_events"#).fetch_one(conn).await
}

/// How many open events there are by status, and how many are dead. Beyond fifty thousand nobody counts on: then it is of those
/// that are due first.
///
/// # Errors
/// The database's.
pub async fn depth(conn: &mut PgConnection) -> sqlx::Result<Vec<(Status, i64)>> {
    let rows = sqlx::query!(
        r#"select status as "status!", count(*) as "count!"
           from (select status from inbox_events where status in ('received', 'processing', 'failed', 'parked')
                 order by due_at, id limit $1) open
           group by status
           union all
           select 'dead', count(*) from (select from inbox_events where status = 'dead' limit $1) dead"#,
        COUNTED
    )
    .fetch_all(conn)
    .await?;
    let status = |text: &str| text.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)));
    rows.into_iter().map(|row| Ok((status(&row.status)?, row.count))).collect()
}

/// For how long the event that waits longest has been due; zero while none is.
///
/// # Errors
/// The database's.
pub async fn oldest_due(conn: &mut PgConnection) -> sqlx::Result<Duration> {
    let secs = sqlx::query_scalar!(
        r#"select extract(epoch from clock_timestamp() - due_at)::float8 as "secs!" from inbox_events
           where status in ('received', 'processing', 'failed', 'parked') and due_at <= now() order by due_at, id limit 1"#
    )
    .fetch_optional(conn)
    .await?;
    Ok(secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok()).unwrap_or_default())
}
