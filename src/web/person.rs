//! Who is signed in, as handlers ask for it: `Person` for a page that needs somebody, `Option<Person>` for one that greets them.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::{Deserialize, Serialize};
use tower_sessions::Session;

use super::state::AppState;
use super::{error, error_page, query};
use crate::domain::ids::{AccountId, KindeUserId};
use crate::sessions;

/// The key of a session's record that holds this.
pub const PERSON: &str = "person";

/// A signed-in person. What it says of them is from their last sign-in; their plan and bottles are never in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub account: AccountId,
    pub user: KindeUserId,
    pub name: String,
    pub email: Option<String>,
    /// Kinde has checked that the address is theirs.
    pub email_verified: bool,
    /// May see the operators' pages. Decided by the settings at each request, and never kept: who is struck off the list is off.
    #[serde(skip)]
    pub operator: bool,
}

impl Person {
    /// Makes the session this person's. The caller has given it a new id.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn begin(&self, session: &Session) -> Result<(), tower_sessions::session::Error> {
        session.insert(sessions::ACCOUNT, self.account.0).await?;
        session.insert(PERSON, self).await
    }

    /// Whoever is signed in, as far as that can be told.
    pub async fn of(parts: &mut Parts, state: &AppState) -> Option<Self> {
        signed_in(parts, state).await.unwrap_or_default()
    }
}

impl FromRequestParts<AppState> for Person {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Response> {
        match signed_in(parts, state).await? {
            Some(person) => Ok(person),
            None if parts.method == Method::GET || parts.method == Method::HEAD => {
                let wanted = parts.uri.path_and_query().map_or("/", |p| p.as_str());
                Err(Redirect::to(&query::with("/login", "return_to", wanted)).into_response())
            }
            // Nothing was changed, and what was typed is still in the tab they came from.
            None => Err(error::say(StatusCode::UNAUTHORIZED, error_page::signed_out())),
        }
    }
}

impl OptionalFromRequestParts<AppState> for Person {
    type Rejection = Infallible;

    /// A database that is away signs nobody in, and takes no public page away.
    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts, state).await)
    }
}

async fn signed_in(parts: &mut Parts, state: &AppState) -> Result<Option<Person>, Response> {
    let session =
        <Session as FromRequestParts<AppState>>::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
    let person = session.get::<Person>(PERSON).await.map_err(|error| {
        tracing::warn!(%error, "a session could not be read");
        error::unavailable("Who you are could not be looked up just now: the database is slow or away. Try again in a moment.")
    })?;
    Ok(person.map(|person| {
        let verified = person.email.as_deref().filter(|_| person.email_verified);
        Person { operator: state.operators.include(&person.user, verified), ..person }
    }))
}
