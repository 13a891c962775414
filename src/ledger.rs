//! The bottle ledger: append-only entries whose sum is the balance. The SQL of `ledger`.

use std::collections::BTreeSet;
use std::collections::HashMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, EventId, PurchaseId, ReminderId};
use crate::domain::period::Period;
use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE};

/// One entry. The key says which business fact it is for: writing it twice writes it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub account: AccountId,
    pub period: Period,
    pub delta: i64,
    pub reason: Why,
    pub key: String,
    pub event: Option<EventId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Free,
    Pro,
    /// Bought once.
    Pack,
    /// A reminder took it.
    Spend,
    /// A reminder that was never sent gave it back.
    Return,
}

impl Why {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pro => "pro",
            Self::Pack => "pack",
            Self::Spend => "spend",
            Self::Return => "return",
        }
    }
}

/// The ten bottles of a period.
pub fn free_entry(account: AccountId, period: Period, event: Option<EventId>) -> Entry {
    Entry { account, period, delta: FREE_BOTTLES, reason: Why::Free, key: format!("free:{account}:{period}"), event }
}

/// What Pro adds to a period. Keyed by account and month, never by the event: two events that mean one grant write one.
pub fn pro_entry(account: AccountId, period: Period, event: Option<EventId>) -> Entry {
    Entry { account, period, delta: PRO_BOTTLES_MORE, reason: Why::Pro, key: format!("pro:{account}:{period}"), event }
}

/// The bottle that the `n`th occurrence of a reminder takes.
pub fn spend_entry(account: AccountId, period: Period, reminder: ReminderId, n: i32) -> Entry {
    Entry { account, period, delta: -1, reason: Why::Spend, key: format!("spend:{reminder}:{n}"), event: None }
}

/// The same bottle, back where it came from.
pub fn return_entry(account: AccountId, period: Period, reminder: ReminderId, n: i32) -> Entry {
    Entry { account, period, delta: 1, reason: Why::Return, key: format!("return:{reminder}:{n}"), event: None }
}

/// The bottles of a pack, in the month in which it was paid. Keyed by the purchase, whoever tells of it.
pub fn pack_entry(account: AccountId, purchase: &PurchaseId, period: Period, bottles: i64, event: Option<EventId>) -> Entry {
    Entry { account, period, delta: bottles, reason: Why::Pack, key: pack_key(purchase), event }
}

pub fn pack_key(purchase: &PurchaseId) -> String {
    format!("pack:{purchase}")
}

/// The granted entries (Free, Pro, packs) of these accounts: account → entry key → amount.
pub async fn allowances(
    conn: &mut PgConnection,
    accounts: &BTreeSet<AccountId>,
) -> sqlx::Result<HashMap<AccountId, HashMap<String, i64>>> {
    let accounts: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select account_id as "account: AccountId", entry_key, delta from ledger
           where account_id = any($1) and reason in ('free', 'pro', 'pack')"#,
        &accounts
    )
    .fetch_all(conn)
    .await?;
    let mut by_account: HashMap<AccountId, HashMap<String, i64>> = HashMap::new();
    for row in rows {
        by_account.entry(row.account).or_default().insert(row.entry_key, row.delta);
    }
    Ok(by_account)
}

/// The entries of these keys, whoever's they are: key → amount.
pub async fn with_keys(conn: &mut PgConnection, keys: &[String]) -> sqlx::Result<HashMap<String, i64>> {
    let rows = sqlx::query!("select entry_key, delta from ledger where entry_key = any($1)", keys).fetch_all(conn).await?;
    Ok(rows.into_iter().map(|row| (row.entry_key, row.delta)).collect())
}

/// Which events brought an account's entries of Pro and of packs about: entry key → event.
pub async fn granted_by(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<HashMap<String, EventId>> {
    let rows = sqlx::query!(
        r#"select entry_key, event_id as "event!: EventId" from ledger
           where account_id = $1 and reason in ('free', 'pro', 'pack') and event_id is not null"#,
        account.0
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.entry_key, row.event)).collect())
}

/// Appends entries; one whose key is already there writes nothing. Returns how many were new.
pub async fn append(conn: &mut PgConnection, entries: &[Entry], now: OffsetDateTime) -> sqlx::Result<u64> {
    let mut accounts = Vec::new();
    let mut periods = Vec::new();
    let mut deltas = Vec::new();
    let mut reasons = Vec::new();
    let mut keys = Vec::new();
    let mut events = Vec::new();
    for entry in entries {
        accounts.push(entry.account.0);
        periods.push(entry.period.to_string());
        deltas.push(entry.delta);
        reasons.push(entry.reason.as_str().to_owned());
        keys.push(entry.key.clone());
        events.push(entry.event.map(|e| e.0));
    }
    let done = sqlx::query!(
        r#"insert into ledger (account_id, period, delta, reason, entry_key, event_id, created_at)
           select a, p, d, r, k, e, $7
           from unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[]) as n (a, p, d, r, k, e)
           order by k
           on conflict (entry_key) do nothing"#,
        &accounts,
        &periods,
        &deltas,
        &reasons,
        &keys,
        &events as &[Option<i64>],
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// An entry as its owner reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub id: i64,
    pub delta: i64,
    /// `free`, `pro` and whatever else the ledger has reasons for.
    pub reason: String,
    pub key: String,
    pub event: Option<EventId>,
    pub created_at: OffsetDateTime,
}

/// The entries of one account and period, newest first: the next `limit` that are older than `before`. A month's entries are
/// few, so they are sorted; `id + 0` keeps a plan from walking everybody's entries in their order instead.
pub async fn lines(
    conn: &mut PgConnection,
    account: AccountId,
    period: Period,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<Vec<Line>> {
    sqlx::query_as!(
        Line,
        r#"select id, delta, reason, entry_key as key, event_id as "event: EventId", created_at from ledger
           where account_id = $1 and period = $2 and ($3::bigint is null or id < $3)
           order by id + 0 desc limit $4"#,
        account.0,
        period.to_string(),
        before,
        limit
    )
    .fetch_all(conn)
    .await
}

/// The last `limit` periods in which the account has entries, newest first. Each is one look into the index, however many
/// entries it has.
pub async fn periods(conn: &mut PgConnection, account: AccountId, limit: i64) -> sqlx::Result<Vec<Period>> {
    let rows = sqlx::query_scalar!(
        r#"with recursive seen as (
               (select period, 1 as n from ledger where account_id = $1 order by period desc limit 1)
               union all
               select (select l.period from ledger l where l.account_id = $1 and l.period < s.period order by l.period desc limit 1),
                      s.n + 1
               from seen s where s.period is not null and s.n < $2
           )
           select period as "period!" from seen where period is not null"#,
        account.0,
        i32::try_from(limit).unwrap_or(i32::MAX)
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.iter().filter_map(|period| period.parse().ok()).collect())
}

/// What the entries of one period come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// All of them.
    pub left: i64,
    /// Spent, less what came back.
    pub used: i64,
    pub has_free: bool,
    pub has_pro: bool,
}

pub async fn sums(conn: &mut PgConnection, account: AccountId, period: Period) -> sqlx::Result<Sums> {
    sqlx::query_as!(
        Sums,
        r#"select coalesce(sum(delta), 0)::bigint as "left!",
                  coalesce(-sum(delta) filter (where reason in ('spend', 'return')), 0)::bigint as "used!",
                  coalesce(bool_or(reason = 'free'), false) as "has_free!",
                  coalesce(bool_or(reason = 'pro'), false) as "has_pro!"
           from ledger where account_id = $1 and period = $2"#,
        account.0,
        period.to_string()
    )
    .fetch_one(conn)
    .await
}

/// The bottles left of a period: the sum of its entries.
pub async fn balance(conn: &mut PgConnection, account: AccountId, period: Period) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select coalesce(sum(delta), 0)::bigint as "sum!" from ledger where account_id = $1 and period = $2"#,
        account.0,
        period.to_string()
    )
    .fetch_one(conn)
    .await
}
