//! Kinde's Management API: what is true of a customer now, and which customer a user is.
//!
//! Always at the tenant's Kinde subdomain, never at its custom domain. Here is how it is asked; `reading` says what an answer
//! means, `m2m` has the token, `pace` says when not to ask.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::time::Instant as Tick;

use super::m2m::{M2m, TokenError};
use super::pace::Pace;
use super::reading;
use crate::clock::Clock;
use crate::config;
use crate::domain::ids::{CustomerId, KindeUserId};
use crate::domain::instant::Instant;
use crate::domain::told::Answer;
use crate::outbound::{self, OutboundError};
use crate::providers::AskError;
use crate::telemetry::labels::Call;

const MAX_ANSWER: usize = 1024 * 1024;
/// Of all that this process asks at once.
const CALLS_AT_ONCE: usize = 8;
const PAGE_SIZE: &str = "100";
/// As many users as Kinde gives at once.
const USERS_PAGE: &str = "500";
/// A customer with more agreements than fit on so many pages is an answer that never ends.
const PAGES_MAX: usize = 50;

/// Cheap to clone; clones share the token and the pace.
#[derive(Clone)]
pub struct Management(Arc<Inner>);

struct Inner {
    client: outbound::Client,
    base: Url,
    m2m: M2m,
    places: Semaphore,
    pace: Mutex<Pace>,
    /// The refusal of our credentials has been reported.
    refusal_told: AtomicBool,
}

/// What Kinde said, other than "not so fast" and "who are you".
enum Said {
    Body(String),
    /// There is no such customer or user.
    NotFound,
}

impl Management {
    /// `client` is for `domain`, the base URL of the tenant's Kinde subdomain.
    ///
    /// # Errors
    /// `domain` is no address.
    pub fn new(client: outbound::Client, domain: &str, credentials: config::M2m) -> Result<Self, OutboundError> {
        let base = Url::parse(domain).map_err(|error| OutboundError::Refused(format!("`{domain}` is no address ({error})")))?;
        let m2m = M2m::new(client.clone(), domain.trim_end_matches('/'), credentials);
        let (places, pace) = (Semaphore::new(CALLS_AT_ONCE), Mutex::default());
        Ok(Self(Arc::new(Inner { client, base, m2m, places, pace, refusal_told: AtomicBool::new(false) })))
    }

    /// The customer's agreements that are live, as of the moment at which we began to ask. None for one that is gone.
    pub(super) async fn live_agreements(&self, customer: &CustomerId, clock: Clock) -> Result<Answer, AskError> {
        let asked = match clock {
            Clock::At(at) => at,
            Clock::Database => Instant::from_datetime(OffsetDateTime::now_utc()),
        };
        Ok(self.agreements_of(customer, asked).await?.unwrap_or(Answer { asked, live: Vec::new() }))
    }

    /// As of `asked`. None: there is no such customer.
    pub(super) async fn agreements_of(&self, customer: &CustomerId, asked: Instant) -> Result<Option<Answer>, AskError> {
        let mut live = Vec::new();
        let mut seen = BTreeSet::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("customer_id", customer.as_str()), ("page_size", PAGE_SIZE)];
            if let Some(after) = &after {
                query.push(("starting_after", after));
            }
            let Said::Body(body) = self.get("/api/v1/billing/agreements", &query).await? else {
                return Ok(None);
            };
            let page = reading::page(&body, asked).map_err(|why| self.unreadable(&why))?;
            live.extend(page.live);
            match page.next {
                None => return Ok(Some(Answer { asked, live })),
                Some(next) if seen.insert(next.clone()) => after = Some(next),
                Some(_) => break,
            }
        }
        Err(self.unreadable("its pages do not end"))
    }

    /// The billing customer that this user is, if they are one.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn customer_of(&self, user: &KindeUserId) -> Result<Option<CustomerId>, AskError> {
        match self.get("/api/v1/user", &[("id", user.as_str()), ("expand", "billing")]).await? {
            Said::Body(body) => reading::customer_in(&body).map_err(|why| self.unreadable(&why)),
            Said::NotFound => Ok(None),
        }
    }

    /// Users, `USERS_PAGE` of them, with the customer that each is; and where the next page begins.
    pub(super) async fn users(&self, from: Option<&str>) -> Result<(Vec<reading::User>, Option<String>), AskError> {
        let mut query = vec![("page_size", USERS_PAGE), ("expand", "billing")];
        query.extend(from.map(|from| ("next_token", from)));
        match self.get("/api/v1/users", &query).await? {
            Said::Body(body) => {
                let (users, next) = reading::users(&body).map_err(|why| self.unreadable(&why))?;
                // One that leads to itself leads nowhere.
                Ok((users, next.filter(|next| Some(next.as_str()) != from)))
            }
            Said::NotFound => Ok((Vec::new(), None)),
        }
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Said, AskError> {
        let inner = &*self.0;
        let Ok(_place) = inner.places.acquire().await else {
            return Err(AskError::Refused { why: "nobody is asked any more".to_owned() });
        };
        if let Some(again_in) = inner.pace().pause(Tick::now()) {
            return Err(AskError::Unavailable { why: "Kinde is given a pause".to_owned(), again_in });
        }
        let mut url = inner.base.clone();
        url.set_path(path);
        url.query_pairs_mut().clear().extend_pairs(query);

        let token = inner.m2m.token().await.map_err(|error| inner.no_token(error))?;
        let answer = inner.send(&url, &token).await?;
        // A token may be revoked before its time; a second refusal is about us.
        let answer = if answer.status == StatusCode::UNAUTHORIZED {
            inner.m2m.drop_refused(&token).await;
            let token = inner.m2m.token().await.map_err(|error| inner.no_token(error))?;
            inner.send(&url, &token).await?
        } else {
            answer
        };
        inner.judge(&answer)
    }

    fn unreadable(&self, why: &str) -> AskError {
        self.0.unavailable(format!("its answer cannot be read: {why}"))
    }
}

impl Inner {
    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, url: &Url, token: &str) -> Result<outbound::Answer, AskError> {
        let request = self.client.request(Method::GET, url.as_str()).map_err(|error| self.unavailable(chain(&error)))?;
        let request = request.bearer_auth(token).header("accept", "application/json").build();
        let request = request.map_err(|error| self.unavailable(error.without_url().to_string()))?;
        self.client.call(Call::KindeManagement, request, MAX_ANSWER).await.map_err(|error| self.unavailable(chain(&error)))
    }

    fn judge(&self, answer: &outbound::Answer) -> Result<Said, AskError> {
        match answer.status {
            StatusCode::OK => {
                self.accepted();
                // A name in another encoding is no reason to know nothing about the agreements beside it.
                Ok(Said::Body(String::from_utf8_lossy(&answer.body).into_owned()))
            }
            StatusCode::NOT_FOUND => {
                self.accepted();
                Ok(Said::NotFound)
            }
            StatusCode::TOO_MANY_REQUESTS => Err(self.limited(reset_secs(&answer.headers))),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(self.refused(format!("Kinde refuses our Management API token (status {status}); the application needs the scopes read:billing_agreements and read:users")))
            }
            status => Err(self.unavailable(format!("status {status}"))),
        }
    }

    fn no_token(&self, error: TokenError) -> AskError {
        match error {
            TokenError::Refused(_) => self.refused(error.to_string()),
            TokenError::Limited { reset_secs } => self.limited(reset_secs),
            TokenError::Unavailable(why) => self.unavailable(why),
        }
    }

    fn accepted(&self) {
        self.pace().answered();
        if self.refusal_told.swap(false, Ordering::Relaxed) {
            tracing::info!("Kinde's Management API accepts our credentials again");
        }
    }

    fn limited(&self, secs: Option<u64>) -> AskError {
        let again_in = self.pace().limited(secs, Tick::now());
        tracing::warn!(secs = again_in.as_secs(), "Kinde limits our rate; its Management API is not asked for so long");
        AskError::Unavailable { why: "Kinde limits our rate".to_owned(), again_in }
    }

    fn unavailable(&self, why: String) -> AskError {
        let again_in = self.pace().failed(Tick::now());
        AskError::Unavailable { why, again_in }
    }

    /// Told once, until they are accepted again: every event would say it anew.
    fn refused(&self, why: String) -> AskError {
        if !self.refusal_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                alert = "kinde-credentials",
                why,
                "Kinde's Management API cannot be asked; events count by their own word meanwhile"
            );
        }
        AskError::Refused { why }
    }
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").field("base", &self.0.base.as_str()).field("m2m", &self.0.m2m).finish_non_exhaustive()
    }
}

/// `RateLimit-Reset` is what Kinde documents, in seconds; the other is what proxies send.
pub(super) fn reset_secs(headers: &HeaderMap) -> Option<u64> {
    let secs = |name| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    secs("ratelimit-reset").or_else(|| secs("retry-after"))
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(this) = cause {
        text = format!("{text}: {this}");
        cause = this.source();
    }
    text
}
