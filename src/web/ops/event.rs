//! `GET /ops/events/{id}`: the whole life of one event, whosever it is. Read in one read-only transaction; drawn in `event_view`.

use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};

use super::event_view::{self, Read};
use super::guard::Operator;
use super::said::Said;
use super::trouble::{Trouble, answered, look};
use crate::accounts::lookup;
use crate::billing::{log, record};
use crate::clock::Clock;
use crate::domain::ids::EventId;
use crate::inbox::inspect::inspect;
use crate::operators::notes;
use crate::replay;
use crate::web::account::zone_of;
use crate::web::event::{Id, as_a_file, event_id, masked_text};
use crate::web::live;
use crate::web::state::AppState;

pub async fn show(operator: Operator, State(app): State<AppState>, id: Id, uri: Uri) -> Response {
    answered(page(&app, &operator, id, &uri).await)
}

async fn page(app: &AppState, operator: &Operator, id: Id, uri: &Uri) -> Result<Response, Trouble> {
    let read = read(app, operator, event_id(id).ok_or(Trouble::Nothing)?).await?;
    Ok(Html(event_view::render(operator, &read, Said::of(uri))?).into_response())
}

/// What the event said, masked, as a file.
pub async fn payload(operator: Operator, State(app): State<AppState>, id: Id) -> Response {
    let file = async {
        let id = event_id(id).ok_or(Trouble::Nothing)?;
        let read = read(&app, &operator, id).await?;
        let text = read.record.body.as_deref().and_then(|body| masked_text(read.card.source, body));
        Ok(as_a_file(id, text.ok_or(Trouble::Nothing)?))
    };
    answered(file.await)
}

async fn read(app: &AppState, operator: &Operator, id: EventId) -> Result<Read, Trouble> {
    let mut tx = look(&app.pool).await?;
    let inspected = inspect(&mut tx, id).await?.ok_or(Trouble::Nothing)?;
    let card = log::card_of_anybody(&mut tx, inspected.account, id).await?.ok_or(Trouble::Nothing)?;
    let now = Clock::Database.now(&mut *tx).await?;
    let read = Read {
        zone: zone_of(&mut tx, operator.person()).await?,
        record: record::of(&mut tx, id).await?,
        rehearsal: replay::rehearse(&mut tx, &[id], &app.rules, now).await?.remove(&id),
        notes: notes::of(&mut tx, id).await?,
        owner: match inspected.account {
            Some(account) => lookup::labels(&mut tx, &[account]).await?.remove(&account),
            None => None,
        },
        version: live::version_for_operators(&mut tx).await?,
        inspected,
        card,
    };
    tx.rollback().await?;
    Ok(read)
}
