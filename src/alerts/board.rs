//! What the operators' pages read: the alerts that are open, those that were, and the workers that pause.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::Error;
use crate::domain::ids::EventId;
use crate::worker::pause;

/// Alerts that a page shows.
const SHOWN: i64 = 20;

#[derive(Debug, Clone)]
pub struct Alert {
    pub condition: String,
    pub sentence: String,
    pub events: Vec<EventId>,
    pub raised_at: OffsetDateTime,
    pub cleared_at: Option<OffsetDateTime>,
}

#[derive(Debug, Clone, Default)]
pub struct Board {
    pub open: Vec<Alert>,
    /// The last that are over, newest first.
    pub over: Vec<Alert>,
    /// What every event fails with at each worker that is paused.
    pub paused: Vec<String>,
}

/// # Errors
/// The database's.
pub async fn board(conn: &mut PgConnection) -> Result<Board, Error> {
    let open = sqlx::query!(
        "/* operators */ select condition, sentence, event_ids, raised_at from alerts where cleared_at is null order by raised_at"
    )
    .fetch_all(&mut *conn)
    .await?;
    let over = sqlx::query!(
        r#"/* operators */ select condition, sentence, event_ids, raised_at, cleared_at from
               (select * from alerts order by id desc limit $1) a
           where cleared_at is not null order by id desc"#,
        SHOWN
    )
    .fetch_all(&mut *conn)
    .await?;
    let ids = |events: Vec<i64>| events.into_iter().map(EventId).collect();
    Ok(Board {
        open: open
            .into_iter()
            .map(|row| Alert {
                condition: row.condition,
                sentence: row.sentence,
                events: ids(row.event_ids),
                raised_at: row.raised_at,
                cleared_at: None,
            })
            .collect(),
        over: over
            .into_iter()
            .map(|row| Alert {
                condition: row.condition,
                sentence: row.sentence,
                events: ids(row.event_ids),
                raised_at: row.raised_at,
                cleared_at: row.cleared_at,
            })
            .collect(),
        paused: pause::paused(conn).await?,
    })
}

/// A number that differs when what is open has changed.
///
/// # Errors
/// The database's.
pub async fn version(conn: &mut PgConnection) -> Result<i64, Error> {
    let version = sqlx::query_scalar!(
        r#"/* operators */ select hashtextextended(coalesce(string_agg(condition || sentence, ',' order by condition), ''), 0) as "version!"
           from alerts where cleared_at is null"#
    )
    .fetch_one(conn)
    .await?;
    Ok(version)
}
