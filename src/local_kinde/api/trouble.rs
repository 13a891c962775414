//! The APIs' bad days, by a switch: too many requests, errors, slowness.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::bearer::errors;
use crate::local_kinde::local::Local;
use crate::local_kinde::switches::{Apis, Trouble};

pub async fn meet(State(local): State<Arc<Local>>, request: Request, next: Next) -> Response {
    // Only where something is to go wrong is there something to count.
    let any = local.store.read(|state| state.switches.apis.trouble != Trouble::None);
    let (trouble, time) = if any { local.store.change(|state| state.switches.apis.take()) } else { Apis::default().take() };
    match trouble {
        Trouble::None => next.run(request).await,
        Trouble::TooMany => {
            let mut response = errors(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", "the limit of requests is reached");
            response.headers_mut().insert("ratelimit-reset", HeaderValue::from(time.as_secs()));
            response
        }
        Trouble::ServerError => errors(StatusCode::INTERNAL_SERVER_ERROR, "SERVER_ERROR", "something went wrong"),
        Trouble::Unavailable => errors(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "come back later"),
        Trouble::Slow => {
            tokio::time::sleep(time).await;
            next.run(request).await
        }
    }
}
