//! What was bought once, as its owner reads it, and the stamps of what became of it. The rest of the SQL of `purchases` is in `money`.

use std::collections::BTreeSet;

use sqlx::{PgConnection, PgExecutor};

use super::{Bought, Purchase, word};
use crate::domain::ids::{AccountId, ChargeId, EventId, PurchaseId};
use crate::domain::money::Money;

/// A purchase as its owner reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    pub purchase: Purchase,
    /// None: there was nothing to pay.
    pub price: Option<Money>,
    pub event: EventId,
}

/// An account's last purchases, newest first.
pub async fn of(db: impl PgExecutor<'_>, account: AccountId, limit: i64) -> sqlx::Result<Vec<Bill>> {
    let rows = sqlx::query!(
        r#"select p.account_id as "account: AccountId", p.purchase_id as "id: PurchaseId", p.bottles, p.charge as "charge: ChargeId",
                  p.paid_at, p.refunded_minor, p.disputed, p.event_id as "event: EventId", m.amount_minor as "amount?",
                  m.currency as "currency?"
           from purchases p left join money_ledger m on m.account_id = p.account_id and m.charge = p.charge and m.kind = 'charge'
           where p.account_id = $1 order by p.paid_at desc, p.purchase_id limit $2"#,
        account.0,
        limit
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            let currency = row.currency.as_deref().map(word).transpose()?;
            let price = row.amount.zip(currency).map(|(minor, currency)| Money { minor, currency });
            let bought = Bought {
                account: row.account,
                id: row.id,
                bottles: row.bottles,
                charge: row.charge,
                paid_at: row.paid_at,
                refunded_minor: row.refunded_minor,
                disputed: row.disputed,
            };
            Ok(Bill { purchase: bought.purchase(), price, event: row.event })
        })
        .collect()
}

/// Locks the purchases that these charges paid, whoever's they are, until the transaction ends.
pub async fn lock(conn: &mut PgConnection, charges: &BTreeSet<ChargeId>) -> sqlx::Result<Vec<Purchase>> {
    let charges: Vec<&str> = charges.iter().map(ChargeId::as_str).collect();
    let rows = sqlx::query_as!(
        Bought,
        r#"select account_id as "account: AccountId", purchase_id as "id: PurchaseId", bottles, charge as "charge: ChargeId",
                  paid_at, refunded_minor, disputed
           from purchases where charge = any($1) order by purchase_id for update"#,
        &charges as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Bought::purchase).collect())
}

/// Stamps purchases that are there.
pub async fn renew(conn: &mut PgConnection, purchases: &[Purchase]) -> sqlx::Result<()> {
    let ids: Vec<&str> = purchases.iter().map(|p| p.id.as_str()).collect();
    let refunded: Vec<i64> = purchases.iter().map(|p| p.refunded_minor).collect();
    let disputed: Vec<Option<&str>> = purchases.iter().map(|p| p.disputed.as_deref()).collect();
    sqlx::query!(
        r#"update purchases p set refunded_minor = n.r, disputed = n.d
           from unnest($1::text[], $2::bigint[], $3::text[]) as n (id, r, d)
           where p.purchase_id = n.id and (p.refunded_minor, p.disputed) is distinct from (n.r, n.d)"#,
        &ids as &[&str],
        &refunded,
        &disputed as &[Option<&str>]
    )
    .execute(conn)
    .await?;
    Ok(())
}
