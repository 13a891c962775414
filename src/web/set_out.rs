//! Setting out for a provider's page: what somebody wants is written down first, then the provider is asked for the way, with no
//! transaction open. However often it is clicked, and in how many tabs, one wish is one checkout.

use std::time::Duration;

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::account::Unreadable;
use super::checkout;
use super::door_page::NoWay;
use super::person::Person;
use super::state::AppState;
use crate::accounts;
use crate::billing::purchase::Progress;
use crate::checkouts::{self, Checkout, Noted, Wish};
use crate::clock::Clock;
use crate::domain::event::Source;
use crate::domain::ids::CustomerId;
use crate::domain::instant::Instant;
use crate::domain::plan::Plan;
use crate::providers::{DoorError, Errand, Provider, Ware, Way};

/// The same click, sent twice at once, waits this long for what the first one is told.
const BESIDE_FOR: Duration = Duration::from_secs(4);
/// Longer than anybody waits for a provider's answer: whoever asked has gone with its process.
const GONE_AFTER: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An earlier checkout that is over, or turns out to be, is followed by one new one, and no more.
const TRIES: usize = 2;

/// Why there is no way to go.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    NoWay(#[from] NoWay),
    /// The click is somebody else's, or was for something else.
    #[error("the form's key belongs to another form")]
    Foreign,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::RowNotFound => Self::Foreign,
            other => Self::Unreadable(other.into()),
        }
    }
}

/// Where to send somebody who wants to buy this.
pub async fn to_checkout(app: &AppState, person: &Person, source: Source, ware: Ware, intent: Uuid) -> Result<String, Refused> {
    let provider = app.providers.of(source).ok_or(NoWay::NotSold)?;
    let wish = Wish { account: person.account, source, ware, intent };
    for _ in 0..TRIES {
        let (noted, customer, now) = note(&app.pool, wish).await?;
        // Only whoever noted it asks for it to be made, and judges what came of that: to anybody else a slow answer is none.
        let (checkout, is_mine) = match noted {
            Noted::New(checkout) => (checkout, true),
            Noted::Before(checkout) if checkout.reference.is_none() && now - checkout.begun_at > GONE_AFTER => {
                checkouts::give_up(&app.pool, checkout.id, now).await?;
                continue;
            }
            Noted::Before(checkout) => (made_meanwhile(&app.pool, person, checkout).await?, false),
        };
        if checkout.ended {
            continue;
        }
        if !is_mine && checkout.reference.is_none() {
            return Err(NoWay::UnderWay.into());
        }
        match ask(provider, app, person, &checkout, customer.as_ref()).await {
            Ok(Way::Checkout { url, reference }) => {
                if is_mine && !checkouts::made(&app.pool, checkout.id, &reference).await? {
                    // Another checkout may be begun by now, and both could be paid. This one nobody was shown, so nobody can.
                    tracing::warn!(account = %person.account, checkout = %checkout.id, reference, "a checkout was made too late; nobody is sent there");
                    return Err(NoWay::UnderWay.into());
                }
                tracing::info!(account = %person.account, checkout = %checkout.id, reference, ware = ware.as_str(), "on the way to a checkout");
                return Ok(url);
            }
            Ok(Way::Complete) => match so_far(&app.pool, person, &checkout).await? {
                // It came to nothing, or what it brought is over: whoever clicks now wants it anew.
                Progress::Failed | Progress::Begun => checkouts::end(&app.pool, checkout.id, now).await?,
                _ => return Ok(address(&checkout)),
            },
            Ok(Way::To(url)) => return Ok(url),
            Ok(Way::SignIn { .. } | Way::OwnToken) => return Err(NoWay::NotSold.into()),
            // Nobody paid it in its day: a new one is begun.
            Err(DoorError::Closed) if checkout.reference.is_some() => checkouts::end(&app.pool, checkout.id, now).await?,
            Err(error) => {
                if is_mine {
                    // Whatever was made of it, nobody was shown it: the next click begins anew.
                    checkouts::give_up(&app.pool, checkout.id, now).await?;
                }
                return Err(NoWay::Door(error).into());
            }
        }
    }
    Err(NoWay::UnderWay.into())
}

/// Where to send somebody who wants to manage what they pay.
pub async fn to_portal(app: &AppState, person: &Person, source: Source, intent: Uuid) -> Result<Way, Refused> {
    let provider = app.providers.of(source).ok_or(NoWay::NotSold)?;
    let mut conn = app.pool.acquire().await?;
    let customer = customer(&mut conn, person, source).await?;
    drop(conn);
    let (back, intent) = (page(app, "/account"), intent.to_string());
    let errand = Errand {
        user: &person.user,
        email: None,
        customer: customer.as_ref(),
        done: &back,
        back: &back,
        intent: &intent,
        earlier: None,
    };
    provider.portal(&errand).await.map_err(|error| NoWay::Door(error).into())
}

pub fn address(checkout: &Checkout) -> String {
    format!("/account/checkout/{}", checkout.id)
}

/// Writes the wish down, under the account's lock, unless there is nothing left to buy.
async fn note(pool: &PgPool, wish: Wish) -> Result<(Noted, Option<CustomerId>, OffsetDateTime), Refused> {
    let mut tx = pool.begin().await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let locked = accounts::lock(&mut tx, &[wish.account].into()).await.map_err(Unreadable::from)?;
    let plan = locked.get(&wish.account).map(|standing| standing.plan_at(Instant::from_datetime(now)));
    if wish.ware == Ware::Pro && plan == Some(Plan::Pro) {
        return Err(NoWay::HasPro.into());
    }
    let noted = checkouts::note(&mut tx, wish, now).await?;
    let known = accounts::known_as(&mut tx, wish.account).await?;
    tx.commit().await?;
    Ok((noted, known.into_iter().find(|(source, _)| *source == wish.source).map(|(_, customer)| customer), now))
}

async fn customer(conn: &mut sqlx::PgConnection, person: &Person, source: Source) -> sqlx::Result<Option<CustomerId>> {
    let known = accounts::known_as(conn, person.account).await?;
    Ok(known.into_iter().find(|(known, _)| *known == source).map(|(_, customer)| customer))
}

/// What events have told of a checkout that is complete.
async fn so_far(pool: &PgPool, person: &Person, checkout: &Checkout) -> sqlx::Result<Progress> {
    let mut conn = pool.acquire().await?;
    checkout::progress(&mut conn, person, checkout).await
}

/// The checkout once whoever noted it first has its way, or as it is if that takes long: they may have gone.
async fn made_meanwhile(pool: &PgPool, person: &Person, checkout: Checkout) -> sqlx::Result<Checkout> {
    let until = tokio::time::Instant::now() + BESIDE_FOR;
    let mut checkout = checkout;
    while checkout.reference.is_none() && !checkout.ended && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        checkout = checkouts::of(pool, person.account, checkout.id).await?.ok_or(sqlx::Error::RowNotFound)?;
    }
    Ok(checkout)
}

async fn ask(
    provider: &Provider,
    app: &AppState,
    person: &Person,
    checkout: &Checkout,
    customer: Option<&CustomerId>,
) -> Result<Way, DoorError> {
    let (done, id) = (page(app, &address(checkout)), checkout.id.to_string());
    let back = page(app, &format!("/account?back={id}"));
    let errand = Errand {
        user: &person.user,
        email: person.email.as_deref().filter(|_| person.email_verified),
        customer,
        done: &done,
        back: &back,
        intent: &id,
        earlier: checkout.reference.as_deref(),
    };
    provider.checkout(&errand, checkout.ware).await
}

/// An address of ours as the outside knows it.
fn page(app: &AppState, path: &str) -> String {
    format!("{}{path}", app.base.as_str().trim_end_matches('/'))
}
