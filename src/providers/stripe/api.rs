//! The few calls to Stripe's API, under one version of it, and what its refusals mean.
//!
//! A version is pinned, so that the shapes in `objects` are what comes however the account is set. Only reading is needed for
//! events, so a restricted key will do.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::objects::List;
use crate::outbound::{Answer, Client, OutboundError};
use crate::providers::ResolveError;
use crate::providers::listing::ListError;
use crate::telemetry::labels::Call;

pub(super) const VERSION: &str = "2026-10-28.endive";
pub(super) const ANSWER_MAX: usize = 4 * 1024 * 1024;
/// Stripe lets an account ask a hundred times a second, in its test mode 25 times.
const AT_ONCE: usize = 16;
/// Stripe gives no time to wait. What is asked of it meanwhile is not sent at all: so a provider that is away costs the events of
/// others no time.
const AWAY_FOR: Duration = Duration::from_secs(5);
const BUSY_FOR: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Only a person can help; until then nothing is lost.
const SHUT_OUT_FOR: Duration = Duration::from_secs(60);
const PAGES_MAX: usize = 20;

pub(super) struct Api {
    client: Client,
    key: String,
    places: Semaphore,
    /// Not to be asked before this moment, and why.
    away: Mutex<Option<(Instant, String)>>,
}

/// An object, or that there is none.
#[derive(Debug)]
pub(super) enum Found<T> {
    There(T),
    Gone,
}

/// A page of a list, each item as it was written: one that cannot be read does not take the others with it.
#[derive(Debug)]
pub(super) enum Listed {
    There(List<Box<RawValue>>),
    Gone,
    TooLarge,
}

/// Parameters that name what may be gone. Whatever else is missed, such as a price, is a setting of ours that is wrong.
const MAY_BE_GONE: [&str; 3] = ["customer", "source", "starting_after"];

/// What an answer other than 200 says.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: Reason,
}

#[derive(Debug, Default, Deserialize)]
struct Reason {
    code: Option<String>,
    param: Option<String>,
    message: Option<String>,
}

impl Api {
    pub(super) fn new(client: Client, key: String) -> Self {
        Self { client, key, places: Semaphore::new(AT_ONCE), away: Mutex::default() }
    }

    /// `GET path?expand[0]=…`. The path is put together from our words and ids of plain letters.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, params: &[(&str, &str)]) -> Result<Found<T>, ResolveError> {
        let request = self.request(Method::GET, &format!("{path}{}", query(params)))?;
        let answer = self.send(request).await?;
        match self.judged(&answer, path)? {
            Found::There(()) => read(&answer.body, path).map(Found::There),
            Found::Gone => Ok(Found::Gone),
        }
    }

    /// A page of a list, of at most `most` bytes. Gone: what it is a list of, or the object it is to begin after, is not there.
    pub(super) async fn list(&self, path: &str, params: &[(&str, &str)], most: usize) -> Result<Listed, ListError> {
        let request = self.request(Method::GET, &format!("{path}{}", query(params)))?;
        let Some(answer) = self.sent(request, most).await? else { return Ok(Listed::TooLarge) };
        let refusal = serde_json::from_slice::<Refusal>(&answer.body).unwrap_or_default().error;
        // What a parameter names and is not there is a 400, where a path answers 404.
        if answer.status == StatusCode::BAD_REQUEST
            && refusal.code.as_deref() == Some("resource_missing")
            && refusal.param.as_deref().is_some_and(|param| MAY_BE_GONE.contains(&param))
        {
            return Ok(Listed::Gone);
        }
        match self.judged(&answer, path) {
            Ok(Found::There(())) => Ok(Listed::There(read(&answer.body, path)?)),
            // A list's path names no object.
            Ok(Found::Gone) => {
                let message = refusal.message.unwrap_or_default();
                Err(ListError::Unreadable { why: format!("Stripe answered {} to {path}: {message}", answer.status) })
            }
            Err(error) if matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(ListError::Refused { why: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A list that came with its object, and what is left of it. The address in it is not followed: `path` is ours.
    pub(super) async fn whole<T: DeserializeOwned>(
        &self,
        list: List<T>,
        path: &str,
        params: &[(&str, &str)],
        id: impl Fn(&T) -> &str,
    ) -> Result<Vec<T>, ResolveError> {
        let List { mut data, mut has_more } = list;
        for _ in 0..PAGES_MAX {
            let Some(last) = data.last().map(|one| id(one).to_owned()).filter(|_| has_more) else { return Ok(data) };
            let page = [params, &[("limit", "100"), ("starting_after", &last)]].concat();
            match self.get::<List<T>>(path, &page).await? {
                Found::There(next) => {
                    has_more = next.has_more && !next.data.is_empty();
                    data.extend(next.data);
                }
                Found::Gone => return Ok(data),
            }
        }
        if has_more { Err(ResolveError::Unreadable(format!("{path} has more than {PAGES_MAX} pages"))) } else { Ok(data) }
    }

    /// `POST path` with a form. Sent again under the same key, it is done once.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(String, String)],
        idempotency_key: &str,
    ) -> Result<Found<T>, ResolveError> {
        let request = self.request(Method::POST, path)?.header("Idempotency-Key", idempotency_key).form(form);
        let answer = self.send(request).await?;
        match self.judged(&answer, path)? {
            Found::There(()) => read(&answer.body, path).map(Found::There),
            Found::Gone => Ok(Found::Gone),
        }
    }

    /// The stand-in's origin, if we are set to ask one.
    pub(super) fn stand_in(&self) -> Option<String> {
        self.client.is_local().then(|| self.client.home().origin().ascii_serialization())
    }

    /// The stand-in on this machine that answers in Stripe's place, if we are set to ask one.
    pub(super) fn is_stand_in(&self, url: &Url) -> bool {
        self.client.is_local() && self.client.is_home(url)
    }

    fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, ResolveError> {
        let request = self.client.request(method, path).map_err(|error| ResolveError::Unreadable(error.to_string()))?;
        Ok(request.bearer_auth(&self.key).header("Stripe-Version", VERSION).header("Accept", "application/json"))
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, ResolveError> {
        let too_large = || ResolveError::Unreadable(OutboundError::TooLarge { cap: ANSWER_MAX }.to_string());
        self.sent(request, ANSWER_MAX).await?.ok_or_else(too_large)
    }

    /// None: the answer is larger than `most`.
    async fn sent(&self, request: reqwest::RequestBuilder, most: usize) -> Result<Option<Answer>, ResolveError> {
        let _place = self.places.acquire().await.map_err(|error| self.stays_away(error.to_string(), AWAY_FOR))?;
        if let Some(away) = self.is_away() {
            return Err(away);
        }
        let request = request.build().map_err(|error| ResolveError::Unreadable(error.without_url().to_string()))?;
        match self.client.call(Call::StripeApi, request, most).await {
            Ok(answer) => Ok(Some(answer)),
            Err(OutboundError::TooLarge { .. }) => Ok(None),
            Err(error) => Err(self.stays_away(chain(&error), AWAY_FOR)),
        }
    }

    /// What a status means. Everything but a 2xx and "no such object" is an error.
    fn judged(&self, answer: &Answer, path: &str) -> Result<Found<()>, ResolveError> {
        let status = answer.status;
        if status.is_success() {
            return Ok(Found::There(()));
        }
        let refusal = serde_json::from_slice::<Refusal>(&answer.body).unwrap_or_default().error;
        let request_id = answer.headers.get("request-id").and_then(|id| id.to_str().ok());
        let code = refusal.code.as_deref().unwrap_or_default();
        tracing::debug!(%status, code, path, request_id, "Stripe refused");
        let why = || {
            let message: String = refusal.message.as_deref().unwrap_or("no word why").chars().take(200).collect();
            format!("Stripe answered {status} to {path}: {message}")
        };
        match status {
            StatusCode::NOT_FOUND if code == "resource_missing" => Ok(Found::Gone),
            // What a path names and what a parameter names are missed with different statuses. A price is no such thing: that one
            // is missing is a setting of ours.
            StatusCode::BAD_REQUEST if code == "resource_missing" && refusal.param.as_deref() == Some("customer") => {
                Ok(Found::Gone)
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let asked = answer.headers.get("retry-after").and_then(|secs| secs.to_str().ok()?.parse().ok());
                Err(self.stays_away(why(), asked.map_or(BUSY_FOR, Duration::from_secs)))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                tracing::error!(alert = "stripe-key", %status, path, request_id, "Stripe does not let us ask; STRIPE_SECRET_KEY needs a person");
                // Of one kind of object only, perhaps: others may still be asked for.
                Err(ResolveError::Unavailable { why: why(), again_in: SHUT_OUT_FOR })
            }
            StatusCode::CONFLICT => Err(ResolveError::Unavailable { why: why(), again_in: BUSY_FOR }),
            status if status.is_server_error() || status == StatusCode::NOT_FOUND || status.is_redirection() => {
                Err(self.stays_away(why(), AWAY_FOR))
            }
            _ => Err(ResolveError::Unreadable(why())),
        }
    }

    fn is_away(&self) -> Option<ResolveError> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, why) = away.clone()?;
        let again_in = until.saturating_duration_since(Instant::now());
        if again_in.is_zero() {
            *away = None;
            return None;
        }
        Some(ResolveError::Unavailable { why, again_in })
    }

    fn stays_away(&self, why: String, again_in: Duration) -> ResolveError {
        let again_in = again_in.min(WAIT_MAX);
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now() + again_in, why.clone()));
        ResolveError::Unavailable { why, again_in }
    }
}

fn read<T: DeserializeOwned>(body: &[u8], path: &str) -> Result<T, ResolveError> {
    serde_json::from_slice(body)
        .map_err(|error| ResolveError::Unreadable(format!("the answer to {path} cannot be read: {error}")))
}

fn query(params: &[(&str, &str)]) -> String {
    let mut url = Url::parse("https://query.invalid").expect("it is an address");
    url.query_pairs_mut().extend_pairs(params);
    url.query().filter(|query| !query.is_empty()).map_or_else(String::new, |query| format!("?{query}"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let all: Vec<String> = std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect();
    format!("Stripe: {}", all.join(": "))
}
