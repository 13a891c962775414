//! Everything an operator did. A row is written in the transaction that does it, so there is no action without its record.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::EventId;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Replay,
    BulkReplay,
    Cancel,
    Acknowledge,
    Note,
}

impl Action {
    const ALL: [Self; 5] = [Self::Replay, Self::BulkReplay, Self::Cancel, Self::Acknowledge, Self::Note];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::BulkReplay => "bulk_replay",
            Self::Cancel => "cancel",
            Self::Acknowledge => "acknowledge",
            Self::Note => "note",
        }
    }
}

/// An action to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Deed<'a> {
    pub by: &'a str,
    pub action: Action,
    pub event: Option<EventId>,
    pub bulk_replay: Option<i64>,
    /// The filter, or the words.
    pub detail: Option<&'a str>,
}

/// # Errors
/// The database's.
pub async fn record(conn: &mut PgConnection, deed: Deed<'_>, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into operator_actions (done_at, done_by, action, event_id, bulk_replay_id, detail) values ($1, $2, $3, $4, $5, $6)",
        now,
        deed.by,
        deed.action.as_str(),
        deed.event.map(|event| event.0),
        deed.bulk_replay,
        deed.detail
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A recorded action.
#[derive(Debug, Clone)]
pub struct Done {
    pub id: i64,
    pub at: OffsetDateTime,
    pub by: String,
    pub action: Action,
    pub event: Option<EventId>,
    pub bulk_replay: Option<i64>,
    pub detail: Option<String>,
}

/// The next `limit` actions before the one with this id, newest first.
///
/// # Errors
/// The database's.
pub async fn page(conn: &mut PgConnection, before: Option<i64>, limit: i64) -> sqlx::Result<Vec<Done>> {
    let rows = sqlx::query!(
        r#"/* operators */ select id, done_at, done_by, action, event_id as "event: EventId", bulk_replay_id, detail
           from operator_actions where id < $1 order by id desc limit $2"#,
        before.unwrap_or(i64::MAX),
        limit
    )
    .fetch_all(conn)
    .await?;
    let done = |row: &str| Action::ALL.into_iter().find(|action| action.as_str() == row);
    rows.into_iter()
        .map(|row| {
            let action = done(&row.action).ok_or_else(|| sqlx::Error::Decode(format!("no action: {}", row.action).into()))?;
            Ok(Done {
                id: row.id,
                at: row.done_at,
                by: row.done_by,
                action,
                event: row.event,
                bulk_replay: row.bulk_replay_id,
                detail: row.detail,
            })
        })
        .collect()
}
