//! From a claim to its verdict: ask the provider, then one transaction that re-checks the lease, applies and marks.
//!
//! Events claimed together share a transaction. If anything in it fails, all of it is rolled back and each event is run
//! alone, so one bad event costs its neighbours a second run and nothing else.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

use crate::billing::apply::{self, Item, Rules, Verdict};
use crate::billing::runs::{self, Effects, Run};
use crate::checkpoint::{Checkpoints, Step};
use crate::clock::Clock;
use crate::domain::event::Status;
use crate::domain::ids::{EventId, EventKey, LeaseToken};
use crate::domain::instant::Instant;
use crate::domain::reason::{self, Reason};
use crate::domain::told::Told;
use crate::inbox::queue::{self, Claimed, Failure, Settlement};
use crate::providers::{Providers, ResolveError, StoredEvent};

use super::backoff;
use super::trouble::{Trouble, fingerprint};

/// Claims without a verdict after which an event is dead: its workers died each time.
pub const CLAIMS_MAX: i32 = 20;
/// Unexplained claims after which an event no longer shares a transaction: it may be what kills its workers.
const CLAIMS_SHARED_MAX: i32 = 3;
/// Providers are asked about this many events at once.
const ASKED_AT_ONCE: usize = 8;
/// After database or network trouble, and while a provider's answer does not agree yet.
const UNCHARGED_WAIT_SECS: f64 = 5.0;
const ASK_AGAIN_SECS: i64 = 15;

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
        queue::claim(&self.pool, limit, self.lease_secs, self.clock).await
    }

    /// Runs claimed events to their verdicts.
    pub async fn process(&self, claimed: Vec<Claimed>, charge: Charge) -> Vec<Outcome> {
        let keys: Vec<&EventKey> = claimed.iter().map(|c| &c.key).collect();
        if self.checkpoints.reach(Step::Claimed, &keys).await.is_err() {
            return vec![Outcome::Stopped; claimed.len()];
        }
        let (suspects, sound): (Vec<Claimed>, Vec<Claimed>) = claimed.into_iter().partition(|c| c.claims > CLAIMS_SHARED_MAX);
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

    /// An event that does not reach the handler.
    async fn halt(&self, event: &Claimed, halt: Halt, charge: Charge) -> Outcome {
        let recorded = match &halt {
            Halt::Stopped => return Outcome::Stopped,
            Halt::Trouble(trouble) => return self.failed(event, trouble, charge).await,
            Halt::Unexplained => self.record_dead(event, event.attempts, reason::dead_unexplained(event.claims - 1)).await,
            Halt::Resolve(ResolveError::Unreadable(why)) => {
                self.record_dead(event, event.attempts + 1, reason::dead(event.attempts + 1, why)).await
            }
            Halt::Resolve(ResolveError::NotYet { what }) => self.park_for_provider(event, what).await,
            Halt::Resolve(ResolveError::Unavailable(why)) => {
                tracing::warn!(event = %event.key, why, "the provider could not be asked; tried again later");
                self.give_back(&[event.id], event.token, UNCHARGED_WAIT_SECS).await;
                return Outcome::Released;
            }
        };
        match recorded {
            Ok(Some(status)) => Outcome::Settled { id: event.id, status },
            Ok(None) => Outcome::LeaseLost,
            Err(error) => {
                tracing::warn!(event = %event.key, %error, "a verdict could not be stored; the lease will end");
                Outcome::Released
            }
        }
    }

    /// Events of one claim, together if that works, else each alone.
    async fn run(&self, batch: Vec<Ready>, charge: Charge) -> Vec<Outcome> {
        match caught(self.handle(&batch)).await {
            Ok(outcomes) => outcomes,
            Err(trouble) if trouble.is_stop() => vec![Outcome::Stopped; batch.len()],
            // A row that one event waits for in vain is no reason to hold up the others: they part.
            Err(trouble) if trouble.is_transient() && (batch.len() == 1 || !trouble.is_contention()) => {
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

    /// The handler's transaction. Nothing in it waits for anything but the database.
    async fn handle(&self, batch: &[Ready]) -> Result<Vec<Outcome>, Trouble> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let token = first.event.token;
        let ids: Vec<EventId> = batch.iter().map(|r| r.event.id).collect();

        let mut tx = self.pool.begin().await?;
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

    async fn failed(&self, event: &Claimed, trouble: &Trouble, charge: Charge) -> Outcome {
        let error = trouble.chain();
        match self.record_failure(event, &error, charge).await {
            Ok(true) => Outcome::Failed { id: event.id, kind: event.kind.clone(), fingerprint: fingerprint(&error) },
            Ok(false) => Outcome::LeaseLost,
            Err(unstored) => {
                tracing::warn!(event = %event.key, error, %unstored, "a failure could not be stored; the lease will end");
                Outcome::Released
            }
        }
    }

    async fn record_failure(&self, event: &Claimed, error: &str, charge: Charge) -> sqlx::Result<bool> {
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let attempts = event.attempts + i32::from(charge == Charge::Charged);
        let failure = match (charge, backoff::wait_after(attempts)) {
            (Charge::Charged, None) => {
                tracing::error!(event = %event.key, error, attempts, "event is dead; it needs a person");
                let reason = reason::dead(attempts, error);
                Failure { status: Status::Dead, attempts, reason, error: error.to_owned(), due: now }
            }
            (_, wait) => {
                let due = now + wait.unwrap_or(std::time::Duration::from_secs(30));
                tracing::warn!(event = %event.key, error, attempts, next_try = %due, "event failed");
                let reason = reason::failed(error, Instant::from_datetime(due));
                Failure { status: Status::Failed, attempts, reason, error: error.to_owned(), due }
            }
        };
        let stored = record(&mut tx, event, &failure, now).await?;
        tx.commit().await?;
        Ok(stored)
    }

    async fn record_dead(&self, event: &Claimed, attempts: i32, reason: String) -> sqlx::Result<Option<Status>> {
        tracing::error!(event = %event.key, reason, "event is dead; it needs a person");
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let failure = Failure { status: Status::Dead, attempts, error: reason.clone(), reason, due: now };
        let stored = record(&mut tx, event, &failure, now).await?;
        tx.commit().await?;
        Ok(stored.then_some(Status::Dead))
    }

    async fn park_for_provider(&self, event: &Claimed, what: &str) -> sqlx::Result<Option<Status>> {
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let reason = Reason::WaitsForProvider { what: what.to_owned() };
        let due = Some(now + time::Duration::seconds(ASK_AGAIN_SECS));
        let settlement = settlement(event.id, &Verdict { due, ..Verdict::without_account(reason) });
        let marked = queue::settle(&mut tx, &[settlement], event.token, now).await?;
        tx.commit().await?;
        Ok((marked == 1).then_some(Status::Parked))
    }

    /// Gives a claim back, uncharged.
    async fn release(&self, batch: &[Ready]) -> Vec<Outcome> {
        let ids: Vec<EventId> = batch.iter().map(|r| r.event.id).collect();
        if let Some(first) = batch.first() {
            self.give_back(&ids, first.event.token, UNCHARGED_WAIT_SECS).await;
        }
        vec![Outcome::Released; batch.len()]
    }

    async fn give_back(&self, ids: &[EventId], token: LeaseToken, wait_secs: f64) {
        if let Err(error) = queue::release(&self.pool, ids, token, wait_secs, self.clock).await {
            tracing::warn!(?ids, %error, "a claim could not be given back; the lease will end");
        }
    }
}

/// Why an event does not reach the handler.
enum Halt {
    Resolve(ResolveError),
    Trouble(Trouble),
    Unexplained,
    Stopped,
}

impl From<Trouble> for Halt {
    fn from(trouble: Trouble) -> Self {
        if trouble.is_stop() { Self::Stopped } else { Self::Trouble(trouble) }
    }
}

impl From<ResolveError> for Halt {
    fn from(error: ResolveError) -> Self {
        Self::Resolve(error)
    }
}

/// A panic is trouble like any other: it is the event's, not the worker's.
async fn caught<T, E: From<Trouble>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Trouble::Panic(text.unwrap_or_else(|| "no message".to_owned())).into())
    })
}

async fn record(conn: &mut PgConnection, event: &Claimed, failure: &Failure, now: OffsetDateTime) -> sqlx::Result<bool> {
    let stored = queue::fail(&mut *conn, event, failure, now).await?;
    if stored {
        let run = Run {
            event: event.id,
            status: failure.status,
            sentence: failure.reason.clone(),
            effects: Effects::default(),
            requested_by: event.replayed_by.clone(),
        };
        runs::record(conn, &[run], now).await?;
    }
    Ok(stored)
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

fn settlement(id: EventId, verdict: &Verdict) -> Settlement {
    Settlement {
        id,
        status: verdict.reason.status(),
        reason: verdict.reason.to_string(),
        account: verdict.account,
        due: verdict.due,
        waits_for: match &verdict.reason {
            Reason::WaitsForPerson { customer } => Some(queue::waits_for_customer(customer)),
            Reason::WaitsForPlanKey { key } => Some(queue::waits_for_plan_key(key)),
            _ => None,
        },
    }
}
