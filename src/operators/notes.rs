//! Notes on events. One that acknowledges says: I have seen how this ended, and it may rest. It speaks of one verdict; a later one
//! is nobody's decision yet.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::ids::EventId;

/// What a page shows of one event's notes.
const SHOWN: i64 = 100;

#[derive(Debug, Clone)]
pub struct Note {
    pub note: String,
    pub by: String,
    pub at: OffsetDateTime,
    pub acknowledges: Option<OffsetDateTime>,
}

/// A note to be written.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    pub note: &'a str,
    pub by: &'a str,
    /// Of the form it came in: one that is sent twice writes once.
    pub form: Uuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Yes,
    /// The form had been sent before.
    Before,
    /// It no longer stands as it was seen, or there is no such event.
    Changed,
}

/// # Errors
/// The database's.
pub async fn write(conn: &mut PgConnection, event: EventId, words: Words<'_>, now: OffsetDateTime) -> sqlx::Result<Written> {
    let done = sqlx::query!(
        "insert into event_notes (event_id, note, written_by, written_at, form_key)
         select id, $2, $3, $4, $5 from inbox_events where id = $1 on conflict (form_key) do nothing",
        event.0,
        words.note,
        words.by,
        now,
        words.form
    )
    .execute(&mut *conn)
    .await?;
    said(conn, done.rows_affected(), words.form).await
}

/// Takes an event out of its box, if its verdict still is the one that was seen, at `verdict`.
///
/// # Errors
/// The database's.
pub async fn acknowledge(
    conn: &mut PgConnection,
    event: EventId,
    verdict: OffsetDateTime,
    words: Words<'_>,
    now: OffsetDateTime,
) -> sqlx::Result<Written> {
    let done = sqlx::query!(
        "insert into event_notes (event_id, note, acknowledges, written_by, written_at, form_key)
         select id, $2, coalesce(processed_at, received_at), $3, $4, $5 from inbox_events
         where id = $1 and status in ('dead', 'parked') and coalesce(processed_at, received_at) = $6
         for update
         on conflict (form_key) do nothing",
        event.0,
        words.note,
        words.by,
        now,
        words.form,
        verdict
    )
    .execute(&mut *conn)
    .await?;
    said(conn, done.rows_affected(), words.form).await
}

async fn said(conn: &mut PgConnection, rows: u64, form: Uuid) -> sqlx::Result<Written> {
    if rows > 0 {
        return Ok(Written::Yes);
    }
    let known = sqlx::query_scalar!("/* operators */ select id from event_notes where form_key = $1", form);
    Ok(if known.fetch_optional(conn).await?.is_some() { Written::Before } else { Written::Changed })
}

/// The last notes on one event, oldest first.
///
/// # Errors
/// The database's.
pub async fn of(conn: &mut PgConnection, event: EventId) -> sqlx::Result<Vec<Note>> {
    let mut notes = sqlx::query_as!(
        Note,
        "/* operators */ select note, written_by as by, written_at as at, acknowledges from event_notes where event_id = $1
         order by id desc limit $2",
        event.0,
        SHOWN
    )
    .fetch_all(conn)
    .await?;
    notes.reverse();
    Ok(notes)
}
