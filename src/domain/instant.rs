//! A moment in integer nanoseconds.
//!
//! PostgreSQL keeps microseconds and rounds: `2026-11-30T23:59:59.9999996Z` becomes December there. So every comparison
//! and every period comes from this type, and a `timestamptz` beside it is for people to read.

use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds since 1970-01-01T00:00:00Z; years 1678 to 2261.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

/// The text is not a moment we can read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{text}` is not a time we can read: {why}")]
pub struct NotATime {
    text: String,
    why: String,
}

impl Instant {
    /// Reads ISO 8601 with 0 to 9 fraction digits and any of the offsets `Z`, `+11:00`, `+1100`, `+11`.
    ///
    /// # Errors
    /// The text is no such time, or lies outside the years 1678 to 2261.
    pub fn parse(text: &str) -> Result<Self, NotATime> {
        let not = |why: String| NotATime { text: text.chars().take(64).collect(), why };
        let read: jiff::Timestamp = text.trim().parse().map_err(|e: jiff::Error| not(e.to_string()))?;
        i64::try_from(read.as_nanosecond()).map(Self).map_err(|_| not("it lies outside 1678 to 2261".into()))
    }

    pub const fn from_nanos(ns: i64) -> Self {
        Self(ns)
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Saturates at the ends of the range: such times only ever mean "never" or "always".
    pub fn from_datetime(at: OffsetDateTime) -> Self {
        let ns = at.unix_timestamp_nanos();
        Self(i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX }))
    }

    /// For `timestamptz` columns and for people; PostgreSQL drops what lies below a microsecond.
    pub fn datetime(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0)).expect("i64 nanoseconds lie within time's range")
    }

    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(span)))
    }

    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(span)))
    }
}

fn nanos_of(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.datetime().format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Instant;

    #[track_caller]
    fn check(text: &str, ns: i64) {
        assert_eq!(Instant::parse(text).map(Instant::nanos).map_err(|e| e.to_string()), Ok(ns), "{text}");
    }

    #[test]
    fn every_offset_form_and_digit_count_is_read() {
        check("1970-01-01T00:00:00Z", 0);
        check("1970-01-01T11:00:00+11:00", 0);
        check("1970-01-01T11:00:00+1100", 0);
        check("1970-01-01T11:00:00+11", 0);
        check("1969-12-31T19:00:00.5-05", 500_000_000);
        check("1970-01-01T00:00:00.000000001Z", 1);
        check("2026-10-21T02:29:24.481368869+11:00", 1_792_510_164_481_368_869);
        check(" 1970-01-01T00:00:01Z\n", 1_000_000_000);
    }

    #[test]
    fn nonsense_is_refused_with_its_text() {
        for text in
            ["", "yesterday", "2026-13-01T00:00:00Z", "2026-10-21T10:00:00", "1600-01-01T00:00:00Z", "9999-01-01T00:00:00Z"]
        {
            assert!(Instant::parse(text).is_err(), "{text}");
        }
    }
}
