//! From a claim to its verdict: ask the provider, then hand what is ready to the handler's transaction (`handle`).
//!
//! Events claimed together share a transaction. If anything in it fails, all of it is rolled back and each event is run
//! alone, so one bad event costs its neighbours a second run and nothing else.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::time::timeout;

use crate::billing::apply::{self, Rules, Verdict};
use crate::checkpoint::{Checkpoints, Step};
use crate::clock::Clock;
use crate::db;
use crate::domain::event::Status;
use crate::domain::ids::{EventId, EventKey};
use crate::domain::told::Told;
use crate::inbox::claimed::Claimed;
use crate::inbox::queue;
use crate::providers::round::Round;
use crate::providers::{Providers, StoredEvent};
use crate::telemetry::labels::{Attempt, Part};
use crate::telemetry::metrics;
use crate::telemetry::spans::{Name, Span};

use super::handle::{ANSWER_WITHIN, item, left_alone};
use super::trouble::Trouble;
use super::unsettled::Halt;

/// Claims without a verdict after which an event is dead: its workers died each time.
pub const CLAIMS_MAX: i32 = 20;
/// Unexplained claims after which an event no longer shares a transaction: it may be what kills its workers.
const CLAIMS_SHARED_MAX: i32 = 3;
/// Providers are asked about this many events at once.
const ASKED_AT_ONCE: usize = 8;

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
    /// Given back, uncharged, by a database that answers everybody else.
    Troubled {
        id: EventId,
        key: EventKey,
        error: String,
    },
    /// Another worker has it by now.
    LeaseLost,
    /// An observer stopped us, as if the process had died.
    Stopped,
}

impl Outcome {
    pub const fn as_attempt(&self) -> Attempt {
        match self {
            Self::Settled { status: Status::Applied, .. } => Attempt::Applied,
            Self::Settled { status: Status::Ignored, .. } => Attempt::Ignored,
            Self::Settled { status: Status::Parked, .. } => Attempt::Parked,
            Self::Settled { .. } | Self::Failed { .. } => Attempt::Failed,
            Self::Released | Self::Troubled { .. } => Attempt::Released,
            Self::LeaseLost => Attempt::LeaseLost,
            Self::Stopped => Attempt::Stopped,
        }
    }
}

/// A claimed event and what its provider's arm read in it.
pub(super) struct Ready {
    pub event: Claimed,
    pub told: Told,
}

impl Engine {
    pub async fn claim(&self, limit: i64) -> sqlx::Result<Vec<Claimed>> {
        let mut connection = self.acquire().await?;
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
            self.give_back(&[&other], 0.0).await;
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
        let round = Round::begin();
        let mut asked: Vec<_> = stream::iter(claimed)
            .map(|event| async {
                let told = self.resolve(&event, &round).await;
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

    /// What has a clock of its own is a demonstration or a test: neither is counted.
    pub(super) fn is_live(&self) -> bool {
        self.clock == Clock::Database
    }

    pub(super) async fn acquire(&self) -> sqlx::Result<PoolConnection<Postgres>> {
        if self.is_live() { db::acquire(&self.pool, db::Use::Worker).await } else { self.pool.acquire().await }
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

    async fn resolve(&self, event: &Claimed, round: &Round) -> Result<Told, Halt> {
        if event.claims > CLAIMS_MAX {
            return Err(Halt::Unexplained);
        }
        let mut span = Span::child(Name::Resolve);
        span.about(event.source, &event.key, event.id, &[]);
        let resolved = span.within(caught(async {
            let told = self.providers.resolve(stored(event), self.clock, round).await?;
            self.checkpoints.reach(Step::Resolved, &[&event.key]).await.map_err(Trouble::from)?;
            Ok(told)
        }));
        let resolved: Result<Told, Halt> = resolved.await;
        if let Err(halt) = &resolved {
            span.fail(halt.as_word());
        }
        resolved
    }
}

/// A panic is trouble like any other: it is the event's, not the worker's.
pub(super) async fn caught<T, E: From<Trouble>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        metrics::panic(Part::Handler);
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Trouble::Panic(text.unwrap_or_else(|| "no message".to_owned())).into())
    })
}

fn stored(event: &Claimed) -> StoredEvent<'_> {
    StoredEvent {
        source: event.source,
        key: event.key.as_str(),
        kind: &event.kind,
        body: event.body.as_deref(),
        occurred: event.occurred,
        received: event.received,
        asked: event.claimed,
    }
}
