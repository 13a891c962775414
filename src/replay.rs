//! Replay: a stored event goes back into the queue and the worker runs it again. There is no second code path. A rehearsal
//! says beforehand what that would change. `bulk` is a replay of everything that matches a filter.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

use crate::billing::apply::{self, Item, Rules};
use crate::billing::rehearsal::{self, Rehearsed};
use crate::clock::Clock;
use crate::domain::ask_again;
use crate::domain::ids::{AccountId, EventId};
use crate::inbox::history;
use crate::inbox::queue;
use crate::providers::{Providers, StoredEvent};

pub mod bulk;
pub mod bulk_steps;

/// Live events are not starved: at most this many replayed ones fall due each second.
pub const PER_SECOND: f64 = 200.0;
/// Rows locked at once by a replay of many: whoever wants one of them does not wait for all the others.
const CHUNK: usize = 500;
/// The owner of an event has it run again at most once in this time, however often they press.
pub const OWNER_PAUSE_SECS: f64 = 10.0;

/// Requeues these events and notes who asked. Returns those that were requeued; the others are being processed or wait
/// already. In the caller's transaction.
pub async fn request(
    conn: &mut PgConnection,
    ids: &[EventId],
    asked_by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<EventId>> {
    request_due(conn, ids, asked_by, now, now).await
}

/// As [`request`] for any number of them, a chunk a transaction. What was requeued before an error stays so.
pub async fn request_many(pool: &PgPool, ids: &[EventId], asked_by: &str, clock: Clock) -> sqlx::Result<Vec<EventId>> {
    let mut requeued = Vec::new();
    let mut wait = Duration::ZERO;
    let began = clock.now(pool).await?;
    for chunk in ids.chunks(CHUNK) {
        let mut tx = pool.begin().await?;
        let now = clock.now(&mut *tx).await?;
        requeued.extend(request_due(&mut tx, chunk, asked_by, now, began + wait).await?);
        tx.commit().await?;
        wait += Duration::from_secs(1).mul_f64(f64::from(u32::try_from(chunk.len()).unwrap_or(u32::MAX)) / PER_SECOND);
    }
    Ok(requeued)
}

async fn request_due(
    conn: &mut PgConnection,
    ids: &[EventId],
    asked_by: &str,
    now: OffsetDateTime,
    due: OffsetDateTime,
) -> sqlx::Result<Vec<EventId>> {
    let requeued = queue::requeue(&mut *conn, ids, asked_by, PER_SECOND, due).await?;
    note(conn, &requeued, asked_by, None, now).await?;
    Ok(requeued)
}

/// Requeues one event if it is this account's. False: it is not, or it is being processed, waits already, or was replayed
/// only just now; the statement that would move it is what decides.
pub async fn request_own(
    conn: &mut PgConnection,
    account: AccountId,
    id: EventId,
    asked_by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let requeued = queue::requeue_own(&mut *conn, account, id, asked_by, OWNER_PAUSE_SECS, now).await?;
    note(conn, requeued.as_slice(), asked_by, None, now).await?;
    Ok(requeued.is_some())
}

/// `bulk` is the bulk replay it is a part of.
async fn note(
    conn: &mut PgConnection,
    ids: &[EventId],
    asked_by: &str,
    bulk: Option<i64>,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query!(
        "insert into replays (event_id, requested_by, requested_at, bulk_replay_id)
         select id, $2, $3, $4 from unnest($1::bigint[]) as r (id)",
        &ids,
        asked_by,
        now,
        bulk
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a replay of one event would come to.
#[derive(Debug, Clone)]
pub enum Rehearsal {
    Would(Box<Rehearsed>),
    /// What is stored of it cannot be read.
    WouldFail(String),
}

/// What replays of these events would come to, each by itself. Reads only, and asks no provider.
///
/// # Errors
/// The database's, or something stored that cannot be read.
pub async fn rehearse(
    conn: &mut PgConnection,
    ids: &[EventId],
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<HashMap<EventId, Rehearsal>, apply::Error> {
    let mut rehearsals = HashMap::new();
    let mut items = Vec::new();
    for event in history::as_claimed(&mut *conn, ids).await? {
        let stored = StoredEvent {
            source: event.source,
            key: event.key.as_str(),
            kind: &event.kind,
            body: event.body.as_deref(),
            occurred: event.occurred,
            received: event.received,
            asked: event.claimed,
        };
        match Providers::read(stored) {
            Ok(told) => items.push(Item {
                id: event.id,
                source: ask_again::speaker(event.source, &event.kind),
                key: event.key,
                kind: event.kind,
                received: event.received,
                account: event.account,
                requested_by: None,
                told,
            }),
            Err(why) => {
                rehearsals.insert(event.id, Rehearsal::WouldFail(why.to_string()));
            }
        }
    }
    let rehearsed = rehearsal::rehearse(conn, &items, rules, now).await?;
    rehearsals.extend(items.iter().zip(rehearsed).map(|(item, r)| (item.id, Rehearsal::Would(Box::new(r)))));
    Ok(rehearsals)
}
