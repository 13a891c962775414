//! `/callback`: Kinde sends somebody back. What they bring is believed only with what their browser kept.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse, Redirect, Response};
use tower_sessions::Session;

use super::person::Person;
use super::pre_login::UnderWay;
use super::sign_in::{SignIn, is_canonical, only_looking};
use super::sign_in_page::{Failure, failed};
use super::state::AppState;
use super::{error, query};
use crate::oidc::id_token::Identity;
use crate::oidc::{OidcError, Tokens};

/// Longer ones are no code of Kinde's.
const CODE_BYTES_MAX: usize = 4096;

/// What Kinde has put into the address.
#[derive(Debug, Default, PartialEq, Eq)]
struct Brought {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

/// Ends a sign-in, one way or the other.
pub async fn arrive(
    State(app): State<AppState>,
    method: Method,
    headers: HeaderMap,
    session: Session,
    person: Option<Person>,
    RawQuery(query): RawQuery,
) -> Response {
    if let Some(answer) = only_looking(&method, &headers) {
        return answer;
    }
    let Some(sign_in) = &app.sign_in else { return failed(&Failure::NotSetUp, None) };
    let brought = Brought::read(&query.unwrap_or_default());
    let state = brought.as_ref().and_then(|brought| brought.state.as_deref()).unwrap_or_default();
    let had_any = sign_in.pre_login.has_any(&headers);
    let (under_way, cookie) = sign_in.pre_login.take(&headers, state);
    let (Some(brought), Some(under_way)) = (&brought, under_way) else {
        tracing::warn!(had_any, "somebody came back from Kinde with no sign-in that began in this browser");
        let why = match person {
            Some(_) => Failure::StaleButSignedIn,
            None if !had_any && !is_canonical(&headers, &app.base) => Failure::OtherHost(app.base.to_string()),
            None => Failure::Stale,
        };
        return (cookie, failed(&why, None)).into_response();
    };
    let answer = match identify(sign_in, brought, &under_way).await {
        Ok((identity, tokens)) => welcome(&app, sign_in, &session, identity, &tokens, &under_way.return_to).await,
        Err(why) => failed(&why, Some(&under_way.return_to)),
    };
    (cookie, answer).into_response()
}

async fn identify(sign_in: &SignIn, brought: &Brought, under_way: &UnderWay) -> Result<(Identity, Tokens), Failure> {
    // Whoever mixes up two tenants' answers names the wrong one here (RFC 9207). Kinde may leave it out.
    if brought.iss.as_ref().is_some_and(|iss| iss != sign_in.oidc.issuer()) {
        return Err(Failure::of(&OidcError::NotGenuine("the answer names another issuer")));
    }
    if let Some(error) = &brought.error {
        return Err(Failure::told(error));
    }
    let code = brought.code.as_deref().filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX);
    let code = code.ok_or_else(|| Failure::of(&OidcError::NotGenuine("the answer has no code")))?;
    sign_in.oidc.finish(code, &under_way.transaction).await.map_err(|error| Failure::of(&error))
}

async fn welcome(
    app: &AppState,
    sign_in: &SignIn,
    session: &Session,
    identity: Identity,
    tokens: &Tokens,
    return_to: &str,
) -> Response {
    let away = "You are not signed in: the database is slow or away. Try again in a moment.";
    let account = match sign_in.account(&app.pool, &identity).await {
        Ok(account) => account,
        Err(error) => {
            tracing::warn!(%error, "the account of somebody who signed in could not be found or made");
            return error::unavailable(away);
        }
    };
    let person = Person {
        account,
        user: identity.user,
        name: identity.name,
        email: identity.email,
        email_verified: identity.email_verified,
        operator: false,
    };
    if let Err(error) = begin_session(sign_in, session, &person, tokens).await {
        tracing::warn!(%error, "a session could not be begun");
        // Nothing half-begun is saved with the answer.
        session.clear().await;
        return error::unavailable(away);
    }
    tracing::info!(user = %person.user, %account, "signed in");
    sign_in.learn_customer(&app.pool, account, &person.user).await;
    Redirect::to(return_to).into_response()
}

/// A new session under a new id. The one that came with the request, ours or planted by somebody, ends, and nothing of it is
/// taken over.
async fn begin_session(
    sign_in: &SignIn,
    session: &Session,
    person: &Person,
    tokens: &Tokens,
) -> Result<(), tower_sessions::session::Error> {
    session.clear().await;
    session.cycle_id().await?;
    person.begin(session).await?;
    sign_in.vault.put(session, person.account, tokens).await?;
    // Now, while there is still a page to say that it failed.
    session.save().await
}

impl Brought {
    /// None: something is there twice, and two readers might take it differently.
    fn read(query: &str) -> Option<Self> {
        let mut brought = Self::default();
        for (name, value) in query::pairs(query) {
            let place = match name.as_str() {
                "code" => &mut brought.code,
                "state" => &mut brought.state,
                "iss" => &mut brought.iss,
                "error" => &mut brought.error,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        Some(brought)
    }
}
