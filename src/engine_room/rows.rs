//! The rows of the test account, as the database has them.

use std::collections::HashMap;

use sqlx::PgPool;

use super::scenario::Event;
use super::stand::event_key;
use super::{AccountRow, InboxRow, LedgerRow, RoomError, Rows};
use crate::domain::instant::Instant;

pub async fn read(pool: &PgPool) -> Result<Rows, RoomError> {
    let keys: HashMap<String, Event> = Event::ALL.into_iter().map(|event| (event_key(event, 1), event)).collect();
    let stored = sqlx::query!(
        "select dedupe_key, type as kind, status, reason, seen_count, claims, attempts from inbox_events order by id"
    )
    .fetch_all(pool)
    .await?;
    let mut inbox = Vec::new();
    for row in stored {
        inbox.push(InboxRow {
            event: keys.get(&row.dedupe_key).copied().ok_or(RoomError::StrangeRow)?,
            key: row.dedupe_key,
            kind: row.kind,
            status: row.status.parse().map_err(|_| RoomError::StrangeRow)?,
            reason: row.reason,
            seen: row.seen_count.unsigned_abs(),
            claims: row.claims.unsigned_abs(),
            attempts: row.attempts.unsigned_abs(),
        });
    }
    let receipts = sqlx::query_scalar!(r#"select count(*) as "n!" from receipts"#).fetch_one(pool).await?;
    let ledger = sqlx::query_as!(LedgerRow, "select entry_key, delta from ledger order by id").fetch_all(pool).await?;
    let account = sqlx::query!("select plan, plan_changed_ns from accounts order by id limit 1").fetch_optional(pool).await?;
    let account = account
        .map(|row| {
            let plan = row.plan.parse().map_err(|_| RoomError::StrangeRow)?;
            Ok::<_, RoomError>(AccountRow { plan, plan_changed_at: row.plan_changed_ns.map(Instant::from_nanos) })
        })
        .transpose()?;
    Ok(Rows { inbox, receipts: usize::try_from(receipts).unwrap_or(usize::MAX), ledger, account })
}
