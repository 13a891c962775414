//! The billing log: what the account page reads of a person's events, newest first, a page at a time.
//!
//! Pages hang on the last event shown and not on a count, so they stay where they are while new events arrive. Every read is
//! about one account, and an event that nobody owns is in none. Nothing here writes.

use std::collections::{BTreeSet, HashMap};

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey};
use crate::domain::period::Period;

use super::runs::{Effects, PlanChange};
use super::words::Subject;

/// More than this is not counted to the end.
pub const COUNTED_TO: i64 = 1_000;
/// More runs of one event than this are not counted to the end either.
pub const RUNS_COUNTED_TO: i64 = 100;
/// Runs that changed something, as far as a card looks for them.
const CHANGES_LOOKED_AT: i64 = 5;
/// The events a page's own version looks at, besides all that are not finished.
const VERSION_OF_NEWEST: i64 = 50;

/// What a person wants to see of their log. None and empty mean "any".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub statuses: Vec<Status>,
    pub subject: Option<Subject>,
    /// The month in which it happened; in which it was heard, where it says no time.
    pub month: Option<Period>,
    /// The beginning of the provider's event id, or ours.
    pub id: Option<String>,
    /// Only events older than this one, by arrival.
    pub before: Option<EventId>,
}

/// One event as the log shows it.
#[derive(Debug, Clone)]
pub struct Card {
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
    /// When an open event is looked at next; none while it waits for something to be learned.
    pub due_at: Option<OffsetDateTime>,
    /// Counted up to [`RUNS_COUNTED_TO`].
    pub runs: i64,
    /// What its runs changed, all together.
    pub changed: Effects,
    /// The event of the same account that decides the plan instead of this one.
    pub newer: Option<Newer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newer {
    pub id: EventId,
    pub kind: String,
    pub occurred_at: Option<OffsetDateTime>,
}

/// How many events an account has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Counted up to [`COUNTED_TO`].
    pub all: i64,
    /// To be run, running, or tried again.
    pub under_way: i64,
    pub parked: i64,
    pub dead: i64,
}

/// The next `limit` events that match, newest first.
///
/// `between` where `=` would do, and an order that names the account: so no index but that of the account's events gives this
/// order. With `=` a plan made for any account may walk the whole inbox backwards, past everybody else's events.
pub async fn page(conn: &mut PgConnection, account: AccountId, filter: &Filter, limit: i64) -> sqlx::Result<Vec<Card>> {
    let statuses: Vec<&str> = filter.statuses.iter().map(|s| s.as_str()).collect();
    // Everything else is what no subject names.
    let other = filter.subject == Some(Subject::Other);
    let kinds: Vec<&str> = match filter.subject {
        None => Vec::new(),
        Some(Subject::Other) => [Subject::Plan, Subject::Payment].into_iter().flat_map(Subject::kinds).collect(),
        Some(subject) => subject.kinds(),
    };
    let (from, until) = (filter.month.map(Period::begins), filter.month.map(|month| month.next().begins()));
    let id: Option<i64> = filter.id.as_deref().and_then(|id| id.parse().ok());
    let rows = sqlx::query_as!(
        Row,
        r#"with shown as materialized (
               select id, source, dedupe_key, type, status, reason, attempts, seen_count, occurred_at, received_at, due_at
               from inbox_events
               where account_id between $1 and $1 and id < $2
                 and (cardinality($3::text[]) = 0 or status = any($3))
                 and (cardinality($4::text[]) = 0 or (type = any($4)) <> $5)
                 and ($6::timestamptz is null or coalesce(occurred_at, received_at) >= $6)
                 and ($7::timestamptz is null or coalesce(occurred_at, received_at) < $7)
                 and ($8::text is null or starts_with(dedupe_key, $8) or id = $9)
               order by account_id, id desc limit $10
           )
           select s.id as "id: EventId", s.source, s.dedupe_key as "key: EventKey", s.type as kind, s.status, s.reason, s.attempts,
                  s.seen_count, s.occurred_at, s.received_at, nullif(s.due_at, 'infinity') as due_at,
                  (select count(*) from (select 1 from event_runs r where r.event_id = s.id limit $11) r) as "runs!",
                  (select r.effects from event_runs r where r.event_id = s.id order by r.id desc limit 1) as last,
                  (select jsonb_agg(c.effects order by c.id) from (
                       select r.id, r.effects from event_runs r
                       where r.event_id = s.id
                         and (r.effects ?| array['entries', 'money'] or r.effects #>> '{plan,before}' <> r.effects #>> '{plan,after}')
                       order by r.id limit $12) c) as changes
           from shown s order by s.id desc"#,
        account.0,
        filter.before.map_or(i64::MAX, |id| id.0),
        &statuses as &[&str],
        &kinds as &[&str],
        other,
        from,
        until,
        filter.id,
        id,
        limit,
        RUNS_COUNTED_TO,
        CHANGES_LOOKED_AT
    )
    .fetch_all(&mut *conn)
    .await?;
    cards(conn, Some(account), rows).await
}

/// One event with what its runs came to, found by a condition.
macro_rules! one {
    ($conn:ident, $which:tt, $event:ident $(, $more:expr)?) => {
        sqlx::query_as!(
            Row,
            r#"select s.id as "id: EventId", s.source, s.dedupe_key as "key: EventKey", s.type as kind, s.status, s.reason, s.attempts,
                      s.seen_count, s.occurred_at, s.received_at, nullif(s.due_at, 'infinity') as due_at,
                      (select count(*) from (select 1 from event_runs r where r.event_id = s.id limit $2) r) as "runs!",
                      (select r.effects from event_runs r where r.event_id = s.id order by r.id desc limit 1) as last,
                      (select jsonb_agg(c.effects order by c.id) from (
                           select r.id, r.effects from event_runs r
                           where r.event_id = s.id
                             and (r.effects ?| array['entries', 'money'] or r.effects #>> '{plan,before}' <> r.effects #>> '{plan,after}')
                           order by r.id limit $3) c) as changes
               from inbox_events s where s.id = $1"# + $which,
            $event.0,
            RUNS_COUNTED_TO,
            CHANGES_LOOKED_AT
            $(, $more)?
        )
        .fetch_all(&mut *$conn)
        .await?
    };
}

/// One event of this account; nobody else's, and not one that nobody owns.
pub async fn card(conn: &mut PgConnection, account: AccountId, event: EventId) -> sqlx::Result<Option<Card>> {
    let rows = one!(conn, " and s.account_id = $4", event, account.0);
    Ok(cards(conn, Some(account), rows).await?.pop())
}

/// Whosever it is: for operators. `account` is its owner, as far as that is known.
pub async fn card_of_anybody(conn: &mut PgConnection, account: Option<AccountId>, event: EventId) -> sqlx::Result<Option<Card>> {
    let rows = one!(conn, "", event);
    Ok(cards(conn, account, rows).await?.pop())
}

pub async fn counts(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<Counts> {
    sqlx::query_as!(
        Counts,
        r#"select (select count(*) from (select 1 from inbox_events where account_id between $1 and $1
                                         order by account_id, id desc limit $2) e) as "all!",
                  count(*) filter (where status in ('received', 'processing', 'failed')) as "under_way!",
                  count(*) filter (where status = 'parked') as "parked!", count(*) filter (where status = 'dead') as "dead!"
           from inbox_events
           where account_id = $1 and status in ('received', 'processing', 'failed', 'parked', 'dead')"#,
        account.0,
        COUNTED_TO
    )
    .fetch_one(conn)
    .await
}

/// A number for each account that differs after its log changed: a copy heard, a status, a run. For open pages, once a second,
/// so it looks at the newest events and at those that are not finished. (A finished one that is run again becomes one of these.)
pub async fn versions(db: impl PgExecutor<'_>, accounts: &[AccountId]) -> sqlx::Result<HashMap<AccountId, i64>> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select a.id as "account!: AccountId", hashtextextended(coalesce(e.text, ''), 0) as "version!"
           from unnest($1::bigint[]) as a (id), lateral (
               select string_agg(concat_ws(' ', e.id, e.status, e.seen_count, e.attempts, e.processed_at), ',' order by e.id) as text
               from (
                   (select id, status, seen_count, attempts, processed_at from inbox_events
                    where account_id between a.id and a.id order by account_id, id desc limit $2)
                   union
                   (select id, status, seen_count, attempts, processed_at from inbox_events
                    where account_id = a.id and status in ('received', 'processing', 'failed', 'parked', 'dead') limit $2)
               ) e) e"#,
        &ids,
        VERSION_OF_NEWEST
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|r| (r.account, r.version)).collect())
}

struct Row {
    id: EventId,
    source: String,
    key: EventKey,
    kind: String,
    status: String,
    reason: Option<String>,
    attempts: i32,
    seen_count: i32,
    occurred_at: Option<OffsetDateTime>,
    received_at: OffsetDateTime,
    due_at: Option<OffsetDateTime>,
    runs: i64,
    last: Option<serde_json::Value>,
    changes: Option<serde_json::Value>,
}

async fn cards(conn: &mut PgConnection, account: Option<AccountId>, rows: Vec<Row>) -> sqlx::Result<Vec<Card>> {
    let unreadable = |e: serde_json::Error| sqlx::Error::Decode(e.into());
    let mut cards = Vec::with_capacity(rows.len());
    let mut wanted = BTreeSet::new();
    for row in rows {
        let last: Effects = row.last.map(serde_json::from_value).transpose().map_err(unreadable)?.unwrap_or_default();
        let changes: Vec<Effects> = row.changes.map(serde_json::from_value).transpose().map_err(unreadable)?.unwrap_or_default();
        let mut changed = together(changes);
        changed.newer = last.newer;
        wanted.extend(changed.newer.clone());
        let open = matches!(row.status.as_str(), "received" | "processing" | "failed" | "parked");
        cards.push(Card {
            id: row.id,
            source: row.source.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            key: row.key,
            kind: row.kind,
            status: row.status.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            reason: row.reason,
            attempts: row.attempts,
            seen_count: row.seen_count,
            occurred_at: row.occurred_at,
            received_at: row.received_at,
            due_at: row.due_at.filter(|_| open),
            runs: row.runs,
            changed,
            newer: None,
        });
    }
    if let (false, Some(account)) = (wanted.is_empty(), account) {
        let known = by_keys(conn, account, &wanted.into_iter().collect::<Vec<_>>()).await?;
        for card in &mut cards {
            card.newer = card.changed.newer.as_ref().and_then(|key| known.get(key)).filter(|newer| newer.id != card.id).cloned();
        }
    }
    Ok(cards)
}

/// Events of this account by the provider's ids.
async fn by_keys(conn: &mut PgConnection, account: AccountId, keys: &[String]) -> sqlx::Result<HashMap<String, Newer>> {
    let rows = sqlx::query!(
        r#"select id as "id: EventId", dedupe_key, type as kind, occurred_at from inbox_events
           where source in ('kinde', 'stripe', 'bottle') and dedupe_key = any($1) and account_id = $2"#,
        keys,
        account.0
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.dedupe_key, Newer { id: r.id, kind: r.kind, occurred_at: r.occurred_at })).collect())
}

/// What several runs changed: from the plan before the first to the plan after the last, every entry and all money.
fn together(changes: Vec<Effects>) -> Effects {
    let mut all = Effects::default();
    for change in changes {
        if let Some(plan) = change.plan {
            let before = all.plan.map_or(plan.before, |all: PlanChange| all.before);
            all.plan = Some(PlanChange { before, after: plan.after });
        }
        all.entries.extend(change.entries);
        all.money.extend(change.money);
        all.by_answer |= change.by_answer;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_told_as_one_change() {
        let run = |before: &str, after: &str| Effects {
            plan: Some(PlanChange { before: before.to_owned(), after: after.to_owned() }),
            ..Effects::default()
        };
        let told = together(vec![run("free", "free"), run("free", "pro")]);
        assert_eq!(told.plan, Some(PlanChange { before: "free".to_owned(), after: "pro".to_owned() }));
        assert_eq!(together(Vec::new()), Effects::default());
    }
}
