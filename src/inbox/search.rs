//! Events of all accounts by what an operator asks for. No such question reads the whole inbox: the candidates come in the order
//! of ids from an index (of states, of an account, of conflicts, of a key, else the primary key), at most [`WINDOW`] of them,
//! and only those are looked through. What was not looked at is said, so that whoever asked can go on there.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey};

mod ways;

use ways::Way;

/// Candidates looked through in one go: a few milliseconds' worth.
pub const WINDOW: i64 = 10_000;
/// Ids are given in order of arrival, but for what is on its way at the same moment.
const SLACK: Duration = Duration::minutes(1);

/// Which events are meant. None and empty mean "any".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    pub statuses: Vec<Status>,
    /// A type, or with a `*` at its end the beginning of one.
    pub kind: Option<String>,
    pub source: Option<Source>,
    pub account: Option<AccountId>,
    /// Heard of at this time or later.
    #[serde(with = "time::serde::rfc3339::option")]
    pub since: Option<OffsetDateTime>,
    /// Heard of before this time.
    #[serde(with = "time::serde::rfc3339::option")]
    pub until: Option<OffsetDateTime>,
    /// What the stored reason has in it, in whatever letters.
    pub reason: Option<String>,
    /// Ours.
    pub id: Option<EventId>,
    /// The provider's.
    pub key: Option<String>,
    /// Something else came under the same id.
    pub conflicting: bool,
}

/// A stored event, as a list shows it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub id: EventId,
    pub source: Source,
    pub key: EventKey,
    pub kind: String,
    pub status: Status,
    pub reason: Option<String>,
    pub attempts: i32,
    pub seen_count: i32,
    pub occurred_at: Option<OffsetDateTime>,
    pub received_at: OffsetDateTime,
    pub due_at: Option<OffsetDateTime>,
    pub account: Option<AccountId>,
}

/// What was found, and what was not looked at.
#[derive(Debug)]
pub struct Found {
    pub events: Vec<Seen>,
    pub rest: Rest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Everything there is was looked at.
    Nothing,
    /// As many as were asked for; beyond the last of them nothing was looked at.
    More(EventId),
    /// So many candidates were looked through that it ended at this one.
    NotLookedAt(EventId),
}

/// The next matching events older than `before`, newest first.
///
/// # Errors
/// The database's.
pub async fn newest(conn: &mut PgConnection, filter: &Filter, before: Option<EventId>, limit: i64) -> sqlx::Result<Found> {
    let Some(mut span) = Span::of(conn, filter).await? else { return Ok(Found::nothing()) };
    span.before = before.map_or(span.before, |id| id.0.min(span.before));
    let mut parts = Vec::new();
    for way in Way::all(filter) {
        parts.push(way.newest(conn, filter, &span, limit).await?);
    }
    Ok(together(parts, limit, |a, b| b.cmp(a)))
}

/// The next matching events after `after` and up to `up_to`, oldest first.
///
/// # Errors
/// The database's.
pub async fn oldest(conn: &mut PgConnection, filter: &Filter, after: EventId, up_to: EventId, limit: i64) -> sqlx::Result<Found> {
    let Some(mut span) = Span::of(conn, filter).await? else { return Ok(Found::nothing()) };
    span.after = span.after.max(after.0);
    span.before = span.before.min(up_to.0.saturating_add(1));
    let mut parts = Vec::new();
    for way in Way::all(filter) {
        parts.push(way.oldest(conn, filter, &span, limit).await?);
    }
    Ok(together(parts, limit, EventId::cmp))
}

/// Several searches in one order as one: it goes as far as the shortest of them.
fn together(parts: Vec<Found>, limit: i64, order: impl Fn(&EventId, &EventId) -> Ordering) -> Found {
    let ends = parts.iter().filter_map(|part| match part.rest {
        Rest::Nothing => None,
        Rest::More(id) | Rest::NotLookedAt(id) => Some(id),
    });
    let end = ends.min_by(|a, b| order(a, b));
    let mut events: Vec<Seen> = parts.into_iter().flat_map(|part| part.events).collect();
    events.sort_by(|a, b| order(&a.id, &b.id));
    events.retain(|event| end.is_none_or(|end| order(&event.id, &end).is_le()));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = events.len() > limit || end.is_some() && events.len() == limit;
    events.truncate(limit);
    let rest = match (events.last(), end) {
        (Some(last), _) if more => Rest::More(last.id),
        (_, Some(end)) => Rest::NotLookedAt(end),
        (_, None) => Rest::Nothing,
    };
    Found { events, rest }
}

impl Found {
    const fn nothing() -> Self {
        Self { events: Vec::new(), rest: Rest::Nothing }
    }
}

/// The first id that arrived at this time or later; the one after the newest if none did. A search by halves: there is no
/// index of arrival times, since ids already are in their order.
///
/// # Errors
/// The database's.
pub async fn arrived(conn: &mut PgConnection, at: OffsetDateTime) -> sqlx::Result<EventId> {
    sqlx::query_scalar!(
        r#"/* operators */ with recursive halves (low, high) as (
               select (select id from inbox_events order by id limit 1), (select id from inbox_events order by id desc limit 1) + 1
               union all
               select case when probe.received_at < $1 and probe.id < h.high then probe.id + 1 else h.low end,
                      case when probe.received_at < $1 and probe.id < h.high then h.high else (h.low + h.high) / 2 end
               from halves h cross join lateral (
                   select id, received_at from inbox_events where id >= (h.low + h.high) / 2 order by id limit 1) probe
               where h.low < h.high
           )
           select coalesce(max(low), 1) as "id!: EventId" from halves"#,
        at
    )
    .fetch_one(conn)
    .await
}

/// The ids between which candidates lie, both ends left out, and those that a key names.
struct Span {
    after: i64,
    before: i64,
    named: Vec<i64>,
}

impl Span {
    /// None: nothing can match.
    async fn of(conn: &mut PgConnection, filter: &Filter) -> sqlx::Result<Option<Self>> {
        let mut span = Self { after: 0, before: i64::MAX, named: Vec::new() };
        if let Some(since) = filter.since {
            span.after = arrived(conn, since - SLACK).await?.0.saturating_sub(1);
        }
        if let Some(until) = filter.until {
            span.before = arrived(conn, until + SLACK).await?.0;
        }
        if let Some(id) = filter.id {
            (span.after, span.before) = (span.after.max(id.0.saturating_sub(1)), span.before.min(id.0.saturating_add(1)));
        }
        if let Some(key) = &filter.key {
            span.named = named(conn, key).await?;
            if span.named.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(span))
    }
}

/// Our ids of what the providers call this.
async fn named(conn: &mut PgConnection, key: &str) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "/* operators */ select id from inbox_events where source in ('kinde', 'stripe', 'bottle') and dedupe_key = $1",
        key
    )
    .fetch_all(conn)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: i64) -> Seen {
        Seen {
            id: EventId(id),
            source: Source::Kinde,
            key: EventKey(id.to_string()),
            kind: String::new(),
            status: Status::Dead,
            reason: None,
            attempts: 0,
            seen_count: 1,
            occurred_at: None,
            received_at: OffsetDateTime::UNIX_EPOCH,
            due_at: None,
            account: None,
        }
    }

    #[track_caller]
    fn check(parts: &[(&[i64], Rest)], limit: i64, ids: &[i64], rest: Rest) {
        let found = |(ids, rest): &(&[i64], Rest)| Found { events: ids.iter().copied().map(seen).collect(), rest: *rest };
        let all = together(parts.iter().map(found).collect(), limit, |a, b| b.cmp(a));
        assert_eq!((all.events.iter().map(|e| e.id.0).collect::<Vec<_>>().as_slice(), all.rest), (ids, rest));
    }

    #[test]
    fn several_searches_go_as_far_as_the_shortest() {
        check(&[], 3, &[], Rest::Nothing);
        check(&[(&[9, 4], Rest::Nothing), (&[7], Rest::Nothing)], 3, &[9, 7, 4], Rest::Nothing);
        check(&[(&[9, 4], Rest::Nothing), (&[7, 6], Rest::Nothing)], 3, &[9, 7, 6], Rest::More(EventId(6)));
        check(&[(&[9, 8, 7], Rest::More(EventId(7))), (&[3], Rest::Nothing)], 3, &[9, 8, 7], Rest::More(EventId(7)));
        // What lies beyond the end of one of them may not be all there is.
        check(&[(&[9], Rest::NotLookedAt(EventId(5))), (&[6, 3], Rest::Nothing)], 3, &[9, 6], Rest::NotLookedAt(EventId(5)));
    }
}
