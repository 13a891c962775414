//! The bell: rings the reminders whose time has come. Any number of them, in any number of processes.
//!
//! An account at a time, each in a transaction of its own: one that gives trouble keeps no other from ringing, however many such
//! there are, and whoever finds an account in other hands leaves it to them.

use std::error::Error as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::billing::apply::Rules;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::domain::ids::AccountId;
use crate::reminders::Error;
use crate::reminders::ring::{self, Letters, Rung};
use crate::telemetry::labels::Part;
use crate::telemetry::metrics;

/// Nobody waits longer than this beyond a reminder's time.
const POLL: Duration = Duration::from_secs(1);
/// Accounts looked for at once.
const ACCOUNTS: i64 = 100;

#[derive(Clone)]
pub struct Bell {
    pub pool: PgPool,
    pub rules: Arc<Rules>,
    /// None: mail is not set up, reminders are shown on their pages only.
    pub letters: Option<Letters>,
    pub checkpoints: Checkpoints,
    pub clock: Clock,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// Reminders that rang.
    pub rang: usize,
    /// Accounts that gave trouble, or were in other hands.
    pub left: usize,
    /// An observer stopped us, as if the process had died.
    pub stopped: bool,
}

/// Rings until `stop`.
pub async fn run(bell: Bell, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let turn = AssertUnwindSafe(bell.turn_until(&stop)).catch_unwind().await;
        let rest = match turn {
            Ok(Ok(turn)) => turn.rang == 0,
            Ok(Err(error)) => {
                tracing::warn!(%error, "due reminders could not be looked for; trying again");
                true
            }
            Err(_) => {
                metrics::panic(Part::Bell);
                tracing::error!(alert = "panic", "the bell panicked; it goes on");
                true
            }
        };
        if rest {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

impl Bell {
    /// Rings what is due of the accounts that have waited longest. Those that give trouble stay the longest overdue, so behind
    /// them the turn goes on to the others.
    pub async fn turn(&self) -> sqlx::Result<Turn> {
        self.turn_until(&CancellationToken::new()).await
    }

    /// As [`Bell::turn`]; after a long silence a turn is long, so a stop is heeded between two accounts.
    async fn turn_until(&self, stop: &CancellationToken) -> sqlx::Result<Turn> {
        let mut turn = Turn::default();
        let mut after = None;
        loop {
            let waiting = ring::waiting(&self.pool, after, ACCOUNTS, self.clock).await?;
            after = waiting.last().copied();
            for waits in &waiting {
                if stop.is_cancelled() || !self.see_to(waits.account, &mut turn).await {
                    return Ok(turn);
                }
            }
            let more = i64::try_from(waiting.len()).is_ok_and(|n| n == ACCOUNTS);
            if !more || turn.left == 0 {
                return Ok(turn);
            }
        }
    }

    /// False: an observer stopped us.
    async fn see_to(&self, account: AccountId, turn: &mut Turn) -> bool {
        match self.ring(account).await {
            Ok(Rung::Some(rang)) => {
                metrics::reminders_rung(rang);
                turn.rang += rang;
            }
            Ok(Rung::Busy) => turn.left += 1,
            Err(Error::Break(_)) => turn.stopped = true,
            Err(error) => {
                turn.left += 1;
                tracing::error!(alert = "bell", %account, %error, cause = error.source().map(tracing::field::display), "an account's due reminders could not be rung");
            }
        }
        !turn.stopped
    }

    async fn ring(&self, account: AccountId) -> Result<Rung, Error> {
        let mut tx = self.pool.begin().await?;
        let rung = ring::ring(&mut tx, account, &self.rules, self.letters.as_ref(), &self.checkpoints, self.clock).await?;
        tx.commit().await?;
        Ok(rung)
    }
}
