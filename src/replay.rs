//! Replay: a stored event goes back into the queue and the worker runs it again. There is no second code path.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::EventId;
use crate::inbox::queue;

/// Live events are not starved: at most this many replayed ones fall due each second.
pub const PER_SECOND: f64 = 200.0;

/// Requeues these events and notes who asked. Returns those that were requeued; the others are being processed or wait
/// already. In the caller's transaction.
pub async fn request(
    conn: &mut PgConnection,
    ids: &[EventId],
    asked_by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<EventId>> {
    let requeued = queue::requeue(&mut *conn, ids, asked_by, PER_SECOND, now).await?;
    let ids: Vec<i64> = requeued.iter().map(|id| id.0).collect();
    sqlx::query!(
        "insert into replays (event_id, requested_by, requested_at) select id, $2, $3 from unnest($1::bigint[]) as r (id)",
        &ids,
        asked_by,
        now
    )
    .execute(conn)
    .await?;
    Ok(requeued)
}
