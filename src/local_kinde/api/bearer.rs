//! Who asks: the token in the `Authorization` header, signed here, not expired, and of the right kind. ID tokens are signed by the
//! same key; what sets an access token apart is `scp`.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::local_kinde::local::Local;
use crate::local_kinde::people::Person;

/// The person whose access token it is, and its scopes.
///
/// # Errors
/// It is none; the answer says so.
pub fn person(local: &Local, headers: &HeaderMap) -> Result<(Person, Vec<String>), Box<Response>> {
    let claims = claims(local, headers)?;
    let by_a_machine = claims.get("gty").is_some();
    let found = claims["sub"].as_str().and_then(|id| local.store.read(|state| state.find_person(id).cloned()));
    match found {
        Some(person) if !by_a_machine => Ok((person, texts(&claims["scp"]))),
        _ => Err(forbidden("the token belongs to no person")),
    }
}

/// # Errors
/// It is no machine's token for the Management API, or lacks the scope; the answer says so.
pub fn machine(local: &Local, headers: &HeaderMap, scope: &str) -> Result<(), Box<Response>> {
    let claims = claims(local, headers)?;
    if !texts(&claims["aud"]).contains(&local.api()) {
        return Err(refuse(StatusCode::UNAUTHORIZED, "TOKEN_INVALID", "the token is not for this API: its audience is another"));
    }
    if !texts(&claims["scp"]).iter().any(|granted| granted == scope) {
        return Err(forbidden(&format!("the token lacks the scope {scope}")));
    }
    Ok(())
}

fn claims(local: &Local, headers: &HeaderMap) -> Result<Value, Box<Response>> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let claims = token.and_then(|(_, token)| local.jwks().claims(token.trim(), &local.url));
    match claims {
        Some(claims) if claims["scp"].is_array() => Ok(claims),
        _ => Err(refuse(StatusCode::UNAUTHORIZED, "TOKEN_INVALID", "no valid access token was given")),
    }
}

fn forbidden(why: &str) -> Box<Response> {
    refuse(StatusCode::FORBIDDEN, "FORBIDDEN", why)
}

fn refuse(status: StatusCode, code: &str, why: &str) -> Box<Response> {
    let mut response = errors(status, code, why);
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static(r#"Bearer error="invalid_token""#);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    Box::new(response)
}

/// In the form of Kinde's APIs.
pub fn errors(status: StatusCode, code: &str, why: &str) -> Response {
    (status, Json(json!({ "errors": [{ "code": code, "message": why }] }))).into_response()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
