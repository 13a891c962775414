//! The calendar feed: iCalendar (RFC 5545) of what is to come and what is due.
//!
//! A single occurrence is a moment, in UTC. A repeat is its wall clock's time in its zone, with a rule; so the zone's own
//! rules go along as a VTIMEZONE, from a year before the first of its repeats to ten years ahead. A calendar asks again every
//! quarter of an hour, so that end is never reached.
//!
//! The next occurrence of a repeat carries the rule under the series' id, whichever it is: a calendar sees one event move on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{Timestamp, ToSpan};
use sqlx::PgExecutor;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::zone::{Zone, timestamp};

use super::Error;
use super::repeat::Repeat;
use super::row::{Reminder, Row, Status};

/// Events in a feed: soonest first, the rest is left out.
const EVENTS_MAX: i64 = 5_000;
/// Octets of a line, its end not counted.
const LINE_MAX: usize = 75;

/// The feed of an account. `host` makes its ids unique in the world: the host of the address that people use.
pub async fn of_account(db: impl PgExecutor<'_>, account: AccountId, host: &str, now: OffsetDateTime) -> Result<String, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: ReminderId", series as "series: ReminderId", n, text, zone, local, month_day, repeat, due_at, status,
                  paused_for, period, rung, version, last_change, mail, mail_error, created_at, changed_at, done_at, listed_at
           from reminders where account_id = $1 and list in ('upcoming', 'due') and status <> 'deleted' and status <> 'paused'
           order by listed_at, id limit $2"#,
        account.0,
        EVENTS_MAX
    )
    .fetch_all(db)
    .await?;
    let reminders = rows.into_iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
    Ok(render(&reminders, host, now))
}

/// Reminders → the text of a feed. Pure.
pub fn render(reminders: &[Reminder], host: &str, now: OffsetDateTime) -> String {
    let mut feed = Feed::default();
    for line in ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Bottle//Reminders//EN", "CALSCALE:GREGORIAN", "METHOD:PUBLISH"] {
        feed.line(line);
    }
    feed.line("X-WR-CALNAME:Bottle");
    feed.line("REFRESH-INTERVAL;VALUE=DURATION:PT15M");
    feed.line("X-PUBLISHED-TTL:PT15M");
    for (name, (zone, first)) in zones(reminders) {
        feed.zone(&name, &zone, first, now);
    }
    for reminder in reminders {
        feed.event(reminder, host);
    }
    feed.line("END:VCALENDAR");
    feed.0
}

/// The zones that repeats are written in, each with the first moment it is needed for.
fn zones(reminders: &[Reminder]) -> BTreeMap<String, (Zone, OffsetDateTime)> {
    let mut zones = BTreeMap::new();
    for reminder in reminders.iter().filter(|r| carries_rule(r)) {
        if let Ok(zone) = Zone::parse(&reminder.zone) {
            let first = zones.entry(reminder.zone.clone()).or_insert((zone, reminder.due_at));
            first.1 = first.1.min(reminder.due_at);
        }
    }
    zones
}

/// Of a repeat, the occurrence still to come; once it has rung, the one after it does.
fn carries_rule(reminder: &Reminder) -> bool {
    reminder.repeat != Repeat::Never && reminder.status == Status::Scheduled && reminder.rung == 0
}

#[derive(Default)]
struct Feed(String);

impl Feed {
    fn event(&mut self, reminder: &Reminder, host: &str) {
        self.line("BEGIN:VEVENT");
        let rule = Zone::parse(&reminder.zone).ok().filter(|_| carries_rule(reminder)).and(rule(reminder));
        match rule {
            Some(rule) => {
                self.line(&format!("UID:repeat-{}@{host}", reminder.series));
                self.line(&format!("DTSTART;TZID={}:{}", reminder.zone, local(reminder.local)));
                self.line(&format!("RRULE:{rule}"));
            }
            None => {
                self.line(&format!("UID:reminder-{}-{}@{host}", reminder.series, reminder.n));
                self.line(&format!("DTSTART:{}", utc(reminder.due_at)));
            }
        }
        let changed = utc(reminder.changed_at);
        self.line(&format!("DTSTAMP:{changed}"));
        self.line(&format!("CREATED:{}", utc(reminder.created_at)));
        self.line(&format!("LAST-MODIFIED:{changed}"));
        self.line(&format!("SEQUENCE:{}", reminder.version));
        let text = escaped(&reminder.text);
        self.line(&format!("SUMMARY:{text}"));
        self.line("TRANSP:TRANSPARENT");
        if reminder.status == Status::Scheduled {
            self.line("BEGIN:VALARM");
            self.line("ACTION:DISPLAY");
            self.line(&format!("DESCRIPTION:{text}"));
            self.line("TRIGGER:PT0S");
            self.line("END:VALARM");
        }
        self.line("END:VEVENT");
    }

    /// The offset in force at the beginning, and every change of it after that.
    fn zone(&mut self, name: &str, zone: &Zone, first: OffsetDateTime, now: OffsetDateTime) {
        let rules = zone.rules();
        let hours = |hours: i64| hours.hours();
        let begin = timestamp(first).checked_sub(hours(366 * 24)).unwrap_or(Timestamp::MIN);
        let end = timestamp(now.max(first)).checked_add(hours(3660 * 24)).unwrap_or(Timestamp::MAX);
        self.line("BEGIN:VTIMEZONE");
        self.line(&format!("TZID:{name}"));
        let info = rules.to_offset_info(begin);
        let mut offset = info.offset();
        self.observance(info.dst().is_dst(), offset, offset, info.abbreviation(), begin);
        for change in rules.following(begin).take_while(|change| change.timestamp() <= end) {
            self.observance(change.dst().is_dst(), offset, change.offset(), change.abbreviation(), change.timestamp());
            offset = change.offset();
        }
        self.line("END:VTIMEZONE");
    }

    /// Begins at what clocks showed by the offset before it.
    fn observance(&mut self, dst: bool, from: Offset, to: Offset, name: &str, at: Timestamp) {
        let kind = if dst { "DAYLIGHT" } else { "STANDARD" };
        self.line(&format!("BEGIN:{kind}"));
        self.line(&format!("DTSTART:{}", local(from.to_datetime(at))));
        self.line(&format!("TZOFFSETFROM:{}", offset(from)));
        self.line(&format!("TZOFFSETTO:{}", offset(to)));
        self.line(&format!("TZNAME:{}", escaped(name)));
        self.line(&format!("END:{kind}"));
    }

    /// Folds between characters, never within one.
    fn line(&mut self, line: &str) {
        let mut room = LINE_MAX;
        for c in line.chars() {
            if c.len_utf8() > room {
                self.0.push_str("\r\n ");
                room = LINE_MAX - 1;
            }
            room -= c.len_utf8();
            self.0.push(c);
        }
        self.0.push_str("\r\n");
    }
}

fn rule(reminder: &Reminder) -> Option<String> {
    Some(match reminder.repeat {
        Repeat::Never => return None,
        Repeat::Daily => "FREQ=DAILY".to_owned(),
        Repeat::Weekdays => "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR".to_owned(),
        Repeat::Weekly => "FREQ=WEEKLY".to_owned(),
        // The last there is of these days: a rule on the 31st alone would leave out short months.
        Repeat::Monthly if reminder.month_day > 28 => {
            let days: Vec<String> = (28..=reminder.month_day).map(|day| day.to_string()).collect();
            format!("FREQ=MONTHLY;BYMONTHDAY={};BYSETPOS=-1", days.join(","))
        }
        Repeat::Monthly => format!("FREQ=MONTHLY;BYMONTHDAY={}", reminder.month_day),
    })
}

fn local(at: DateTime) -> String {
    at.strftime("%Y%m%dT%H%M%S").to_string()
}

fn utc(at: OffsetDateTime) -> String {
    format!("{}Z", local(Zone::utc().local(at)))
}

fn offset(offset: Offset) -> String {
    let seconds = offset.seconds();
    let (sign, seconds) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
    let mut text = format!("{sign}{:02}{:02}", seconds / 3600, seconds / 60 % 60);
    if seconds % 60 != 0 {
        let _ = write!(text, "{:02}", seconds % 60);
    }
    text
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | ';' | ',') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
