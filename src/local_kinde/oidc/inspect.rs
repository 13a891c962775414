//! `/oauth2/revoke` and `/oauth2/introspect`, for a client about its own tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::token::{self, Body, Client, Refused};
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;

/// Withdraws a refresh token and all that came of the same sign-in. An unknown token is revoked already; an access token cannot
/// be: whoever reads one asks nobody.
pub async fn revoke(State(local): State<Arc<Local>>, body: Body) -> Response {
    let params = match who(&local, body) {
        Ok(params) => params,
        Err(refused) => return token::refusal(&refused),
    };
    let given = params.get("token").unwrap_or_default();
    local.store.change(|state| {
        if let Some(family) = state.refresh_tokens.get(given).map(|token| token.consent.family.clone()) {
            state.refresh_tokens.retain(|_, token| token.consent.family != family);
        }
    });
    match local.settle().await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => token::refusal(&Refused("server_error", error.to_string())),
    }
}

pub async fn introspect(State(local): State<Arc<Local>>, body: Body) -> Response {
    let params = match who(&local, body) {
        Ok(params) => params,
        Err(refused) => return token::refusal(&refused),
    };
    let given = params.get("token").unwrap_or_default();
    let refresh = local.store.read(|state| state.refresh_tokens.get(given).cloned());
    let answer = match (refresh, local.jwks().claims(given, &local.url)) {
        (Some(token), _) => {
            let active = token.expires > At::now() && token.replaced_at.is_none();
            json!({ "active": active, "sub": token.consent.user_id, "client_id": token.consent.client_id, "exp": token.expires.unix() })
        }
        (None, Some(mut claims)) => {
            claims["active"] = json!(true);
            claims["client_id"] = claims["azp"].clone();
            claims
        }
        (None, None) => json!({ "active": false }),
    };
    token::no_store(Json(answer).into_response())
}

fn who(local: &Local, body: Body) -> Result<super::params::Params, Refused> {
    let params = token::read(body)?;
    match token::client(local, &params)? {
        Client::App | Client::Machine => Ok(params),
    }
}
