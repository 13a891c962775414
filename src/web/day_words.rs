//! When something is, in words a person would say: "today 18:30", "tomorrow 09:00", "Thu 24 Dec, 18:30". Pure.
//!
//! Days are counted on the wall calendar, never in hours: clocks that are changed overnight make no day shorter or longer, and
//! a minute after midnight is tomorrow. A time in another zone than the reader's own has no "today"; it is dated and says where.

use jiff::civil::{Date, DateTime};
use time::OffsetDateTime;

use crate::domain::zone::{self, ClockChange, Zone};

/// Whose days they are, and which one is today.
#[derive(Debug, Clone)]
pub struct Days {
    now: OffsetDateTime,
    home: Zone,
}

/// A moment for people, and the same one for programs (`<time datetime>`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub text: String,
    pub machine: String,
}

impl Days {
    pub fn new(now: OffsetDateTime, home: Zone) -> Self {
        Self { now, home }
    }

    /// What the reader's clock shows now.
    pub fn here(&self) -> DateTime {
        self.home.local(self.now)
    }

    /// A moment as clocks in a zone show it. A name that no zone has any more means UTC, and says so.
    pub fn when(&self, at: OffsetDateTime, zone: &str) -> Words {
        let zone = Zone::parse(zone).unwrap_or_else(|_| Zone::utc());
        let shown = zone.local(at);
        let mut text = if zone == self.home {
            near(shown, self.here().date())
        } else {
            format!("{} in {}", dated(shown, zone.local(self.now).date()), zone.name())
        };
        if let Some(which) = which_of_two(&zone, shown, at) {
            text.push_str(which);
        }
        Words { text, machine: machine(at) }
    }

    /// The same in the reader's own zone.
    pub fn here_at(&self, at: OffsetDateTime) -> Words {
        self.when(at, self.home.name())
    }
}

fn near(shown: DateTime, today: Date) -> String {
    let time = shown.strftime("%H:%M");
    match days_from(today, shown.date()) {
        0 => format!("today {time}"),
        1 => format!("tomorrow {time}"),
        -1 => format!("yesterday {time}"),
        2..=6 => format!("{} {time}", shown.strftime("%A")),
        _ => dated(shown, today),
    }
}

fn dated(shown: DateTime, today: Date) -> String {
    let form = if shown.year() == today.year() { "%a %-d %b, %H:%M" } else { "%a %-d %b %Y, %H:%M" };
    shown.strftime(form).to_string()
}

fn days_from(today: Date, date: Date) -> i32 {
    // Dates that far apart are written out anyway.
    date.since(today).map_or(i32::MAX, |span| span.get_days())
}

/// Clocks that are set back show an hour twice; then the time alone does not say which.
fn which_of_two(zone: &Zone, shown: DateTime, at: OffsetDateTime) -> Option<&'static str> {
    let settled = zone.settle(shown)?;
    (settled.change == Some(ClockChange::Twice)).then_some(if same_offset(settled.at, at) {
        " (before clocks are set back)"
    } else {
        " (after clocks are set back)"
    })
}

/// The two readings lie at least half an hour apart; what is shown leaves out only the part of a second.
fn same_offset(a: OffsetDateTime, b: OffsetDateTime) -> bool {
    (a - b).abs() < time::Duration::minutes(1)
}

fn machine(at: OffsetDateTime) -> String {
    zone::timestamp(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn berlin(now: OffsetDateTime) -> Days {
        Days::new(now, Zone::parse("Europe/Berlin").unwrap())
    }

    #[track_caller]
    fn check(days: &Days, at: OffsetDateTime, zone: &str, expected: &str) {
        assert_eq!(days.when(at, zone).text, expected);
    }

    #[test]
    fn the_days_around_today_have_names() {
        // A Wednesday, 14:00 in Berlin.
        let days = berlin(datetime!(2026-10-21 12:00 UTC));
        let here = |at, expected| check(&days, at, "Europe/Berlin", expected);
        here(datetime!(2026-10-21 16:30 UTC), "today 18:30");
        here(datetime!(2026-10-21 01:05 UTC), "today 03:05");
        here(datetime!(2026-10-22 07:00 UTC), "tomorrow 09:00");
        here(datetime!(2026-10-20 16:30 UTC), "yesterday 18:30");
        here(datetime!(2026-10-23 07:00 UTC), "Friday 09:00");
        here(datetime!(2026-10-27 08:00 UTC), "Tuesday 09:00");
        here(datetime!(2026-10-28 08:00 UTC), "Wed 28 Oct, 09:00");
        here(datetime!(2026-10-19 07:00 UTC), "Mon 19 Oct, 09:00");
        here(datetime!(2027-01-04 08:00 UTC), "Mon 4 Jan 2027, 09:00");
        here(datetime!(2025-12-31 08:00 UTC), "Wed 31 Dec 2025, 09:00");
    }

    #[test]
    fn midnight_is_the_readers_own() {
        // 23:59 in Berlin, 21:59 in Greenwich.
        let days = berlin(datetime!(2026-10-21 21:59 UTC));
        check(&days, datetime!(2026-10-21 22:00 UTC), "Europe/Berlin", "tomorrow 00:00");
        check(&days, datetime!(2026-10-21 21:59:59 UTC), "Europe/Berlin", "today 23:59");
        let later = berlin(datetime!(2026-10-21 22:00 UTC));
        check(&later, datetime!(2026-10-21 22:00 UTC), "Europe/Berlin", "today 00:00");
        check(&later, datetime!(2026-10-21 21:59 UTC), "Europe/Berlin", "yesterday 23:59");
    }

    #[test]
    fn a_day_of_23_or_25_hours_is_one_day() {
        // Clocks go forward at 02:00 on 29 March, back at 03:00 on 25 October.
        let spring = berlin(datetime!(2026-03-28 22:30 UTC));
        check(&spring, datetime!(2026-03-29 21:30 UTC), "Europe/Berlin", "tomorrow 23:30");
        check(&spring, datetime!(2026-03-29 22:00 UTC), "Europe/Berlin", "Monday 00:00");
        let autumn = berlin(datetime!(2026-10-24 22:10 UTC));
        check(&autumn, datetime!(2026-10-25 22:50 UTC), "Europe/Berlin", "today 23:50");
        check(&autumn, datetime!(2026-10-25 23:00 UTC), "Europe/Berlin", "tomorrow 00:00");
    }

    #[test]
    fn of_two_equal_times_it_says_which() {
        let days = berlin(datetime!(2026-10-24 12:00 UTC));
        check(&days, datetime!(2026-10-25 00:30 UTC), "Europe/Berlin", "tomorrow 02:30 (before clocks are set back)");
        check(&days, datetime!(2026-10-25 01:30:20 UTC), "Europe/Berlin", "tomorrow 02:30 (after clocks are set back)");
        check(&days, datetime!(2026-10-25 02:30 UTC), "Europe/Berlin", "tomorrow 03:30");
    }

    #[test]
    fn another_zones_time_is_dated_and_says_where() {
        // 22:00 in Berlin on Wednesday is 05:00 on Thursday in Tokyo.
        let days = berlin(datetime!(2026-10-21 20:00 UTC));
        check(&days, datetime!(2026-10-22 00:00 UTC), "Asia/Tokyo", "Thu 22 Oct, 09:00 in Asia/Tokyo");
        check(&days, datetime!(2026-12-31 16:00 UTC), "Asia/Tokyo", "Fri 1 Jan 2027, 01:00 in Asia/Tokyo");
        check(&days, datetime!(2026-10-22 00:00 UTC), "Gone/Away", "Thu 22 Oct, 00:00 in UTC");
    }

    #[test]
    fn programs_read_utc() {
        let days = berlin(datetime!(2026-10-21 20:00 UTC));
        assert_eq!(days.here_at(datetime!(2026-10-21 22:00:07.9 UTC)).machine, "2026-10-21T22:00:07Z");
    }
}
