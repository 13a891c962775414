//! That a worker is paused, where others can see it. The SQL of `worker_pauses`.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::db::interval;

/// Longer than between two probes. A row that was not touched for this long is a dead process's.
const ALIVE: Duration = Duration::from_secs(180);

/// The worker pauses, or still does.
pub(super) async fn note(db: impl PgExecutor<'_>, worker: Uuid, fingerprint: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into worker_pauses (worker, fingerprint, since, seen_at) values ($1, $2, now(), now())
         on conflict (worker) do update set seen_at = now()",
        worker,
        fingerprint
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A paused worker has probed again.
pub(super) async fn touch(db: impl PgExecutor<'_>, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query!("update worker_pauses set seen_at = now() where worker = $1", worker).execute(db).await?;
    Ok(())
}

/// The worker goes on. Rows of processes that went away paused go too.
pub(super) async fn end(db: impl PgExecutor<'_>, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query!("delete from worker_pauses where worker = $1 or seen_at < now() - $2::interval", worker, interval(ALIVE))
        .execute(db)
        .await?;
    Ok(())
}

/// What every event fails with at each worker that is paused now.
///
/// # Errors
/// The database's.
pub async fn paused(conn: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        "select fingerprint from worker_pauses where seen_at > now() - $1::interval order by since",
        interval(ALIVE)
    )
    .fetch_all(conn)
    .await
}
