//! Carries out bulk replays, a step at a time, beside the worker. Any number of them in any number of processes: one of them has
//! a bulk replay at a time, and another goes on with it when that one dies.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::replay::bulk_steps::{self, Stepped, Taken};
use crate::telemetry::labels::Part;
use crate::telemetry::metrics;
use crate::wake::Wake;

/// How often somebody looks whether one was asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps: with what may be in the queue at once, two hundred events a second at most.
const PACE: Duration = Duration::from_millis(15);
/// After trouble with the database.
const REST: Duration = Duration::from_secs(5);

pub struct Replayer {
    pub pool: PgPool,
    /// Told that events are due.
    pub wake: Wake,
    pub clock: Clock,
}

/// Carries out what is asked for until `stop`.
pub async fn run(replayer: Replayer, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if AssertUnwindSafe(replayer.turn(&stop)).catch_unwind().await.is_err() {
            metrics::panic(Part::Replayer);
            tracing::error!(alert = "panic", "a bulk replay panicked; it goes on");
            idle(REST, &stop).await;
        }
    }
}

impl Replayer {
    async fn turn(&self, stop: &CancellationToken) {
        match self.take().await {
            Ok(Some(taken)) => self.carry_out(taken, stop).await,
            Ok(None) => idle(LOOK_EVERY, stop).await,
            Err(error) => {
                tracing::warn!(%error, "bulk replays could not be looked for; trying again");
                idle(REST, stop).await;
            }
        }
    }

    /// # Errors
    /// The database's.
    pub async fn take(&self) -> sqlx::Result<Option<Taken>> {
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let taken = bulk_steps::take(&mut tx, now).await?;
        tx.commit().await?;
        Ok(taken)
    }

    /// # Errors
    /// The database's; the step did not happen.
    pub async fn step(&self, taken: Taken) -> sqlx::Result<Stepped> {
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let stepped = bulk_steps::step(&mut tx, taken, now).await?;
        tx.commit().await?;
        if let Stepped::On(1..) = stepped {
            self.wake.wake();
        }
        Ok(stepped)
    }

    async fn carry_out(&self, taken: Taken, stop: &CancellationToken) {
        tracing::info!(bulk_replay = taken.id, "a bulk replay is carried out");
        while !stop.is_cancelled() {
            match self.step(taken).await {
                Ok(Stepped::On(_) | Stepped::Waits) => idle(PACE, stop).await,
                Ok(Stepped::Over) => {
                    tracing::info!(bulk_replay = taken.id, "a bulk replay is over");
                    return;
                }
                Ok(Stepped::Lost) => return,
                Err(error) => {
                    tracing::warn!(bulk_replay = taken.id, %error, "a step of a bulk replay failed; it is tried again");
                    self.told(taken, &error.to_string()).await;
                    idle(REST, stop).await;
                }
            }
        }
        // Another process need not wait for the lease to end.
        if let Ok(mut conn) = self.pool.acquire().await {
            let _ = bulk_steps::give_back(&mut conn, taken).await;
        }
    }

    /// For the page; the log has it too.
    async fn told(&self, taken: Taken, error: &str) {
        if let Ok(mut conn) = self.pool.acquire().await {
            let _ = bulk_steps::note_error(&mut conn, taken, error).await;
        }
    }
}

async fn idle(span: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(span) => {}
        () = stop.cancelled() => {}
    }
}
