//! What of the inbox is known and what is still under way: for whoever compares it with what a provider says.

use std::collections::{HashMap, HashSet};

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey};

/// A stored event that nobody has read yet, so that nobody knows whose it is.
#[derive(Debug, Clone)]
pub struct Unread {
    pub source: Source,
    pub body: Option<Vec<u8>>,
}

/// Where in the queue whoever goes through it is: after the event that is due then.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    due: OffsetDateTime,
    id: EventId,
}

impl Place {
    pub const FRONT: Self = Self { due: OffsetDateTime::UNIX_EPOCH, id: EventId(0) };
}

/// Which of these events are stored.
///
/// # Errors
/// The database's.
pub async fn stored(
    conn: &mut PgConnection,
    source: Source,
    keys: &[&str],
) -> sqlx::Result<HashMap<EventKey, (EventId, Status)>> {
    let rows = sqlx::query!(
        r#"select id as "id: EventId", dedupe_key as "key: EventKey", status from inbox_events
           where source = $1 and dedupe_key = any($2)"#,
        source.as_str(),
        keys as &[&str]
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((row.key, (row.id, status(&row.status)?)))).collect()
}

/// Which of these accounts have events that will still run.
///
/// # Errors
/// The database's.
pub async fn awaited(conn: &mut PgConnection, accounts: &[AccountId]) -> sqlx::Result<HashSet<AccountId>> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query_scalar!(
        r#"select distinct account_id as "account!: AccountId" from inbox_events
           where account_id = any($1)
             and (status in ('received', 'processing', 'failed') or status = 'parked' and due_at < 'infinity')"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}

/// Shows events that will still run and are nobody's yet, in the order in which they are due, `limit` of them after `after`. The
/// place to go on at; none at the end. Bodies are large, so one at a time is held.
///
/// In the words of the index `inbox_events_due`: by any other way the whole table is gone through for a page.
///
/// # Errors
/// The database's.
pub async fn unread(
    conn: &mut PgConnection,
    after: Place,
    limit: i64,
    mut show: impl FnMut(Unread) + Send,
) -> sqlx::Result<Option<Place>> {
    let (mut last, mut left) = (None, limit);
    let mut rows = sqlx::query!(
        r#"select id as "id: EventId", due_at, source, body from inbox_events
           where status in ('received', 'processing', 'failed', 'parked')
             and due_at < 'infinity' and (due_at, id) > ($1, $2) and account_id is null
           order by due_at, id limit $3"#,
        after.due,
        after.id.0,
        limit
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        last = Some(Place { due: row.due_at, id: row.id });
        left -= 1;
        show(Unread { source: word(&row.source)?, body: row.body });
    }
    Ok(last.filter(|_| left == 0))
}

/// The newest event of an account that will not run by itself any more, and did not go through.
///
/// # Errors
/// The database's.
pub async fn stuck(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<Option<(EventId, Status)>> {
    let row = sqlx::query!(
        r#"select id as "id: EventId", status from inbox_events
           where account_id = $1 and status in ('received', 'processing', 'failed', 'parked', 'dead')
             and (status = 'dead' or status = 'parked' and due_at = 'infinity')
           order by id desc limit 1"#,
        account.0
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| Ok((row.id, status(&row.status)?))).transpose()
}

fn status(text: &str) -> sqlx::Result<Status> {
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn word(text: &str) -> sqlx::Result<Source> {
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
