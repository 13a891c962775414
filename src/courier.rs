//! The courier: sends what the outbox holds. Any number of them, in any number of processes.
//!
//! A letter is claimed for a lease, sent with no transaction open, and marked. Whoever dies between sending and marking leaves
//! a lease that ends, and the letter is sent again under the same message id: at least once, and recognisably the same.
//!
//! A server that is away is no letter's fault: letters wait uncharged for two days, since a reminder that comes a day late is
//! still better than none. What the server says about a letter is charged: five waits, and the sixth time, or at once if there
//! is no such mailbox, the letter is dead and the reminder says so on its page.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::accounts;
use crate::checkpoint::{Break, Checkpoints, Step};
use crate::clock::Clock;
use crate::mail::{Mail, Post, SendError};
use crate::outbox::{self, Claimed, Failure};
use crate::reminders::ring;
use crate::telemetry::labels::{Letter, Part};
use crate::telemetry::metrics;

/// Above the longest time that sending a letter may take.
pub const LEASE_SECS: f64 = 60.0;
/// Letters sent side by side.
const CLAIM_LIMIT: i64 = 8;
const POLL: Duration = Duration::from_secs(1);
/// While the server is away.
const AWAY_WAIT: time::Duration = time::Duration::seconds(30);
/// How long a stop waits for letters under way. A server that falls silent would hold it up for much longer.
const STOP_WITHIN: Duration = Duration::from_secs(3);
/// A letter older than this is not sent any more.
const AWAY_MAX: time::Duration = time::Duration::days(2);

/// The wait after the failure that made it so many; none after the sixth.
pub fn wait_after(attempts: i32) -> Option<time::Duration> {
    const MINUTES: [i64; 5] = [1, 5, 30, 120, 360];
    let n = usize::try_from(attempts.max(1) - 1).ok()?;
    MINUTES.get(n).map(|minutes| time::Duration::minutes(*minutes))
}

#[derive(Clone)]
pub struct Courier {
    pub pool: PgPool,
    pub mail: Mail,
    pub checkpoints: Checkpoints,
    pub clock: Clock,
    pub lease_secs: f64,
}

/// What became of one letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Sent,
    /// To be tried again.
    PutOff,
    Dead,
    /// Another courier has it by now, or it was withdrawn: nothing was noted.
    LeaseLost,
    /// It could not be noted; its lease ends by itself.
    NotNoted,
    /// We stop, and the server had not answered: whoever comes next sends it, under the same id.
    GivenBack,
    /// An observer stopped us, as if the process had died.
    Stopped,
}

#[derive(Debug, thiserror::Error)]
enum NoteError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Accounts(#[from] accounts::Error),
    #[error(transparent)]
    Break(#[from] Break),
}

/// Sends until `stop`, then finishes what is under way, if that is soon, and gives back the rest.
pub async fn run(courier: Courier, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let turn = AssertUnwindSafe(courier.turn_until(&stop)).catch_unwind().await;
        let rest = match turn {
            Ok(Ok(outcomes)) => !outcomes.contains(&Outcome::Sent),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the outbox could not be claimed from; trying again");
                true
            }
            Err(_) => {
                metrics::panic(Part::Courier);
                tracing::error!(alert = "panic", "the courier panicked; it goes on");
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

impl Courier {
    /// One claim, sent and noted.
    pub async fn turn(&self) -> sqlx::Result<Vec<Outcome>> {
        self.turn_until(&CancellationToken::new()).await
    }

    async fn turn_until(&self, stop: &CancellationToken) -> sqlx::Result<Vec<Outcome>> {
        let claimed = outbox::claim(&self.pool, CLAIM_LIMIT, self.lease_secs, self.clock).await?;
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        if self.checkpoints.reach(Step::Taken, &[]).await.is_err() {
            return Ok(vec![Outcome::Stopped; claimed.len()]);
        }
        let sending = stream::iter(claimed).map(|letter| async move { self.deliver(&letter, stop).await });
        Ok(sending.buffer_unordered(usize::try_from(CLAIM_LIMIT).unwrap_or(1)).collect().await)
    }

    async fn deliver(&self, letter: &Claimed, stop: &CancellationToken) -> Outcome {
        let post =
            Post { to: &letter.recipient, subject: &letter.letter.subject, text: &letter.letter.text, id: letter.message_id };
        let result = tokio::select! {
            result = self.mail.send(&post) => result,
            () = stopped_for(stop, STOP_WITHIN) => return self.give_back(letter).await,
        };
        if result.is_ok() && self.checkpoints.reach(Step::Sent, &[]).await.is_err() {
            return Outcome::Stopped;
        }
        match self.note(letter, &result).await {
            Ok(outcome) => outcome,
            Err(NoteError::Break(_)) => Outcome::Stopped,
            Err(error) => {
                tracing::warn!(letter = letter.key, %error, "what became of a letter could not be noted; it may go out once more");
                Outcome::NotNoted
            }
        }
    }

    async fn give_back(&self, letter: &Claimed) -> Outcome {
        match outbox::give_back(&self.pool, letter, self.clock).await {
            Ok(true) => Outcome::GivenBack,
            Ok(false) => Outcome::LeaseLost,
            Err(error) => {
                tracing::warn!(letter = letter.key, %error, "a letter could not be given back; its lease ends by itself");
                Outcome::NotNoted
            }
        }
    }

    /// Writes what became of it, with what its reminder shows, if the lease is still ours.
    async fn note(&self, letter: &Claimed, result: &Result<(), SendError>) -> Result<Outcome, NoteError> {
        let mut tx = self.pool.begin().await?;
        if let Some(account) = letter.account {
            accounts::lock(&mut tx, &[account].into()).await?;
        }
        let now = self.clock.now(&mut *tx).await?;
        let error = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let failure = match result {
            Ok(()) => None,
            Err(cause) => Some(failure(letter, cause, &error, now)),
        };
        let ours = match &failure {
            None => outbox::sent(&mut tx, letter, now).await?,
            Some(failure) => outbox::failed(&mut tx, letter, failure, now).await?,
        };
        if !ours {
            return Ok(Outcome::LeaseLost);
        }
        let outcome = match &failure {
            None => Outcome::Sent,
            Some(Failure { due: Some(_), .. }) => Outcome::PutOff,
            Some(Failure { due: None, .. }) => Outcome::Dead,
        };
        if let Some(account) = letter.account
            && outcome != Outcome::PutOff
        {
            let went = if outcome == Outcome::Sent { Ok(()) } else { Err(error.as_str()) };
            ring::mail_went(&mut tx, account, letter.letter.reminder, letter.letter.rung, went).await?;
        }
        tx.commit().await?;
        metrics::letter(match outcome {
            Outcome::Sent => Letter::Sent,
            Outcome::Dead => Letter::Dead,
            _ => Letter::PutOff,
        });
        match outcome {
            Outcome::Sent => tracing::info!(letter = letter.key, "letter sent"),
            // Its person sees it and can mend their address; nobody else can.
            Outcome::Dead => tracing::warn!(letter = letter.key, error, "a letter will not be sent; its reminder says so"),
            _ => tracing::warn!(letter = letter.key, error, "a letter is put off"),
        }
        Ok(outcome)
    }
}

async fn stopped_for(stop: &CancellationToken, span: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(span).await;
}

fn failure<'e>(letter: &Claimed, cause: &SendError, error: &'e str, now: OffsetDateTime) -> Failure<'e> {
    let (attempts, wait) = match cause {
        SendError::Away(_) => (letter.attempts, (now - letter.created_at < AWAY_MAX).then_some(AWAY_WAIT)),
        SendError::Later(_) => (letter.attempts + 1, wait_after(letter.attempts + 1)),
        SendError::Never(_) => (letter.attempts + 1, None),
    };
    Failure { attempts, error, due: wait.map(|wait| now + wait) }
}
