//! `POST /webhooks/{provider}`: reads the raw bytes, hands them to intake, says what it says.

use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use crate::domain::event::Source;
use crate::domain::ids::EventKey;
use crate::intake::Refusal;
use crate::telemetry::labels::{Arrival, Endpoint};
use crate::telemetry::metrics;

use super::state::AppState;

const KIB: usize = 1024;
const KINDE_BODY_MAX: usize = 256 * KIB;
const STRIPE_BODY_MAX: usize = 1024 * KIB;
/// A sender that dribbles is cut off.
const BODY_WITHIN: Duration = Duration::from_secs(15);

/// The answer to a genuine delivery, in this order.
#[derive(Serialize)]
struct Stored {
    event: EventKey,
    copy: bool,
}

/// Exactly 200 for what is stored, never another 2xx: Kinde tries again after anything else. The content type is not checked.
pub async fn receive(State(app): State<AppState>, Path(provider): Path<String>, headers: HeaderMap, body: Body) -> Response {
    let began = Instant::now();
    let (source, endpoint, body_max) = match provider.as_str() {
        "kinde" => (Source::Kinde, Endpoint::Kinde, KINDE_BODY_MAX),
        "stripe" => (Source::Stripe, Endpoint::Stripe, STRIPE_BODY_MAX),
        _ => {
            metrics::delivery(Endpoint::Other, Arrival::Unconfigured, began.elapsed());
            return problem(StatusCode::NOT_FOUND, "no such provider");
        }
    };
    let (answer, outcome) = take(&app, source, body_max, &headers, body).await;
    metrics::delivery(endpoint, outcome, began.elapsed());
    answer
}

async fn take(app: &AppState, source: Source, body_max: usize, headers: &HeaderMap, body: Body) -> (Response, Arrival) {
    let provider = source.as_str();
    if !app.intake.is_configured(source) {
        return (problem(StatusCode::NOT_IMPLEMENTED, "this provider is not configured here"), Arrival::Unconfigured);
    }
    let body = match timeout(BODY_WITHIN, Limited::new(body, body_max).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            tracing::error!(provider, body_max, "a delivery over the size cap was refused");
            return (problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than a webhook can be"), Arrival::TooLarge);
        }
        Ok(Err(_)) => return (problem(StatusCode::BAD_REQUEST, "the body could not be read"), Arrival::Unreadable),
        Err(_) => return (problem(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"), Arrival::Unreadable),
    };
    let webhook_id =
        headers.get("webhook-id").and_then(|value| value.to_str().ok()).map(|id| id.chars().take(200).collect::<String>());
    match app.intake.receive(source, headers, &body).await {
        Ok(receipt) => {
            let outcome = receipt.arrival();
            (Json(Stored { event: receipt.event, copy: receipt.copy }).into_response(), outcome)
        }
        Err(Refusal::NotConfigured) => {
            (problem(StatusCode::NOT_IMPLEMENTED, "this provider is not configured here"), Arrival::Unconfigured)
        }
        Err(Refusal::NotGenuine(why)) => {
            tracing::warn!(provider, webhook_id, why, "a delivery was refused: not genuine");
            let status = if source == Source::Kinde { StatusCode::UNAUTHORIZED } else { StatusCode::BAD_REQUEST };
            (problem(status, "not genuine; nothing was stored"), Arrival::NotGenuine)
        }
        Err(Refusal::Unavailable(why)) => {
            tracing::warn!(provider, webhook_id, why, "a delivery could not be taken; its sender is asked to try again");
            let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "try again");
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
            (answer, Arrival::Unavailable)
        }
    }
}

pub async fn post_only() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "webhooks are posted here")
}

fn problem(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}
