//! What an operator does to one event: replays it, writes a note, takes it out of its box. Each leaves its record in the same
//! transaction.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use time::OffsetDateTime;
use uuid::Uuid;

use super::guard::Operator;
use super::said::Said;
use super::trouble::{Trouble, answered};
use crate::clock::Clock;
use crate::domain::ids::EventId;
use crate::inbox::inspect::inspect;
use crate::operators::actions::{self, Action, Deed};
use crate::operators::notes::{self, Words, Written};
use crate::replay;
use crate::web::event::{Id, event_id};
use crate::web::fields::Fields;
use crate::web::state::AppState;

const NOTE_MAX: usize = 2_000;

/// Back in the queue, whosever it is.
pub async fn replay(operator: Operator, State(app): State<AppState>, id: Id) -> Response {
    answered(replayed(&app, &operator, id).await)
}

async fn replayed(app: &AppState, operator: &Operator, id: Id) -> Result<Response, Trouble> {
    let id = event_id(id).ok_or(Trouble::Nothing)?;
    let by = operator.by();
    let mut tx = app.pool.begin().await?;
    inspect(&mut tx, id).await?.ok_or(Trouble::Nothing)?;
    let now = Clock::Database.now(&mut *tx).await?;
    if replay::request(&mut tx, &[id], &by, now).await?.is_empty() {
        return Ok(back(id, Said::InProgress));
    }
    let deed = Deed { by: &by, action: Action::Replay, event: Some(id), bulk_replay: None, detail: None };
    actions::record(&mut tx, deed, now).await?;
    tx.commit().await?;
    app.wake.wake();
    tracing::info!(event = %id, by, "replay requested by an operator");
    Ok(back(id, Said::Replayed))
}

pub async fn note(operator: Operator, State(app): State<AppState>, id: Id, fields: Fields) -> Response {
    answered(noted(&app, &operator, id, &fields, None).await)
}

/// The form says as of when: what became of the event since is nobody's decision yet.
pub async fn acknowledge(operator: Operator, State(app): State<AppState>, id: Id, fields: Fields) -> Response {
    let seen = fields.read::<i128>("verdict").and_then(|micros| micros.checked_mul(1_000));
    let seen = seen.and_then(|nanos| OffsetDateTime::from_unix_timestamp_nanos(nanos).ok());
    // What lies outside of these no database takes, and no verdict has.
    let seen = seen.filter(|at| (1970..=9000).contains(&at.year()));
    let seen = seen.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    answered(noted(&app, &operator, id, &fields, Some(seen)).await)
}

async fn noted(
    app: &AppState,
    operator: &Operator,
    id: Id,
    fields: &Fields,
    verdict: Option<OffsetDateTime>,
) -> Result<Response, Trouble> {
    let id = event_id(id).ok_or(Trouble::Nothing)?;
    let note: String = fields.get("note").trim().chars().filter(|c| *c != '\0').take(NOTE_MAX).collect();
    let Some(form) = fields.read::<Uuid>("key").filter(|_| !note.is_empty()) else { return Ok(back(id, Said::Empty)) };
    let by = operator.by();
    let words = Words { note: &note, by: &by, form };
    let mut tx = app.pool.begin().await?;
    let seen = inspect(&mut tx, id).await?;
    seen.ok_or(Trouble::Nothing)?;
    let now = Clock::Database.now(&mut *tx).await?;
    let (written, action, said) = match verdict {
        None => (notes::write(&mut tx, id, words, now).await?, Action::Note, Said::Noted),
        Some(at) => (notes::acknowledge(&mut tx, id, at, words, now).await?, Action::Acknowledge, Said::Acknowledged),
    };
    let said = match written {
        Written::Before => Said::Again,
        Written::Changed => Said::Changed,
        Written::Yes => {
            let deed = Deed { by: &by, action, event: Some(id), bulk_replay: None, detail: Some(&note) };
            actions::record(&mut tx, deed, now).await?;
            tx.commit().await?;
            said
        }
    };
    Ok(back(id, said))
}

fn back(id: EventId, said: Said) -> Response {
    Redirect::to(&format!("/ops/events/{id}?said={}#said", said.as_str())).into_response()
}
