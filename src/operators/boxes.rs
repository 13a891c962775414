//! The boxes of what waits for a person: dead and parked events whose verdict nobody has acknowledged. Looked for among the newest
//! of that state only, so a box costs little however full it is.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::event::Status;
use crate::domain::ids::{AccountId, EventId, EventKey};

/// Events of a state that are looked through.
pub const LOOKED_AT: i64 = 10_000;

/// Which box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pile {
    Dead,
    Parked,
}

impl Pile {
    pub const fn status(self) -> Status {
        match self {
            Self::Dead => Status::Dead,
            Self::Parked => Status::Parked,
        }
    }
}

/// An event in a box.
#[derive(Debug, Clone)]
pub struct Boxed {
    pub id: EventId,
    pub key: EventKey,
    pub kind: String,
    pub reason: Option<String>,
    pub received_at: OffsetDateTime,
    /// When it came to this verdict.
    pub verdict_at: OffsetDateTime,
    pub due_at: Option<OffsetDateTime>,
    pub account: Option<AccountId>,
    /// The last note on it.
    pub note: Option<String>,
}

/// How many wait for somebody, and whether there may be more than that beyond [`LOOKED_AT`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub waiting: i64,
    pub acknowledged: i64,
    pub more: bool,
}

/// The candidates are one literal state each, in the order of its partial index. An acknowledgement is looked up by a limited
/// subquery and not by `exists`, which the planner may answer by reading all notes there are.
macro_rules! pile {
    ($conn:ident, $before:expr, $limit:expr, $state:tt) => {
        sqlx::query_as!(
            Boxed,
            r#"/* operators */ select e.id as "id!: EventId", dedupe_key as "key!: EventKey", type as "kind!", reason as "reason?",
                      received_at as "received_at!", coalesce(processed_at, received_at) as "verdict_at!",
                      nullif(due_at, 'infinity') as "due_at?", account_id as "account?: AccountId",
                      (select n.note from event_notes n where n.event_id = e.id order by n.id desc limit 1) as "note?"
               from (select id, dedupe_key, type, reason, received_at, processed_at, due_at, account_id
                     from inbox_events where status = "# + $state + r#" and id < $1 order by id desc limit $2) e
               where (select n.id from event_notes n where n.event_id = e.id
                      and n.acknowledges = coalesce(e.processed_at, e.received_at) limit 1) is null
               order by e.id desc limit $3"#,
            $before,
            LOOKED_AT,
            $limit
        )
        .fetch_all($conn)
        .await
    };
}

macro_rules! tally {
    ($conn:ident, $state:tt) => {
        sqlx::query!(
            r#"/* operators */ select count(*) as "all!", count(*) filter (where (
                      select n.id from event_notes n where n.event_id = e.id
                      and n.acknowledges = coalesce(e.processed_at, e.received_at) limit 1) is not null) as "acknowledged!"
               from (select id, processed_at, received_at from inbox_events where status = "#
                + $state
                + r#"
                     order by id desc limit $1) e"#,
            LOOKED_AT
        )
        .fetch_one($conn)
        .await
        .map(|row| Tally { waiting: row.all - row.acknowledged, acknowledged: row.acknowledged, more: row.all >= LOOKED_AT })
    };
}

/// The next `limit` events of a box older than `before`, newest first.
///
/// # Errors
/// The database's.
pub async fn page(conn: &mut PgConnection, pile: Pile, before: Option<EventId>, limit: i64) -> sqlx::Result<Vec<Boxed>> {
    let before = before.map_or(i64::MAX, |id| id.0);
    match pile {
        Pile::Dead => pile!(conn, before, limit, "'dead'"),
        Pile::Parked => pile!(conn, before, limit, "'parked'"),
    }
}

/// # Errors
/// The database's.
pub async fn tally(conn: &mut PgConnection, pile: Pile) -> sqlx::Result<Tally> {
    match pile {
        Pile::Dead => tally!(conn, "'dead'"),
        Pile::Parked => tally!(conn, "'parked'"),
    }
}
