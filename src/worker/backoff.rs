//! When a failed event is tried again. Pure.

use std::time::Duration;

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

const WAITS: [Duration; 5] = [
    Duration::from_secs(5 * SECOND),
    Duration::from_secs(30 * SECOND),
    Duration::from_secs(2 * MINUTE),
    Duration::from_secs(10 * MINUTE),
    Duration::from_secs(HOUR),
];

/// The wait after the failure that made it `attempts` charged failures; none after the sixth: the event is dead.
pub fn wait_after(attempts: i32) -> Option<Duration> {
    WAITS.get(usize::try_from(attempts.max(1) - 1).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::wait_after;

    #[test]
    fn five_waits_and_the_sixth_failure_is_the_last() {
        let waits: Vec<_> = (1..=7).map(|n| wait_after(n).map(|w| w.as_secs())).collect();
        assert_eq!(waits, [Some(5), Some(30), Some(120), Some(600), Some(3600), None, None]);
    }
}
