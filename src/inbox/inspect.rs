//! One stored event with all that operators need of it and its owner does not: what was said under its id besides it, the
//! headers its deliveries came with, what its last failure said.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, EventId};

/// What came under the same id is listed up to this.
const CONFLICTS_SHOWN: i64 = 5;

#[derive(Debug)]
pub struct Inspected {
    pub account: Option<AccountId>,
    pub digest: Vec<u8>,
    pub webhook_id: Option<String>,
    pub claims: i32,
    pub attempts: i32,
    pub waits_for: Option<String>,
    pub last_error: Option<String>,
    pub processed_at: Option<OffsetDateTime>,
    pub received_at: OffsetDateTime,
    pub replayed_by: Option<String>,
    /// Now, by the database's clock.
    pub now: OffsetDateTime,
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug)]
pub struct Conflict {
    pub received_at: OffsetDateTime,
    pub webhook_id: Option<String>,
    pub digest: Vec<u8>,
    pub body: Vec<u8>,
}

/// # Errors
/// The database's.
pub async fn inspect(conn: &mut PgConnection, event: EventId) -> sqlx::Result<Option<Inspected>> {
    let row = sqlx::query!(
        r#"/* operators */ select account_id as "account: AccountId", digest, webhook_id, claims, attempts, waits_for, last_error, processed_at,
                  received_at, replayed_by, now() as "now!"
           from inbox_events where id = $1"#,
        event.0
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let conflicts = sqlx::query_as!(
        Conflict,
        "/* operators */ select received_at, webhook_id, digest, body from conflicts where event_id = $1 order by id limit $2",
        event.0,
        CONFLICTS_SHOWN
    )
    .fetch_all(conn)
    .await?;
    Ok(Some(Inspected {
        account: row.account,
        digest: row.digest,
        webhook_id: row.webhook_id,
        claims: row.claims,
        attempts: row.attempts,
        waits_for: row.waits_for,
        last_error: row.last_error,
        processed_at: row.processed_at,
        received_at: row.received_at,
        replayed_by: row.replayed_by,
        now: row.now,
        conflicts,
    }))
}
