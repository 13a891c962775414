//! A stored event as a run has it in hand, whether it was claimed or is only rehearsed.

use std::fmt;

use time::OffsetDateTime;

use crate::domain::event::Source;
use crate::domain::ids::{AccountId, EventId, EventKey, LeaseToken};
use crate::domain::instant::Instant;

/// An event in the hands of a worker.
#[derive(Clone)]
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
    /// Whoever had it before let the lease end.
    pub lease_ended: bool,
    pub account: Option<AccountId>,
    pub replayed_by: Option<String>,
}

/// Without what was said: that is for nobody but whom it is about.
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, source, key, kind, attempts, claims, .. } = self;
        let mut shown = f.debug_struct("Claimed");
        shown.field("id", id).field("source", source).field("key", key).field("kind", kind);
        shown.field("attempts", attempts).field("claims", claims).finish_non_exhaustive()
    }
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
    pub lease_ended: bool,
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
            lease_ended: row.lease_ended,
            account: row.account,
            replayed_by: row.replayed_by,
        })
    }
}
