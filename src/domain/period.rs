//! A period: a calendar month, UTC, written `2026-10`.

use std::fmt;
use std::str::FromStr;

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
        if (1..=12).contains(&read.month) && read.to_string() == text { Ok(read) } else { Err(not()) }
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
    fn only_the_written_form_is_read_back() {
        assert_eq!("2026-10".parse::<Period>().unwrap().to_string(), "2026-10");
        for text in ["2026-13", "2026-1", "26-10", "2026", "2026-00", ""] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
