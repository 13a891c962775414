//! `/account/billing`: the way to Kinde's portal, where plans and cards are managed.
//!
//! The link works once, so each click mints one. It costs a call with the person's own token, and that may have to be renewed
//! first, which changes what the session holds: a POST, from a button of ours.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Redirect, Response};
use reqwest::Url;
use tower_sessions::Session;

use super::error;
use super::page::Frame;
use super::person::Person;
use super::session_tokens::VaultError;
use super::sign_in::SignIn;
use super::sign_in_page::{Failure, failed};
use super::state::AppState;
use crate::oidc::OidcError;

/// Where the portal sends people back to.
const BACK_TO: &str = "/account";

#[derive(Template)]
#[template(path = "manage_billing.html")]
struct ManageBilling {
    frame: Frame,
}

/// The button by itself: where somebody lands who had to sign in again first.
pub async fn show(person: Person) -> Response {
    let page = ManageBilling { frame: Frame::new("Manage billing · Bottle", "account").of(Some(&person)) };
    page.render().map_or_else(|error| error::template(&error), |html| Html(html).into_response())
}

pub async fn go(State(app): State<AppState>, person: Person, session: Session) -> Response {
    let Some(sign_in) = &app.sign_in else { return failed(&Failure::NotSetUp, None) };
    match link(sign_in, &session, &person).await {
        Ok(url) => Redirect::to(url.as_str()).into_response(),
        Err(VaultError::Kinde(OidcError::SignInAgain)) => Redirect::to("/login?return_to=/account/billing").into_response(),
        Err(VaultError::Kinde(error)) => failed(&Failure::of(&error), Some("/account/billing")),
        Err(VaultError::Session(error)) => {
            tracing::warn!(%error, "a session could not be read or written");
            error::unavailable("Your session could not be read just now: the database is slow or away. Try again in a moment.")
        }
    }
}

async fn link(sign_in: &SignIn, session: &Session, person: &Person) -> Result<Url, VaultError> {
    let (oidc, vault) = (&sign_in.oidc, &sign_in.vault);
    let tokens = vault.fresh(oidc, session, person).await?;
    match oidc.portal_link(&tokens, BACK_TO).await {
        // Ended before its time: withdrawn, or our clocks differ.
        Err(OidcError::SignInAgain) => {
            let tokens = vault.renew(oidc, session, person, &tokens).await?;
            Ok(oidc.portal_link(&tokens, BACK_TO).await?)
        }
        done => Ok(done?),
    }
}
