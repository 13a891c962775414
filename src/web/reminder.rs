//! `/reminders/{id}`: one reminder's page, and everything that is done to it. Who it belongs to is checked where it is read
//! and written; somebody else's, a deleted one and one that never was are the same 404.

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};

use super::error;
use super::fields::Fields;
use super::person::Person;
use super::reminder_form::{Problem, Typed};
use super::reminder_notice::Said;
use super::reminder_view::{Clash, find, render};
use super::reminders::see;
use super::reminders_view::Place;
use super::state::AppState;
use crate::clock::Clock;
use crate::domain::ids::ReminderId;
use crate::reminders::Error;
use crate::reminders::change::{self, Snooze};
use crate::reminders::row::Reminder;

/// An edit that does not go through: what was typed, and why.
struct Refused {
    typed: Typed,
    why: Error,
}

pub async fn show(person: Person, State(app): State<AppState>, Path(id): Path<String>) -> Response {
    let Some(id) = read(&id) else { return error::not_found().await };
    page(&app, &person, id, None).await
}

/// Saves an edit. What was changed elsewhere meanwhile is shown beside what was typed, and neither is lost.
pub async fn edit(person: Person, State(app): State<AppState>, Path(id): Path<String>, fields: Fields) -> Response {
    let Some(id) = read(&id) else { return error::not_found().await };
    let typed = Typed::of(&fields);
    let version = fields.read("version").unwrap_or(0);
    let saved = async {
        let draft = typed.draft()?;
        let mut tx = app.pool.begin().await?;
        let saved = change::edit(&mut tx, person.account, id, version, &draft, Clock::Database).await?;
        tx.commit().await?;
        Ok(saved)
    };
    match saved.await {
        Ok(reminder) => see(&Place::default(), Said::Saved, Some(reminder.id)),
        Err(why @ (Error::Invalid(_) | Error::Changed(_) | Error::NotNow(_))) => {
            page(&app, &person, id, Some(Refused { typed, why })).await
        }
        Err(Error::NotFound) => error::not_found().await,
        Err(other) => error::reminders(&other),
    }
}

pub async fn done(person: Person, State(app): State<AppState>, Path(id): Path<String>, uri: Uri, fields: Fields) -> Response {
    let Some((id, version)) = named(&id, &fields) else { return error::not_found().await };
    let done = async {
        let mut tx = app.pool.begin().await?;
        change::done(&mut tx, person.account, id, version, Clock::Database).await?;
        tx.commit().await?;
        Ok(Said::Done)
    };
    told(&uri, id, done.await).await
}

pub async fn snooze(person: Person, State(app): State<AppState>, Path(id): Path<String>, uri: Uri, fields: Fields) -> Response {
    let Some((id, version)) = named(&id, &fields) else { return error::not_found().await };
    let Some(span) = fields.read::<Snooze>("for") else { return error::no_form() };
    let snoozed = async {
        let mut tx = app.pool.begin().await?;
        change::snooze(&mut tx, person.account, id, version, span, Clock::Database).await?;
        tx.commit().await?;
        Ok(Said::Snoozed)
    };
    told(&uri, id, snoozed.await).await
}

pub async fn resume(person: Person, State(app): State<AppState>, Path(id): Path<String>, uri: Uri, fields: Fields) -> Response {
    let Some((id, version)) = named(&id, &fields) else { return error::not_found().await };
    let resumed = async {
        let mut tx = app.pool.begin().await?;
        change::resume(&mut tx, person.account, id, version, &app.rules, Clock::Database).await?;
        tx.commit().await?;
        Ok(Said::Resumed)
    };
    told(&uri, id, resumed.await).await
}

pub async fn delete(person: Person, State(app): State<AppState>, Path(id): Path<String>, uri: Uri, fields: Fields) -> Response {
    let Some((id, version)) = named(&id, &fields) else { return error::not_found().await };
    let deleted = async {
        let mut tx = app.pool.begin().await?;
        let deleted = change::delete(&mut tx, person.account, id, version, Clock::Database).await?;
        tx.commit().await?;
        Ok(if deleted.returned_to.is_some() { Said::Returned } else { Said::Deleted })
    };
    told(&uri, id, deleted.await).await
}

/// Back to the lists, where it can be seen what became of it.
async fn told(uri: &Uri, id: ReminderId, outcome: Result<Said, Error>) -> Response {
    let place = Place::of(&Fields::of_address(uri));
    match outcome {
        Ok(said) => see(&place, said, Some(id)),
        Err(Error::Changed(_)) => see(&place, Said::Changed, Some(id)),
        Err(Error::NotNow(_)) => see(&place, Said::NotNow, Some(id)),
        Err(Error::NoBottles(_)) => see(&place, Said::NoBottle, Some(id)),
        Err(Error::Invalid(_)) => see(&place, Said::EditFirst, Some(id)),
        Err(Error::NotFound) => error::not_found().await,
        Err(other) => error::reminders(&other),
    }
}

fn read(id: &str) -> Option<ReminderId> {
    id.parse().ok().map(ReminderId)
}

/// Version 0 is nobody's: a form without one meets [`Error::Changed`].
fn named(id: &str, fields: &Fields) -> Option<(ReminderId, i32)> {
    Some((read(id)?, fields.read("version").unwrap_or(0)))
}

async fn page(app: &AppState, person: &Person, id: ReminderId, refused: Option<Refused>) -> Response {
    let found = match find(&app.pool, person.account, id).await {
        Ok(Some(found)) => found,
        Ok(None) => return error::not_found().await,
        Err(error) => return error::reminders(&error),
    };
    let (status, typed, clash) = match refused {
        None => (StatusCode::OK, Typed::stored(&found.reminder), Clash::None),
        Some(Refused { typed, why: Error::Invalid(invalid) }) => (error::BAD_FORM, typed, Clash::Wrong(Problem::from(&invalid))),
        // Read again just now, it may have gone on since; what counts is whether it can still be edited.
        Some(Refused { typed, .. }) if is_editable(&found.reminder) => (error::CHANGED, typed, Clash::Changed),
        Some(Refused { typed, .. }) => (error::CHANGED, typed, Clash::TooLate),
    };
    match render(person, &found, typed, clash) {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => error::template(&error),
    }
}

/// It has not rung.
pub fn is_editable(reminder: &Reminder) -> bool {
    reminder.status.is_upcoming() && reminder.rung == 0
}
