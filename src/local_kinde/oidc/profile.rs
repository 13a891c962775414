//! `/oauth2/v2/user_profile`: who the bearer of an access token is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{token, tokens};
use crate::local_kinde::api::bearer;
use crate::local_kinde::local::Local;

pub async fn answer(State(local): State<Arc<Local>>, headers: HeaderMap) -> Response {
    let (person, scopes) = match bearer::person(&local, &headers) {
        Ok(both) => both,
        Err(refusal) => return *refusal,
    };
    let mut known = tokens::profile(&person, &scopes);
    known.insert("sub".into(), json!(person.id));
    known.insert("id".into(), json!(person.id));
    known.insert("provided_id".into(), Value::Null);
    token::no_store(Json(Value::Object(known)).into_response())
}
