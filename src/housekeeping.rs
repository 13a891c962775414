//! Keeps a database healthy for years: content nobody needs any more goes, a small batch at a time.
//!
//! Runs beside the worker, in however many processes: each batch is a transaction of its own under one lock of the database,
//! so two never do the same work. What it does is safe to stop anywhere and to do again.

use std::time::Duration;

use sqlx::{Connection as _, PgPool};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::checkouts;
use crate::inbox::prune::{self, Pruned};

const EVERY: Duration = Duration::from_secs(60);
/// At most this many batches a round; the next round goes on.
const BATCHES: usize = 40;
/// Whoever holds it prunes.
pub const LOCK: i64 = 0x0062_6f74_746c_6501;

/// Tidies up once a minute until `stop`.
pub async fn run(pool: PgPool, keep: Duration, stop: CancellationToken) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        match round(&pool, keep, &stop).await {
            Ok(Pruned { bodies: 0, receipts: 0 }) => {}
            Ok(gone) => tracing::info!(bodies = gone.bodies, receipts = gone.receipts, "old bodies and receipts were pruned"),
            Err(error) => tracing::warn!(%error, "old events could not be pruned; trying again in a minute"),
        }
    }
}

/// One round: batches until nothing of that age is left, or enough was done for now.
///
/// # Errors
/// The database's; what earlier batches did stays done.
pub async fn round(pool: &PgPool, keep: Duration, stop: &CancellationToken) -> sqlx::Result<Pruned> {
    let mut gone = Pruned::default();
    for _ in 0..BATCHES {
        let mut conn = pool.acquire().await?;
        let mut tx = conn.begin().await?;
        let mine = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "mine!""#, LOCK).fetch_one(&mut *tx).await?;
        if !mine {
            break;
        }
        let batch = prune::batch(&mut tx, keep).await?;
        // They are few: what one batch leaves is for the next minute.
        let checkouts = checkouts::prune(&mut tx).await?;
        tx.commit().await?;
        if checkouts > 0 {
            tracing::info!(checkouts, "old checkouts were pruned");
        }
        gone.bodies += batch.bodies;
        gone.receipts += batch.receipts;
        if !batch.was_full() || stop.is_cancelled() {
            break;
        }
        // Room for live work between two batches.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(gone)
}
