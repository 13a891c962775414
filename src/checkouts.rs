//! What people set out to buy: the SQL of `checkouts`.
//!
//! A row is a wish and no purchase. It is written before the provider is asked, so that the same click, or the same wish in another
//! tab, finds it and is led to the same checkout. What was paid is told by events and stands elsewhere.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::interval;
use crate::domain::event::Source;
use crate::domain::ids::AccountId;
use crate::providers::Ware;

/// As long as a provider keeps a checkout open that nobody pays.
pub const OPEN_FOR: Duration = Duration::from_secs(DAY);
/// Packs of a person that can be paid at a time. Each is a call to the provider, and whoever buys needs one.
pub const PACKS_OPEN: i64 = 5;
/// Somebody may still have its page open.
const ENDED_FOR: Duration = Duration::from_secs(7 * DAY);
/// Longer than any payment takes.
const BEGUN_FOR: Duration = Duration::from_secs(90 * DAY);
/// Rows of one batch: it holds its locks for milliseconds.
const PRUNED_AT_ONCE: i64 = 500;
const DAY: u64 = 24 * 60 * 60;

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
    /// Before: by the same click, by another one for the same subscription, or by the last of as many packs as there may be.
    Before(Checkout),
}

/// Writes a wish down, or finds it. The caller holds the account's lock, so two wishes of one person are noted one after another.
///
/// Of Pro there is one open checkout a person: two could both be paid. Packs are bought as often as somebody clicks, but of those
/// that nobody has paid a person has no more than [`PACKS_OPEN`] a day: one more click leads to the newest of them.
///
/// # Errors
/// The database's; `RowNotFound` if the click is somebody else's, or was for something else.
pub async fn note(conn: &mut PgConnection, wish: Wish, now: OffsetDateTime) -> sqlx::Result<Noted> {
    // What stood in the way may end before it is looked for: ending takes no lock of the account's.
    for _ in 0..2 {
        if let Some(checkout) = begin(conn, wish, now).await? {
            return Ok(Noted::New(checkout));
        }
        if let Some(checkout) = before(conn, wish, now).await? {
            return Ok(Noted::Before(checkout));
        }
        if wish.ware == Ware::Pack
            && let Some(checkout) = newest_of_too_many(conn, wish, now).await?
        {
            return Ok(Noted::Before(checkout));
        }
    }
    Err(sqlx::Error::RowNotFound)
}

async fn begin(conn: &mut PgConnection, wish: Wish, now: OffsetDateTime) -> sqlx::Result<Option<Checkout>> {
    let row = sqlx::query_as!(
        Row,
        r#"insert into checkouts (id, account_id, source, ware, intent, begun_at)
           select $1, $2, $3, $4, $5, $6
           where $4 = 'pro' and not exists (
               select 1 from checkouts
               where account_id = $2 and source = $3 and ware = 'pro' and ended_at is null and begun_at > $7)
           or $4 = 'pack' and (
               select count(*) from checkouts c
               where c.account_id = $2 and c.source = $3 and c.ware = 'pack' and c.ended_at is null and c.begun_at > $7
                 and not exists (select 1 from purchases p where p.purchase_id = c.reference)) < $8
           on conflict (intent) where ended_at is null do nothing
           returning id, source, ware, reference, begun_at, ended_at is not null as "ended!""#,
        Uuid::new_v4(),
        wish.account.0,
        wish.source.as_str(),
        wish.ware.as_str(),
        wish.intent,
        now,
        now - OPEN_FOR,
        PACKS_OPEN
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::checkout).transpose()
}

/// The one of the same click, or of another click for the same subscription.
async fn before(conn: &mut PgConnection, wish: Wish, now: OffsetDateTime) -> sqlx::Result<Option<Checkout>> {
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
        now - OPEN_FOR
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::checkout).transpose()
}

/// The newest pack that is not bought, if there are as many of them as there may be.
async fn newest_of_too_many(conn: &mut PgConnection, wish: Wish, now: OffsetDateTime) -> sqlx::Result<Option<Checkout>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id!", source as "source!", ware as "ware!", reference as "reference?", begun_at as "begun_at!",
                  false as "ended!"
           from (select c.id, c.source, c.ware, c.reference, c.begun_at, count(*) over () as packs from checkouts c
                 where c.account_id = $1 and c.source = $2 and c.ware = 'pack' and c.ended_at is null and c.begun_at > $3
                   and not exists (select 1 from purchases p where p.purchase_id = c.reference)) o
           where packs >= $4 order by begun_at desc limit 1"#,
        wish.account.0,
        wish.source.as_str(),
        now - OPEN_FOR,
        PACKS_OPEN
    )
    .fetch_optional(conn)
    .await?;
    row.map(Row::checkout).transpose()
}

/// The provider has made it, and calls it this. False: it was ended meanwhile, so nobody may be sent there, since the next click
/// begins another.
pub async fn made(db: impl PgExecutor<'_>, id: Uuid, reference: &str) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "update checkouts set reference = $2 where id = $1 and reference is null and ended_at is null",
        id,
        reference
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// It can no longer be paid: the next click begins another.
pub async fn end(db: impl PgExecutor<'_>, id: Uuid, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update checkouts set ended_at = $2 where id = $1 and ended_at is null", id, now).execute(db).await?;
    Ok(())
}

/// It was not made, and the next click begins another; unless it was made after all, for then it can be paid.
pub async fn give_up(db: impl PgExecutor<'_>, id: Uuid, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update checkouts set ended_at = $2 where id = $1 and ended_at is null and reference is null", id, now)
        .execute(db)
        .await?;
    Ok(())
}

/// Forgets one batch of what nobody comes back to: what ended a while ago, and what was begun long ago. A pack that was bought
/// stays, so that its page can always say so. Says how many went.
pub async fn prune(conn: &mut PgConnection) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        "delete from checkouts where id in (
             select c.id from checkouts c
             where (c.ended_at < now() - $1::interval or c.begun_at < now() - $2::interval)
               and not exists (select 1 from purchases p where p.purchase_id = c.reference)
             limit $3 for update of c skip locked)",
        interval(ENDED_FOR),
        interval(BEGUN_FOR),
        PRUNED_AT_ONCE
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
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

/// The newest that this account may have paid by now: it leads to a provider's page, which can still be open.
pub async fn open(db: impl PgExecutor<'_>, account: AccountId, now: OffsetDateTime) -> sqlx::Result<Option<Checkout>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, source, ware, reference, begun_at, ended_at is not null as "ended!" from checkouts
           where account_id = $1 and ended_at is null and reference is not null and begun_at > $2::timestamptz - interval '1 day'
           order by begun_at desc limit 1"#,
        account.0,
        now
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
