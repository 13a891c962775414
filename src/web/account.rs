//! `GET /account`: reads everything in one read-only transaction, so the page is a picture of one moment. It is drawn in
//! `account_view`.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::account_view::{self, Read};
use super::checkout;
use super::error;
use super::live;
use super::log_filters::Wanted;
use super::person::Person;
use super::state::AppState;
use super::when::Zone;
use crate::billing::purchase::Progress;
use crate::billing::{apply, bottles, log, rehearsal};
use crate::clock::Clock;
use crate::domain::ids::EventId;
use crate::domain::instant::Instant;
use crate::{accounts, checkouts, db, ledger, money, replay};

const EVENTS_SHOWN: usize = 20;
const ENTRIES_SHOWN: usize = 30;
const MOVEMENTS_SHOWN: usize = 20;
const PACKS_SHOWN: i64 = 20;
/// Months a person can choose from.
const MONTHS_SHOWN: i64 = 24;

/// Why a person's billing cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the database could not be read")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Accounts(#[from] accounts::Error),
    #[error(transparent)]
    Billing(#[from] apply::Error),
}

pub async fn show(person: Person, State(app): State<AppState>, uri: Uri) -> Response {
    let wanted = Wanted::of(&uri);
    let read = match read(&app, &person, &wanted).await {
        Ok(read) => read,
        Err(why) => return unreadable(&why),
    };
    match account_view::render(&person, &app.providers, &wanted, &read) {
        Ok(html) if wanted.problems.is_empty() => Html(html).into_response(),
        Ok(html) => (error::BAD_ADDRESS, Html(html)).into_response(),
        Err(failure) => error::template(&failure),
    }
}

pub(super) fn unreadable(why: &Unreadable) -> Response {
    tracing::warn!(error = why as &dyn std::error::Error, "a person's billing could not be shown");
    error::unavailable(
        "Your billing could not be read just now: the database is slow or away. Nothing was changed. Reload the page in a moment.",
    )
}

async fn read(app: &AppState, person: &Person, wanted: &Wanted) -> Result<Read, Unreadable> {
    let account = person.account;
    let mut tx = app.pool.begin_with(db::READ_ONLY).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, person).await?;
    let standing = accounts::standing_of(&mut tx, account).await?.ok_or(sqlx::Error::RowNotFound)?;
    let bottles = bottles::of(&mut tx, account, now).await?;
    let period = wanted.ledger.unwrap_or(bottles.period);
    let mut entries = ledger::lines(&mut tx, account, period, wanted.ledger_before, limit(ENTRIES_SHOWN)).await?;
    let older_entries = cut(&mut entries, ENTRIES_SHOWN);
    let months = ledger::periods(&mut tx, account, MONTHS_SHOWN).await?;
    let counts = log::counts(&mut tx, account).await?;
    let mut cards = log::page(&mut tx, account, &wanted.log, limit(EVENTS_SHOWN)).await?;
    let older_events = cut(&mut cards, EVENTS_SHOWN);
    let ids: Vec<EventId> = cards.iter().map(|card| card.id).collect();
    let (rehearsals, pro_through) = if rehearsal::is_light(&mut tx, account).await? {
        let rehearsals = replay::rehearse(&mut tx, &ids, &app.rules, now).await?;
        (rehearsals, rehearsal::pro_through(&mut tx, account, &app.rules, now).await?)
    } else {
        (HashMap::new(), Vec::new())
    };
    let known_as = accounts::known_as(&mut tx, account).await?;
    let mut movements = money::statement(&mut *tx, account, wanted.money_before, limit(MOVEMENTS_SHOWN)).await?;
    let older_movements = cut(&mut movements, MOVEMENTS_SHOWN);
    let totals = money::totals(&mut *tx, account).await?;
    let packs = money::bills::of(&mut *tx, account, PACKS_SHOWN).await?;
    let turned_back = turned_back(&mut tx, person, wanted).await?;
    let set_out = set_out(&mut tx, person, now).await?.filter(|one| turned_back.as_ref().is_none_or(|back| back.id != one.id));
    let version = live::version(&mut tx, account).await?;
    tx.rollback().await?;
    Ok(Read {
        zone,
        standing: standing.at(Instant::from_datetime(now)),
        bottles,
        period,
        entries,
        older_entries,
        months,
        counts,
        cards,
        older_events,
        rehearsals,
        pro_through,
        known_as,
        movements,
        older_movements,
        totals,
        packs,
        turned_back,
        set_out,
        version,
    })
}

/// Their own checkout that they came back from, while nothing was heard of it.
async fn turned_back(conn: &mut PgConnection, person: &Person, wanted: &Wanted) -> sqlx::Result<Option<checkouts::Checkout>> {
    let Some(id) = wanted.back else { return Ok(None) };
    let Some(checkout) = checkouts::of(&mut *conn, person.account, id).await? else { return Ok(None) };
    let progress = checkout::progress(conn, person, &checkout).await?;
    Ok(Some(checkout).filter(|_| progress == Progress::Waiting))
}

/// What they set out to buy, while it may be paid and nothing was heard of it: so nobody buys twice because a page says nothing.
async fn set_out(conn: &mut PgConnection, person: &Person, now: OffsetDateTime) -> sqlx::Result<Option<checkouts::Checkout>> {
    let Some(checkout) = checkouts::open(&mut *conn, person.account, now).await? else { return Ok(None) };
    let progress = checkout::progress(conn, person, &checkout).await?;
    Ok(Some(checkout).filter(|_| matches!(progress, Progress::Waiting | Progress::UnderWay | Progress::Awaited)))
}

pub(super) async fn zone_of(conn: &mut PgConnection, person: &Person) -> sqlx::Result<Zone> {
    let profile = accounts::profile(conn, person.account).await?;
    Ok(Zone::named(profile.and_then(|profile| profile.zone).as_deref()))
}

/// One more than is shown tells whether there are more.
fn limit(shown: usize) -> i64 {
    i64::try_from(shown).unwrap_or(i64::MAX).saturating_add(1)
}

fn cut<T>(found: &mut Vec<T>, shown: usize) -> bool {
    let more = found.len() > shown;
    found.truncate(shown);
    more
}
