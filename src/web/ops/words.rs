//! Words and numbers that several of the operators' pages share.

use time::{Duration, OffsetDateTime};

use crate::engine_room::report::thousands;

/// A count that stops at a limit.
pub(super) fn up_to(count: i64, limit: i64) -> String {
    if count < limit { thousands(count) } else { format!("{} or more", thousands(limit)) }
}

/// `4 min 12 s`, the two largest parts of it. Never negative: clocks of two machines may differ.
pub(super) fn span(of: Duration) -> String {
    let secs = of.whole_seconds().max(0);
    let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", secs % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (1, hours, _) => format!("1 day {hours} h"),
        (days, hours, _) => format!("{days} days {hours} h"),
    }
}

pub(super) fn ago(at: OffsetDateTime, now: OffsetDateTime) -> String {
    format!("{} ago", span(now - at))
}

/// When something comes, in words.
pub(super) fn until(at: OffsetDateTime, now: OffsetDateTime) -> String {
    if at <= now { "due now".to_owned() } else { format!("in {}", span(at - now)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_by_their_two_largest_parts() {
        let told = |secs| span(Duration::seconds(secs));
        assert_eq!(
            [-5, 0, 59, 61, 3_600, 90_000, 200_000].map(told),
            ["0 s", "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 day 1 h", "2 days 7 h"]
        );
        let now = OffsetDateTime::UNIX_EPOCH;
        assert_eq!((until(now, now), until(now + Duration::seconds(5), now)), ("due now".to_owned(), "in 5 s".to_owned()));
        assert_eq!((up_to(9, 10), up_to(10, 10)), ("9".to_owned(), "10 or more".to_owned()));
    }
}
