//! Natural batching: whatever queued while the last statement was in flight goes with the next one. An idle endpoint adds no
//! wait, a busy one shares its commits.
//!
//! The statements run in tasks of their own, so a client that hangs up takes nothing with it.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use sqlx::PgPool;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::domain::event::Delivery;
use crate::inbox::store::Stored;
use crate::wake::Wake;

use super::{AcceptError, accept};

/// Deliveries of one statement at most.
const BATCH_MAX: usize = 128;
/// Statements in flight: while one waits for the disk the next is being sent.
const STATEMENTS_AT_ONCE: usize = 2;
/// Of a batch that was refused. They leave a connection for the next batch, and one that waits for a lock does not keep all
/// the others waiting.
const ALONE_AT_ONCE: usize = 3;
/// Deliveries waiting at most; beyond it the sender is asked to come again.
const QUEUE_MAX: usize = 2_048;

const NOT_STORED: &str = "the database could not store it";

struct Job {
    delivery: Delivery,
    deadline: Instant,
    reply: oneshot::Sender<Result<Stored, String>>,
}

#[derive(Clone)]
pub struct Batcher {
    queue: mpsc::Sender<Job>,
}

#[derive(Clone)]
struct Store {
    pool: PgPool,
    wake: Wake,
    checkpoints: Checkpoints,
}

impl Batcher {
    /// Runs until every handle is dropped and what was queued is stored.
    pub fn start(pool: PgPool, wake: Wake, checkpoints: Checkpoints) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(dispatch(Store { pool, wake, checkpoints }, jobs));
        Self { queue }
    }

    /// Waits until the delivery is committed, or why it is not.
    pub async fn store(&self, delivery: Delivery, deadline: Instant) -> Result<Stored, String> {
        let (reply, answer) = oneshot::channel();
        if self.queue.try_send(Job { delivery, deadline, reply }).is_err() {
            return Err("too many deliveries are waiting to be stored".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the delivery's turn came too late".to_owned()))
    }
}

async fn dispatch(store: Store, mut jobs: mpsc::Receiver<Job>) {
    let free = Arc::new(Semaphore::new(STATEMENTS_AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
        let mut batch = Vec::new();
        if jobs.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        // Whoever waited past its deadline has been answered already.
        batch.retain(|job| job.deadline > Instant::now());
        let store = store.clone();
        tokio::spawn(async move {
            store.all(batch).await;
            drop(place);
        });
    }
}

impl Store {
    /// Together; if the database refuses that, each alone, so that one delivery's trouble is not its neighbours'. If nobody
    /// knows what came of it, it is left to the senders: a second try of ours would count deliveries that never were.
    async fn all(&self, batch: Vec<Job>) {
        let deliveries: Vec<&Delivery> = batch.iter().map(|job| &job.delivery).collect();
        match self.accept(&deliveries).await {
            Ok(stored) => {
                for (job, stored) in batch.into_iter().zip(stored) {
                    let _ = job.reply.send(Ok(stored));
                }
            }
            Err(error) if error.is_refusal() && batch.len() > 1 => {
                tracing::warn!(events = keys(&deliveries), "a batch could not be stored; each is tried alone");
                stream::iter(batch).for_each_concurrent(ALONE_AT_ONCE, |job| self.alone(job)).await;
            }
            Err(_) => {
                for job in batch {
                    let _ = job.reply.send(Err(NOT_STORED.to_owned()));
                }
            }
        }
    }

    async fn alone(&self, job: Job) {
        if job.deadline > Instant::now() {
            let stored = self.accept(&[&job.delivery]).await.map(|mut stored| stored.remove(0));
            let _ = job.reply.send(stored.map_err(|_| NOT_STORED.to_owned()));
        }
    }

    async fn accept(&self, batch: &[&Delivery]) -> Result<Vec<Stored>, AcceptError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let accepted = accept(&self.pool, batch, Clock::Database, &self.checkpoints).await;
        match &accepted {
            Ok(stored) if stored.iter().any(|s| !s.copy) => self.wake.wake(),
            Ok(_) => {}
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(events = keys(batch), error, "deliveries could not be stored");
            }
        }
        accepted
    }
}

/// The provider's ids of these events, for the log.
fn keys(deliveries: &[&Delivery]) -> String {
    deliveries.iter().map(|delivery| delivery.key.as_str()).collect::<Vec<_>>().join(" ")
}
