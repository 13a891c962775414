//! Once a night, in however many processes: the night is the run's key, and the lock keeps two from working on it at once. A run
//! that died with its process is taken up by whoever looks next.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use time::{Date, OffsetDateTime};
use tokio::time::MissedTickBehavior;

use super::runs::{Mode, Run};
use super::{Error, Reconciler, Wish, askable, journal};
use crate::telemetry::labels::Part;
use crate::telemetry::metrics;

const EVERY: Duration = Duration::from_secs(60);
/// A night that was missed by more than this is over: the next one is near enough.
const NIGHT: time::Duration = time::Duration::hours(6);
/// After a run that failed.
const AGAIN_AFTER_MINUTES: f64 = 30.0;
/// Three o'clock, and up to an hour later.
const HOUR: u16 = 3;

/// The minute of the day, UTC, at which an installation asks, if nobody chose one: always the same, and not everybody's.
pub fn usual_minute(tenant: &str) -> u16 {
    let print = Sha256::digest(tenant.as_bytes());
    HOUR * 60 + u16::from(print[0]) % 60
}

/// Looks once a minute whether it is time, until it is stopped.
pub async fn run(reconciler: Reconciler, minute: u16) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = reconciler.stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        match AssertUnwindSafe(reconciler.tonight(minute)).catch_unwind().await {
            Ok(Ok(None) | Err(Error::Busy | Error::Stopped)) => {}
            Ok(Ok(Some(run))) => {
                tracing::info!(run = %run.id, "tonight's reconcile is done");
            }
            // Tried again by itself; a night without one is an alert of its own.
            Ok(Err(error)) => tracing::warn!(error = super::chain(&error), "tonight's reconcile could not be finished"),
            Err(_) => {
                metrics::panic(Part::Reconcile);
                tracing::error!(alert = "panic", "tonight's reconcile panicked; it is tried again");
            }
        }
    }
}

impl Reconciler {
    /// Tonight's run, if it is time and nobody has done it. None: nothing is to be done now.
    ///
    /// # Errors
    /// See [`Error`]; `Busy` when another process is at it.
    pub async fn tonight(&self, minute: u16) -> Result<Option<Run>, Error> {
        let now = self.clock.now(&self.pool).await?;
        let Some(night) = night(now, minute) else { return Ok(None) };
        let mut conn = self.pool.acquire().await?;
        let is_due = journal::is_due(&mut conn, night, now, AGAIN_AFTER_MINUTES).await?;
        drop(conn);
        if !is_due {
            return Ok(None);
        }
        let wish = Wish { sources: askable(&self.providers), since: None, mode: Mode::Apply, night: Some(night) };
        if wish.sources.is_empty() {
            return Ok(None);
        }
        self.run(&wish).await.map(Some)
    }
}

/// The night that it is; none by day.
fn night(now: OffsetDateTime, minute: u16) -> Option<Date> {
    let now = now.to_offset(time::UtcOffset::UTC);
    let begun = now.replace_time(time::Time::MIDNIGHT) + time::Duration::minutes(minute.into());
    let last = if begun <= now { begun } else { begun - time::Duration::days(1) };
    (now - last < NIGHT).then(|| last.date())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_night_begins_at_its_minute_and_lasts_six_hours() {
        let night = |at, minute| night(at, minute).map(|date| date.to_string());
        for (at, minute, is) in [
            (datetime!(2026-10-21 02:59 UTC), 180, None),
            (datetime!(2026-10-21 03:00 UTC), 180, Some("2026-10-21")),
            (datetime!(2026-10-21 08:59 UTC), 180, Some("2026-10-21")),
            (datetime!(2026-10-21 09:00 UTC), 180, None),
            (datetime!(2026-10-21 13:30 +10), 180, Some("2026-10-21")),
            // One that begins before midnight is the night of the day on which it begins.
            (datetime!(2026-10-21 02:00 UTC), 23 * 60, Some("2026-10-20")),
            (datetime!(2026-10-21 00:00 UTC), 0, Some("2026-10-21")),
        ] {
            assert_eq!(night(at, minute).as_deref(), is, "{at} {minute}");
        }
    }

    #[test]
    fn installations_do_not_all_ask_at_one_minute() {
        let minutes: std::collections::BTreeSet<u16> =
            (0..50).map(|n| usual_minute(&format!("https://tenant-{n}.kinde.com"))).collect();
        assert!(minutes.len() > 20 && minutes.iter().all(|m| (180..240).contains(m)), "{minutes:?}");
    }
}
