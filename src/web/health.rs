//! Is the process alive, and can it do its work?

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::state::AppState;

pub async fn live() -> &'static str {
    "alive\n"
}

/// Ready means that a delivery could be stored.
pub async fn ready(State(app): State<AppState>) -> Response {
    match sqlx::query_scalar!(r#"select 1 as "one!""#).fetch_one(&app.pool).await {
        Ok(_) => "ready\n".into_response(),
        Err(error) => {
            tracing::warn!(%error, "not ready: the database does not answer");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: the database does not answer\n").into_response()
        }
    }
}
