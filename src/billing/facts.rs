//! The SQL of `facts`: reading an account's, replacing an event's. `rows` says how a fact is written as a row.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;

use crate::domain::event::Source;
use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::{AccountId, AgreementId, ChargeId, EventId, EventKey};
use crate::domain::instant::Instant;

use super::apply::Error;

mod rows;

use rows::{Columns, Row};

/// The facts of these accounts, each in their total order.
pub async fn load(conn: &mut PgConnection, accounts: &BTreeSet<AccountId>) -> Result<HashMap<AccountId, Vec<Dated>>, Error> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select event_id as "event: EventId", account_id as "account: AccountId", source, event_key as "key: EventKey", kind,
                  agreement as "agreement: AgreementId", plan_key, occurred_ns, effective_ns, object, began_ns, bottles,
                  amount_minor, currency, word, reference, charge as "charge: ChargeId"
           from facts where account_id = any($1) order by event_id, n"#,
        &ids
    )
    .fetch_all(conn)
    .await?;

    let mut by_account: HashMap<AccountId, Vec<Dated>> = HashMap::new();
    for row in rows {
        let source: Source = row.source.parse()?;
        let facts = by_account.entry(row.account).or_default();
        // Further agreements of one answer are further rows of one event.
        if row.kind == "snapshot"
            && let Some(Dated { event, fact: Fact::Snapshot { live: listed }, .. }) = facts.last_mut()
            && *event == row.event
        {
            listed.extend(row.live());
            continue;
        }
        let (at, event, key) = (Instant::from_nanos(row.occurred_ns), row.event, row.key.clone());
        let fact = row.fact().ok_or(Error::UnreadableFact(event))?;
        facts.push(Dated { at, source, event, key, fact });
    }
    for facts in by_account.values_mut() {
        facts.sort_by(|a, b| a.order().cmp(&b.order()));
    }
    Ok(by_account)
}

/// The accounts at which facts of these events are stored.
pub async fn homes(conn: &mut PgConnection, events: &[EventId]) -> Result<HashMap<EventId, AccountId>, Error> {
    let ids: Vec<i64> = events.iter().map(|e| e.0).collect();
    let rows = sqlx::query!(
        r#"select event_id as "event: EventId", account_id as "account: AccountId" from facts where event_id = any($1) and n = 0"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.event, row.account)).collect())
}

/// How the disputes about these charges stand by the newest answer, whoever's they are.
pub async fn disputes(conn: &mut PgConnection, charges: &[&str]) -> sqlx::Result<HashMap<ChargeId, String>> {
    let rows = sqlx::query!(
        r#"select distinct on (charge) charge as "charge!: ChargeId", word as "word!" from facts
           where kind = 'dispute' and charge = any($1) order by charge, occurred_ns desc, event_key desc, n desc"#,
        charges as &[&str]
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.charge, row.word)).collect())
}

/// Whether an account has at most this many facts.
pub async fn at_most(conn: &mut PgConnection, account: AccountId, limit: i64) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select count(*) as "n!" from (select 1 from facts where account_id = $1 limit $2) f"#,
        account.0,
        limit.saturating_add(1)
    )
    .fetch_one(conn)
    .await?;
    Ok(found <= limit)
}

/// Replaces the facts of these events by `facts`.
pub async fn replace(conn: &mut PgConnection, stale: &[EventId], facts: &[(AccountId, Dated)]) -> Result<(), Error> {
    if !stale.is_empty() {
        let ids: Vec<i64> = stale.iter().map(|e| e.0).collect();
        sqlx::query!("delete from facts where event_id = any($1)", &ids).execute(&mut *conn).await?;
    }
    if facts.is_empty() {
        return Ok(());
    }
    let rows = Columns::of(facts);
    sqlx::query!(
        r#"insert into facts (event_id, n, account_id, source, event_key, kind, agreement, plan_key, occurred_ns, effective_ns,
                              object, began_ns, bottles, amount_minor, currency, word, reference, charge)
           select * from unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                                $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[],
                                $16::text[], $17::text[], $18::text[])"#,
        &rows.event,
        &rows.n,
        &rows.account,
        &rows.source as &[&str],
        &rows.key as &[&str],
        &rows.kind as &[&str],
        &rows.agreement as &[Option<&str>],
        &rows.plan_key as &[Option<&str>],
        &rows.occurred,
        &rows.effective as &[Option<i64>],
        &rows.object as &[Option<&str>],
        &rows.began as &[Option<i64>],
        &rows.bottles as &[Option<i64>],
        &rows.amount as &[Option<i64>],
        &rows.currency as &[Option<&str>],
        &rows.word as &[Option<&str>],
        &rows.reference as &[Option<&str>],
        &rows.charge as &[Option<&str>]
    )
    .execute(conn)
    .await?;
    Ok(())
}
