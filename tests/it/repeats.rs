//! When reminders ring: held against instants written by hand from the zones' published rules, and against invariants.

use bottle::domain::zone::{ClockChange, Zone};
use bottle::reminders::draft::{Draft, Field, Invalid};
use bottle::reminders::repeat::{Repeat, Series};
use jiff::civil::DateTime;
use proptest::prelude::*;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::cases;

/// The first occurrence is at `local`; then come these, in UTC. Each is asked for from the one before, as the bell does.
#[track_caller]
fn check(zone: &str, repeat: &str, local: &str, moments: &[&str]) {
    let (zone, repeat) = (Zone::parse(zone).unwrap(), repeat.parse::<Repeat>().unwrap());
    let mut local: DateTime = local.parse().unwrap();
    let month_day = local.day();
    let mut at = zone.settle(local).unwrap().at;
    for (n, expected) in moments.iter().enumerate() {
        assert_eq!(said(at), *expected, "{zone} {repeat}, occurrence {}", n + 1);
        let (next, settled) = repeat.next(Series { local, month_day }, &zone, at).unwrap();
        (local, at) = (next, settled.at);
    }
}

fn said(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap()
}

#[test]
fn berlin_keeps_its_wall_clock_when_clocks_go_forward_and_back() {
    // 29 March 2026, 2:00 becomes 3:00; 25 October 2026, 3:00 becomes 2:00.
    check(
        "Europe/Berlin",
        "daily",
        "2026-03-28T09:00",
        &["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"],
    );
    check(
        "Europe/Berlin",
        "daily",
        "2026-10-24T09:00",
        &["2026-10-24T07:00:00Z", "2026-10-25T08:00:00Z", "2026-10-26T08:00:00Z"],
    );
    // A time that is skipped rings as much later, one that comes twice at its first; the day after it is itself again.
    check(
        "Europe/Berlin",
        "daily",
        "2026-03-28T02:30",
        &["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
    );
    check(
        "Europe/Berlin",
        "daily",
        "2026-10-24T02:30",
        &["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    );
}

#[test]
fn new_york_keeps_its_wall_clock_week_by_week_and_on_weekdays() {
    // 8 March 2026, 2:00 becomes 3:00; 1 November 2026, 2:00 becomes 1:00.
    check(
        "America/New_York",
        "weekly",
        "2026-03-04T08:30",
        &["2026-03-04T13:30:00Z", "2026-03-11T12:30:00Z", "2026-03-18T12:30:00Z"],
    );
    check("America/New_York", "weekly", "2026-10-28T08:30", &["2026-10-28T12:30:00Z", "2026-11-04T13:30:00Z"]);
    check(
        "America/New_York",
        "weekdays",
        "2026-10-29T08:30",
        &["2026-10-29T12:30:00Z", "2026-10-30T12:30:00Z", "2026-11-02T13:30:00Z"],
    );
    check("America/New_York", "weekdays", "2026-03-06T23:59", &["2026-03-07T04:59:00Z", "2026-03-10T03:59:00Z"]);
    check(
        "America/New_York",
        "weekly",
        "2026-03-01T02:30",
        &["2026-03-01T07:30:00Z", "2026-03-08T07:30:00Z", "2026-03-15T06:30:00Z"],
    );
    check(
        "America/New_York",
        "weekly",
        "2026-10-25T01:30",
        &["2026-10-25T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-08T06:30:00Z"],
    );
}

#[test]
fn lord_howe_changes_its_clocks_by_half_an_hour() {
    // 5 April 2026, 2:00 becomes 1:30; 4 October 2026, 2:00 becomes 2:30.
    check(
        "Australia/Lord_Howe",
        "daily",
        "2026-04-04T09:00",
        &["2026-04-03T22:00:00Z", "2026-04-04T22:30:00Z", "2026-04-05T22:30:00Z"],
    );
    check("Australia/Lord_Howe", "daily", "2026-10-03T09:00", &["2026-10-02T22:30:00Z", "2026-10-03T22:00:00Z"]);
    check(
        "Australia/Lord_Howe",
        "daily",
        "2026-10-03T02:15",
        &["2026-10-02T15:45:00Z", "2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"],
    );
    check(
        "Australia/Lord_Howe",
        "daily",
        "2026-04-04T01:45",
        &["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
    );
}

#[test]
fn auckland_is_on_the_other_half_of_the_world_and_kolkata_changes_nothing() {
    // Auckland: 5 April 2026, 3:00 becomes 2:00; 27 September 2026, 2:00 becomes 3:00.
    check(
        "Pacific/Auckland",
        "daily",
        "2026-04-04T07:00",
        &["2026-04-03T18:00:00Z", "2026-04-04T19:00:00Z", "2026-04-05T19:00:00Z"],
    );
    check(
        "Pacific/Auckland",
        "weekly",
        "2026-09-20T07:00",
        &["2026-09-19T19:00:00Z", "2026-09-26T18:00:00Z", "2026-10-03T18:00:00Z"],
    );
    check("Asia/Kolkata", "daily", "2026-03-28T09:00", &["2026-03-28T03:30:00Z", "2026-03-29T03:30:00Z", "2026-03-30T03:30:00Z"]);
    check("Asia/Kolkata", "weekdays", "2026-10-23T09:00", &["2026-10-23T03:30:00Z", "2026-10-26T03:30:00Z"]);
}

#[test]
fn a_monthly_one_returns_to_its_day_after_a_short_month() {
    check(
        "Europe/Berlin",
        "monthly",
        "2026-01-31T10:00",
        &["2026-01-31T09:00:00Z", "2026-02-28T09:00:00Z", "2026-03-31T08:00:00Z", "2026-04-30T08:00:00Z", "2026-05-31T08:00:00Z"],
    );
    check(
        "Asia/Kolkata",
        "monthly",
        "2028-01-30T10:00",
        &["2028-01-30T04:30:00Z", "2028-02-29T04:30:00Z", "2028-03-30T04:30:00Z"],
    );
    check(
        "America/New_York",
        "monthly",
        "2026-12-29T10:00",
        &["2026-12-29T15:00:00Z", "2027-01-29T15:00:00Z", "2027-02-28T15:00:00Z", "2027-03-29T14:00:00Z"],
    );
}

#[test]
fn a_day_that_a_zone_left_out_rings_once() {
    // Samoa went over the date line: after 29 December 2011 came the 31st.
    check(
        "Pacific/Apia",
        "daily",
        "2011-12-28T12:00",
        &["2011-12-28T22:00:00Z", "2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    );
}

#[test]
fn what_was_missed_is_not_made_up_for() {
    let zone = Zone::parse("Europe/Berlin").unwrap();
    let series = Series { local: "2026-03-01T09:00".parse().unwrap(), month_day: 1 };
    let after = OffsetDateTime::parse("2026-10-25T08:30:00Z", &Rfc3339).unwrap();
    let next = |repeat: Repeat| said(repeat.next(series, &zone, after).unwrap().1.at);
    assert_eq!(next(Repeat::Daily), "2026-10-26T08:00:00Z");
    assert_eq!(next(Repeat::Weekly), "2026-11-01T08:00:00Z");
    assert_eq!(next(Repeat::Monthly), "2026-11-01T08:00:00Z");
    assert_eq!(Repeat::Never.next(series, &zone, after), None);
}

#[test]
fn a_form_can_tell_that_clocks_are_changed_just_then() {
    let now = OffsetDateTime::parse("2026-01-01T00:00:00Z", &Rfc3339).unwrap();
    let change = |local: &str| Draft::new("milk", local, "Europe/Berlin", "never").unwrap().when(now).unwrap().change;
    assert_eq!(change("2026-03-29T02:30"), Some(ClockChange::Skipped { shown: "2026-03-29T03:30".parse().unwrap() }));
    assert_eq!(change("2026-10-25T02:30"), Some(ClockChange::Twice));
    assert_eq!(change("2026-10-25T03:00"), None);
}

#[test]
fn a_form_that_says_nonsense_is_told_which_field_and_why() {
    let now = OffsetDateTime::parse("2026-10-21T12:00:00Z", &Rfc3339).unwrap();
    let long = "x".repeat(501);
    for (text, local, zone, repeat, field, words) in [
        (" \t ", "2026-12-01T09:00", "UTC", "never", Field::Text, "Write what"),
        (&*long, "2026-12-01T09:00", "UTC", "never", Field::Text, "501 characters"),
        ("two\nlines", "2026-12-01T09:00", "UTC", "never", Field::Text, "one line"),
        ("a\u{0}b", "2026-12-01T09:00", "UTC", "never", Field::Text, "invisible"),
        ("a\u{2028}b", "2026-12-01T09:00", "UTC", "never", Field::Text, "invisible"),
        ("milk", "tomorrow", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-12-01", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-02-30T09:00", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-12-01T24:00", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-12-01T09:00Z", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-12-01T09:00-05", "UTC", "never", Field::When, "cannot be read"),
        ("milk", "2026-10-21T12:00", "UTC", "never", Field::When, "has passed"),
        ("milk", "2096-10-21T12:00", "UTC", "never", Field::When, "ten years"),
        ("milk", "2026-12-01T09:00", "Mars/Olympus", "never", Field::Zone, "no time zone we know"),
        ("milk", "2026-12-01T09:00", "UTC", "hourly", Field::Repeat, "how often"),
    ] {
        let error: Invalid = match Draft::new(text, local, zone, repeat) {
            Ok(draft) => draft.when(now).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.field() == field && error.to_string().contains(words), "{text} {local} {zone} {repeat}: {error}");
    }
    let draft = Draft::new(&"ä".repeat(500), " 2026-12-01T09:00:30 ", "europe/berlin", "never").unwrap();
    assert_eq!((draft.zone().name(), draft.local().second()), ("Europe/Berlin", 30));
}

#[test]
fn one_on_weekdays_that_is_asked_for_on_a_weekend_begins_on_monday() {
    for (asked, first) in [
        ("2026-10-23T09:00", "2026-10-23T09:00:00"),
        ("2026-10-24T09:00", "2026-10-26T09:00:00"),
        ("2026-10-25T09:00", "2026-10-26T09:00:00"),
    ] {
        assert_eq!(Draft::new("milk", asked, "UTC", "weekdays").unwrap().local().to_string(), first);
    }
}

fn zones() -> impl Strategy<Value = Zone> {
    let names = Zone::names();
    (0..names.len()).prop_map(move |n| Zone::parse(&names[n]).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(256), ..ProptestConfig::default() })]

    /// In every zone, from any start: each occurrence is later than the last, shows its own time of day unless clocks skip
    /// it, falls on its own days, and leaves none of them out.
    #[test]
    fn a_repeat_goes_forward_at_its_own_time_on_its_own_days(
        zone in zones(),
        repeat in prop::sample::select(&[Repeat::Daily, Repeat::Weekdays, Repeat::Weekly, Repeat::Monthly][..]),
        day in 0_i64..4000,
        minute in 0_i64..1440,
    ) {
        let start: DateTime = "2024-01-01T00:00".parse().unwrap();
        let start = repeat.first(start + jiff::Span::new().days(day).minutes(minute));
        let month_day = start.day();
        let (mut local, mut at) = (start, zone.settle(start).unwrap().at);
        for _ in 0..40 {
            let (next, settled) = repeat.next(Series { local, month_day }, &zone, at).unwrap();
            prop_assert!(settled.at > at);
            prop_assert_eq!(next.time(), start.time());
            let shown = zone.local(settled.at);
            match settled.change {
                Some(ClockChange::Skipped { shown: told }) => prop_assert!(shown > next && told == shown),
                _ => prop_assert_eq!(shown, next),
            }
            let days = local.date().until((jiff::Unit::Day, next.date())).unwrap().get_days();
            match repeat {
                Repeat::Daily => prop_assert_eq!(days, 1),
                Repeat::Weekly => prop_assert_eq!(days, 7),
                Repeat::Weekdays => {
                    prop_assert!(next.weekday().to_monday_one_offset() <= 5);
                    prop_assert!(days == 1 || days == 3 && next.weekday().to_monday_one_offset() == 1);
                }
                _ => {
                    let one_on = i32::from(next.year()) * 12 + i32::from(next.month()) - i32::from(local.year()) * 12 - i32::from(local.month());
                    prop_assert_eq!(one_on, 1);
                    prop_assert_eq!(next.day(), month_day.min(next.date().days_in_month()));
                }
            }
            (local, at) = (next, settled.at);
        }
    }
}
