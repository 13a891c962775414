//! A Kinde that signs anybody in at once and can be made to lie: each answer can be forged, withheld or spoilt.
//!
//! Apart from what a test asks for, it is strict: it checks the client's secret, the callback address, the PKCE verifier, and
//! that codes and refresh tokens are used once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use bottle::config::{Client, Kinde, Secret};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::tokens::{TENANT, b64};

pub const CLIENT_ID: &str = "canary-client-id-0001";
pub const CLIENT_SECRET: &str = "canary-client-secret-0002";

type Fields = BTreeMap<String, String>;

#[derive(Clone)]
pub struct FakeKinde {
    pub url: String,
    state: Arc<Mutex<Inside>>,
}

/// What it does, and what was asked of it.
pub struct Inside {
    /// The claims about whoever signs in next.
    pub who: Value,
    /// Changes what an ID token says.
    pub forge: Box<dyn Fn(&mut Value) + Send>,
    /// Signs an ID token's claims.
    pub sign: Box<dyn Fn(String) -> String + Send>,
    /// Changes the discovery document.
    pub discovery: Box<dyn Fn(&mut Value) + Send>,
    pub discoveries: usize,
    pub trouble: Trouble,
    /// In place of a code.
    pub error: Option<&'static str>,
    /// More to bring back.
    pub brings: Vec<(&'static str, String)>,
    pub expires_in: i64,
    /// Refresh tokens that are still to be had; the newest alone is taken.
    refreshes: HashMap<String, bool>,
    codes: HashMap<String, Grant>,
    accesses: Vec<String>,
    pub portal: String,
    pub authorized: Vec<Fields>,
    pub token_requests: Vec<Fields>,
    pub refreshed: usize,
    pub portal_requests: Vec<Fields>,
    pub logouts: Vec<Fields>,
    /// Everything it gave that nobody else may see.
    pub secrets: Vec<String>,
}

/// What the token endpoint and the portal do instead of their work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    None,
    Answers(u16, String),
    Hangs,
}

#[derive(Clone)]
struct Grant {
    challenge: String,
    nonce: String,
    redirect_uri: String,
    who: Value,
}

impl FakeKinde {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fake = Self {
            state: Arc::new(Mutex::new(Inside {
                who: person("kp_ada", "ada@example.com"),
                forge: Box::new(|_| {}),
                sign: Box::new(|claims| TENANT.sign_event(claims)),
                discovery: Box::new(|_| {}),
                discoveries: 0,
                trouble: Trouble::None,
                error: None,
                brings: Vec::new(),
                expires_in: 86_400,
                refreshes: HashMap::new(),
                codes: HashMap::new(),
                accesses: Vec::new(),
                portal: format!("{url}/portal?key=one-time"),
                authorized: Vec::new(),
                token_requests: Vec::new(),
                refreshed: 0,
                portal_requests: Vec::new(),
                logouts: Vec::new(),
                secrets: vec![CLIENT_SECRET.to_owned()],
            })),
            url,
        };
        let app = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/.well-known/jwks", get(async || Json(json!({ "keys": [TENANT.jwk()] }))))
            .route("/oauth2/auth", get(authorize))
            .route("/oauth2/token", post(token))
            .route("/account_api/v1/portal_link", get(portal_link))
            .route("/portal", get(async || "Plans and cards"))
            .route("/logout", get(logout))
            .with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        fake
    }

    pub fn settings(&self) -> Kinde {
        let client = Client { id: CLIENT_ID.to_owned(), secret: Secret::new(CLIENT_SECRET) };
        Kinde { domain: self.url.clone(), issuer: None, client: Some(client), m2m: None }
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().unwrap()
    }

    /// Ends every access token, though it said they live longer.
    pub fn withdraw_access(&self) {
        self.inside().accesses.clear();
    }

    /// Ends every refresh token.
    pub fn withdraw_refresh(&self) {
        self.inside().refreshes.clear();
    }
}

pub fn person(user: &str, email: &str) -> Value {
    json!({ "sub": user, "email": email, "email_verified": true, "given_name": "Ada", "family_name": "Lovelace" })
}

impl Inside {
    fn secret(&mut self, kind: &str) -> String {
        let secret = format!("canary-{kind}-{}", uuid::Uuid::new_v4().simple());
        self.secrets.push(secret.clone());
        secret
    }

    fn tokens(&mut self, id_token: Option<String>) -> Value {
        let (access, refresh) = (self.secret("access"), self.secret("refresh"));
        self.accesses.push(access.clone());
        self.refreshes.insert(refresh.clone(), true);
        let mut answer = json!({
            "access_token": access, "refresh_token": refresh, "expires_in": self.expires_in, "token_type": "Bearer",
            "scope": "openid profile email offline",
        });
        if let Some(id_token) = id_token {
            self.secrets.push(id_token.clone());
            answer["id_token"] = id_token.into();
        }
        answer
    }
}

async fn discovery(State(fake): State<FakeKinde>) -> Response {
    let at = |path: &str| format!("{}{path}", fake.url);
    let mut document = json!({
        "issuer": fake.url, "authorization_endpoint": at("/oauth2/auth"), "token_endpoint": at("/oauth2/token"),
        "jwks_uri": "http://127.0.0.1:1/never-asked", "end_session_endpoint": at("/logout"),
    });
    let mut inside = fake.inside();
    inside.discoveries += 1;
    (inside.discovery)(&mut document);
    // A test that wants no document at all says so in it.
    if document["status"].is_u64() { StatusCode::SERVICE_UNAVAILABLE.into_response() } else { Json(document).into_response() }
}

async fn authorize(State(fake): State<FakeKinde>, Query(asked): Query<Fields>) -> Response {
    let mut inside = fake.inside();
    inside.authorized.push(asked.clone());
    let redirect_uri = asked["redirect_uri"].clone();
    let mut brings: Vec<(&str, String)> = vec![("state", asked["state"].clone())];
    if let Some(error) = inside.error {
        brings.push(("error", error.to_owned()));
        brings.push(("error_description", "canary-description".to_owned()));
    } else {
        let code = inside.secret("code");
        let grant = Grant {
            challenge: asked["code_challenge"].clone(),
            nonce: asked["nonce"].clone(),
            redirect_uri: redirect_uri.clone(),
            who: inside.who.clone(),
        };
        inside.codes.insert(code.clone(), grant);
        brings.push(("code", code));
    }
    brings.extend(inside.brings.clone());
    let url = reqwest::Url::parse_with_params(&redirect_uri, &brings).unwrap();
    Redirect::to(url.as_str()).into_response()
}

async fn token(State(fake): State<FakeKinde>, headers: HeaderMap, Form(asked): Form<Fields>) -> Response {
    let trouble = {
        let mut inside = fake.inside();
        inside.token_requests.push(asked.clone());
        inside.trouble.clone()
    };
    if let Some(answer) = troubled(trouble).await {
        return answer;
    }
    let mut inside = fake.inside();
    let secret = asked.get("client_secret").map(String::as_str);
    if asked.get("client_id").map(String::as_str) != Some(CLIENT_ID) || secret != Some(CLIENT_SECRET) {
        return refusal(StatusCode::UNAUTHORIZED, "invalid_client");
    }
    if headers.contains_key(header::AUTHORIZATION) {
        return refusal(StatusCode::BAD_REQUEST, "invalid_request");
    }
    match asked["grant_type"].as_str() {
        "authorization_code" => {
            let Some(grant) = inside.codes.remove(&asked["code"]) else {
                return refusal(StatusCode::BAD_REQUEST, "invalid_grant");
            };
            let proof = b64(Sha256::digest(&asked["code_verifier"]));
            if grant.redirect_uri != asked["redirect_uri"] || grant.challenge != proof {
                return refusal(StatusCode::BAD_REQUEST, "invalid_grant");
            }
            let now = time::OffsetDateTime::now_utc().unix_timestamp();
            let mut claims = json!({
                "iss": fake.url, "aud": [fake.url, CLIENT_ID], "azp": CLIENT_ID, "iat": now, "exp": now + 3600, "nonce": grant.nonce,
                "auth_time": now, "jti": "jti-1",
            });
            claims.as_object_mut().unwrap().extend(grant.who.as_object().unwrap().clone());
            (inside.forge)(&mut claims);
            let id_token = (inside.sign)(claims.to_string());
            Json(inside.tokens(Some(id_token))).into_response()
        }
        "refresh_token" => {
            if inside.refreshes.remove(&asked["refresh_token"]).is_none() {
                return refusal(StatusCode::BAD_REQUEST, "invalid_grant");
            }
            inside.refreshed += 1;
            Json(inside.tokens(None)).into_response()
        }
        _ => refusal(StatusCode::BAD_REQUEST, "unsupported_grant_type"),
    }
}

async fn portal_link(State(fake): State<FakeKinde>, headers: HeaderMap, Query(asked): Query<Fields>) -> Response {
    let mut inside = fake.inside();
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
    if !inside.accesses.iter().any(|access| Some(access.as_str()) == bearer) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    inside.portal_requests.push(asked);
    Json(json!({ "url": inside.portal })).into_response()
}

async fn logout(State(fake): State<FakeKinde>, Query(asked): Query<Fields>) -> Response {
    fake.inside().logouts.push(asked.clone());
    Redirect::to(&asked["redirect"]).into_response()
}

async fn troubled(trouble: Trouble) -> Option<Response> {
    match trouble {
        Trouble::None => None,
        Trouble::Answers(status, body) => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            Some((StatusCode::from_u16(status).unwrap(), json, body).into_response())
        }
        Trouble::Hangs => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Some(StatusCode::GATEWAY_TIMEOUT.into_response())
        }
    }
}

fn refusal(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error, "error_description": "canary-description" }))).into_response()
}
