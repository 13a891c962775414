//! A moment, and how Kinde's documents write one. It is kept in the state file as text, so that a person can read the file.

use std::time::Duration;

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct At(pub Timestamp);

impl At {
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// Past the end of the calendar it stays at the end.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(signed(by)).unwrap_or(Timestamp::MAX))
    }

    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(signed(by)).unwrap_or(Timestamp::MIN))
    }

    /// From now until then; nothing if it has passed.
    pub fn away_from(self, now: Self) -> Duration {
        Duration::try_from(self.0.duration_since(now.0)).unwrap_or(Duration::ZERO)
    }

    /// Seconds since 1970, the form of times in OIDC.
    pub fn unix(self) -> i64 {
        self.0.as_second()
    }

    /// `2026-08-06T12:53:57Z`
    pub fn utc(self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// `2024-11-18T13:32:03+11`: no RFC 3339, and the form of Kinde's own examples.
    pub fn short_offset(self) -> String {
        self.in_the_tenants_zone("%Y-%m-%dT%H:%M:%S%:::z")
    }

    /// As a tenant in Sydney in summer writes it. An offset that is not UTC is the point: whoever drops it lands in another month.
    pub fn in_the_tenants_zone(self, form: &str) -> String {
        self.0.to_zoned(TimeZone::fixed(OFFSET)).strftime(form).to_string()
    }

    /// For people: `30 Nov 2026, 13:04:05 UTC`.
    pub fn for_people(self) -> String {
        self.0.strftime("%-d %b %Y, %H:%M:%S UTC").to_string()
    }

    /// The monthly period around `now` that is counted from here: its start and its end.
    pub fn month_around(self, now: Self) -> (Self, Self) {
        let first = self.0.to_zoned(TimeZone::UTC);
        let nth = |n: i32| first.checked_add(n.months()).map_or(Self(Timestamp::MAX), |day| Self(day.timestamp()));
        let mut n = 0;
        while nth(n + 1) <= now && nth(n + 1).0 < Timestamp::MAX {
            n += 1;
        }
        (nth(n), nth(n + 1))
    }
}

const OFFSET: Offset = jiff::tz::offset(11);

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

impl From<At> for String {
    fn from(at: At) -> Self {
        at.0.to_string()
    }
}

impl TryFrom<String> for At {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::At;

    fn at(text: &str) -> At {
        At(text.parse().unwrap())
    }

    #[test]
    fn a_period_is_a_month_counted_from_the_start_and_short_months_end_it_early() {
        let start = at("2026-01-31T10:00:00Z");
        assert_eq!(start.month_around(at("2026-02-01T00:00:00Z")), (start, at("2026-02-28T10:00:00Z")));
        assert_eq!(start.month_around(at("2026-02-28T10:00:00Z")), (at("2026-02-28T10:00:00Z"), at("2026-03-31T10:00:00Z")));
        assert_eq!(start.month_around(at("2025-12-01T00:00:00Z")), (start, at("2026-02-28T10:00:00Z")));
    }

    #[test]
    fn dates_carry_an_offset_without_minutes_where_kindes_do() {
        assert_eq!(at("2024-11-18T02:32:03Z").short_offset(), "2024-11-18T13:32:03+11");
    }
}
