//! What only the database knows, read seldom and quickly.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgPool};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::alerts::open;
use crate::db::READ_ONLY;
use crate::inbox::watch;
use crate::outbox;
use crate::reconcile::findings::Class;
use crate::reconcile::watch::drift;
use crate::telemetry::metrics::Stored;
use crate::worker::pause;

/// However often it is fetched, the database is asked this often.
const FRESH: Duration = Duration::from_secs(5);
/// For all of it. The statements have limits of their own, which a server that fell silent does not keep.
const READ_WITHIN: Duration = Duration::from_secs(2);

pub struct Database {
    pool: PgPool,
    /// The lock makes those who come together wait for one reading.
    last: Mutex<Option<(Instant, Option<Arc<Stored>>)>>,
}

impl Database {
    pub fn new(pool: PgPool) -> Self {
        Self { pool, last: Mutex::default() }
    }

    /// None: it could not be read. That is kept for a while too, so that a database in trouble is left alone.
    pub async fn read(&self) -> Option<Arc<Stored>> {
        let mut last = self.last.lock().await;
        if let Some((at, stored)) = &*last
            && at.elapsed() < FRESH
        {
            return stored.clone();
        }
        let read = timeout(READ_WITHIN, self.ask()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let stored = match read {
            Ok(stored) => Some(Arc::new(stored)),
            Err(error) => {
                tracing::warn!(%error, "what the database knows could not be read for the metrics");
                None
            }
        };
        *last = Some((Instant::now(), stored.clone()));
        stored
    }

    /// All at one moment. Another room's numbers are added here, and to [`Stored`].
    async fn ask(&self) -> sqlx::Result<Stored> {
        let mut conn = self.pool.acquire().await?;
        let mut tx = conn.begin_with(READ_ONLY).await?;
        let (queue, oldest_due) = (watch::depth(&mut tx).await?, watch::oldest_due(&mut tx).await?);
        let (letters_waiting, letters_dead) = outbox::depth(&mut *tx).await?;
        let alerts = open::conditions(&mut tx).await?;
        let workers_paused = pause::paused(&mut tx).await?.len();
        let open = drift(&mut tx).await?.classes;
        tx.rollback().await?;
        let queue = queue.into_iter().map(|(status, count)| (status.as_str(), count)).collect();
        let count = |class: Class| open.iter().find(|(found, _)| *found == class).map_or(0, |(_, count)| *count);
        let drift = Class::ALL.map(|class| (class.as_str(), count(class))).to_vec();
        Ok(Stored { queue, oldest_due, letters_waiting, letters_dead, alerts, workers_paused, drift })
    }
}
