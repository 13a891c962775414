//! Forgets what no longer has to be known: the bodies and receipts of events that were settled long ago.
//!
//! What stays for good: the row with its key, so that a copy of next year is still a copy; its digest, so that other content
//! under a known id is still a conflict; its facts, so that it can run again without its body. An open, parked or dead event
//! keeps everything: somebody may still have to read it.

use std::time::Duration;

use sqlx::PgConnection;

use crate::db::interval;

/// Rows changed in one transaction: it holds its locks for milliseconds.
pub const BATCH: i64 = 500;

/// What one batch forgot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub bodies: u64,
    pub receipts: u64,
}

impl Pruned {
    /// There may be more of the same age.
    pub fn was_full(self) -> bool {
        let full = BATCH.unsigned_abs();
        self.bodies >= full || self.receipts >= full
    }
}

/// Forgets one batch of what is older than `age`, oldest first. Rows that somebody else holds are left for the next batch.
///
/// # Errors
/// The database's.
pub async fn batch(conn: &mut PgConnection, age: Duration) -> sqlx::Result<Pruned> {
    let age = interval(age);
    let bodies = sqlx::query!(
        "with old as (
             select id from inbox_events
             where body is not null and status in ('applied', 'ignored') and received_at < now() - $1::interval
             order by received_at limit $2 for update skip locked)
         update inbox_events e set body = null from old where e.id = old.id",
        age,
        BATCH
    )
    .execute(&mut *conn)
    .await?;
    let receipts = sqlx::query!(
        "delete from receipts where id in (
             select r.id from receipts r join inbox_events e on e.id = r.event_id
             where r.received_at < now() - $1::interval and e.status in ('applied', 'ignored')
             order by r.received_at limit $2 for update of r skip locked)",
        age,
        BATCH
    )
    .execute(conn)
    .await?;
    Ok(Pruned { bodies: bodies.rows_affected(), receipts: receipts.rows_affected() })
}
