//! The bottle ledger: append-only entries whose sum is the balance. The SQL of `ledger`.

use std::collections::BTreeSet;
use std::collections::HashMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, EventId};
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
}

impl Why {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pro => "pro",
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

/// The allowance entries (Free and Pro) of these accounts: account → entry key → amount.
pub async fn allowances(
    conn: &mut PgConnection,
    accounts: &BTreeSet<AccountId>,
) -> sqlx::Result<HashMap<AccountId, HashMap<String, i64>>> {
    let accounts: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select account_id as "account: AccountId", entry_key, delta from ledger
           where account_id = any($1) and reason in ('free', 'pro')"#,
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
