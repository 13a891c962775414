//! Time zones by their IANA name, and what a wall clock's time means in one. The rules of every zone are built in.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use time::OffsetDateTime;

/// A zone that the built-in database knows.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

#[derive(Debug, Clone, thiserror::Error)]
#[error("`{name}` is no time zone we know; names look like Europe/Berlin or America/New_York")]
pub struct UnknownZone {
    name: String,
}

/// The moment that a wall clock's time means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    pub at: OffsetDateTime,
    pub change: Option<ClockChange>,
}

/// The clocks are changed at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// Clocks skip that time; it is taken as much later as they go forward, which they then show as this.
    Skipped { shown: DateTime },
    /// Clocks show that time twice; the first is taken.
    Twice,
}

impl Zone {
    /// A zone's older names are known too; spelling it in other cases is forgiven.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        let unknown = || UnknownZone { name: name.chars().filter(|c| !c.is_control()).take(60).collect() };
        match TimeZone::get(name.trim()) {
            Ok(zone) if !zone.is_unknown() && zone.iana_name().is_some() => Ok(Self(zone)),
            _ => Err(unknown()),
        }
    }

    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The zones to choose from, by name: a place each, and UTC.
    pub fn names() -> Vec<String> {
        let places = jiff::tz::db().available().map(|name| name.to_string());
        let mut names: Vec<String> =
            places.filter(|name| name == "UTC" || name.contains('/') && !name.starts_with("Etc/")).collect();
        names.sort_unstable();
        names
    }

    /// None: the time lies outside the years that can be reckoned with.
    pub fn settle(&self, local: DateTime) -> Option<Settled> {
        let reading = self.0.to_ambiguous_timestamp(local);
        let offset = reading.offset();
        let at = datetime(reading.compatible().ok()?)?;
        let change = match offset {
            AmbiguousOffset::Unambiguous { .. } => None,
            AmbiguousOffset::Gap { .. } => Some(ClockChange::Skipped { shown: self.local(at) }),
            AmbiguousOffset::Fold { .. } => Some(ClockChange::Twice),
        };
        Some(Settled { at, change })
    }

    /// What clocks show at a moment.
    pub fn local(&self, at: OffsetDateTime) -> DateTime {
        self.0.to_datetime(timestamp(at))
    }

    /// The rules themselves, for who has to write them down.
    pub fn rules(&self) -> &TimeZone {
        &self.0
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

/// Times outside jiff's range lie outside every calendar too: they are taken as its ends.
pub fn timestamp(at: OffsetDateTime) -> jiff::Timestamp {
    let end = if at.unix_timestamp() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::from_nanosecond(at.unix_timestamp_nanos()).unwrap_or(end)
}

pub fn datetime(at: jiff::Timestamp) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_names_and_nothing_else_is_one() {
        assert_eq!(Zone::parse("Europe/Berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(Zone::parse(" europe/berlin ").unwrap().name(), "Europe/Berlin");
        assert!(Zone::parse("Asia/Calcutta").is_ok(), "an older name of Asia/Kolkata");
        for name in ["", "Europe/Atlantis", "CEST+2", "../../etc/passwd", "Etc/Unknown", "<b>\r\n"] {
            let error = Zone::parse(name).unwrap_err().to_string();
            assert!(error.contains("is no time zone we know") && !error.contains('\n'), "{name}: {error}");
        }
    }

    #[test]
    fn every_zone_to_choose_from_can_be_chosen() {
        let names = Zone::names();
        assert!(names.len() > 300 && names.contains(&"Australia/Lord_Howe".to_owned()));
        assert!(names.iter().all(|name| Zone::parse(name).is_ok()));
    }
}
