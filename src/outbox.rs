//! Letters that are to leave the house, and the queue of those that have not left yet. The SQL of `outbox`.
//!
//! Written in the transaction of what a letter tells of: if that is committed, so is the letter. A row may be claimed while it
//! is neither sent nor dead and its time has come; a lease that ended makes it due again.

use std::fmt;

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::clock::Clock;
use crate::domain::ids::{AccountId, LeaseToken, ReminderId};

/// What is written in a letter, and what it is about.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    pub subject: String,
    pub text: String,
    pub reminder: ReminderId,
    /// Which ringing of the reminder it tells of.
    pub rung: i32,
}

/// Without its words: they are for whoever gets it.
impl fmt::Debug for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letter").field("reminder", &self.reminder).field("rung", &self.rung).finish_non_exhaustive()
    }
}

/// A letter to be written down.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// What it tells of: the same key is the same letter.
    pub key: String,
    pub account: AccountId,
    pub recipient: String,
    pub letter: Letter,
}

/// A letter in the hands of a courier.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: i64,
    pub token: LeaseToken,
    pub key: String,
    /// The same with every attempt.
    pub message_id: Uuid,
    pub account: Option<AccountId>,
    pub recipient: String,
    pub letter: Letter,
    /// Failures charged so far.
    pub attempts: i32,
    pub created_at: OffsetDateTime,
}

/// What an attempt leaves behind when it did not send the letter.
#[derive(Debug, Clone)]
pub struct Failure<'a> {
    pub attempts: i32,
    pub error: &'a str,
    /// None: there is no further attempt.
    pub due: Option<OffsetDateTime>,
}

/// Writes a letter down; one whose key is there already writes nothing.
pub async fn add(conn: &mut PgConnection, outgoing: &Outgoing, now: OffsetDateTime) -> sqlx::Result<()> {
    let payload = serde_json::to_value(&outgoing.letter).map_err(|e| sqlx::Error::Encode(e.into()))?;
    sqlx::query!(
        "insert into outbox (message_key, account_id, kind, recipient, payload, created_at, due_at)
         values ($1, $2, 'reminder', $3, $4, $5, $5) on conflict (message_key) do nothing",
        outgoing.key,
        outgoing.account.0,
        outgoing.recipient,
        payload,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes up to `limit` due letters for a lease. Commits by itself: nothing is locked while a mail server is talked to.
pub async fn claim(db: impl PgExecutor<'_>, limit: i64, lease_secs: f64, clock: Clock) -> sqlx::Result<Vec<Claimed>> {
    let token = LeaseToken::fresh();
    let rows = sqlx::query!(
        r#"with due as materialized (
               select id from outbox
               where sent_at is null and dead_at is null and due_at <= coalesce($1, now())
               order by due_at, id
               limit $2
               for update skip locked
           )
           update outbox o set lease_token = $3, due_at = coalesce($1, now()) + make_interval(secs => $4)
           from due where o.id = due.id
           returning o.id, o.message_key, o.message_id, o.account_id as "account: AccountId", o.recipient, o.payload, o.attempts,
                     o.created_at"#,
        clock.param(),
        limit,
        token.0,
        lease_secs
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|r| {
            Ok(Claimed {
                id: r.id,
                token,
                key: r.message_key,
                message_id: r.message_id,
                account: r.account,
                recipient: r.recipient,
                letter: serde_json::from_value(r.payload).map_err(|e| sqlx::Error::Decode(e.into()))?,
                attempts: r.attempts,
                created_at: r.created_at,
            })
        })
        .collect()
}

/// Marks a letter as sent, if the lease is still ours. Its words are no longer needed here.
pub async fn sent(conn: &mut PgConnection, letter: &Claimed, now: OffsetDateTime) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "update outbox set sent_at = $3, lease_token = null, last_error = null, payload = '{}'
         where id = $1 and lease_token = $2 and sent_at is null and dead_at is null",
        letter.id,
        letter.token.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes an attempt that failed, if the lease is still ours.
pub async fn failed(conn: &mut PgConnection, letter: &Claimed, failure: &Failure<'_>, now: OffsetDateTime) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "update outbox set attempts = $3, last_error = $4, lease_token = null, due_at = coalesce($5, due_at),
                           dead_at = case when $5::timestamptz is null then $6::timestamptz end
         where id = $1 and lease_token = $2 and sent_at is null and dead_at is null",
        letter.id,
        letter.token.0,
        failure.attempts,
        failure.error,
        failure.due,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lets go of a letter that was not sent, uncharged: it is due at once. Whether the lease was still ours.
pub async fn give_back(db: impl PgExecutor<'_>, letter: &Claimed, clock: Clock) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "update outbox set lease_token = null, due_at = coalesce($3, now())
         where id = $1 and lease_token = $2 and sent_at is null and dead_at is null",
        letter.id,
        letter.token.0,
        clock.param()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes back the letters about a reminder that is gone or done, however often it rang: none of them is sent any more, and the
/// words of those that were given up go too.
pub async fn withdraw(
    conn: &mut PgConnection,
    account: AccountId,
    reminder: ReminderId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update outbox set dead_at = coalesce(dead_at, $3), lease_token = null, payload = '{}',
                           last_error = case when dead_at is null then 'withdrawn' else last_error end
         where account_id = $1 and kind = 'reminder' and (payload ->> 'reminder')::bigint = $2 and sent_at is null",
        account.0,
        reminder.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How many letters wait, and how many will never be sent.
pub async fn depth(db: impl PgExecutor<'_>) -> sqlx::Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"select count(*) filter (where sent_at is null and dead_at is null) as "waiting!",
                  count(*) filter (where dead_at is not null and last_error <> 'withdrawn') as "dead!"
           from outbox where sent_at is null"#
    )
    .fetch_one(db)
    .await?;
    Ok((row.waiting, row.dead))
}
