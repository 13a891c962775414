//! When a reminder comes again. Pure.
//!
//! A repeat keeps its wall-clock time: what is stepped is the local date, and only then is it asked which moment that is. So
//! it rings at nine before and after clocks change, whatever that does to the hours between.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::{Span, ToSpan};
use time::OffsetDateTime;

use crate::domain::zone::{Settled, Zone};

use super::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    Never,
    Daily,
    /// Monday to Friday.
    Weekdays,
    Weekly,
    /// On the same day of the month; in a shorter month, on its last.
    Monthly,
}

/// What the next occurrence is reckoned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The wall clock's time of an occurrence.
    pub local: DateTime,
    /// The day of the month that was asked for: a month that lacks it does not change it for the months after.
    pub month_day: i8,
}

/// The longest way from one occurrence to the next is a month; the zone may skip a day on top of that.
const DAYS_MAX: i32 = 70;

impl Repeat {
    pub const ALL: [Self; 5] = [Self::Never, Self::Daily, Self::Weekdays, Self::Weekly, Self::Monthly];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Daily => "daily",
            Self::Weekdays => "weekdays",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    /// The date of the first occurrence: one on weekdays that is asked for on a Saturday or Sunday begins on Monday.
    pub fn first(self, local: DateTime) -> DateTime {
        let days: Span = match (self, local.weekday()) {
            (Self::Weekdays, Weekday::Saturday) => 2.days(),
            (Self::Weekdays, Weekday::Sunday) => 1.day(),
            _ => return local,
        };
        local.checked_add(days).unwrap_or(local)
    }

    /// The first occurrence whose moment lies after `after`, later than `series.local`. None: it never comes again.
    pub fn next(self, series: Series, zone: &Zone, after: OffsetDateTime) -> Option<(DateTime, Settled)> {
        if self == Self::Never {
            return None;
        }
        let since = series.local.date().tomorrow().ok()?;
        // What was missed while nobody was there is not made up for. The day before: clocks may be hours behind a date.
        let mut date = since.max(zone.local(after).date().yesterday().ok()?);
        for _ in 0..DAYS_MAX {
            if self.falls_on(date, series) {
                let local = date.to_datetime(series.local.time());
                let settled = zone.settle(local)?;
                if settled.at > after {
                    return Some((local, settled));
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn falls_on(self, date: Date, series: Series) -> bool {
        match self {
            Self::Never => false,
            Self::Daily => true,
            Self::Weekdays => !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday),
            Self::Weekly => date.weekday() == series.local.date().weekday(),
            Self::Monthly => date.day() == series.month_day.min(date.days_in_month()),
        }
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Repeat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|r| r.as_str() == text).ok_or_else(|| Error::Word(text.to_owned(), "repeat"))
    }
}
