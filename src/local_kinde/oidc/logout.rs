//! `/logout`: ends the session here, and returns to the app if it may. Where it may not, the session ends all the same: that is what
//! was asked for.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};

use super::params::Params;
use super::session;
use crate::local_kinde::local::Local;
use crate::local_kinde::pages::page;

pub async fn answer(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let params = Params::of_query(query.as_deref());
    let cookie = session::cookie(&headers);
    local.store.change(|state| {
        let Some(session) = cookie.and_then(|cookie| state.sessions.remove(cookie)) else { return };
        if params.get("all_sessions") == Some("true") {
            state.sessions.retain(|_, other| other.user_id != session.user_id);
        }
    });
    if let Err(error) = local.settle().await {
        return page::trouble(&local, &error);
    }
    let mut response = match params.get("redirect") {
        Some(url) if local.app.logout_redirects.iter().any(|allowed| allowed == url) => Redirect::to(url).into_response(),
        Some(url) => {
            let why = format!(
                "You are signed out here. `{url}` is not among the allowed logout redirect URLs, which are matched to the letter: {}",
                local.app.logout_redirects.join(", ")
            );
            page::notice(&local, StatusCode::BAD_REQUEST, "Signed out, and no way back", &why)
        }
        None => page::notice(&local, StatusCode::OK, "Signed out", "You are signed out of the local Kinde."),
    };
    session::clear(&mut response);
    response
}
