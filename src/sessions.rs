//! Sessions of signed-in people, kept in PostgreSQL. The SQL of `sessions`.
//!
//! The browser holds 128 random bits; the table holds their SHA-256. A session ends by the server's clock: after
//! [`IDLE`] without use, and [`ABSOLUTE`] after it began, whatever the cookie says. Nobody who is not signed in has a row.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error, Result};
use tower_sessions::{ExpiredDeletion, SessionStore};

use crate::db::interval;

/// Where a record says whose session it is.
pub const ACCOUNT: &str = "account";
/// Not used for this long, a session is over.
pub const IDLE: Duration = Duration::from_secs(14 * 24 * 3600);
/// This long after the sign-in, a session is over.
pub const ABSOLUTE: Duration = Duration::from_secs(60 * 24 * 3600);
/// Noting each use would be a write a page: the last use is known to within this.
const SEEN_WITHIN: Duration = Duration::from_secs(300);
/// Ended sessions deleted at a time.
const BATCH: i64 = 1000;
const CLEANED_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Sessions {
    pool: PgPool,
}

impl Sessions {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

/// Deletes ended sessions, a batch a minute, until `stop`. Any number of processes may do it.
pub async fn clean(sessions: Sessions, stop: CancellationToken) {
    let mut minute = tokio::time::interval(CLEANED_EVERY);
    minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = minute.tick() => {}
        }
        if let Err(error) = sessions.delete_expired().await {
            tracing::warn!(%error, "ended sessions could not be deleted; they stay ended");
        }
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> Result<()> {
        // 128 random bits do not meet; if they did, the second would fail here rather than share the first one's session.
        let (account, data) = parts(record)?;
        sqlx::query!(
            "insert into sessions (key_hash, account_id, record, created_at, seen_at, expires_at)
             values ($1, $2, $3, now(), now(), least($4, now() + $5))",
            key_hash(record.id),
            account,
            data,
            record.expiry_date,
            interval(ABSOLUTE)
        )
        .execute(&self.pool)
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn save(&self, record: &Record) -> Result<()> {
        let (account, data) = parts(record)?;
        // An update only: a session that was ended meanwhile stays ended.
        sqlx::query!(
            "update sessions set record = $2, seen_at = now() where key_hash = $1 and account_id = $3",
            key_hash(record.id),
            data,
            account
        )
        .execute(&self.pool)
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn load(&self, id: &Id) -> Result<Option<Record>> {
        let hash = key_hash(*id);
        let row = sqlx::query!(
            r#"select record, expires_at, seen_at < now() - $3::interval as "stale!" from sessions
               where key_hash = $1 and expires_at > now() and seen_at > now() - $2::interval"#,
            hash,
            interval(IDLE),
            interval(SEEN_WITHIN)
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(failed)?;
        let Some(row) = row else { return Ok(None) };
        if row.stale {
            sqlx::query!("update sessions set seen_at = now() where key_hash = $1", hash)
                .execute(&self.pool)
                .await
                .map_err(failed)?;
        }
        let data: HashMap<String, Value> = serde_json::from_value(row.record).map_err(|e| Error::Decode(e.to_string()))?;
        Ok(Some(Record { id: *id, data, expiry_date: row.expires_at }))
    }

    async fn delete(&self, id: &Id) -> Result<()> {
        sqlx::query!("delete from sessions where key_hash = $1", key_hash(*id)).execute(&self.pool).await.map_err(failed)?;
        Ok(())
    }
}

#[async_trait]
impl ExpiredDeletion for Sessions {
    /// A batch of them; whoever calls it calls it again.
    async fn delete_expired(&self) -> Result<()> {
        sqlx::query!(
            "delete from sessions where key_hash in (
                 select key_hash from sessions where expires_at <= now() or seen_at <= now() - $1::interval
                 limit $2 for update skip locked)",
            interval(IDLE),
            BATCH
        )
        .execute(&self.pool)
        .await
        .map_err(failed)?;
        Ok(())
    }
}

fn parts(record: &Record) -> Result<(i64, Value)> {
    let account = record.data.get(ACCOUNT).and_then(Value::as_i64);
    let account = account.ok_or_else(|| Error::Encode("a session without an account is not stored".to_owned()))?;
    let data = serde_json::to_value(&record.data).map_err(|e| Error::Encode(e.to_string()))?;
    Ok((account, data))
}

fn key_hash(id: Id) -> Vec<u8> {
    Sha256::digest(id.0.to_le_bytes()).to_vec()
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn failed(error: sqlx::Error) -> Error {
    Error::Backend(error.to_string())
}
