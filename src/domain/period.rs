//! A period: a calendar month, UTC, written `2026-10`.

use std::fmt;
use std::str::FromStr;

use time::{Date, Month, OffsetDateTime};

use super::instant::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    year: i32,
    month: u8,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not a month written like 2026-10")]
pub struct NotAPeriod(String);

impl Period {
    /// The month in which a moment lies, to the nanosecond.
    pub fn of(at: Instant) -> Self {
        let at = at.datetime();
        Self { year: at.year(), month: at.month().into() }
    }

    /// `October 2026`.
    pub fn in_words(self) -> String {
        let month = time::Month::try_from(self.month).map_or_else(|_| self.month.to_string(), |month| month.to_string());
        format!("{month} {}", self.year)
    }

    #[must_use]
    pub fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year + 1, month: 1 },
            _ => Self { month: self.month + 1, ..self },
        }
    }

    /// Its first moment.
    pub fn begins(self) -> OffsetDateTime {
        let month = Month::try_from(self.month).expect("a period's month is one of twelve");
        let day = Date::from_calendar_date(self.year, month, 1).expect("periods are made of moments that have a date");
        day.midnight().assume_utc()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl FromStr for Period {
    type Err = NotAPeriod;

    fn from_str(text: &str) -> Result<Self, NotAPeriod> {
        let not = || NotAPeriod(text.to_owned());
        let (year, month) = text.split_once('-').ok_or_else(not)?;
        let read = Self { year: year.parse().map_err(|_| not())?, month: month.parse().map_err(|_| not())? };
        // The years in which a moment can lie, so that a month from an address and the one after it have a first moment.
        if (1..=12).contains(&read.month) && (1678..=2261).contains(&read.year) && read.to_string() == text {
            Ok(read)
        } else {
            Err(not())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_nanosecond_of_a_month_is_not_rounded_into_the_next() {
        let last = Instant::parse("2026-11-30T23:59:59.999999999Z").unwrap();
        assert_eq!(Period::of(last).to_string(), "2026-11");
        assert_eq!(Period::of(Instant::from_nanos(last.nanos() + 1)).to_string(), "2026-12");
    }

    #[test]
    fn a_period_ends_where_the_next_begins() {
        let period = |text: &str| text.parse::<Period>().unwrap();
        assert_eq!(period("2026-12").next(), period("2027-01"));
        assert_eq!(period("2026-11").next(), period("2026-12"));
        assert_eq!(Period::of(Instant::from_datetime(period("2261-12").next().begins())).to_string(), "2262-01");
        assert_eq!(period("2026-12").in_words(), "December 2026");
        assert_eq!(Instant::from_datetime(period("2026-12").begins()), Instant::parse("2026-12-01T00:00:00Z").unwrap());
    }

    #[test]
    fn only_the_written_form_is_read_back() {
        assert_eq!("2026-10".parse::<Period>().unwrap().to_string(), "2026-10");
        for text in ["2026-13", "2026-1", "26-10", "2026", "2026-00", "", "1677-12", "2262-01", "99999-01"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
