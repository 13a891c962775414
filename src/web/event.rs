//! `GET /account/events/{id}`, its payload, and `POST …/replay`. Another person's event, one that nobody owns and one that does
//! not exist are the same to whoever asks: there is no page at this address. The page is drawn in `event_view`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde_json::Value;

use super::account::{Unreadable, unreadable, zone_of};
use super::event_view::{self, Notice, Read};
use super::fields::Fields;
use super::mask;
use super::person::Person;
use super::shown::shown_lines;
use super::state::AppState;
use super::{error, live};
use crate::billing::{log, record};
use crate::clock::Clock;
use crate::db;
use crate::domain::event::Source;
use crate::domain::ids::EventId;
use crate::{providers, replay};

pub(super) type Id = Result<Path<String>, PathRejection>;

pub async fn show(person: Person, State(app): State<AppState>, id: Id, uri: Uri) -> Response {
    let said = Fields::of_address(&uri).get("said") == Notice::InProgress.as_str();
    page(&app, &person, event_id(id), said.then_some(Notice::InProgress), StatusCode::OK).await
}

/// Where a form was sent to that found the event in progress: whoever goes there again is told so on the event's own page, and
/// asks for nothing.
pub async fn replayed(person: Person, State(app): State<AppState>, id: Id) -> Response {
    let Some(id) = event_id(id) else { return error::not_found().await };
    match read(&app, &person, id).await {
        Ok(Some(_)) => Redirect::to(&Notice::InProgress.address(id)).into_response(),
        Ok(None) => error::not_found().await,
        Err(why) => unreadable(&why),
    }
}

/// Puts the event back in the queue. Nothing in the form is read: the address says which, the session says whose.
pub async fn replay(person: Person, State(app): State<AppState>, id: Id) -> Response {
    let Some(id) = event_id(id) else { return error::not_found().await };
    match request(&app, &person, id).await {
        Ok(true) => {
            app.wake.wake();
            tracing::info!(event_id = %id, account = %person.account, "replay requested by the event's owner");
            Redirect::to(&format!("/account/events/{id}#replay")).into_response()
        }
        // It is somebody else's, or it cannot be replayed just now: the page itself tells which.
        Ok(false) => page(&app, &person, Some(id), Some(Notice::InProgress), StatusCode::CONFLICT).await,
        Err(why) => unreadable(&why.into()),
    }
}

/// What the event said, masked, as a file that no browser will take for anything but text.
pub async fn payload(person: Person, State(app): State<AppState>, id: Id) -> Response {
    let Some(id) = event_id(id) else { return error::not_found().await };
    let read = match read(&app, &person, id).await {
        Ok(Some(read)) => read,
        Ok(None) => return error::not_found().await,
        Err(why) => return unreadable(&why),
    };
    let Some(text) = payload_text(&read) else { return error::not_found().await };
    as_a_file(id, text)
}

/// Text that no browser will take for anything else.
pub(super) fn as_a_file(id: EventId, text: String) -> Response {
    let name = format!("attachment; filename=\"event-{id}.txt\"");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("attachment"))),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, text).into_response()
}

async fn page(app: &AppState, person: &Person, id: Option<EventId>, notice: Option<Notice>, status: StatusCode) -> Response {
    let Some(id) = id else { return error::not_found().await };
    let read = match read(app, person, id).await {
        Ok(Some(read)) => read,
        Ok(None) => return error::not_found().await,
        Err(why) => return unreadable(&why),
    };
    match event_view::render(person, &read, payload_text(&read).as_deref(), notice) {
        Ok(html) => (status, Html(html)).into_response(),
        Err(failure) => error::template(&failure),
    }
}

async fn request(app: &AppState, person: &Person, id: EventId) -> sqlx::Result<bool> {
    let mut tx = app.pool.begin().await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let queued = replay::request_own(&mut tx, person.account, id, person.user.as_str(), now).await?;
    tx.commit().await?;
    Ok(queued)
}

async fn read(app: &AppState, person: &Person, id: EventId) -> Result<Option<Read>, Unreadable> {
    let mut tx = app.pool.begin_with(db::READ_ONLY).await?;
    let Some(card) = log::card(&mut tx, person.account, id).await? else {
        tx.rollback().await?;
        return Ok(None);
    };
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, person).await?;
    let record = record::of(&mut tx, id).await?;
    let rehearsal = replay::rehearse(&mut tx, &[id], &app.rules, now).await?.remove(&id);
    let version = live::version(&mut tx, person.account).await?;
    tx.rollback().await?;
    Ok(Some(Read { zone, card, record, rehearsal, version }))
}

/// Only the way we write it: an id that is written differently, or is none, names nothing.
pub(super) fn event_id(id: Id) -> Option<EventId> {
    let Path(text) = id.ok()?;
    text.parse().ok().map(EventId).filter(|id| id.to_string() == text)
}

fn payload_text(read: &Read) -> Option<String> {
    masked_text(read.card.source, read.record.body.as_deref()?)
}

/// What a body says, masked, as JSON for people.
pub(super) fn masked_text(source: Source, body: &[u8]) -> Option<String> {
    let said: Value = providers::payload(source, body)?;
    serde_json::to_string_pretty(&mask::masked(said)).ok().map(|text| shown_lines(&text))
}
