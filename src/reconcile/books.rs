//! The provider's books as a run has copied them. The SQL of `reconcile_books`.

use std::collections::HashSet;

use sqlx::PgConnection;

use crate::domain::event::Source;
use crate::domain::ids::{ChargeId, CustomerId};
use crate::domain::money::Money;
use crate::providers::listing::Booking;

use super::runs::RunId;

/// Rows that one statement deletes.
pub(super) const BATCH: i64 = 10_000;

/// Rows that are there already stay as they are: a page may be read again after a crash.
pub async fn copy(conn: &mut PgConnection, run: RunId, source: Source, rows: &[Booking]) -> sqlx::Result<()> {
    let of = |pick: fn(&Booking) -> &str| rows.iter().map(pick).collect::<Vec<_>>();
    let customers: Vec<Option<&str>> = rows.iter().map(|row| row.customer.as_ref().map(CustomerId::as_str)).collect();
    let charges: Vec<Option<&str>> = rows.iter().map(|row| row.charge.as_ref().map(ChargeId::as_str)).collect();
    let amounts: Vec<i64> = rows.iter().map(|row| row.money.minor).collect();
    let marked: Vec<bool> = rows.iter().map(|row| row.marked).collect();
    sqlx::query!(
        "insert into reconcile_books (run_id, source, entry, movement_key, kind, amount_minor, currency, customer, charge, marked)
         select $1, $2, e, k, t, a, c, u, h, m
         from unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bool[])
              as n (e, k, t, a, c, u, h, m)
         on conflict do nothing",
        run.0,
        source.as_str(),
        &of(|row| &row.entry) as &[&str],
        &of(|row| &row.key) as &[&str],
        &of(|row| row.kind.as_str()) as &[&str],
        &amounts,
        &of(|row| row.money.currency.as_str()) as &[&str],
        &customers as &[Option<&str>],
        &charges as &[Option<&str>],
        &marked
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Rows in the order of their ids, `limit` of them after `after`.
pub async fn page(conn: &mut PgConnection, run: RunId, source: Source, after: &str, limit: i64) -> sqlx::Result<Vec<Booking>> {
    let rows = sqlx::query!(
        r#"select entry, movement_key as key, kind, amount_minor, currency, customer as "customer: CustomerId",
                  charge as "charge: ChargeId", marked
           from reconcile_books where run_id = $1 and source = $2 and entry > $3 order by entry limit $4"#,
        run.0,
        source.as_str(),
        after,
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Booking {
                entry: row.entry,
                key: row.key,
                kind: row.kind.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
                money: Money {
                    minor: row.amount_minor,
                    currency: row.currency.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
                },
                customer: row.customer,
                charge: row.charge,
                marked: row.marked,
            })
        })
        .collect()
}

/// Which of these movements are in the copy.
pub async fn holding(conn: &mut PgConnection, run: RunId, keys: &[&str]) -> sqlx::Result<HashSet<String>> {
    let found = sqlx::query_scalar!(
        "select movement_key from reconcile_books where run_id = $1 and movement_key = any($2)",
        run.0,
        keys as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(found.into_iter().collect())
}

/// A batch at a time; safe to stop anywhere and to do again.
pub async fn forget(conn: &mut PgConnection, run: RunId) -> sqlx::Result<()> {
    loop {
        let gone = sqlx::query!(
            "delete from reconcile_books where ctid = any (array(select ctid from reconcile_books where run_id = $1 limit $2))",
            run.0,
            BATCH
        )
        .execute(&mut *conn)
        .await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
    }
}
