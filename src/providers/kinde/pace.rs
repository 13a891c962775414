//! How fast Kinde may be asked: not at all until a rate limit is over, and not by everybody while it gives no answers.
//!
//! Nobody sleeps here. Who comes too early is told when to come again, and gives its event back for so long: a worker that
//! waited would hold its lease, and the events of everybody else with it. Pure; the caller brings the clock.

use std::time::Duration;

use tokio::time::Instant;

/// Calls without an answer, one after another, after which nobody asks for a while.
const FAILURES_MAX: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_LAST: Duration = Duration::from_secs(30);
/// A rate limit that says less or more than this is not taken at its word.
const LIMIT_MIN: Duration = Duration::from_secs(1);
const LIMIT_MAX: Duration = Duration::from_secs(120);
/// A rate limit that does not say when it ends.
const LIMIT_UNSAID: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Pace {
    paused_until: Option<Instant>,
    failures: u32,
}

impl Pace {
    /// How long nobody may ask; none when one may.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        self.paused_until?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    pub fn answered(&mut self) {
        self.failures = 0;
    }

    /// Kinde said "too many", and perhaps for how many seconds. Returns the pause.
    pub fn limited(&mut self, secs: Option<u64>, now: Instant) -> Duration {
        let pause = secs.map_or(LIMIT_UNSAID, Duration::from_secs).clamp(LIMIT_MIN, LIMIT_MAX);
        self.pause_until(now + pause);
        pause
    }

    /// There was no answer. Returns when to try again. Calls that were under way when a pause began fail together with the
    /// one that began it, and count no more.
    pub fn failed(&mut self, now: Instant) -> Duration {
        if let Some(left) = self.pause(now) {
            return left;
        }
        self.failures = self.failures.saturating_add(1);
        let Some(more) = self.failures.checked_sub(FAILURES_MAX) else { return PAUSE_FIRST };
        let pause = PAUSE_FIRST.saturating_mul(1 << more.min(8)).min(PAUSE_LAST);
        self.pause_until(now + pause);
        pause
    }

    /// A pause is never cut short: an answer that was under way when another call was refused proves nothing.
    fn pause_until(&mut self, until: Instant) {
        self.paused_until = self.paused_until.max(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_taken_at_its_word_within_bounds() {
        for (said, secs) in [(Some(7), 7), (Some(0), 1), (Some(86_400), 120), (None, 10)] {
            let (mut pace, now) = (Pace::default(), Instant::now());
            assert_eq!(pace.limited(said, now).as_secs(), secs);
            assert_eq!(pace.pause(now).map(|p| p.as_secs()), Some(secs));
            pace.answered();
            assert!(pace.pause(now + Duration::from_millis(secs * 1_000 - 1)).is_some(), "an answer cuts it short");
            assert_eq!(pace.pause(now + Duration::from_secs(secs)), None);
        }
    }

    #[test]
    fn the_third_failure_in_a_row_pauses_everybody_and_each_more_for_longer() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.failed(now);
        pace.failed(now);
        pace.answered();
        pace.failed(now);
        pace.failed(now);
        assert_eq!(pace.pause(now), None);
        let mut now = now;
        for secs in [5, 10, 20, 30, 30] {
            assert_eq!(pace.failed(now).as_secs(), secs);
            assert_eq!(pace.failed(now).as_secs(), secs, "what was under way as well counts no more");
            now += Duration::from_secs(secs);
            assert_eq!(pace.pause(now), None);
        }
    }
}
