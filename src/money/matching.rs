//! Movements to be set beside a provider's own books: by key, by charge, and by their time.

use std::collections::HashMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{AccountId, ChargeId};
use crate::domain::money::{Money, MoneyKind};

use super::word;

/// A movement as it stands in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub row: i64,
    pub account: AccountId,
    pub key: String,
    pub kind: MoneyKind,
    pub money: Money,
    pub reference: String,
}

/// The movements of these keys, by key.
///
/// # Errors
/// The database's.
pub async fn with_keys(conn: &mut PgConnection, keys: &[&str]) -> sqlx::Result<HashMap<String, Standing>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, account_id as "account: AccountId", movement_key as key, kind, amount_minor, currency,
                  provider_reference as reference
           from money_ledger where movement_key = any($1)"#,
        keys as &[&str]
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((row.key.clone(), row.standing()?))).collect()
}

/// Whose these charges are, as far as they are known.
///
/// # Errors
/// The database's.
pub async fn payers(conn: &mut PgConnection, charges: &[&str]) -> sqlx::Result<HashMap<ChargeId, AccountId>> {
    let rows = sqlx::query!(
        r#"select provider_reference as "charge: ChargeId", account_id as "account: AccountId" from money_ledger
           where provider_reference = any($1)"#,
        charges as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.charge, row.account)).collect())
}

/// Cash that moved within a span, in its order in time, `limit` movements after (time, row).
///
/// # Errors
/// The database's.
pub async fn between(
    conn: &mut PgConnection,
    after: (OffsetDateTime, i64),
    until: OffsetDateTime,
    limit: i64,
) -> sqlx::Result<Vec<(OffsetDateTime, Standing)>> {
    let rows = sqlx::query!(
        r#"select id, account_id as "account: AccountId", movement_key as key, kind, amount_minor, currency,
                  provider_reference as reference, occurred_at
           from money_ledger where (occurred_at, id) > ($1, $2) and occurred_at < $3 and kind <> 'credit'
           order by occurred_at, id limit $4"#,
        after.0,
        after.1,
        until,
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let at = row.occurred_at;
            let (id, account, key, reference) = (row.id, row.account, row.key, row.reference);
            let row = Row { id, account, key, kind: row.kind, amount_minor: row.amount_minor, currency: row.currency, reference };
            Ok((at, row.standing()?))
        })
        .collect()
}

struct Row {
    id: i64,
    account: AccountId,
    key: String,
    kind: String,
    amount_minor: i64,
    currency: String,
    reference: String,
}

impl Row {
    fn standing(self) -> sqlx::Result<Standing> {
        Ok(Standing {
            row: self.id,
            account: self.account,
            key: self.key,
            kind: word(&self.kind)?,
            money: Money { minor: self.amount_minor, currency: word(&self.currency)? },
            reference: self.reference,
        })
    }
}
