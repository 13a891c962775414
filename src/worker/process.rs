//! From a claim to its verdict: ask the provider, then one transaction that re-checks the lease, applies and marks.
//!
//! Events claimed together share a transaction. If anything in it fails, all of it is rolled back and each event is run
//! alone, so one bad event costs its neighbours a second run and nothing else.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::timeout;

use crate::billing::apply::{self, Item, Rules, Verdict};
use crate::checkpoint::{Checkpoints, Step};
use crate::clock::Clock;
use crate::domain::event::Status;
use crate::domain::ids::{EventId, EventKey};
use crate::domain::reason::Reason;
use crate::domain::told::Told;
use crate::inbox::queue::{self, Claimed, Settlement};
use crate::providers::{Providers, StoredEvent};

use super::trouble::Trouble;
use super::unsettled::{Halt, UNCHARGED_WAIT_SECS};

/// Claims without a verdict after which an event is dead: its workers died each time.
pub const CLAIMS_MAX: i32 = 20;
/// Unexplained claims after which an event no longer shares a transaction: it may be what kills its workers.
const CLAIMS_SHARED_MAX: i32 = 3;
/// Providers are asked about this many events at once.
const ASKED_AT_ONCE: usize = 8;

/// The server ends each statement sooner, and all of a handler's lie below the lease.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Everything a run needs.
#[derive(Clone)]
pub struct Engine {
    pub pool: PgPool,
    pub providers: Arc<Providers>,
    pub rules: Arc<Rules>,
    pub checkpoints: Checkpoints,
    pub clock: Clock,
    pub lease_secs: f64,
}

/// Whether a failure counts towards the six.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Charged,
    /// While the worker only probes whether this release can apply anything at all.
    Uncharged,
}

/// What became of one claimed event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Settled {
        id: EventId,
        status: Status,
    },
    Failed {
        id: EventId,
        kind: String,
        fingerprint: String,
    },
    /// Given back, uncharged.
    Released,
    /// Another worker has it by now.
    LeaseLost,
    /// An observer stopped us, as if the process had died.
    Stopped,
}

/// A claimed event and what its provider's arm read in it.
struct Ready {
    event: Claimed,
    told: Told,
}

impl Engine {
    pub async fn claim(&self, limit: i64) -> sqlx::Result<Vec<Claimed>> {
        let mut connection = self.pool.acquire().await?;
        match timeout(ANSWER_WITHIN, queue::claim(&mut *connection, limit, self.lease_secs, self.clock)).await {
            Ok(claimed) => claimed,
            Err(_) => Err(left_alone(connection)),
        }
    }

    /// Runs claimed events to their verdicts.
    pub async fn process(&self, claimed: Vec<Claimed>, charge: Charge) -> Vec<Outcome> {
        let keys: Vec<&EventKey> = claimed.iter().map(|c| &c.key).collect();
        if self.checkpoints.reach(Step::Claimed, &keys).await.is_err() {
            return vec![Outcome::Stopped; claimed.len()];
        }
        let (mut suspects, sound): (Vec<Claimed>, Vec<Claimed>) = claimed.into_iter().partition(|c| c.claims > CLAIMS_SHARED_MAX);
        // The least often claimed first: whoever was only a neighbour is through before the killer has its turn.
        suspects.sort_by_key(|c| (c.claims, c.id));
        let mut suspects = suspects.into_iter();
        let suspect = suspects.next();
        // One of them kills its workers. Whichever it is, the others must not be in our hands when it does: each such death
        // would count against them too, and in the end all would be dead.
        let mut outcomes = Vec::new();
        for other in suspects {
            self.give_back(&[other.id], other.token, 0.0).await;
            outcomes.push(Outcome::Released);
        }
        outcomes.extend(self.run_all(sound, charge).await);
        if let Some(suspect) = suspect
            && !outcomes.contains(&Outcome::Stopped)
        {
            outcomes.extend(self.run_all(vec![suspect], charge).await);
        }
        outcomes
    }

    /// Asks the provider about each, then runs what is ready together.
    async fn run_all(&self, claimed: Vec<Claimed>, charge: Charge) -> Vec<Outcome> {
        let count = claimed.len();
        let mut asked: Vec<_> = stream::iter(claimed)
            .map(|event| async {
                let told = self.resolve(&event).await;
                (event, told)
            })
            .buffer_unordered(ASKED_AT_ONCE)
            .collect()
            .await;
        if asked.iter().any(|(_, told)| matches!(told, Err(Halt::Stopped))) {
            return vec![Outcome::Stopped; count];
        }
        asked.sort_by_key(|(event, _)| event.id);
        let mut outcomes = Vec::with_capacity(count);
        let mut ready = Vec::new();
        for (event, told) in asked {
            match told {
                Ok(told) => ready.push(Ready { event, told }),
                Err(halt) => outcomes.push(self.halt(&event, halt, charge).await),
            }
        }
        if !ready.is_empty() {
            outcomes.extend(self.run(ready, charge).await);
        }
        outcomes
    }

    /// Claims and runs until nothing is due.
    pub async fn drain(&self) -> sqlx::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        loop {
            let claimed = self.claim(queue::CLAIM_LIMIT).await?;
            if claimed.is_empty() {
                return Ok(outcomes);
            }
            outcomes.extend(self.process(claimed, Charge::Charged).await);
            if outcomes.contains(&Outcome::Stopped) {
                return Ok(outcomes);
            }
        }
    }

    /// What applying a stored event again would do: the same code in a transaction that is rolled back. Asks no provider.
    pub async fn rehearse(&self, event: &Claimed) -> Result<Verdict, Trouble> {
        caught(async {
            let told = Providers::read(stored(event)).map_err(|e| Trouble::Unreadable(e.to_string()))?;
            let mut tx = self.pool.begin().await?;
            let now = self.clock.now(&mut *tx).await?;
            let items = [item(event, told)];
            let applied = apply::apply(&mut tx, &items, &self.rules, &self.checkpoints, now).await?;
            tx.rollback().await?;
            applied.verdicts.into_iter().next().ok_or(Trouble::LeaseLost)
        })
        .await
    }

    async fn resolve(&self, event: &Claimed) -> Result<Told, Halt> {
        if event.claims > CLAIMS_MAX {
            return Err(Halt::Unexplained);
        }
        caught(async {
            let told = self.providers.resolve(stored(event), self.clock).await?;
            self.checkpoints.reach(Step::Resolved, &[&event.key]).await.map_err(Trouble::from)?;
            Ok(told)
        })
        .await
    }

    /// Events of one claim, together if that works, else each alone.
    async fn run(&self, batch: Vec<Ready>, charge: Charge) -> Vec<Outcome> {
        match caught(self.handle_in_time(&batch)).await {
            Ok(outcomes) => outcomes,
            Err(trouble) if trouble.is_stop() => vec![Outcome::Stopped; batch.len()],
            // One event may be what breaks the transaction (a row it waits for, a connection it kills): that is no reason to
            // hold up the others, so they part, unless it is the database that is away.
            Err(trouble) if trouble.is_transient() && (batch.len() == 1 || !self.answers().await) => {
                tracing::warn!(
                    error = trouble.chain(),
                    events = batch.len(),
                    "the database gave trouble; the events are tried again, uncharged"
                );
                self.release(&batch).await
            }
            Err(_) if batch.len() > 1 => {
                let mut outcomes = Vec::with_capacity(batch.len());
                for one in batch {
                    outcomes.extend(Box::pin(self.run(vec![one], charge)).await);
                    if outcomes.contains(&Outcome::Stopped) {
                        break;
                    }
                }
                outcomes
            }
            Err(trouble) => match batch.into_iter().next() {
                Some(one) => vec![self.failed(&one.event, &trouble, charge).await],
                None => Vec::new(),
            },
        }
    }

    /// A database that falls silent in the middle (its machine is gone) is left, and the connection with it: given back, it
    /// would take a place in the pool until TCP gives up on it, which is a quarter of an hour.
    async fn handle_in_time(&self, batch: &[Ready]) -> Result<Vec<Outcome>, Trouble> {
        let mut connection = self.pool.acquire().await?;
        match timeout(ANSWER_WITHIN, self.handle(&mut connection, batch)).await {
            Ok(outcomes) => outcomes,
            Err(_) => Err(left_alone(connection).into()),
        }
    }

    /// The handler's transaction. Nothing in it waits for anything but the database.
    async fn handle(&self, connection: &mut PgConnection, batch: &[Ready]) -> Result<Vec<Outcome>, Trouble> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let token = first.event.token;
        let ids: Vec<EventId> = batch.iter().map(|r| r.event.id).collect();

        let mut tx = connection.begin().await?;
        let (held, now) = queue::hold(&mut tx, &ids, token, self.clock).await?;
        let ours: Vec<&Ready> = batch.iter().filter(|r| held.contains(&r.event.id)).collect();
        let mut outcomes = vec![Outcome::LeaseLost; batch.len() - ours.len()];
        if ours.is_empty() {
            return Ok(outcomes);
        }
        let keys: Vec<&EventKey> = ours.iter().map(|r| &r.event.key).collect();
        self.checkpoints.reach(Step::Held, &keys).await?;

        let items: Vec<Item> = ours.iter().map(|r| item(&r.event, r.told.clone())).collect();
        let applied = apply::apply(&mut tx, &items, &self.rules, &self.checkpoints, now).await?;
        if !applied.learned.is_empty() {
            let customers: Vec<_> = applied.learned.into_iter().map(|(_, customer)| customer).collect();
            queue::rearm_customers(&mut tx, &customers, now).await?;
        }
        let settlements: Vec<Settlement> =
            ours.iter().zip(&applied.verdicts).map(|(r, verdict)| settlement(r.event.id, verdict)).collect();
        let marked = queue::settle(&mut tx, &settlements, token, now).await?;
        if usize::try_from(marked).ok() != Some(settlements.len()) {
            return Err(Trouble::LeaseLost);
        }
        self.checkpoints.reach(Step::Marked, &keys).await?;
        tx.commit().await?;
        self.checkpoints.reach(Step::Committed, &keys).await?;

        for (ready, settlement) in ours.iter().zip(&settlements) {
            tracing::info!(event = %ready.event.key, status = %settlement.status, reason = settlement.reason, "event settled");
        }
        outcomes.extend(settlements.iter().map(|s| Outcome::Settled { id: s.id, status: s.status }));
        Ok(outcomes)
    }

    async fn answers(&self) -> bool {
        timeout(Duration::from_secs(2), self.clock.now(&self.pool)).await.is_ok_and(|now| now.is_ok())
    }

    /// Gives a claim back, uncharged.
    async fn release(&self, batch: &[Ready]) -> Vec<Outcome> {
        let ids: Vec<EventId> = batch.iter().map(|r| r.event.id).collect();
        if let Some(first) = batch.first() {
            self.give_back(&ids, first.event.token, UNCHARGED_WAIT_SECS).await;
        }
        vec![Outcome::Released; batch.len()]
    }
}

fn left_alone(connection: PoolConnection<Postgres>) -> sqlx::Error {
    drop(connection.detach());
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database fell silent"))
}

/// A panic is trouble like any other: it is the event's, not the worker's.
async fn caught<T, E: From<Trouble>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Trouble::Panic(text.unwrap_or_else(|| "no message".to_owned())).into())
    })
}

fn stored(event: &Claimed) -> StoredEvent<'_> {
    StoredEvent {
        source: event.source,
        kind: &event.kind,
        body: event.body.as_deref(),
        occurred: event.occurred,
        received: event.received,
    }
}

fn item(event: &Claimed, told: Told) -> Item {
    Item {
        id: event.id,
        source: event.source,
        key: event.key.clone(),
        kind: event.kind.clone(),
        received: event.received,
        account: event.account,
        requested_by: event.replayed_by.clone(),
        told,
    }
}

pub(super) fn settlement(id: EventId, verdict: &Verdict) -> Settlement {
    Settlement {
        id,
        status: verdict.reason.status(),
        reason: verdict.reason.to_string(),
        account: verdict.account,
        due: verdict.due,
        waits_for: match &verdict.reason {
            Reason::WaitsForPerson { customer } => Some(queue::waits_for_customer(customer)),
            _ if verdict.unknown_plan_key.is_some() => verdict.unknown_plan_key.as_deref().map(queue::waits_for_plan_key),
            _ => None,
        },
    }
}
