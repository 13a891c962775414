//! The handler's transaction: re-check the lease, apply, mark, commit; and how the events of one claim part when it fails.

use std::io;
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, Postgres};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::billing::apply::{self, Item, Verdict};
use crate::checkpoint::Step;
use crate::domain::ask_again;
use crate::domain::ids::{EventId, EventKey};
use crate::domain::reason::Reason;
use crate::domain::told::Told;
use crate::inbox::claimed::Claimed;
use crate::inbox::queue::{self, Settlement};
use crate::telemetry::metrics;
use crate::telemetry::spans::{Name, Span};

use super::process::{Charge, Engine, Outcome, Ready, caught};
use super::trouble::Trouble;
use super::unsettled::UNCHARGED_WAIT_SECS;

/// The server ends each statement sooner, and all of a handler's lie below the lease.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(20);

impl Engine {
    /// Events of one claim, together if that works, else each alone.
    pub(super) async fn run(&self, batch: Vec<Ready>, charge: Charge) -> Vec<Outcome> {
        match caught(self.handle_in_time(&batch)).await {
            Ok(outcomes) => outcomes,
            Err(trouble) if trouble.is_stop() => vec![Outcome::Stopped; batch.len()],
            // One event may be what breaks the transaction (a row it waits for, a connection it kills): that is no reason to
            // hold up the others, so they part, unless it is the database that is away.
            Err(trouble) if trouble.is_transient() && (batch.len() == 1 || !self.answers().await) => {
                self.release(&batch, &trouble).await
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
        let mut connection = self.acquire().await?;
        let (began, mut span) = (Instant::now(), Span::child(Name::Apply));
        let handled = match timeout(ANSWER_WITHIN, self.handle(&mut connection, batch, &mut span)).await {
            Ok(outcomes) => outcomes,
            Err(_) => Err(left_alone(connection).into()),
        };
        if self.is_live() {
            metrics::handler(began.elapsed());
        }
        if handled.is_err() {
            span.fail("rolled back");
        }
        handled
    }

    /// The handler's transaction. Nothing in it waits for anything but the database.
    async fn handle(&self, connection: &mut PgConnection, batch: &[Ready], span: &mut Span) -> Result<Vec<Outcome>, Trouble> {
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

        for (ready, verdict) in ours.iter().zip(&applied.verdicts) {
            self.tell(&ready.event, &verdict.reason, now, span);
        }
        for (ready, settlement) in ours.iter().zip(&settlements) {
            tracing::info!(event = %ready.event.key, event_id = %ready.event.id, status = %settlement.status, reason = settlement.reason, "event settled");
        }
        for (ready, verdict) in ours.iter().zip(&applied.verdicts) {
            if let Some(alert) = verdict.reason.alert() {
                tracing::error!(event = %ready.event.key, event_id = %ready.event.id, alert = alert, reason = %verdict.reason, "a person has to look at this");
            }
        }
        outcomes.extend(settlements.iter().map(|s| Outcome::Settled { id: s.id, status: s.status }));
        Ok(outcomes)
    }

    /// Of a verdict that is committed.
    fn tell(&self, event: &Claimed, reason: &Reason, now: OffsetDateTime, span: &mut Span) {
        let (status, code) = (reason.status().as_str(), reason.code());
        span.about(event.source, &event.key, event.id, &[("bottle.status", status), ("bottle.reason", code.as_str())]);
        if self.is_live() {
            metrics::verdict(event.source, code);
            let lag = now - event.received.datetime();
            if event.replayed_by.is_none()
                && let Ok(lag) = lag.try_into()
            {
                metrics::lag(event.source, lag);
            }
        }
    }

    async fn answers(&self) -> bool {
        timeout(Duration::from_secs(2), self.clock.now(&self.pool)).await.is_ok_and(|now| now.is_ok())
    }

    /// Gives a claim back, uncharged: it was the database.
    async fn release(&self, batch: &[Ready], trouble: &Trouble) -> Vec<Outcome> {
        let events: Vec<&Claimed> = batch.iter().map(|r| &r.event).collect();
        let error = trouble.chain();
        tracing::warn!(events = keys(&events), error, "the database gave trouble; tried again, uncharged");
        let answers = self.give_back(&events, UNCHARGED_WAIT_SECS).await;
        match &events[..] {
            // It answers in everything else, so it may be the event: whoever runs the claims counts that.
            [only] if answers => vec![Outcome::Troubled { id: only.id, key: only.key.clone(), error }],
            _ => vec![Outcome::Released; batch.len()],
        }
    }
}

/// The provider's ids of these events, for the log.
pub(super) fn keys(events: &[&Claimed]) -> String {
    events.iter().map(|event| event.key.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn left_alone(connection: PoolConnection<Postgres>) -> sqlx::Error {
    drop(connection.detach());
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database fell silent"))
}

pub(super) fn item(event: &Claimed, told: Told) -> Item {
    Item {
        id: event.id,
        source: ask_again::speaker(event.source, &event.kind),
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
        reason: verdict.sentence(),
        account: verdict.account,
        due: verdict.due,
        waits_for: match &verdict.reason {
            Reason::WaitsForPerson { customer } => Some(queue::waits_for_customer(customer)),
            _ if verdict.unknown_plan_key.is_some() => verdict.unknown_plan_key.as_deref().map(queue::waits_for_plan_key),
            _ => None,
        },
    }
}
