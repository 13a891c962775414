//! The money ledger: what each account paid, got back and had disputed. The SQL of `money_ledger` and `purchases`.
//!
//! A movement is a row, written once and never changed; what it means for bottles or plans is no business of this room. Sums are
//! made per currency, in whole minor units, and nothing is ever converted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, ChargeId, EventId, PurchaseId};
use crate::domain::instant::Instant;
use crate::domain::money::{Currency, Money, MoneyKind, Movement};

pub mod bills;
pub mod export;
pub mod matching;

/// A movement of an account's money and the event that told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub account: AccountId,
    pub event: EventId,
    pub movement: Movement,
}

/// A pack that was bought once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purchase {
    pub id: PurchaseId,
    pub bottles: i64,
    /// None: there was nothing to pay.
    pub charge: Option<ChargeId>,
    /// At the provider, to the second.
    pub paid_at: Instant,
    pub refunded_minor: i64,
    pub disputed: Option<String>,
}

/// What is in the ledger about one movement: enough to tell whether it is the same.
pub type Known = HashMap<String, (MoneyKind, Money)>;

/// A row of an account's statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub id: i64,
    pub kind: MoneyKind,
    pub money: Money,
    pub reference: String,
    pub charge: Option<ChargeId>,
    pub event: EventId,
    pub occurred_at: OffsetDateTime,
}

/// What came and went in one currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    pub currency: Currency,
    pub by_kind: BTreeMap<MoneyKind, i128>,
}

impl Total {
    /// What the customer has paid us and not got back. Credit is no cash.
    pub fn paid(&self) -> i128 {
        self.by_kind.iter().filter(|(kind, _)| kind.is_cash()).map(|(_, sum)| sum).sum()
    }
}

/// The movements these accounts' ledgers hold.
pub async fn known(conn: &mut PgConnection, accounts: &BTreeSet<AccountId>) -> sqlx::Result<HashMap<AccountId, Known>> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select account_id as "account: AccountId", movement_key, kind, amount_minor, currency from money_ledger
           where account_id = any($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let mut by_account: HashMap<AccountId, Known> = HashMap::new();
    for row in rows {
        let money = Money { minor: row.amount_minor, currency: word(&row.currency)? };
        by_account.entry(row.account).or_default().insert(row.movement_key, (word(&row.kind)?, money));
    }
    Ok(by_account)
}

/// The movements of these keys, whoever's ledger they are in.
pub async fn with_keys(conn: &mut PgConnection, keys: &[&str]) -> sqlx::Result<Known> {
    let rows = sqlx::query!(
        "select movement_key, kind, amount_minor, currency from money_ledger where movement_key = any($1)",
        keys as &[&str]
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let money = Money { minor: row.amount_minor, currency: word(&row.currency)? };
            Ok((row.movement_key, (word(&row.kind)?, money)))
        })
        .collect()
}

/// Which events told of an account's movements and purchases: movement key or purchase id → event.
pub async fn told_by(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<HashMap<String, EventId>> {
    let rows = sqlx::query!(
        r#"select movement_key as "key!", event_id as "event!: EventId" from money_ledger where account_id = $1
           union all
           select purchase_id, event_id from purchases where account_id = $1"#,
        account.0
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.key, row.event)).collect())
}

/// Appends movements; one whose key is already there writes nothing. Returns how many were new.
pub async fn append(conn: &mut PgConnection, entries: &[Entry], now: OffsetDateTime) -> sqlx::Result<u64> {
    let of = |pick: fn(&Entry) -> String| entries.iter().map(pick).collect::<Vec<_>>();
    let accounts: Vec<i64> = entries.iter().map(|e| e.account.0).collect();
    let amounts: Vec<i64> = entries.iter().map(|e| e.movement.money.minor).collect();
    let charges: Vec<Option<&str>> = entries.iter().map(|e| e.movement.charge.as_ref().map(ChargeId::as_str)).collect();
    let events: Vec<i64> = entries.iter().map(|e| e.event.0).collect();
    let occurred: Vec<OffsetDateTime> = entries.iter().map(|e| e.movement.occurred.datetime()).collect();
    let done = sqlx::query!(
        r#"insert into money_ledger (account_id, kind, amount_minor, currency, provider_reference, charge, movement_key, event_id,
                                     occurred_at, created_at)
           select a, k, m, c, r, h, y, e, o, $10
           from unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                       $9::timestamptz[]) as n (a, k, m, c, r, h, y, e, o)
           order by y
           on conflict (movement_key) do nothing"#,
        &accounts,
        &of(|e| e.movement.kind.as_str().to_owned()),
        &amounts,
        &of(|e| e.movement.money.currency.as_str().to_owned()),
        &of(|e| e.movement.reference.clone()),
        &charges as &[Option<&str>],
        &of(|e| e.movement.key.clone()),
        &events,
        &occurred,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// The purchases of these accounts.
pub async fn purchases(
    conn: &mut PgConnection,
    accounts: &BTreeSet<AccountId>,
) -> sqlx::Result<HashMap<AccountId, HashMap<PurchaseId, Purchase>>> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query_as!(
        Bought,
        r#"select account_id as "account: AccountId", purchase_id as "id: PurchaseId", bottles, charge as "charge: ChargeId",
                  paid_at, refunded_minor, disputed
           from purchases where account_id = any($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let mut by_account: HashMap<AccountId, HashMap<PurchaseId, Purchase>> = HashMap::new();
    for row in rows {
        by_account.entry(row.account).or_default().insert(row.id.clone(), row.purchase());
    }
    Ok(by_account)
}

/// The purchases of these ids, whoever's they are.
pub async fn purchases_with_ids(conn: &mut PgConnection, ids: &[&str]) -> sqlx::Result<HashMap<PurchaseId, Purchase>> {
    let rows = sqlx::query_as!(
        Bought,
        r#"select account_id as "account: AccountId", purchase_id as "id: PurchaseId", bottles, charge as "charge: ChargeId",
                  paid_at, refunded_minor, disputed
           from purchases where purchase_id = any($1)"#,
        ids as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id.clone(), row.purchase())).collect())
}

/// A row of `purchases`.
struct Bought {
    account: AccountId,
    id: PurchaseId,
    bottles: i64,
    charge: Option<ChargeId>,
    paid_at: OffsetDateTime,
    refunded_minor: i64,
    disputed: Option<String>,
}

impl Bought {
    fn purchase(self) -> Purchase {
        let paid_at = Instant::from_datetime(self.paid_at);
        let Self { id, bottles, charge, refunded_minor, disputed, .. } = self;
        Purchase { id, bottles, charge, paid_at, refunded_minor, disputed }
    }
}

/// Writes purchases that are new, and stamps those whose refunds or dispute moved on.
pub async fn stamp(conn: &mut PgConnection, purchases: &[(AccountId, EventId, Purchase)]) -> sqlx::Result<()> {
    let accounts: Vec<i64> = purchases.iter().map(|(a, ..)| a.0).collect();
    let events: Vec<i64> = purchases.iter().map(|(_, e, _)| e.0).collect();
    let ids: Vec<&str> = purchases.iter().map(|(.., p)| p.id.as_str()).collect();
    let bottles: Vec<i64> = purchases.iter().map(|(.., p)| p.bottles).collect();
    let charges: Vec<Option<&str>> = purchases.iter().map(|(.., p)| p.charge.as_ref().map(ChargeId::as_str)).collect();
    let paid: Vec<OffsetDateTime> = purchases.iter().map(|(.., p)| p.paid_at.datetime()).collect();
    let refunded: Vec<i64> = purchases.iter().map(|(.., p)| p.refunded_minor).collect();
    let disputed: Vec<Option<&str>> = purchases.iter().map(|(.., p)| p.disputed.as_deref()).collect();
    sqlx::query!(
        r#"insert into purchases (purchase_id, account_id, bottles, charge, paid_at, refunded_minor, disputed, event_id)
           select p, a, b, c, t, r, d, e
           from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[], $6::bigint[], $7::text[],
                       $8::bigint[]) as n (p, a, b, c, t, r, d, e)
           order by p
           on conflict (purchase_id) do update set refunded_minor = excluded.refunded_minor, disputed = excluded.disputed"#,
        &ids as &[&str],
        &accounts,
        &bottles,
        &charges as &[Option<&str>],
        &paid,
        &refunded,
        &disputed as &[Option<&str>],
        &events
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What was given back of these charges and stayed given, whoever's they are.
pub async fn refunded(conn: &mut PgConnection, charges: &[&str]) -> sqlx::Result<HashMap<ChargeId, i64>> {
    let rows = sqlx::query!(
        r#"select charge as "charge!: ChargeId", sum(-amount_minor)::bigint as "sum!" from money_ledger
           where charge = any($1) and kind in ('refund', 'refund_failed') group by charge"#,
        charges as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.charge, row.sum)).collect())
}

/// An account's movements, newest first, `limit` of them before the row `before`.
pub async fn statement(db: impl PgExecutor<'_>, account: AccountId, before: Option<i64>, limit: i64) -> sqlx::Result<Vec<Line>> {
    let rows = sqlx::query_as!(
        Moved,
        r#"select id, kind, amount_minor, currency, provider_reference as reference, charge as "charge: ChargeId",
                  event_id as "event: EventId", occurred_at
           from money_ledger where account_id = $1 and ($2::bigint is null or id < $2) order by id desc limit $3"#,
        account.0,
        before,
        limit
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Moved::line).collect()
}

/// A row of `money_ledger`.
struct Moved {
    id: i64,
    kind: String,
    amount_minor: i64,
    currency: String,
    reference: String,
    charge: Option<ChargeId>,
    event: EventId,
    occurred_at: OffsetDateTime,
}

impl Moved {
    fn line(self) -> sqlx::Result<Line> {
        let money = Money { minor: self.amount_minor, currency: word(&self.currency)? };
        let Self { id, kind, reference, charge, event, occurred_at, .. } = self;
        Ok(Line { id, kind: word(&kind)?, money, reference, charge, event, occurred_at })
    }
}

/// The movements of an account that one event told of first, oldest first.
pub async fn of_event(db: impl PgExecutor<'_>, account: AccountId, event: EventId) -> sqlx::Result<Vec<Line>> {
    let rows = sqlx::query_as!(
        Moved,
        r#"select id, kind, amount_minor, currency, provider_reference as reference, charge as "charge: ChargeId",
                  event_id as "event: EventId", occurred_at
           from money_ledger where event_id = $2 and account_id = $1 order by id"#,
        account.0,
        event.0
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Moved::line).collect()
}

/// What an account's movements come to, one total a currency.
pub async fn totals(db: impl PgExecutor<'_>, account: AccountId) -> sqlx::Result<Vec<Total>> {
    // A sum of bigints is a numeric, which no i64 holds for sure.
    let rows = sqlx::query!(
        r#"select currency, kind, sum(amount_minor)::text as "sum!" from money_ledger where account_id = $1
           group by currency, kind order by currency"#,
        account.0
    )
    .fetch_all(db)
    .await?;
    let mut totals: BTreeMap<Currency, BTreeMap<MoneyKind, i128>> = BTreeMap::new();
    for row in rows {
        totals.entry(word(&row.currency)?).or_default().insert(word(&row.kind)?, word(&row.sum)?);
    }
    Ok(totals.into_iter().map(|(currency, by_kind)| Total { currency, by_kind }).collect())
}

fn word<T>(text: &str) -> sqlx::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
