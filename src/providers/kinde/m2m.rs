//! The token for the Management API: fetched with our own credentials when it is needed, kept until shortly before it ends.
//!
//! One fetch at a time: who comes meanwhile waits for it and takes what it brought, a failure too.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config;
use crate::outbound::{self, OutboundError};
use crate::telemetry::labels::Call;

const MAX_ANSWER: usize = 64 * 1024;
/// A token is not used in its last minute, or in the last tenth of a short life.
const SPARE_MAX: Duration = Duration::from_secs(60);
/// If the answer does not say how long it lives.
const LIFE_UNSAID: Duration = Duration::from_secs(5 * 60);
/// Who comes so soon after a fetch that failed need not try it again.
const FAILURE_FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, thiserror::Error)]
pub enum TokenError {
    /// Kinde does not know these credentials.
    #[error("Kinde refuses KINDE_M2M_CLIENT_ID and KINDE_M2M_CLIENT_SECRET (status {0})")]
    Refused(StatusCode),
    #[error("Kinde limits how often a token may be asked for")]
    Limited { reset_secs: Option<u64> },
    #[error("no token: {0}")]
    Unavailable(String),
}

pub struct M2m {
    client: outbound::Client,
    credentials: config::M2m,
    audience: String,
    held: Mutex<Held>,
    fetches: AtomicU64,
}

enum Held {
    Nothing,
    Token { value: String, good_until: Instant },
    Failure { error: TokenError, at: Instant },
}

impl M2m {
    /// `domain` is the tenant's Kinde subdomain: tokens of a custom domain do not open the Management API.
    pub fn new(client: outbound::Client, domain: &str, credentials: config::M2m) -> Self {
        let audience = format!("{domain}/api");
        Self { client, credentials, audience, held: Mutex::new(Held::Nothing), fetches: AtomicU64::new(0) }
    }

    /// A token that is still good for a while.
    pub async fn token(&self) -> Result<String, TokenError> {
        // Held while the fetch lasts: that is what makes the others wait.
        let mut held = self.held.lock().await;
        match &*held {
            Held::Token { value, good_until } if Instant::now() < *good_until => return Ok(value.clone()),
            Held::Failure { error, at } if at.elapsed() < FAILURE_FRESH => return Err(error.clone()),
            _ => {}
        }
        let fetched = self.fetch().await;
        *held = match &fetched {
            Ok((value, good_until)) => Held::Token { value: value.clone(), good_until: *good_until },
            Err(error) => Held::Failure { error: error.clone(), at: Instant::now() },
        };
        fetched.map(|(value, _)| value)
    }

    /// This token was refused. If it is still the one we hold, the next who asks fetches another.
    pub async fn drop_refused(&self, refused: &str) {
        let mut held = self.held.lock().await;
        if matches!(&*held, Held::Token { value, .. } if value == refused) {
            *held = Held::Nothing;
        }
    }

    /// How often Kinde was asked for a token.
    pub fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Relaxed)
    }

    async fn fetch(&self) -> Result<(String, Instant), TokenError> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", self.credentials.client_id.as_str()),
            ("client_secret", self.credentials.client_secret.reveal()),
            ("audience", self.audience.as_str()),
        ];
        let unavailable = |error: OutboundError| TokenError::Unavailable(super::management::chain(&error));
        let request = self.client.request(Method::POST, "/oauth2/token").map_err(unavailable)?.form(&form);
        let request = request.build().map_err(|error| TokenError::Unavailable(error.without_url().to_string()))?;
        let answer = self.client.call(Call::KindeToken, request, MAX_ANSWER).await.map_err(unavailable)?;
        match answer.status {
            StatusCode::OK => {
                read(&answer.body, began).ok_or_else(|| TokenError::Unavailable("its answer holds none".to_owned()))
            }
            // What OAuth has for wrong credentials, and for an audience or a grant that the application does not have.
            status @ (StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(TokenError::Refused(status))
            }
            StatusCode::TOO_MANY_REQUESTS => {
                Err(TokenError::Limited { reset_secs: super::management::reset_secs(&answer.headers) })
            }
            status => Err(TokenError::Unavailable(format!("status {status}"))),
        }
    }
}

fn read(body: &[u8], began: Instant) -> Option<(String, Instant)> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let value =
        answer["access_token"].as_str().filter(|token| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic()))?;
    let life = &answer["expires_in"];
    let life = life.as_u64().or_else(|| life.as_str()?.parse().ok()).map_or(LIFE_UNSAID, Duration::from_secs);
    // A year is for ever, and more than that overflows.
    let life = life.min(Duration::from_secs(365 * 24 * 60 * 60));
    Some((value.to_owned(), began + (life - SPARE_MAX.min(life / 10))))
}

impl fmt::Debug for M2m {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("M2m").field("audience", &self.audience).field("fetches", &self.fetches()).finish_non_exhaustive()
    }
}
