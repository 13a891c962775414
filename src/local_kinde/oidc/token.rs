//! `/oauth2/token`: a code, a refresh token or a client's own credentials for tokens. Clients say who they are in the body: whether
//! Kinde takes HTTP Basic is not documented, so whoever leans on it should find out here.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::FormRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Form, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::params::Params;
use super::tokens;
use crate::local_kinde::Error;
use crate::local_kinde::api;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;

pub type Body = Result<Form<Vec<(String, String)>>, FormRejection>;

/// An error of OAuth's: its code and what is wrong.
pub struct Refused(pub &'static str, pub String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    App,
    Machine,
}

pub async fn answer(State(local): State<Arc<Local>>, body: Body) -> Response {
    match grant(&local, body) {
        Ok(answer) => match local.settle().await {
            Ok(()) => no_store(Json(answer).into_response()),
            Err(error) => refusal(&Refused("server_error", error.to_string())),
        },
        Err(refused) => refusal(&refused),
    }
}

fn grant(local: &Local, body: Body) -> Result<Value, Refused> {
    let params = read(body)?;
    let client = client(local, &params)?;
    match (params.get("grant_type"), client) {
        (Some("authorization_code"), Client::App) => by_code(local, &params),
        (Some("refresh_token"), Client::App) => by_refresh_token(local, &params),
        (Some("client_credentials"), Client::Machine) => by_credentials(local, &params),
        (Some(grant @ ("authorization_code" | "refresh_token" | "client_credentials")), _) => {
            Err(Refused("unauthorized_client", format!("this application may not use the grant {grant}")))
        }
        (Some(other), _) => Err(Refused("unsupported_grant_type", format!("no grant `{other}`"))),
        (None, _) => Err(Refused("invalid_request", "grant_type is missing".into())),
    }
}

/// # Errors
/// It is no form, or says something twice.
pub fn read(body: Body) -> Result<Params, Refused> {
    let params = match body {
        Ok(Form(pairs)) => Params::new(pairs),
        Err(rejection) => return Err(Refused("invalid_request", rejection.body_text())),
    };
    match params.twice() {
        Some(name) => Err(Refused("invalid_request", format!("the parameter {name} was given twice"))),
        None => Ok(params),
    }
}

/// # Errors
/// No such client, or not its secret.
pub fn client(local: &Local, params: &Params) -> Result<Client, Refused> {
    let known = &local.credentials;
    let (client, secret) = match params.get("client_id") {
        Some(id) if id == known.client_id => (Client::App, &known.client_secret),
        Some(id) if id == known.m2m_client_id => (Client::Machine, &known.m2m_client_secret),
        Some(_) => return Err(Refused("invalid_client", "no such client".into())),
        None => return Err(Refused("invalid_client", "client_id is missing: it belongs in the body".into())),
    };
    if params.get("client_secret") != Some(secret) {
        return Err(Refused("invalid_client", "the client_secret is not the right one, or not in the body".into()));
    }
    Ok(client)
}

fn by_code(local: &Local, params: &Params) -> Result<Value, Refused> {
    let wrong = |why: &str| Err(Refused("invalid_grant", why.to_owned()));
    let Some(given) = params.get("code") else {
        return Err(Refused("invalid_request", "code is missing".into()));
    };
    let now = At::now();
    local.store.change(|state| {
        let Some(code) = state.codes.get(given).cloned() else {
            return wrong("there is no such code");
        };
        if code.used {
            // Somebody has a code that is not theirs; what it brought is worth nothing any more.
            state.refresh_tokens.retain(|_, token| token.consent.family != code.consent.family);
            return wrong("the code was used before");
        }
        // Who asks wrongly has spent the code: nobody gets a second guess.
        if let Some(code) = state.codes.get_mut(given) {
            code.used = true;
        }
        if code.expires <= now {
            return wrong("the code has expired");
        }
        if params.get("redirect_uri") != Some(code.redirect_uri.as_str()) {
            return wrong("redirect_uri is not the one the code was asked for with");
        }
        let Some(verifier) = params.get("code_verifier") else {
            return wrong("code_verifier is missing");
        };
        if URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) != code.challenge {
            return wrong("code_verifier does not match the code_challenge");
        }
        tokens::answer(local, state, &code.consent, code.nonce.as_deref(), now).map_err(|error| server_error(&error))
    })
}

fn by_refresh_token(local: &Local, params: &Params) -> Result<Value, Refused> {
    let wrong = |why: &str| Err(Refused("invalid_grant", why.to_owned()));
    let Some(given) = params.get("refresh_token") else {
        return Err(Refused("invalid_request", "refresh_token is missing".into()));
    };
    let now = At::now();
    local.store.change(|state| {
        let overlap = Duration::from_secs(state.switches.lifetimes.overlap);
        let Some(token) = state.refresh_tokens.get_mut(given) else {
            return wrong("there is no such refresh token");
        };
        if token.expires <= now {
            return wrong("the refresh token has expired");
        }
        if token.replaced_at.is_some_and(|replaced| replaced.after(overlap) <= now) {
            return wrong("the refresh token was used before: each use brings a new one");
        }
        let mut consent = token.consent.clone();
        if let Some(scope) = params.get("scope") {
            let narrower: Vec<String> = scope.split_whitespace().map(str::to_owned).collect();
            if narrower.iter().any(|scope| !consent.scopes.contains(scope)) {
                return Err(Refused("invalid_scope", "a refresh cannot ask for more than was granted".into()));
            }
            consent.scopes = narrower;
        }
        token.replaced_at.get_or_insert(now);
        tokens::answer(local, state, &consent, None, now).map_err(|error| server_error(&error))
    })
}

fn by_credentials(local: &Local, params: &Params) -> Result<Value, Refused> {
    let audience = match params.get("audience") {
        Some(audience) if audience == local.api() => vec![audience.to_owned()],
        Some(other) => {
            return Err(Refused("invalid_request", format!("the audience `{other}` is not one of this application's")));
        }
        // A token that is good for nothing, as at Kinde.
        None => Vec::new(),
    };
    let scopes: Vec<String> = match params.get("scope") {
        Some(scope) => scope.split_whitespace().map(str::to_owned).collect(),
        None => api::SCOPES.map(str::to_owned).to_vec(),
    };
    if let Some(scope) = scopes.iter().find(|scope| !api::SCOPES.contains(&scope.as_str())) {
        return Err(Refused("invalid_scope", format!("the application may not ask for the scope `{scope}`")));
    }
    let lasts = local.store.read(|state| state.switches.lifetimes.access_token);
    let token = tokens::machine_token(local, &scopes, &audience, At::now(), lasts).map_err(|error| server_error(&error))?;
    Ok(json!({ "access_token": token, "expires_in": lasts, "scope": scopes.join(" "), "token_type": "bearer" }))
}

fn server_error(error: &Error) -> Refused {
    Refused("server_error", error.to_string())
}

pub fn refusal(Refused(error, why): &Refused) -> Response {
    let status = match *error {
        "invalid_client" => StatusCode::UNAUTHORIZED,
        "server_error" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    no_store((status, Json(json!({ "error": error, "error_description": why }))).into_response())
}

pub fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}
