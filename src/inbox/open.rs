//! What of the inbox is known and what is still under way: for whoever compares it with what a provider says.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey};

/// A stored event that nobody has read yet, so that nobody knows whose it is.
#[derive(Debug, Clone)]
pub struct Unread {
    pub id: EventId,
    pub source: Source,
    pub body: Option<Vec<u8>>,
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

/// Events that will still run and are nobody's yet, oldest first, `limit` of them after `after`.
///
/// # Errors
/// The database's.
pub async fn unread(conn: &mut PgConnection, after: EventId, limit: i64) -> sqlx::Result<Vec<Unread>> {
    let rows = sqlx::query!(
        r#"select id as "id: EventId", source, body from inbox_events
           where account_id is null and id > $1
             and (status in ('received', 'processing', 'failed') or status = 'parked' and due_at < 'infinity')
           order by id limit $2"#,
        after.0,
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok(Unread { id: row.id, source: word(&row.source)?, body: row.body })).collect()
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
