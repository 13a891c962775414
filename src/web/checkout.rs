//! `POST /account/checkout`: the way to a provider's checkout. `GET /account/checkout/{id}`: the page people come back to.
//!
//! What was bought, events alone tell. The page reads our own tables and nothing of its address but which of this person's own
//! checkouts is meant, and it changes nothing: somebody who opens it without having paid reads that nothing was heard.

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use sqlx::PgConnection;
use uuid::Uuid;

use super::account::{Unreadable, unreadable, zone_of};
use super::checkout_view::{self, Read};
use super::door_page::{self, NoWay};
use super::fields::Fields;
use super::person::Person;
use super::set_out::{self, Refused};
use super::state::AppState;
use super::{error, live};
use crate::billing::purchase::{self, Progress};
use crate::checkouts::{self, Checkout};
use crate::clock::Clock;
use crate::domain::event::Source;
use crate::domain::instant::Instant;
use crate::providers::{self, Step, Ware};
use crate::{accounts, db};

pub async fn begin(person: Person, State(app): State<AppState>, fields: Fields) -> Response {
    let named = (fields.read::<Source>("provider"), Ware::find(fields.get("ware")), fields.read::<Uuid>("intent"));
    let (Some(source), Some(ware), Some(intent)) = named else { return error::no_form() };
    match app.providers.of(source).and_then(|provider| provider.sells(ware)) {
        Some(Step::Ask) => {}
        Some(Step::SignIn) => return Redirect::to(&format!("/login?plan={}&return_to=/account", ware.as_str())).into_response(),
        Some(Step::OwnToken) | None => return door_page::no_way(&NoWay::NotSold),
    }
    // In a task of its own: a browser that goes away would leave a wish half noted and a connection in its transaction.
    let going = tokio::spawn(async move {
        let way = set_out::to_checkout(&app, &person, source, ware, intent).await;
        (app, way)
    });
    match going.await {
        Ok((_, Ok(to))) => Redirect::to(&to).into_response(),
        Ok((app, Err(Refused::NoWay(why)))) => door_page::refused(&app, source, &why),
        Ok((_, Err(Refused::Foreign))) => error::no_form(),
        Ok((_, Err(Refused::Unreadable(why)))) => unreadable(&why),
        Err(_) => error::failed(),
    }
}

pub async fn show(person: Person, State(app): State<AppState>, Path(id): Path<String>) -> Response {
    let Some(id) = checkout_id(&id) else { return error::not_found().await };
    let read = match read(&app, &person, id).await {
        Ok(Some(read)) => read,
        Ok(None) => return error::not_found().await,
        Err(why) => return unreadable(&why),
    };
    let provider = app.providers.of(read.checkout.source).map_or("the provider", providers::Provider::name);
    match checkout_view::render(&person, provider, &read) {
        Ok(html) => Html(html).into_response(),
        Err(failure) => error::template(&failure),
    }
}

/// Only the way we write it: whatever is written differently names nothing.
pub(super) fn checkout_id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|id| id.to_string() == text)
}

async fn read(app: &AppState, person: &Person, id: Uuid) -> Result<Option<Read>, Unreadable> {
    let mut tx = app.pool.begin_with(db::READ_ONLY).await?;
    let Some(checkout) = checkouts::of(&mut *tx, person.account, id).await? else {
        tx.rollback().await?;
        return Ok(None);
    };
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, person).await?;
    let standing = accounts::standing_of(&mut tx, person.account).await?.ok_or(sqlx::Error::RowNotFound)?;
    let progress = progress(&mut tx, person, &checkout).await?;
    let version = live::version(&mut tx, person.account).await?;
    tx.rollback().await?;
    Ok(Some(Read { checkout, zone, plan: standing.at(Instant::from_datetime(now)).plan, progress, now, version }))
}

/// What is known of it by now, from events about this very checkout.
pub(super) async fn progress(conn: &mut PgConnection, person: &Person, checkout: &Checkout) -> sqlx::Result<Progress> {
    let Some(reference) = &checkout.reference else { return Ok(Progress::Waiting) };
    let mut heard = purchase::heard_since(&mut *conn, person.account, checkout.source, checkout.begun_at).await?;
    let is_about = |body: &Option<Vec<u8>>| {
        body.as_deref().and_then(|body| providers::about(checkout.source, body)).is_some_and(|about| about == *reference)
    };
    heard.retain(|one| is_about(&one.body));
    match checkout.ware {
        Ware::Pack => purchase::pack(conn, person.account, reference, &heard).await,
        Ware::Pro => purchase::plan(conn, person.account, &heard).await,
    }
}
