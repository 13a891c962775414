//! The SQL of `facts`: reading an account's, replacing an event's.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;

use crate::domain::event::Source;
use crate::domain::fact::{Dated, Fact, LiveAgreement};
use crate::domain::ids::{AccountId, AgreementId, EventId, EventKey};
use crate::domain::instant::Instant;

use super::apply::Error;

/// The facts of these accounts, each in their total order.
pub async fn load(conn: &mut PgConnection, accounts: &BTreeSet<AccountId>) -> Result<HashMap<AccountId, Vec<Dated>>, Error> {
    let ids: Vec<i64> = accounts.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select event_id as "event: EventId", account_id as "account: AccountId", source, event_key as "key: EventKey", kind,
                  agreement as "agreement: AgreementId", plan_key, occurred_ns, effective_ns
           from facts where account_id = any($1) order by event_id, n"#,
        &ids
    )
    .fetch_all(conn)
    .await?;

    let mut by_account: HashMap<AccountId, Vec<Dated>> = HashMap::new();
    for row in rows {
        let source: Source = row.source.parse()?;
        let facts = by_account.entry(row.account).or_default();
        let plan_key = || row.plan_key.clone().ok_or(Error::UnreadableFact(row.event));
        let fact = match row.kind.as_str() {
            "start" => Fact::Start { agreement: row.agreement, plan_key: plan_key()?, changed: false },
            "change" => Fact::Start { agreement: row.agreement, plan_key: plan_key()?, changed: true },
            "end" => Fact::End { agreement: row.agreement, effective: row.effective_ns.map(Instant::from_nanos) },
            "paid" => Fact::Paid { agreement: row.agreement },
            "payment_failed" => Fact::PaymentFailed { agreement: row.agreement },
            "overdue" => Fact::Overdue { agreement: row.agreement },
            "opened" => Fact::Opened,
            "snapshot" => {
                let live = row.agreement.zip(row.plan_key).map(|(agreement, plan_key)| LiveAgreement { agreement, plan_key });
                // Further agreements of one answer are further rows of one event.
                if let Some(Dated { event, fact: Fact::Snapshot { live: listed }, .. }) = facts.last_mut()
                    && *event == row.event
                {
                    listed.extend(live);
                    continue;
                }
                Fact::Snapshot { live: live.into_iter().collect() }
            }
            _ => return Err(Error::UnreadableFact(row.event)),
        };
        facts.push(Dated { at: Instant::from_nanos(row.occurred_ns), source, event: row.event, key: row.key, fact });
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
    let rows = Rows::of(facts);
    sqlx::query!(
        r#"insert into facts (event_id, n, account_id, source, event_key, kind, agreement, plan_key, occurred_ns, effective_ns)
           select * from unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                                $9::bigint[], $10::bigint[])"#,
        &rows.event,
        &rows.n,
        &rows.account,
        &rows.source as &[&str],
        &rows.key as &[&str],
        &rows.kind as &[&str],
        &rows.agreement as &[Option<&str>],
        &rows.plan_key as &[Option<&str>],
        &rows.occurred,
        &rows.effective as &[Option<i64>]
    )
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(Default)]
struct Rows<'a> {
    event: Vec<i64>,
    n: Vec<i32>,
    account: Vec<i64>,
    source: Vec<&'a str>,
    key: Vec<&'a str>,
    kind: Vec<&'a str>,
    agreement: Vec<Option<&'a str>>,
    plan_key: Vec<Option<&'a str>>,
    occurred: Vec<i64>,
    effective: Vec<Option<i64>>,
}

impl<'a> Rows<'a> {
    fn of(facts: &'a [(AccountId, Dated)]) -> Self {
        let mut rows = Self::default();
        for (account, dated) in facts {
            let named = |a: &'a Option<AgreementId>| a.as_ref().map(AgreementId::as_str);
            match &dated.fact {
                Fact::Start { agreement, plan_key, changed } => {
                    let kind = if *changed { "change" } else { "start" };
                    rows.push(*account, dated, kind, named(agreement), Some(plan_key), None);
                }
                Fact::End { agreement, effective } => rows.push(*account, dated, "end", named(agreement), None, *effective),
                Fact::Paid { agreement } => rows.push(*account, dated, "paid", named(agreement), None, None),
                Fact::PaymentFailed { agreement } => {
                    rows.push(*account, dated, "payment_failed", named(agreement), None, None);
                }
                Fact::Overdue { agreement } => rows.push(*account, dated, "overdue", named(agreement), None, None),
                Fact::Opened => rows.push(*account, dated, "opened", None, None, None),
                Fact::Snapshot { live } if live.is_empty() => rows.push(*account, dated, "snapshot", None, None, None),
                Fact::Snapshot { live } => {
                    for item in live {
                        rows.push(*account, dated, "snapshot", Some(item.agreement.as_str()), Some(&item.plan_key), None);
                    }
                }
            }
        }
        rows
    }

    fn push(
        &mut self,
        account: AccountId,
        dated: &'a Dated,
        kind: &'a str,
        agreement: Option<&'a str>,
        plan_key: Option<&'a str>,
        effective: Option<Instant>,
    ) {
        let n = self.event.iter().rev().take_while(|e| **e == dated.event.0).count();
        self.event.push(dated.event.0);
        self.n.push(i32::try_from(n).unwrap_or(i32::MAX));
        self.account.push(account.0);
        self.source.push(dated.source.as_str());
        self.key.push(dated.key.as_str());
        self.kind.push(kind);
        self.agreement.push(agreement);
        self.plan_key.push(plan_key);
        self.occurred.push(dated.at.nanos());
        self.effective.push(effective.map(Instant::nanos));
    }
}
