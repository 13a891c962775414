//! The two documents everybody may read: where the endpoints are, and the public keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::request::SCOPES;
use crate::local_kinde::key::Jwks;
use crate::local_kinde::local::Local;

/// Kinde's endpoints under Kinde's names.
pub async fn document(State(local): State<Arc<Local>>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", local.url);
    Json(json!({
        "issuer": local.url,
        "authorization_endpoint": at("/oauth2/auth"),
        "token_endpoint": at("/oauth2/token"),
        "userinfo_endpoint": at("/oauth2/v2/user_profile"),
        "introspection_endpoint": at("/oauth2/introspect"),
        "revocation_endpoint": at("/oauth2/revoke"),
        "end_session_endpoint": at("/logout"),
        "jwks_uri": at("/.well-known/jwks"),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "prompt_values_supported": ["login", "create", "none"],
        "scopes_supported": SCOPES,
        "code_challenge_methods_supported": ["S256"],
    }))
}

pub async fn jwks(State(local): State<Arc<Local>>) -> Json<Jwks> {
    Json(local.jwks())
}
