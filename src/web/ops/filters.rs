//! Which events an operator asks for, as it stands in the address.

use axum::http::Uri;
use time::{Duration, OffsetDateTime};

use crate::domain::event::{Source, Status};
use crate::domain::ids::EventId;
use crate::domain::instant::Instant;
use crate::inbox::search::Filter;
use crate::web::query;
use crate::web::shown::shown;

const TEXT_MAX: usize = 200;
const NAMES: &str = "They are status, kind, source, owner, last, since, until, reason, id and conflicts.";

/// Spans that end now, by their names in the address.
pub(super) const SPANS: [(&str, &str, i64); 4] = [
    ("1h", "the last hour", 1),
    ("24h", "the last day", 24),
    ("7d", "the last 7 days", 7 * 24),
    ("30d", "the last 30 days", 30 * 24),
];

/// The address, taken apart. `owner` is still as it was typed: whose it is the database knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub filter: Filter,
    /// An address, a Kinde user id or our number of an account.
    pub owner: Option<String>,
    /// A span that ends now.
    pub last: Option<&'static str>,
    /// Only events that arrived before this one.
    pub before: Option<EventId>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

impl Wanted {
    pub fn of(uri: &Uri) -> Self {
        let mut wanted = Self::default();
        for (name, value) in query::pairs(uri.query().unwrap_or_default()) {
            // No database takes text with some of them, and no id has any.
            let value: String = value.trim().chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
            if !value.is_empty() {
                wanted.take(&name, value);
            }
        }
        wanted
    }

    fn take(&mut self, name: &str, value: String) {
        let filter = &mut self.filter;
        let problem = match name {
            "status" => match value.parse::<Status>() {
                Ok(status) => {
                    if !filter.statuses.contains(&status) {
                        filter.statuses.push(status);
                    }
                    return;
                }
                Err(_) => "That is no state an event can be in; it was left out.",
            },
            "source" => match value.parse::<Source>() {
                Ok(source) => {
                    filter.source = Some(source);
                    return;
                }
                Err(_) => "That is no provider; events of all are shown.",
            },
            "since" | "until" => match moment(&value) {
                Some(at) => {
                    let end = if name == "since" { &mut filter.since } else { &mut filter.until };
                    *end = Some(at);
                    return;
                }
                None => "A time is written like 2026-10-21 or 2026-10-21 10:00, in UTC; that one was left out.",
            },
            "last" => match SPANS.iter().find(|(known, ..)| *known == value) {
                Some((known, ..)) => {
                    self.last = Some(known);
                    return;
                }
                None => "That is no span of time to choose; it was left out.",
            },
            "before" => match value.parse() {
                Ok(id) => {
                    self.before = Some(EventId(id));
                    return;
                }
                Err(_) => "That page of the list is none; the newest events are shown.",
            },
            "id" => {
                match value.parse() {
                    Ok(id) => filter.id = Some(EventId(id)),
                    Err(_) => filter.key = Some(value),
                }
                return;
            }
            "kind" => {
                filter.kind = Some(value);
                return;
            }
            "owner" => {
                self.owner = Some(value);
                return;
            }
            "reason" => {
                filter.reason = Some(value);
                return;
            }
            "conflicts" => {
                filter.conflicting = true;
                return;
            }
            // The pages' own.
            "said" | "saw" => return,
            _ => {
                self.problems.push(format!("There is no filter “{}”, so it was left out. {NAMES}", shown(name, 40)));
                return;
            }
        };
        self.problems.push(problem.to_owned());
    }

    /// With a span that ends now as the times it means.
    #[must_use]
    pub fn fixed(self, now: OffsetDateTime) -> Self {
        let hours = SPANS.iter().find(|(known, ..)| Some(*known) == self.last).map(|(_, _, hours)| *hours);
        let Some(hours) = hours else { return self };
        // To the second, which is what the address can say.
        let since = (now - Duration::hours(hours)).replace_nanosecond(0).unwrap_or(now);
        let since = self.filter.since.map_or(since, |asked| asked.max(since));
        Self { last: None, filter: Filter { since: Some(since), ..self.filter }, ..self }
    }

    pub fn filters_something(&self) -> bool {
        self.filter != Filter::default() || self.owner.is_some() || self.last.is_some()
    }

    /// The query of the address that says this again; with its question mark, or empty.
    pub fn query(&self) -> String {
        let filter = &self.filter;
        let mut fields: Vec<(&str, String)> = Vec::new();
        fields.extend(filter.statuses.iter().map(|s| ("status", s.to_string())));
        fields.extend(filter.kind.clone().map(|kind| ("kind", kind)));
        fields.extend(filter.source.map(|s| ("source", s.to_string())));
        fields.extend(self.owner.clone().map(|owner| ("owner", owner)));
        fields.extend(self.last.map(|last| ("last", last.to_owned())));
        fields.extend(filter.since.map(|at| ("since", written(at))));
        fields.extend(filter.until.map(|at| ("until", written(at))));
        fields.extend(filter.reason.clone().map(|reason| ("reason", reason)));
        fields.extend(filter.id.map(|id| ("id", id.to_string())));
        fields.extend(filter.key.clone().map(|key| ("id", key)));
        fields.extend(filter.conflicting.then(|| ("conflicts", "1".to_owned())));
        fields.extend(self.before.map(|id| ("before", id.to_string())));
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        crate::web::fields::query(&fields)
    }
}

/// As the address and the form say a time, in UTC.
pub(super) fn written(at: OffsetDateTime) -> String {
    Instant::from_datetime(at).to_string()
}

/// A time as people type it: a day, a minute or more, in UTC unless it says otherwise.
fn moment(text: &str) -> Option<OffsetDateTime> {
    let text = text.replacen(' ', "T", 1);
    let whole = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        19 => format!("{text}Z"),
        _ => text,
    };
    let at = Instant::parse(&whole).ok()?.datetime();
    // What lies outside of these no database takes.
    (1970..=9000).contains(&at.year()).then_some(at)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[track_caller]
    fn check(address: &str, again: &str, problems: usize) {
        let wanted = Wanted::of(&address.parse().unwrap());
        assert_eq!((wanted.query().as_str(), wanted.problems.len()), (again, problems), "{address}");
    }

    #[test]
    fn an_address_is_read_and_written_back() {
        check("/ops/events", "", 0);
        check("/ops/events?status=&kind=+&id=", "", 0);
        let full = "?status=dead&status=failed&kind=customer.*&source=stripe&owner=ada%40example.com&last=24h\
                    &since=2026-10-21T10%3A00%3A00Z&until=2026-10-22T00%3A00%3A00Z&reason=no+Pro&id=12&conflicts=1&before=9";
        check(&format!("/ops/events{full}"), full, 0);
        check(
            "/ops/events?since=2026-10-21+10:00&until=2026-10-21&id=event_1",
            "?since=2026-10-21T10%3A00%3A00Z&until=2026-10-21T00%3A00%3A00Z&id=event_1",
            0,
        );
        check("/ops/events?status=gone&source=x&since=y&last=2h&before=z&until=9999-99-99&color=red", "", 7);
        check("/ops/events?reason=a%00b%0a&status=dead&status=dead", "?status=dead&reason=ab", 0);
    }

    #[test]
    fn a_span_that_ends_now_is_fixed_when_something_is_done_with_it() {
        let wanted = Wanted::of(&"/ops/replay?last=1h&status=dead".parse().unwrap());
        let fixed = wanted.fixed(datetime!(2026-10-21 10:00:00.5 UTC));
        assert_eq!(fixed.query(), "?status=dead&since=2026-10-21T09%3A00%3A00Z");
    }
}
