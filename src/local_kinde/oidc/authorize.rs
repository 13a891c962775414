//! `/oauth2/auth`: shows who can sign in, and lets somebody in who is.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::request::{AuthRequest, Prompt};
use super::{session, sign_in};
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::pages::page;
use crate::local_kinde::people;
use crate::local_kinde::plans;
use crate::local_kinde::state::{Code, Consent, Session};
use std::time::Duration;

pub async fn show(State(local): State<Arc<Local>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let request = match AuthRequest::read(&local, query.as_deref()) {
        Ok(request) => request,
        Err(refusal) => return refusal.answer(&local),
    };
    match (request.prompt, session::find(&local, &headers)) {
        (Prompt::None, None) => request.error("login_required", "nobody is signed in"),
        (Prompt::None, Some(session)) => let_in(&local, &request, &session).await,
        (Prompt::Usual, Some(session)) => go_on(&local, &request, &session).await,
        _ => sign_in::show(&local, &request),
    }
}

/// To the plans, if one is to be chosen on the way; else back to the app.
pub async fn go_on(local: &Local, request: &AuthRequest, session: &Session) -> Response {
    let has_plan = local.store.read(|state| plans::current(state, &session.user_id, At::now()).is_some());
    if request.with_plans && !has_plan {
        return Redirect::to(&format!("/local/checkout?{}", request.query)).into_response();
    }
    let_in(local, request, session).await
}

/// Back to the app, with a code.
pub async fn let_in(local: &Local, request: &AuthRequest, session: &Session) -> Response {
    let code = people::fresh("code_");
    let consent = Consent {
        client_id: request.client_id.clone(),
        user_id: session.user_id.clone(),
        scopes: request.scopes.clone(),
        signed_in_at: session.signed_in_at,
        family: people::fresh(""),
    };
    local.store.change(|state| {
        let expires = At::now().after(Duration::from_secs(state.switches.lifetimes.code));
        let (redirect_uri, challenge) = (request.redirect_uri.clone(), request.challenge.clone());
        let nonce = request.nonce.clone();
        state.codes.insert(code.clone(), Code { consent, redirect_uri, challenge, nonce, expires, used: false });
    });
    match local.settle().await {
        Ok(()) => request.code(&code),
        Err(error) => page::trouble(local, &error),
    }
}
