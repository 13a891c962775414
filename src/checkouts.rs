//! What people set out to buy: the SQL of `checkouts`.
//!
//! A row is a wish and no purchase. It is written before the provider is asked, so that the same click, or the same wish in another
//! tab, finds it and is led to the same checkout. What was paid is told by events and stands elsewhere.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::event::Source;
use crate::domain::ids::AccountId;
use crate::providers::Ware;

/// As long as a provider keeps a checkout open that nobody pays.
pub const OPEN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    pub id: Uuid,
    pub source: Source,
    pub ware: Ware,
    /// What the provider calls it; none while it is being made.
    pub reference: Option<String>,
    pub begun_at: OffsetDateTime,
    pub ended: bool,
}

/// What somebody wants to buy, and by which click.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub account: AccountId,
    pub source: Source,
    pub ware: Ware,
    pub intent: Uuid,
}

/// A wish that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// Just now: nobody has asked the provider for it yet.
    New(Checkout),
    /// Before, by the same click or by another one for the same subscription.
    Before(Checkout),
}

/// Writes a wish down, or finds it. The caller holds the account's lock, so two wishes of one person are noted one after another.
///
/// Packs are bought as often as somebody clicks. Of Pro there is one open checkout a person: two could both be paid.
///
/// # Errors
/// The database's; `RowNotFound` if the click is somebody else's, or was for something else.
pub async fn note(conn: &mut PgConnection, wish: Wish, now: OffsetDateTime) -> sqlx::Result<Noted> {
    let open_since = now - OPEN_FOR;
    let row = sqlx::query_as!(
        Row,
        r#"insert into checkouts (id, account_id, source, ware, intent, begun_at)
           select $1, $2, $3, $4, $5, $6
           where $4 <> 'pro' or not exists (
               select 1 from checkouts
               where account_id = $2 and source = $3 and ware = 'pro' and ended_at is null and begun_at > $7)
           on conflict (intent) where ended_at is null do nothing
           returning id, source, ware, reference, begun_at, ended_at is not null as "ended!""#,
        Uuid::new_v4(),
        wish.account.0,
        wish.source.as_str(),
        wish.ware.as_str(),
        wish.intent,
        now,
        open_since
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(row) = row {
        return Ok(Noted::New(row.checkout()?));
    }
    let row = sqlx::query_as!(
        Row,
        r#"select id, source, ware, reference, begun_at, ended_at is not null as "ended!" from checkouts
           where account_id = $1 and source = $2 and ware = $3 and ended_at is null
             and (intent = $4 or ware = 'pro' and begun_at > $5)
           order by begun_at desc limit 1"#,
        wish.account.0,
        wish.source.as_str(),
        wish.ware.as_str(),
        wish.intent,
        open_since
    )
    .fetch_one(conn)
    .await?;
    Ok(Noted::Before(row.checkout()?))
}

/// The provider has made it, and calls it this.
pub async fn made(db: impl PgExecutor<'_>, id: Uuid, reference: &str) -> sqlx::Result<()> {
    sqlx::query!("update checkouts set reference = $2 where id = $1 and reference is null", id, reference).execute(db).await?;
    Ok(())
}

/// It was not made, or can no longer be paid: the next click begins another.
pub async fn end(db: impl PgExecutor<'_>, id: Uuid, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update checkouts set ended_at = $2 where id = $1 and ended_at is null", id, now).execute(db).await?;
    Ok(())
}

/// One of this account's; nobody else's.
pub async fn of(db: impl PgExecutor<'_>, account: AccountId, id: Uuid) -> sqlx::Result<Option<Checkout>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, source, ware, reference, begun_at, ended_at is not null as "ended!" from checkouts
           where id = $1 and account_id = $2"#,
        id,
        account.0
    )
    .fetch_optional(db)
    .await?;
    row.map(Row::checkout).transpose()
}

struct Row {
    id: Uuid,
    source: String,
    ware: String,
    reference: Option<String>,
    begun_at: OffsetDateTime,
    ended: bool,
}

impl Row {
    fn checkout(self) -> sqlx::Result<Checkout> {
        let source = self.source.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let ware = Ware::find(&self.ware).ok_or_else(|| sqlx::Error::Decode(format!("no ware `{}`", self.ware).into()))?;
        let Self { id, reference, begun_at, ended, .. } = self;
        Ok(Checkout { id, source, ware, reference, begun_at, ended })
    }
}
