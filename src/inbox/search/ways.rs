//! The SQL of the search: one statement for each place that candidates can come from, in each of the two orders.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Filter, Found, Rest, Seen, Span, WINDOW};
use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId, EventKey};

/// Where the candidates come from. Each is one index in the order of ids.
pub(super) enum Way {
    All,
    Dead,
    Failed,
    Parked,
    Conflicts,
    Named,
    Account(AccountId),
}

impl Way {
    /// The narrowest for what is asked. States that few events are in have an index each.
    pub(super) fn all(filter: &Filter) -> Vec<Self> {
        if filter.key.is_some() {
            return vec![Self::Named];
        }
        if filter.id.is_some() {
            return vec![Self::All];
        }
        let held = filter.statuses.iter().map(|status| match status {
            Status::Dead => Some(Self::Dead),
            Status::Failed => Some(Self::Failed),
            Status::Parked => Some(Self::Parked),
            Status::Received | Status::Processing | Status::Applied | Status::Ignored => None,
        });
        match (held.collect::<Option<Vec<_>>>(), filter.account) {
            (_, Some(account)) => vec![Self::Account(account)],
            (Some(held), None) if !held.is_empty() => held,
            _ if filter.conflicting => vec![Self::Conflicts],
            _ => vec![Self::All],
        }
    }
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
    account: Option<AccountId>,
}

/// The first and last candidate that was looked through, and how many there were.
struct End {
    lowest: Option<i64>,
    highest: Option<i64>,
    count: i64,
}

/// Candidates in one order, looked through until enough match. The limit inside is a fence: without it the planner could walk
/// another index past everything that does not match. A conflict is looked up by a limited subquery and not by `exists`, which
/// the planner may answer by reading all conflicts there are.
macro_rules! matching {
    ($conn:ident, $filter:ident, $span:ident, $limit:ident, $candidates:tt, $order:tt $(, $more:expr)?) => {
        sqlx::query_as!(
            Row,
            r#"/* operators */ select id as "id!: EventId", source as "source!", dedupe_key as "key!: EventKey", type as "kind!",
                      status as "status!", reason as "reason?", attempts as "attempts!", seen_count as "seen_count!",
                      occurred_at as "occurred_at?", received_at as "received_at!",
                      nullif(due_at, 'infinity') as "due_at?", account_id as "account?: AccountId"
               from (select id, source, dedupe_key, type, status, reason, attempts, seen_count, occurred_at, received_at, due_at,
                            account_id
                     from inbox_events where id > $1 and id < $2"# + $candidates + " order by " + $order + r#" limit $3) e
               where (cardinality($4::text[]) = 0 or status = any($4))
                 and ($5::text is null or starts_with(type, $5)) and ($6::text is null or type = $6)
                 and ($7::text is null or source = $7)
                 and ($8::timestamptz is null or received_at >= $8) and ($9::timestamptz is null or received_at < $9)
                 and ($10::text is null or strpos(lower(reason), lower($10)) > 0)
                 and ($11::bigint is null or account_id = $11)
                 and (not $12::bool or (select x.id from conflicts x where x.event_id = e.id limit 1) is not null)
               order by "# + $order + " limit $13",
            $span.after,
            $span.before,
            WINDOW,
            &$filter.statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>() as &[&str],
            $filter.kind.as_deref().and_then(|kind| kind.strip_suffix('*')),
            $filter.kind.as_deref().filter(|kind| !kind.ends_with('*')),
            $filter.source.map(Source::as_str),
            $filter.since,
            $filter.until,
            $filter.reason.as_deref(),
            $filter.account.map(|account| account.0),
            $filter.conflicting,
            $limit
            $(, $more)?
        )
        .fetch_all(&mut *$conn)
        .await?
    };
}

/// How far that looked.
macro_rules! looked {
    ($conn:ident, $span:ident, $candidates:tt, $order:tt $(, $more:expr)?) => {
        sqlx::query_as!(
            End,
            r#"/* operators */ select min(id) as lowest, max(id) as highest, count(*) as "count!"
               from (select id from inbox_events where id > $1 and id < $2"# + $candidates + " order by " + $order + " limit $3) e",
            $span.after,
            $span.before,
            WINDOW
            $(, $more)?
        )
        .fetch_one(&mut *$conn)
        .await?
    };
}

/// Both, in one order. First how far: what leaves the candidates between the two statements makes the second one shorter, and what
/// the first did not look at is not said to have been looked at.
macro_rules! search {
    ($conn:ident, $filter:ident, $span:ident, $limit:ident, $end:ident, $candidates:tt, $order:tt) => {{
        let looked = looked!($conn, $span, $candidates, $order);
        let within = looked.within($span);
        let rows = matching!($conn, $filter, within, $limit, $candidates, $order);
        match full(&rows, $limit) {
            Some(last) => (rows, Rest::More(last)),
            None => (rows, looked.rest(|end| end.$end)),
        }
    }};
    ($conn:ident, $filter:ident, $span:ident, $limit:ident, $end:ident, $candidates:tt, $again:tt, $order:tt, $more:expr) => {{
        let looked = looked!($conn, $span, $again, $order, $more);
        let within = looked.within($span);
        let rows = matching!($conn, $filter, within, $limit, $candidates, $order, $more);
        match full(&rows, $limit) {
            Some(last) => (rows, Rest::More(last)),
            None => (rows, looked.rest(|end| end.$end)),
        }
    }};
}

impl Way {
    pub(super) async fn newest(&self, conn: &mut PgConnection, filter: &Filter, span: &Span, limit: i64) -> sqlx::Result<Found> {
        let (rows, rest) = match self {
            Self::All => search!(conn, filter, span, limit, lowest, "", "id desc"),
            Self::Dead => search!(conn, filter, span, limit, lowest, " and status = 'dead'", "id desc"),
            Self::Failed => search!(conn, filter, span, limit, lowest, " and status = 'failed'", "id desc"),
            Self::Parked => search!(conn, filter, span, limit, lowest, " and status = 'parked'", "id desc"),
            Self::Conflicts => search!(
                conn,
                filter,
                span,
                limit,
                lowest,
                " and id = any(array(select distinct event_id from conflicts where event_id > $1 and event_id < $2 order by event_id desc limit $3))",
                "id desc"
            ),
            Self::Named => {
                search!(conn, filter, span, limit, lowest, " and id = any($14)", " and id = any($4)", "id desc", &span.named)
            }
            // `between` where `=` would do, and an order that names the account: no other index gives this order.
            Self::Account(account) => search!(
                conn,
                filter,
                span,
                limit,
                lowest,
                " and account_id between $14 and $14",
                " and account_id between $4 and $4",
                "account_id, id desc",
                account.0
            ),
        };
        Found::of(rows, rest)
    }

    pub(super) async fn oldest(&self, conn: &mut PgConnection, filter: &Filter, span: &Span, limit: i64) -> sqlx::Result<Found> {
        let (rows, rest) = match self {
            Self::All => search!(conn, filter, span, limit, highest, "", "id"),
            Self::Dead => search!(conn, filter, span, limit, highest, " and status = 'dead'", "id"),
            Self::Failed => search!(conn, filter, span, limit, highest, " and status = 'failed'", "id"),
            Self::Parked => search!(conn, filter, span, limit, highest, " and status = 'parked'", "id"),
            Self::Conflicts => search!(
                conn,
                filter,
                span,
                limit,
                highest,
                " and id = any(array(select distinct event_id from conflicts where event_id > $1 and event_id < $2 order by event_id limit $3))",
                "id"
            ),
            Self::Named => {
                search!(conn, filter, span, limit, highest, " and id = any($14)", " and id = any($4)", "id", &span.named)
            }
            Self::Account(account) => search!(
                conn,
                filter,
                span,
                limit,
                highest,
                " and account_id between $14 and $14",
                " and account_id between $4 and $4",
                "account_id desc, id",
                account.0
            ),
        };
        Found::of(rows, rest)
    }
}

fn full(rows: &[Row], limit: i64) -> Option<EventId> {
    rows.last().filter(|_| i64::try_from(rows.len()).is_ok_and(|found| found >= limit)).map(|last| last.id)
}

impl End {
    /// What is looked through: no further than this, if there is more.
    fn within(&self, span: &Span) -> Span {
        let is_cut = self.count >= WINDOW;
        let (after, before) = match (is_cut, self.lowest, self.highest) {
            (true, Some(lowest), Some(highest)) => (span.after.max(lowest - 1), span.before.min(highest + 1)),
            _ => (span.after, span.before),
        };
        Span { after, before, named: Vec::new() }
    }

    fn rest(self, end: impl FnOnce(&Self) -> Option<i64>) -> Rest {
        end(&self).filter(|_| self.count >= WINDOW).map_or(Rest::Nothing, |id| Rest::NotLookedAt(EventId(id)))
    }
}

impl Found {
    fn of(rows: Vec<Row>, rest: Rest) -> sqlx::Result<Self> {
        Ok(Self { events: rows.into_iter().map(Row::seen).collect::<sqlx::Result<_>>()?, rest })
    }
}

impl Row {
    fn seen(self) -> sqlx::Result<Seen> {
        let status: Status = self.status.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
        let open = matches!(status, Status::Received | Status::Processing | Status::Failed | Status::Parked);
        Ok(Seen {
            id: self.id,
            source: self.source.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            key: self.key,
            kind: self.kind,
            status,
            reason: self.reason,
            attempts: self.attempts,
            seen_count: self.seen_count,
            occurred_at: self.occurred_at,
            received_at: self.received_at,
            due_at: self.due_at.filter(|_| open),
            account: self.account,
        })
    }
}
