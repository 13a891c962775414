//! A stored event as a run has it in hand, whether it was claimed or is only rehearsed.

use time::OffsetDateTime;

use crate::domain::event::Source;
use crate::domain::ids::{AccountId, EventId, EventKey, LeaseToken};
use crate::domain::instant::Instant;

/// An event in the hands of a worker.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: EventId,
    pub token: LeaseToken,
    pub source: Source,
    pub key: EventKey,
    pub kind: String,
    /// None once it was pruned; its facts are kept.
    pub body: Option<Vec<u8>>,
    pub occurred: Option<Instant>,
    pub received: Instant,
    /// When it was taken, by the database's clock.
    pub claimed: Instant,
    /// Failures charged so far.
    pub attempts: i32,
    /// Claims since the last verdict, this one included.
    pub claims: i32,
    pub account: Option<AccountId>,
    pub replayed_by: Option<String>,
}

/// A row of `inbox_events`, as far as a run needs it.
pub(super) struct ClaimedRow {
    pub id: EventId,
    pub source: String,
    pub key: EventKey,
    pub kind: String,
    pub body: Option<Vec<u8>>,
    pub occurred_ns: Option<i64>,
    pub received_at: OffsetDateTime,
    pub claimed_at: OffsetDateTime,
    pub attempts: i32,
    pub claims: i32,
    pub account: Option<AccountId>,
    pub replayed_by: Option<String>,
}

impl Claimed {
    pub(super) fn from_row(row: ClaimedRow, token: LeaseToken) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.id,
            token,
            source: row.source.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            key: row.key,
            kind: row.kind,
            body: row.body,
            occurred: row.occurred_ns.map(Instant::from_nanos),
            received: Instant::from_datetime(row.received_at),
            claimed: Instant::from_datetime(row.claimed_at),
            attempts: row.attempts,
            claims: row.claims,
            account: row.account,
            replayed_by: row.replayed_by,
        })
    }
}
