//! Kinde's discovery document: where its endpoints are. Fetched when it is first needed, then kept.
//!
//! Anybody can open `/login`, so a Kinde that is away is asked at most once in a while, and those who come meanwhile are told
//! the same. A document that was good once outlives later failures.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::OidcError;
use crate::outbound;

const STALE_AFTER: Duration = Duration::from_secs(3600);
const COOL_DOWN: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 64 * 1024;

pub(super) struct Discovery {
    issuer: String,
    http: outbound::Client,
    /// Held during a fetch: whoever else comes waits for it, and finds what came of it.
    state: Mutex<State>,
}

/// Both are on the issuer's origin.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub authorize: Url,
    pub token: Url,
}

#[derive(Default)]
struct State {
    known: Option<(Arc<Endpoints>, Instant)>,
    failed: Option<(Instant, Trouble)>,
}

/// What can be told again to the next who asks.
#[derive(Clone, Copy)]
enum Trouble {
    Away,
    NotGenuine(&'static str),
}

impl Discovery {
    pub(super) fn new(issuer: String, http: outbound::Client) -> Self {
        Self { issuer, http, state: Mutex::default() }
    }

    pub(super) async fn endpoints(&self) -> Result<Arc<Endpoints>, OidcError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let known = state.known.as_ref().map(|(endpoints, at)| (Arc::clone(endpoints), now.duration_since(*at)));
        if let Some((endpoints, age)) = &known
            && *age < STALE_AFTER
        {
            return Ok(Arc::clone(endpoints));
        }
        let cooling = state.failed.filter(|(at, _)| now.duration_since(*at) < COOL_DOWN).map(|(_, trouble)| trouble);
        let fetched = match cooling {
            Some(trouble) => Err(trouble.into()),
            None => self.fetch().await,
        };
        match fetched {
            Ok(endpoints) => {
                let endpoints = Arc::new(endpoints);
                *state = State { known: Some((Arc::clone(&endpoints), Instant::now())), failed: None };
                Ok(endpoints)
            }
            Err(error) => {
                if cooling.is_none() {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Kinde's discovery document was not obtained");
                    state.failed = Some((Instant::now(), Trouble::of(&error)));
                }
                known.map(|(endpoints, _)| endpoints).ok_or(error)
            }
        }
    }

    async fn fetch(&self) -> Result<Endpoints, OidcError> {
        let away = |source| OidcError::Away { what: "its discovery document", source: Some(source) };
        let body = self.http.get("/.well-known/openid-configuration", MAX_ANSWER).await.map_err(away)?;
        read(&body, &self.issuer)
    }
}

impl Trouble {
    fn of(error: &OidcError) -> Self {
        match error {
            OidcError::NotGenuine(why) => Self::NotGenuine(why),
            _ => Self::Away,
        }
    }
}

impl From<Trouble> for OidcError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Away => Self::Away { what: "its discovery document", source: None },
            Trouble::NotGenuine(why) => Self::NotGenuine(why),
        }
    }
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

/// Reads a document that is to speak for `issuer`. The keys' address in it is not used: that is in our settings.
///
/// # Errors
/// `NotGenuine`.
pub fn read(body: &[u8], issuer: &str) -> Result<Endpoints, OidcError> {
    let document: Document =
        serde_json::from_slice(body).map_err(|_| OidcError::NotGenuine("its discovery document cannot be read"))?;
    if document.issuer != issuer {
        return Err(OidcError::NotGenuine("its discovery document names another issuer"));
    }
    let home = Url::parse(issuer).map_err(|_| OidcError::NotGenuine("the issuer is no address"))?;
    let at_home = |text: &str| match Url::parse(text) {
        Ok(url) if url.origin() == home.origin() && url.username().is_empty() && url.password().is_none() => Ok(url),
        _ => Err(OidcError::NotGenuine("its discovery document leads away from the tenant")),
    };
    Ok(Endpoints { authorize: at_home(&document.authorization_endpoint)?, token: at_home(&document.token_endpoint)? })
}
