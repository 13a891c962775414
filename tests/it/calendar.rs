//! The calendar feed, read by a parser that is not ours and reckons with time zones of its own.

use std::collections::BTreeMap;

use bottle::domain::zone::Zone;
use bottle::reminders::calendar;
use bottle::reminders::feed;
use bottle::reminders::list::List;
use bottle::reminders::repeat::Series;
use bottle::reminders::row::Reminder;
use calcard::common::timezone::Tz;
use calcard::icalendar::{ICalendar, ICalendarComponentType, ICalendarProperty, ICalendarValue};
use calcard::{Entry, Parser};

use crate::support::desk::Desk;

const HOST: &str = "bottle.example";

async fn feed_of(desk: &Desk) -> String {
    calendar::of_account(&desk.p.pool, desk.me, HOST, desk.p.now.datetime()).await.unwrap()
}

/// The parser forgives much, so what it must not have to forgive is looked at first: lines, and what stands in what.
#[track_caller]
fn parsed(feed: &str) -> ICalendar {
    assert!(feed.ends_with("END:VCALENDAR\r\n"), "{feed}");
    let unfolded = feed.replace("\r\n ", "");
    let mut open = Vec::new();
    for line in unfolded.trim_end_matches("\r\n").split("\r\n") {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no content line: {line}"));
        let name = name.split(';').next().unwrap();
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'-'), "{line}");
        match name {
            "BEGIN" => open.push(value),
            "END" => assert_eq!(open.pop(), Some(value), "{feed}"),
            _ => assert!(!open.is_empty(), "outside of everything: {line}"),
        }
    }
    assert!(open.is_empty(), "never ended: {open:?}");
    let mut parser = Parser::new(feed);
    let Entry::ICalendar(calendar) = parser.entry() else { panic!("no calendar:\n{feed}") };
    assert!(matches!(parser.entry(), Entry::Eof), "more than a calendar:\n{feed}");
    let begun = unfolded.split("\r\n").filter(|line| line.starts_with("BEGIN:")).count();
    assert_eq!(calendar.components.len(), begun, "components that were not read as such");
    calendar
}

fn texts(calendar: &ICalendar, wanted: &ICalendarProperty) -> Vec<String> {
    let events = calendar.components.iter().filter(|c| c.component_type == ICalendarComponentType::VEvent);
    let entries = events.flat_map(|c| &c.entries).filter(|e| e.name == *wanted);
    let values = entries.filter_map(|e| e.values.first());
    values
        .map(|v| match v {
            ICalendarValue::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Moments of the first `count` occurrences, as the parser expands them, by the event's id.
fn expanded(calendar: &ICalendar, count: usize) -> BTreeMap<String, Vec<i64>> {
    let expansion = calendar.expand_dates(Tz::UTC, count);
    assert!(expansion.errors.is_empty(), "{:?}", expansion.errors);
    let mut moments: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for event in expansion.events {
        let component = &calendar.components[event.comp_id as usize];
        let uid = component.entries.iter().find(|e| e.name == ICalendarProperty::Uid).unwrap();
        let Some(ICalendarValue::Text(uid)) = uid.values.first() else { panic!("{uid:?}") };
        moments.entry(uid.clone()).or_default().push(event.start.timestamp());
    }
    for moments in moments.values_mut() {
        moments.sort_unstable();
    }
    moments
}

/// As the bell will ring it.
fn ringing(reminder: &Reminder, count: usize) -> Vec<i64> {
    let zone = Zone::parse(&reminder.zone).unwrap();
    let (mut local, mut at) = (reminder.local, reminder.due_at);
    let mut moments = vec![at.unix_timestamp()];
    while moments.len() < count {
        let (next, settled) = reminder.repeat.next(Series { local, month_day: reminder.month_day }, &zone, at).unwrap();
        (local, at) = (next, settled.at);
        moments.push(at.unix_timestamp());
    }
    moments
}

#[tokio::test]
async fn another_program_reads_every_repeat_as_the_bell_rings_it() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    let zones =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Auckland", "America/Santiago"];
    for zone in zones {
        for (repeat, day) in
            [("daily", "22"), ("weekdays", "24"), ("weekly", "23"), ("monthly", "29"), ("monthly", "31"), ("monthly", "30")]
        {
            desk.plan_in(&format!("{repeat} in {zone}"), &format!("2026-10-{day}T09:30"), zone, repeat).await.unwrap();
        }
    }
    const COUNT: usize = 40;
    let all = desk.all(List::Upcoming).await;
    assert_eq!(all.len(), 36);
    for reminder in all {
        // Three years of months, more than a month of days, over the changes of October and November.
        let read = expanded(&parsed(&calendar::render(std::slice::from_ref(&reminder), HOST, desk.p.now.datetime())), COUNT);
        assert_eq!(read[&format!("repeat-{}@{HOST}", reminder.series)], ringing(&reminder, COUNT), "{}", reminder.text);
    }
}

/// The zones' rules go along: whoever knows no zone by name reckons the same from them.
#[tokio::test]
async fn the_rules_of_a_zone_in_the_feed_say_what_the_zone_says() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    for zone in
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Auckland", "Africa/Casablanca"]
    {
        desk.plan_in("nine", "2026-10-22T09:00", zone, "daily").await.unwrap();
    }
    let feed = feed_of(&desk).await;
    // By hand, from the zones' published rules: what clocks show, and the moment.
    for (zone, local, offset) in [
        ("Europe/Berlin", "20261024T090000", 7200),
        ("Europe/Berlin", "20261025T090000", 3600),
        ("Europe/Berlin", "20270328T090000", 7200),
        ("America/New_York", "20261031T090000", -14400),
        ("America/New_York", "20261101T090000", -18000),
        ("America/New_York", "20270314T090000", -14400),
        ("Australia/Lord_Howe", "20261122T090000", 39600),
        ("Australia/Lord_Howe", "20270404T090000", 37800),
        ("Asia/Kolkata", "20300101T090000", 19800),
        ("Pacific/Auckland", "20270404T090000", 43200),
        ("Pacific/Auckland", "20270926T090000", 46800),
    ] {
        assert_eq!(offset_by_rules(&feed, zone, local), offset, "{zone} at {local}");
    }
    parsed(&feed);
}

/// The offset of the last change at or before this wall clock's time, as the feed has it.
fn offset_by_rules(feed: &str, zone: &str, local: &str) -> i32 {
    let (_, rules) =
        feed.split_once(&format!("BEGIN:VTIMEZONE\r\nTZID:{zone}\r\n")).unwrap_or_else(|| panic!("no rules of {zone}"));
    let (rules, _) = rules.split_once("END:VTIMEZONE").unwrap();
    let field = |part: &str, name: &str| part.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap();
    let parts = rules.split("BEGIN:").skip(1).map(|part| (field(part, "DTSTART:"), field(part, "TZOFFSETTO:")));
    let (_, offset) = parts.filter(|(since, _)| since.as_str() <= local).max().unwrap();
    let number = |range| offset.get(range).unwrap_or("0").parse::<i32>().unwrap();
    let size = number(1..3) * 3600 + number(3..5) * 60;
    if offset.starts_with('-') { -size } else { size }
}

#[tokio::test]
async fn every_character_comes_through_and_no_line_is_too_long() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    let (long, plain) = ("ä🧀".repeat(250), "x".repeat(500));
    let all = ["milk, bread; butter", r"C:\new\n", "END:VEVENT", "\"quoted\"", "a:b;TZID=c", &long, &plain];
    for text in all {
        desk.plan(text, "2026-10-22T09:00").await.unwrap();
    }
    let feed = feed_of(&desk).await;
    assert!(feed.split("\r\n").all(|line| line.len() <= 75 && !line.contains(['\r', '\n'])), "{feed}");
    let mut read = texts(&parsed(&feed), &ICalendarProperty::Summary);
    let mut expected = all.map(str::to_owned).to_vec();
    read.sort_unstable();
    expected.sort_unstable();
    assert_eq!(read, expected);
}

#[tokio::test]
async fn one_event_moves_on_while_its_repeat_rings_and_what_is_done_or_paused_is_not_in_it() {
    let mut desk = Desk::new().await;
    let daily = desk.plan_in("pill", "2026-10-22T09:00", "Europe/Berlin", "daily").await.unwrap();
    let once = desk.plan("milk", "2026-10-23T09:00").await.unwrap();
    let uids = async |desk: &Desk| texts(&parsed(&feed_of(desk).await), &ICalendarProperty::Uid);
    let (repeat, single) = (format!("repeat-{}@{HOST}", daily.id), format!("reminder-{}-1@{HOST}", once.id));
    assert_eq!(uids(&desk).await, [repeat.clone(), single.clone()]);
    desk.ring("10-22 07:00:00").await;
    assert_eq!(uids(&desk).await, [format!("reminder-{}-1@{HOST}", daily.id), repeat, single]);
    let moments = expanded(&parsed(&feed_of(&desk).await), 5);
    assert_eq!(moments[&format!("repeat-{}@{HOST}", daily.id)][0], desk.all(List::Upcoming).await[0].due_at.unix_timestamp());
    sqlx::query("update reminders set status = 'paused', paused_for = 'bottles' where n = 2")
        .execute(&desk.p.pool)
        .await
        .unwrap();
    sqlx::query("update reminders set status = 'done', done_at = now() where status = 'due'")
        .execute(&desk.p.pool)
        .await
        .unwrap();
    assert_eq!(uids(&desk).await.len(), 1);
}

#[tokio::test]
async fn a_link_opens_the_feed_until_it_is_revoked_or_another_is_made() {
    let desk = Desk::new().await;
    let mut conn = desk.p.pool.acquire().await.unwrap();
    let now = desk.p.now.datetime();
    assert_eq!(feed::made_at(&mut *conn, desk.me).await.unwrap(), None);
    let first = feed::make(&mut conn, desk.me, now).await.unwrap();
    assert!(first.len() >= 32, "{first}");
    assert_eq!(feed::account_of(&mut *conn, &first).await.unwrap(), Some(desk.me));
    let stored: i64 = desk.p.value(&format!("select count(*) from calendar_feeds c where c::text like '%{first}%'")).await;
    assert_eq!(stored, 0, "the link itself is stored");
    let second = feed::make(&mut conn, desk.me, now).await.unwrap();
    assert_eq!(feed::account_of(&mut *conn, &first).await.unwrap(), None);
    assert_eq!(feed::account_of(&mut *conn, &second).await.unwrap(), Some(desk.me));
    feed::revoke(&mut conn, desk.me).await.unwrap();
    for token in [&*second, "", "%", "'"] {
        assert_eq!(feed::account_of(&mut *conn, token).await.unwrap(), None, "{token}");
    }
}
