//! All that is known of one event, for its own page: every delivery, every run, every replay that was asked for, what it says,
//! what it wrote.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, EventId};
use crate::money::{self, Line};

use super::runs::{self, Run};

/// The latest of each that a page shows.
const SHOWN: i64 = 100;

#[derive(Debug)]
pub struct Record {
    /// Every delivery that was stored or counted, oldest first.
    pub deliveries: Vec<Receipt>,
    /// Genuine deliveries under the same id that said something else. The first stands.
    pub conflicts: Vec<OffsetDateTime>,
    pub replays: Vec<Asked>,
    pub runs: Vec<(OffsetDateTime, Run)>,
    pub facts: Vec<Said>,
    pub entries: Vec<Entry>,
    /// The rows of the money ledger that it brought.
    pub money: Vec<Line>,
    pub claims: i32,
    pub processed_at: Option<OffsetDateTime>,
    /// The exact bytes; none once they were pruned.
    pub body: Option<Vec<u8>>,
}

#[derive(Debug)]
pub struct Receipt {
    /// The header that names the attempt.
    pub webhook_id: Option<String>,
    pub sent_at: Option<OffsetDateTime>,
    pub received_at: OffsetDateTime,
    pub copy: bool,
}

#[derive(Debug)]
pub struct Asked {
    pub by: String,
    pub at: OffsetDateTime,
    /// The bulk replay it was a part of.
    pub bulk: Option<i64>,
}

/// A fact as it is stored.
#[derive(Debug)]
pub struct Said {
    pub kind: String,
    pub agreement: Option<String>,
    pub plan_key: Option<String>,
    pub occurred_ns: i64,
    pub effective_ns: Option<i64>,
}

#[derive(Debug)]
pub struct Entry {
    pub key: String,
    pub period: String,
    pub delta: i64,
    pub created_at: OffsetDateTime,
}

/// The caller has found the event to be its reader's (`log::card`), or its reader to be an operator, in the same transaction.
pub async fn of(conn: &mut PgConnection, event: EventId) -> sqlx::Result<Record> {
    let row = sqlx::query!(
        r#"select claims, processed_at, body, account_id as "account: AccountId" from inbox_events where id = $1"#,
        event.0
    )
    .fetch_one(&mut *conn)
    .await?;
    let mut deliveries = sqlx::query_as!(
        Receipt,
        "select webhook_id, sent_at, received_at, copy from receipts where event_id = $1 order by id desc limit $2",
        event.0,
        SHOWN
    )
    .fetch_all(&mut *conn)
    .await?;
    deliveries.reverse();
    let conflicts =
        sqlx::query_scalar!("select received_at from conflicts where event_id = $1 order by id limit $2", event.0, SHOWN)
            .fetch_all(&mut *conn)
            .await?;
    let mut replays = sqlx::query_as!(
        Asked,
        r#"select requested_by as by, requested_at as at, bulk_replay_id as bulk from replays where event_id = $1 order by id desc limit $2"#,
        event.0,
        SHOWN
    )
    .fetch_all(&mut *conn)
    .await?;
    replays.reverse();
    let facts = sqlx::query_as!(
        Said,
        "select kind, agreement, plan_key, occurred_ns, effective_ns from facts where event_id = $1 order by n",
        event.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let entries = sqlx::query_as!(
        Entry,
        "select entry_key as key, period, delta, created_at from ledger where event_id = $1 order by id",
        event.0
    )
    .fetch_all(&mut *conn)
    .await?;
    // Of an event that turned out to be somebody else's, what was booked before is not theirs to read.
    let money = match row.account {
        Some(account) => money::of_event(&mut *conn, account, event).await?,
        None => Vec::new(),
    };
    let runs = runs::latest(conn, event, SHOWN).await?;
    Ok(Record {
        deliveries,
        conflicts,
        replays,
        runs,
        facts,
        entries,
        money,
        claims: row.claims,
        processed_at: row.processed_at,
        body: row.body,
    })
}
