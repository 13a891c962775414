//! `/login` and `/logout`: to Kinde, and back out.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Method, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use reqwest::Url;
use tower_sessions::Session;

use super::return_to::return_to;
use super::sign_in::{is_canonical, only_looking};
use super::sign_in_page::{Failure, failed};
use super::state::AppState;
use super::{error, query};
use crate::oidc::Wish;

/// Marks an address that we have sent the browser to, so that behind a proxy that changes the host it is not sent again.
const SENT_HERE: &str = "here";

/// Begins a sign-in. `return_to` is a page of ours to come back to, `new=1` asks for a sign-up, `plan=pro` names the plan.
pub async fn begin(State(app): State<AppState>, method: Method, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    if let Some(answer) = only_looking(&method, &headers) {
        return answer;
    }
    let Some(sign_in) = &app.sign_in else { return failed(&Failure::NotSetUp, None) };
    let query = query.unwrap_or_default();
    let asked = |name: &str| query::value(&query, name);
    if !is_canonical(&headers, &app.base) && asked(SENT_HERE).is_none() {
        return Redirect::to(&canonical(&app.base, &query)).into_response();
    }
    let wanted = asked("return_to").unwrap_or_default();
    let wish =
        Wish { sign_up: asked("new").as_deref() == Some("1"), plan: asked("plan").and_then(|plan| sign_in.plan_key(&plan)) };
    match sign_in.oidc.begin(&wish).await {
        Ok((url, transaction)) => {
            let cookie = sign_in.pre_login.add(&headers, transaction, return_to(&wanted));
            (cookie, Redirect::to(url.as_str())).into_response()
        }
        Err(error) => failed(&Failure::of(&error), Some(return_to(&wanted))),
    }
}

/// Ends the session here, then has Kinde end its own. A POST, so that no link, picture or look ahead signs anybody out.
pub async fn end(State(app): State<AppState>, session: Session) -> Response {
    if let Err(error) = session.flush().await {
        tracing::warn!(%error, "a session could not be ended");
        return error::unavailable("You are still signed in: the database is slow or away. Try to sign out again in a moment.");
    }
    let away = app.sign_in.as_ref().map_or_else(|| "/".to_owned(), |sign_in| sign_in.oidc.logout_url());
    let answer = Redirect::to(&away);
    if app.https {
        // The session layer's own removal lacks `Secure`, and browsers ignore it for a name that begins with `__Host-`.
        let gone = "__Host-bottle=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0";
        return (AppendHeaders([(header::SET_COOKIE, gone)]), answer).into_response();
    }
    answer.into_response()
}

fn canonical(base: &Url, query: &str) -> String {
    let mut url = base.clone();
    url.set_path("/login");
    url.set_query(Some(query).filter(|query| !query.is_empty()));
    url.query_pairs_mut().append_pair(SENT_HERE, "1");
    url.into()
}
