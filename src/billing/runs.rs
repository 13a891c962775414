//! The SQL of `event_runs`: each run of an event keeps its own sentence and effects.

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::event::Status;
use crate::domain::ids::EventId;

/// What one run changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Granted>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub money: Vec<Moved>,
    /// The plan changed by what the provider answered when it was asked about this event, and would not have by the event alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_answer: bool,
    /// The provider's id of the event that decides the plan, when this one no longer does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChange {
    pub before: String,
    pub after: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    pub key: String,
    pub period: String,
    pub delta: i64,
}

/// A movement that the run wrote into the money ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub key: String,
    pub kind: String,
    pub amount_minor: i64,
    pub currency: String,
}

impl Effects {
    /// Nothing but sentences came of it.
    pub fn is_nothing(&self) -> bool {
        self.entries.is_empty() && self.money.is_empty() && self.plan.as_ref().is_none_or(|p| p.before == p.after)
    }
}

/// One run, to be recorded or read.
#[derive(Debug, Clone)]
pub struct Run {
    pub event: EventId,
    pub status: Status,
    pub sentence: String,
    pub effects: Effects,
    pub requested_by: Option<String>,
}

pub async fn record(conn: &mut PgConnection, runs: &[Run], now: OffsetDateTime) -> sqlx::Result<()> {
    let mut events = Vec::new();
    let mut statuses = Vec::new();
    let mut sentences = Vec::new();
    let mut effects = Vec::new();
    let mut requested = Vec::new();
    for run in runs {
        events.push(run.event.0);
        statuses.push(run.status.as_str());
        sentences.push(run.sentence.as_str());
        effects.push(serde_json::to_value(&run.effects).map_err(|e| sqlx::Error::Encode(e.into()))?);
        requested.push(run.requested_by.as_deref());
    }
    sqlx::query!(
        r#"insert into event_runs (event_id, ran_at, status, sentence, effects, requested_by)
           select e, $6, s, t, f, r
           from unnest($1::bigint[], $2::text[], $3::text[], $4::jsonb[], $5::text[]) as n (e, s, t, f, r)"#,
        &events,
        &statuses as &[&str],
        &sentences as &[&str],
        &effects,
        &requested as &[Option<&str>],
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The last runs of one event, oldest first.
pub async fn latest(db: impl PgExecutor<'_>, event: EventId, limit: i64) -> sqlx::Result<Vec<(OffsetDateTime, Run)>> {
    let rows = sqlx::query!(
        "select ran_at, status, sentence, effects, requested_by from event_runs where event_id = $1 order by id desc limit $2",
        event.0,
        limit
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .rev()
        .map(|r| {
            let run = Run {
                event,
                status: r.status.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
                sentence: r.sentence,
                effects: serde_json::from_value(r.effects).map_err(|e| sqlx::Error::Decode(e.into()))?,
                requested_by: r.requested_by,
            };
            Ok((r.ran_at, run))
        })
        .collect()
}
