//! A moment on a page: for people in the zone they chose (in UTC while none is known), for programs in UTC.

use askama::Template;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use time::OffsetDateTime;

/// Whose clock a page shows.
#[derive(Debug, Clone)]
pub struct Zone {
    zone: TimeZone,
    pub name: String,
}

#[derive(Debug, Clone, Template)]
#[template(path = "_time.html")]
pub struct When {
    machine: String,
    text: String,
    utc: String,
}

impl Zone {
    /// A name that no zone has (any more) means UTC.
    pub fn named(name: Option<&str>) -> Self {
        let found = name.and_then(|name| Some((TimeZone::get(name).ok()?, name)));
        found.map_or_else(
            || Self { zone: TimeZone::UTC, name: "UTC".to_owned() },
            |(zone, name)| Self { zone, name: name.to_owned() },
        )
    }

    pub fn when(&self, at: OffsetDateTime) -> When {
        let at = Timestamp::from_nanosecond(at.unix_timestamp_nanos()).unwrap_or(Timestamp::UNIX_EPOCH);
        let mark = if self.name == "UTC" { " UTC" } else { "" };
        When {
            machine: at.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string(),
            text: format!("{}{mark}", at.to_zoned(self.zone.clone()).strftime("%-d %b %Y, %H:%M:%S")),
            utc: at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn people_read_their_own_clock_and_programs_read_utc() {
        let at = datetime!(2026-10-21 22:30:05.25 UTC);
        let shown = |zone: Option<&str>| Zone::named(zone).when(at);
        let (home, utc) = (shown(Some("Europe/Berlin")), shown(None));
        assert_eq!((home.text.as_str(), home.machine.as_str()), ("22 Oct 2026, 00:30:05", "2026-10-21T22:30:05.25Z"));
        assert_eq!((utc.text.as_str(), home.utc.as_str()), ("21 Oct 2026, 22:30:05 UTC", "2026-10-21 22:30:05 UTC"));
        assert_eq!(shown(Some("Nowhere/Land")).text, utc.text);
    }
}
