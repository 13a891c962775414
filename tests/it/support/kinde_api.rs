//! A Management API whose truth, lag, limits and moods the test decides. It speaks only HTTP, and notes what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use bottle::config::{M2m, Secret};
use bottle::jwks::Jwks;
use bottle::outbound::Client;
use bottle::providers::kinde::Kinde;
use bottle::providers::kinde::management::Management;
use bottle::providers::{Provider, Providers};
use serde_json::{Value, json};

use super::tokens::TENANT;

/// How calls about agreements end.
#[derive(Debug, Clone, Default)]
pub enum Mood {
    #[default]
    Answers,
    Limited {
        reset: &'static str,
    },
    Status(u16),
    Says(String),
    Silent,
}

/// An agreement, its plan, and when it expires.
pub type Agreement = (&'static str, &'static str, Option<&'static str>);

#[derive(Default)]
pub struct Truth {
    /// What is listed by customer; those not here do not exist.
    pub agreements: BTreeMap<String, Vec<Agreement>>,
    pub customers: BTreeMap<String, Value>,
    pub mood: Mood,
    /// Customers that calls fail for with 503.
    pub failing: BTreeSet<String>,
    pub page_size: usize,
    pub token_life: Value,
    /// Credentials are answered with this status.
    pub refuses: Option<u16>,
    /// Every token is refused.
    pub refuses_tokens: bool,
    pub token_forms: Vec<BTreeMap<String, String>>,
    pub good_token: String,
    /// The customers asked about, with the page.
    pub asked: Vec<(String, Option<String>)>,
    pub asked_at_once: usize,
    pub asked_at_once_max: usize,
}

#[derive(Clone)]
pub struct KindeApi {
    pub url: String,
    truth: Arc<Mutex<Truth>>,
}

impl KindeApi {
    pub async fn start() -> Self {
        let truth = Truth { page_size: 100, token_life: json!(86_400), ..Truth::default() };
        let truth = Arc::new(Mutex::new(truth));
        let app = Router::new()
            .route("/oauth2/token", post(token))
            .route("/api/v1/billing/agreements", get(agreements))
            .route("/api/v1/user", get(user))
            .with_state(Arc::clone(&truth));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, truth }
    }

    pub fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap()
    }

    pub fn lists(&self, user: &str, agreements: &[Agreement]) {
        self.truth().agreements.insert(super::claims::customer_id(user), agreements.to_vec());
    }

    pub fn tokens(&self) -> usize {
        self.truth().token_forms.len()
    }

    pub fn asked(&self) -> usize {
        self.truth().asked.len()
    }

    pub fn management(&self) -> Management {
        let credentials = M2m { client_id: "m2m".to_owned(), client_secret: Secret::new("hush") };
        Management::new(Client::new(&self.url).unwrap(), &self.url, credentials).unwrap()
    }

    /// Kinde's arm with keys that are held, asking here.
    pub fn providers(&self) -> Arc<Providers> {
        let kinde = Kinde::new(Arc::new(Jwks::held([TENANT.held()])), ["https://bottle.kinde.test".to_owned()], None);
        Arc::new(Providers { kinde: Some(Provider::Kinde(kinde.with_management(self.management()))), stripe: None })
    }
}

async fn token(State(truth): State<Arc<Mutex<Truth>>>, Form(form): Form<BTreeMap<String, String>>) -> Response {
    let mut truth = truth.lock().unwrap();
    truth.token_forms.push(form);
    if let Some(status) = truth.refuses {
        return (StatusCode::from_u16(status).unwrap(), r#"{"error":"invalid_client"}"#).into_response();
    }
    truth.good_token = format!("token-{}", truth.token_forms.len());
    Json(json!({"access_token": truth.good_token, "expires_in": truth.token_life, "token_type": "bearer"})).into_response()
}

async fn agreements(
    State(truth): State<Arc<Mutex<Truth>>>,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let customer = query["customer_id"].clone();
    let silent = {
        let mut truth = truth.lock().unwrap();
        truth.asked.push((customer.clone(), query.get("starting_after").cloned()));
        truth.asked_at_once += 1;
        truth.asked_at_once_max = truth.asked_at_once_max.max(truth.asked_at_once);
        matches!(truth.mood, Mood::Silent)
    };
    // So that calls made side by side are seen side by side.
    tokio::time::sleep(if silent { Duration::from_secs(60) } else { Duration::from_millis(5) }).await;
    let mut truth = truth.lock().unwrap();
    truth.asked_at_once -= 1;
    if truth.refuses_tokens || headers["authorization"] != format!("Bearer {}", truth.good_token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if truth.failing.contains(&customer) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match &truth.mood {
        Mood::Limited { reset } => return (StatusCode::TOO_MANY_REQUESTS, [("RateLimit-Reset", *reset)]).into_response(),
        Mood::Status(status) => return StatusCode::from_u16(*status).unwrap().into_response(),
        Mood::Says(text) => return text.clone().into_response(),
        Mood::Answers | Mood::Silent => {}
    }
    let Some(all) = truth.agreements.get(&customer) else {
        return (StatusCode::NOT_FOUND, r#"{"errors":[{"code":"CUSTOMER_NOT_FOUND"}]}"#).into_response();
    };
    let from = query.get("starting_after").map_or(0, |after| all.iter().position(|a| a.0 == *after).unwrap() + 1);
    let page: Vec<Value> = all[from..]
        .iter()
        .take(truth.page_size)
        .map(|(id, plan, expires)| {
            json!({
                "id": id, "plan_code": format!("customer_{plan}_plan"), "expires_on": expires, "billing_group_id": "sbg_1",
                "current_period_start": "2026-10-01T00:00:00+11", "entitlements": [{"feature_code": "bottles"}],
            })
        })
        .collect();
    let has_more = from + page.len() < all.len();
    Json(json!({"code": "OK", "message": "Success", "has_more": has_more, "agreements": page})).into_response()
}

async fn user(
    State(truth): State<Arc<Mutex<Truth>>>,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let truth = truth.lock().unwrap();
    if headers["authorization"] != format!("Bearer {}", truth.good_token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    assert_eq!(query["expand"], "billing");
    match truth.customers.get(&query["id"]) {
        Some(billing) => Json(json!({"id": query["id"], "preferred_email": null, "billing": billing})).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
