//! The secret link to a calendar feed. Only its hash is kept: it is shown once, when it is made.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::ids::AccountId;

/// 192 random bits.
const TOKEN_BYTES: usize = 24;

/// Makes a link's secret part; the one before it, if there was one, opens nothing any more.
pub async fn make(conn: &mut PgConnection, account: AccountId, now: OffsetDateTime) -> sqlx::Result<String> {
    let token = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    sqlx::query!(
        "insert into calendar_feeds (account_id, token_hash, created_at) values ($1, $2, $3)
         on conflict (account_id) do update set token_hash = excluded.token_hash, created_at = excluded.created_at",
        account.0,
        hash(&token),
        now
    )
    .execute(conn)
    .await?;
    Ok(token)
}

/// Ends the link, if there is one.
pub async fn revoke(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<()> {
    sqlx::query!("delete from calendar_feeds where account_id = $1", account.0).execute(conn).await?;
    Ok(())
}

/// Since when there is a link.
pub async fn made_at(db: impl PgExecutor<'_>, account: AccountId) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!("select created_at from calendar_feeds where account_id = $1", account.0).fetch_optional(db).await
}

/// Whose feed it opens. Looked up by its hash, so how long that takes says nothing about other tokens.
pub async fn account_of(db: impl PgExecutor<'_>, token: &str) -> sqlx::Result<Option<AccountId>> {
    sqlx::query_scalar!(r#"select account_id as "account: AccountId" from calendar_feeds where token_hash = $1"#, hash(token))
        .fetch_optional(db)
        .await
}

fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token).to_vec()
}
