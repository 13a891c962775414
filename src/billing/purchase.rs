//! How far something has come that somebody set out to buy: what events have told of it by now. Reads only, and only what is the
//! account's own.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;

use super::words;

/// The newest events of an account that are looked through.
const LOOKED_AT: i64 = 200;

/// An event that may be about it. Which one is says its body.
#[derive(Debug, Clone)]
pub struct Heard {
    pub event: EventId,
    pub kind: String,
    pub status: Status,
    /// None once it was pruned.
    pub body: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was heard.
    Waiting,
    /// It was heard of, and is being worked through.
    UnderWay,
    /// It was heard of, and a person or a mapping is needed first.
    Stuck(EventId),
    /// It was bought, and the payment takes days.
    Awaited,
    Failed,
    /// The bottles of a pack are there.
    Packed {
        bottles: i64,
        period: Period,
    },
    /// The plan has begun.
    Begun,
}

/// What an account has heard from a provider since then, newest first.
pub async fn heard_since(
    db: impl PgExecutor<'_>,
    account: AccountId,
    source: Source,
    since: OffsetDateTime,
) -> sqlx::Result<Vec<Heard>> {
    let rows = sqlx::query!(
        r#"select id as "id!: EventId", type as "kind!", status as "status!", body
           from (select id, source, type, status, body, received_at from inbox_events
                 where account_id between $1 and $1 order by account_id, id desc limit $4) e
           where source = $2 and received_at >= $3 order by id desc"#,
        account.0,
        source.as_str(),
        since,
        LOOKED_AT
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            let status = row.status.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok(Heard { event: row.id, kind: row.kind, status, body: row.body })
        })
        .collect()
}

/// Of a pack, by the provider's id of its purchase. `heard` are the events about it.
pub async fn pack(conn: &mut PgConnection, account: AccountId, purchase: &str, heard: &[Heard]) -> sqlx::Result<Progress> {
    let newest = sqlx::query!(
        r#"select kind, effective_ns, bottles from facts
           where account_id = $1 and object = $2 and kind in ('pack_paid', 'pack_awaited', 'pack_failed')
           order by kind = 'pack_paid' desc, occurred_ns desc, event_id desc limit 1"#,
        account.0,
        purchase
    )
    .fetch_optional(conn)
    .await?;
    Ok(match newest {
        None => without_facts(heard),
        Some(row) => match (row.kind.as_str(), row.effective_ns, row.bottles) {
            ("pack_paid", Some(paid), Some(bottles)) => {
                Progress::Packed { bottles, period: Period::of(Instant::from_nanos(paid)) }
            }
            ("pack_failed", ..) => Progress::Failed,
            _ => Progress::Awaited,
        },
    })
}

/// Of a plan. `heard` are the events about its checkout, newest first.
pub async fn plan(conn: &mut PgConnection, account: AccountId, heard: &[Heard]) -> sqlx::Result<Progress> {
    let events: Vec<i64> = heard.iter().map(|one| one.event.0).collect();
    let ever_was = sqlx::query_scalar!(
        r#"select coalesce(effective_ns > began_ns, true) as "ever_was!" from facts
           where account_id = $1 and event_id = any($2) and kind in ('agreement', 'agreement_over')
           order by occurred_ns desc limit 1"#,
        account.0,
        &events
    )
    .fetch_optional(conn)
    .await?;
    Ok(match ever_was {
        None => without_facts(heard),
        Some(true) => Progress::Begun,
        Some(false) if heard.iter().any(|one| words::says_failure(&one.kind)) => Progress::Failed,
        Some(false) => Progress::Awaited,
    })
}

fn without_facts(heard: &[Heard]) -> Progress {
    match heard.first() {
        None => Progress::Waiting,
        Some(one) if matches!(one.status, Status::Received | Status::Processing | Status::Failed) => Progress::UnderWay,
        Some(one) => Progress::Stuck(one.event),
    }
}
