//! The calendar link: its page, and the feed that it opens.
//!
//! The link is its own key, so it is treated as one: shown once, in the answer to the form that made it; never in an address of
//! ours, never in a log; revoked or unknown, it is the same 404 as any address that never was.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};

use super::calendar_view::{Link, render};
use super::day_words::{Days, Words};
use super::error;
use super::fields::Fields;
use super::person::Person;
use super::reminder_notice::{self, Said};
use super::state::AppState;
use crate::accounts;
use crate::clock::Clock;
use crate::db::READ_ONLY;
use crate::domain::zone::Zone;
use crate::reminders::{Error, calendar, feed};

/// Longer than any secret part of ours.
const TOKEN_MAX: usize = 64;

pub async fn show(person: Person, State(app): State<AppState>, uri: Uri) -> Response {
    let revoked = reminder_notice::asked(&Fields::of_address(&uri)).is_some_and(|(said, _)| said == Said::LinkRevoked);
    let link = match made_at(&app, &person).await {
        Ok(Some(made)) => Link::Made(made),
        Ok(None) if revoked => Link::Revoked,
        Ok(None) => Link::None,
        Err(error) => return error::reminders(&error),
    };
    page(&person, link)
}

/// Makes the link, or another one in its place. The answer shows it, and nothing else ever does: a redirect would have to keep
/// it somewhere meanwhile. Sent twice, the form makes two, and the one that is shown last is the one that works.
pub async fn make(person: Person, State(app): State<AppState>) -> Response {
    let made = async {
        let mut tx = app.pool.begin().await?;
        let now = Clock::Database.now(&mut *tx).await?;
        let token = feed::make(&mut tx, person.account, now).await?;
        tx.commit().await?;
        Ok(format!("{}calendar/{token}.ics", app.base))
    };
    match made.await {
        Ok(address) => page(&person, Link::Fresh(address)),
        Err(error) => error::reminders(&Error::Database(error)),
    }
}

pub async fn revoke(person: Person, State(app): State<AppState>) -> Response {
    let revoked = async {
        let mut tx = app.pool.begin().await?;
        feed::revoke(&mut tx, person.account).await?;
        tx.commit().await
    };
    match revoked.await {
        Ok(()) => Redirect::to(&format!("/reminders/calendar?said={}#said", Said::LinkRevoked.as_str())).into_response(),
        Err(error) => error::reminders(&Error::Database(error)),
    }
}

/// `GET /calendar/{token}.ics`, for a calendar program that knows nothing but the address.
pub async fn serve(State(app): State<AppState>, Path(file): Path<String>, headers: HeaderMap) -> Response {
    let Some(token) = file.strip_suffix(".ics").filter(|token| token.len() <= TOKEN_MAX) else {
        return error::not_found().await;
    };
    let feed = match read(&app, token).await {
        Ok(Some(feed)) => feed,
        Ok(None) => return error::not_found().await,
        Err(error) => return error::reminders(&error),
    };
    let tag = tag(&feed);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| names(value, &tag));
    let answer = [
        (header::ETAG, HeaderValue::from_str(&tag)),
        // Programs may keep it and must ask whether it still holds; what stands between must keep nothing.
        (header::CACHE_CONTROL, Ok(HeaderValue::from_static("private, no-cache"))),
        (header::CONTENT_TYPE, Ok(HeaderValue::from_static("text/calendar; charset=utf-8"))),
        (header::CONTENT_DISPOSITION, Ok(HeaderValue::from_static("inline; filename=\"bottle.ics\""))),
        (header::HeaderName::from_static("x-robots-tag"), Ok(HeaderValue::from_static("noindex"))),
    ];
    let answer: HeaderMap = answer.into_iter().filter_map(|(name, value)| Some((name, value.ok()?))).collect();
    if known { (StatusCode::NOT_MODIFIED, answer).into_response() } else { (answer, feed).into_response() }
}

async fn read(app: &AppState, token: &str) -> Result<Option<String>, Error> {
    let mut conn = app.pool.begin_with(READ_ONLY).await?;
    let Some(account) = feed::account_of(&mut *conn, token).await? else { return Ok(None) };
    let now = Clock::Database.now(&mut *conn).await?;
    let host = app.base.host_str().unwrap_or("localhost");
    Ok(Some(calendar::of_account(&mut *conn, account, host, now).await?))
}

async fn made_at(app: &AppState, person: &Person) -> Result<Option<Words>, Error> {
    let mut conn = app.pool.begin_with(READ_ONLY).await?;
    let Some(made) = feed::made_at(&mut *conn, person.account).await? else { return Ok(None) };
    let now = Clock::Database.now(&mut *conn).await?;
    let zone = accounts::profile(&mut *conn, person.account).await?.and_then(|p| p.zone);
    let home = zone.and_then(|z| Zone::parse(&z).ok()).unwrap_or_else(Zone::utc);
    Ok(Some(Days::new(now, home).here_at(made)))
}

/// Weak: the same feed may leave compressed or not.
fn tag(feed: &str) -> String {
    let hash: String = Sha256::digest(feed).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{hash}\"")
}

fn names(value: &HeaderValue, tag: &str) -> bool {
    let strong = tag.trim_start_matches("W/");
    value.to_str().is_ok_and(|v| v.split(',').map(str::trim).any(|v| v == "*" || v.trim_start_matches("W/") == strong))
}

fn page(person: &Person, link: Link) -> Response {
    match render(person, link) {
        Ok(html) => Html(html).into_response(),
        Err(error) => error::template(&error),
    }
}
