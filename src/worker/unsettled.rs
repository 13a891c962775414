//! What is written of an event that has no verdict from the handler: tried again, given back, waiting for its provider, dead.
//! Each only if the lease is still ours.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::billing::apply::Verdict;
use crate::billing::runs::{self, Effects, Run};
use crate::domain::event::Status;
use crate::domain::ids::EventId;
use crate::domain::instant::Instant;
use crate::domain::reason::{self, Reason};
use crate::domain::reason_code::Code;
use crate::inbox::claimed::Claimed;
use crate::inbox::queue::{self, Failure};
use crate::providers::ResolveError;
use crate::telemetry::metrics;

use super::backoff;
use super::handle::{keys, settlement};
use super::process::{Charge, Engine, Outcome};
use super::trouble::{Trouble, fingerprint};

/// After database or network trouble.
pub(super) const UNCHARGED_WAIT_SECS: f64 = 5.0;
/// While a provider's answer does not agree yet.
const ASK_AGAIN_SECS: i64 = 15;

/// Why an event does not reach the handler.
pub(super) enum Halt {
    Resolve(ResolveError),
    Trouble(Trouble),
    Unexplained,
    Stopped,
}

impl Halt {
    /// For a span: a word of ours.
    pub(super) const fn as_word(&self) -> &'static str {
        match self {
            Self::Resolve(ResolveError::Unreadable(_)) => "unreadable",
            Self::Resolve(ResolveError::NoTime) => "no time",
            Self::Resolve(ResolveError::NotYet { .. }) => "not yet",
            Self::Resolve(ResolveError::Unavailable { .. }) => "unavailable",
            Self::Trouble(_) => "trouble",
            Self::Unexplained => "unexplained",
            Self::Stopped => "stopped",
        }
    }
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

impl Engine {
    /// An event that does not reach the handler.
    pub(super) async fn halt(&self, event: &Claimed, halt: Halt, charge: Charge) -> Outcome {
        let recorded = match &halt {
            Halt::Stopped => return Outcome::Stopped,
            Halt::Trouble(trouble) => return self.failed(event, trouble, charge).await,
            Halt::Unexplained => self.record_dead(event, event.attempts, reason::dead_unexplained(event.claims - 1)).await,
            Halt::Resolve(ResolveError::NoTime) => {
                let attempts = event.attempts + 1;
                self.record_dead(event, attempts, reason::dead(attempts, &ResolveError::NoTime.to_string())).await
            }
            // Charged like any failure, so that a release which cannot read what it used to is found out by the breaker.
            Halt::Resolve(ResolveError::Unreadable(why)) => {
                return self.failed(event, &Trouble::Unreadable(why.clone()), charge).await;
            }
            Halt::Resolve(ResolveError::NotYet { what }) => self.park_for_provider(event, what).await,
            // Not for ever: ten minutes after its arrival an event counts by its own word, unless only its provider can tell.
            Halt::Resolve(ResolveError::Unavailable { why, again_in }) => {
                tracing::warn!(event = %event.key, event_id = %event.id, why, ?again_in, "the provider could not be asked; tried again later");
                self.give_back(&[event], again_in.as_secs_f64()).await;
                return Outcome::Released;
            }
        };
        match recorded {
            Ok(Some(status)) => Outcome::Settled { id: event.id, status },
            Ok(None) => Outcome::LeaseLost,
            Err(error) => {
                tracing::warn!(event = %event.key, event_id = %event.id, %error, "a verdict could not be stored; the lease will end");
                Outcome::Released
            }
        }
    }

    pub(super) async fn failed(&self, event: &Claimed, trouble: &Trouble, charge: Charge) -> Outcome {
        let error = trouble.chain();
        match self.record_failure(event, &error, charge).await {
            Ok(true) => Outcome::Failed { id: event.id, kind: event.kind.clone(), fingerprint: fingerprint(&error) },
            Ok(false) => Outcome::LeaseLost,
            Err(unstored) => {
                tracing::warn!(event = %event.key, event_id = %event.id, error, %unstored, "a failure could not be stored; the lease will end");
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
                tracing::error!(event = %event.key, event_id = %event.id, alert = "dead", error, attempts, "event is dead; it needs a person");
                let reason = reason::dead(attempts, error);
                Failure { status: Status::Dead, attempts, reason, error: error.to_owned(), due: now }
            }
            (_, wait) => {
                let due = now + wait.unwrap_or(Duration::from_secs(30));
                tracing::warn!(event = %event.key, event_id = %event.id, error, attempts, next_try = %due, "event failed");
                let reason = reason::failed(error, Instant::from_datetime(due));
                Failure { status: Status::Failed, attempts, reason, error: error.to_owned(), due }
            }
        };
        let stored = record(&mut tx, event, &failure, now).await?;
        tx.commit().await?;
        self.count(event, if failure.status == Status::Dead { Code::Dead } else { Code::Failed }, stored);
        Ok(stored)
    }

    async fn record_dead(&self, event: &Claimed, attempts: i32, reason: String) -> sqlx::Result<Option<Status>> {
        tracing::error!(event = %event.key, event_id = %event.id, alert = "dead", reason, "event is dead; it needs a person");
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let failure = Failure { status: Status::Dead, attempts, error: reason.clone(), reason, due: now };
        let stored = record(&mut tx, event, &failure, now).await?;
        tx.commit().await?;
        self.count(event, Code::Dead, stored);
        Ok(stored.then_some(Status::Dead))
    }

    async fn park_for_provider(&self, event: &Claimed, what: &str) -> sqlx::Result<Option<Status>> {
        let mut tx = self.pool.begin().await?;
        let now = self.clock.now(&mut *tx).await?;
        let reason = Reason::WaitsForProvider { what: what.to_owned() };
        let code = reason.code();
        let due = Some(now + time::Duration::seconds(ASK_AGAIN_SECS));
        let settlement = settlement(event.id, &Verdict { due, ..Verdict::without_account(reason) });
        let marked = queue::settle(&mut tx, &[settlement], event.token, now).await?;
        tx.commit().await?;
        self.count(event, code, marked == 1);
        Ok((marked == 1).then_some(Status::Parked))
    }

    fn count(&self, event: &Claimed, verdict: Code, stored: bool) {
        if stored && self.is_live() {
            metrics::verdict(event.source, verdict);
        }
    }

    /// Events of one claim, uncharged. False: that could not be stored.
    pub(super) async fn give_back(&self, events: &[&Claimed], wait_secs: f64) -> bool {
        let Some(first) = events.first() else { return true };
        let ids: Vec<EventId> = events.iter().map(|event| event.id).collect();
        if let Err(error) = queue::release(&self.pool, &ids, first.token, wait_secs, self.clock).await {
            tracing::warn!(events = keys(events), %error, "a claim could not be given back; the lease will end");
            return false;
        }
        true
    }
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
