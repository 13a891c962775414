//! Alerts: what a person on call must know, told once until it is over.
//!
//! Nobody calls this room. It looks at what is stored, twice a minute, in however many processes; one of them does it at a
//! time. What it finds becomes a row (`book`), and with it, in one transaction, the messages that have to go out; those are
//! sent at least once (`outgoing`), so a restart in between loses none. `conditions` has what is looked for, `webhook` how a
//! message is signed, `email` how it reads.

use std::time::Duration;

use sqlx::{Connection as _, PgPool};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::domain::event::Source;

pub mod board;
mod book;
pub mod conditions;
pub mod email;
pub mod open;
pub mod outgoing;
pub mod webhook;

use outgoing::Channels;

const EVERY: Duration = Duration::from_secs(30);
/// How long a stop waits for a message under way.
const STOP_WITHIN: Duration = Duration::from_secs(3);
/// Whoever holds it looks.
const LOCK: i64 = 0x0062_6f74_746c_6502;

/// What alerts are looked for, and where they go.
pub struct Alerts {
    pub pool: PgPool,
    /// The providers that are configured: silence of another means nothing.
    pub providers: Vec<Source>,
    /// Providers are asked nightly whether they agree with us.
    pub nightly: bool,
    pub channels: Channels,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the alerts could not be read or written")]
    Database(#[from] sqlx::Error),
}

/// What one look changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub raised: Vec<String>,
    pub cleared: Vec<String>,
}

/// Looks and sends until `stop`.
pub async fn run(alerts: Alerts, stop: CancellationToken) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        // A database that is away is logged by all who need it; here it is only waited for.
        if let Err(error) = alerts.look().await {
            tracing::warn!(%error, "what may need a person could not be looked at; trying again");
        }
        if let Err(error) = alerts.send(&stop).await {
            tracing::warn!(%error, "alert messages could not be read; trying again");
        }
    }
}

impl Alerts {
    /// Looks once. Nothing changes while another process looks.
    ///
    /// # Errors
    /// The database's; then nothing was raised or cleared.
    pub async fn look(&self) -> Result<Changes, Error> {
        let mut conn = self.pool.acquire().await?;
        let mut tx = conn.begin().await?;
        let mine = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "mine!""#, LOCK).fetch_one(&mut *tx).await?;
        if !mine {
            return Ok(Changes::default());
        }
        let mut findings = conditions::find(&mut tx, &self.providers).await?;
        if self.nightly {
            findings.extend(conditions::late(&mut tx).await?);
        }
        let changes = book::write(&mut tx, &findings, &self.channels.configured()).await?;
        tx.commit().await?;
        for finding in findings.iter().filter(|f| changes.raised.contains(&f.condition)) {
            tracing::error!(alert = %finding.condition, event_ids = ?finding.events.iter().map(|id| id.0).collect::<Vec<_>>(), "{}", finding.sentence);
        }
        for condition in &changes.cleared {
            tracing::info!(alert = %condition, "an alert is over");
        }
        Ok(changes)
    }

    /// Sends what is due, one message after another, until `stop`; one that does not go out soon after it is given back. Returns
    /// how many went out.
    ///
    /// # Errors
    /// The database's. A message that could not be sent is no error here: it is tried again.
    pub async fn send(&self, stop: &CancellationToken) -> Result<u32, Error> {
        let mut sent = 0;
        while !stop.is_cancelled() {
            let Some(message) = outgoing::claim(&self.pool).await? else { break };
            let result = tokio::select! {
                result = self.channels.send(&message) => result,
                () = async { stop.cancelled().await; tokio::time::sleep(STOP_WITHIN).await } => {
                    outgoing::give_back(&self.pool, &message).await?;
                    break;
                }
            };
            sent += u32::from(result.is_ok());
            outgoing::settle(&self.pool, &message, result).await?;
        }
        Ok(sent)
    }
}
