//! Is the process alive, and can it do its work?

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::state::AppState;

pub async fn live() -> &'static str {
    "alive\n"
}

/// Ready means that a delivery could be stored. After a failover the address may still lead to a server that only reads.
pub async fn ready(State(app): State<AppState>) -> Response {
    let writable = sqlx::query_scalar!(r#"select current_setting('transaction_read_only') = 'off' as "writable!""#);
    let why = match writable.fetch_one(&app.pool).await {
        Ok(true) => return "ready\n".into_response(),
        Ok(false) => "not ready: the database takes no writes\n",
        Err(error) => {
            tracing::warn!(%error, "not ready: the database does not answer");
            "not ready: the database does not answer\n"
        }
    };
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}
