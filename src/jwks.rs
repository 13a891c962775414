//! An issuer's public keys, and the check of a token against them.
//!
//! Sign-in and Kinde's webhooks share this room. It knows keys, cool-downs and signatures; what a token says is for
//! `oidc` and `providers` to judge.
//!
//! Whoever can post to us can invent key ids, so an unknown id must cost the issuer next to nothing: one fetch for
//! everybody who waits, and none for the length of a cool-down after an attempt, whatever came of it. Counting successes
//! instead would let an issuer that is down be hammered exactly then.

mod set;
pub mod token;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::outbound::{self, OutboundError};
use crate::telemetry::labels::{Call, CallEnd, Fetch};
use crate::telemetry::{calls, metrics};

const COOL_DOWN: Duration = Duration::from_secs(60);
/// Shorter while there is no key at all: until then every delivery is answered with "come again".
const COOL_DOWN_EMPTY: Duration = Duration::from_secs(10);
const STALE_AFTER: Duration = Duration::from_secs(3600);
/// An issuer that forgets a key in one answer may remember it in the next.
const ABSENCES: u8 = 2;
const MAX_ANSWER: usize = 256 * 1024;

/// The keys of one issuer. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Jwks {
    inner: Arc<Inner>,
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// The issuer's keys are known, and this is none of them: the token is not genuine.
    #[error("the issuer has no key of this id")]
    Unknown,
    /// No keys are known, so nothing can be said about the token. Ask again later.
    #[error("the issuer's keys cannot be obtained ({why})")]
    Unavailable { why: String },
}

impl Jwks {
    /// Keys fetched from `url`, a path or address within the client's origin, when they are first asked for.
    pub fn new(url: impl Into<String>, client: outbound::Client) -> Self {
        Self::with_clock(url, client, Instant::now)
    }

    /// As [`Jwks::new`], on a clock of the caller's: cool-downs can be tested without living through them.
    pub fn with_clock(
        url: impl Into<String>,
        client: outbound::Client,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Self {
        Self::of(Some(Source { url: url.into(), client, clock: Box::new(clock) }), HashMap::new())
    }

    /// Keys that are all there is, by id. Nothing is ever fetched.
    pub fn held(keys: impl IntoIterator<Item = (String, DecodingKey)>) -> Self {
        Self::of(None, keys.into_iter().collect())
    }

    fn of(source: Option<Source>, keys: HashMap<String, DecodingKey>) -> Self {
        let keys = keys.into_iter().map(|(kid, key)| (kid, Held { key: Arc::new(key), absences: 0 })).collect();
        let state = Mutex::new(State { keys, ..State::default() });
        Self { inner: Arc::new(Inner { source, state, landed: watch::Sender::new(()), fetches: AtomicU64::new(0) }) }
    }

    /// The key of this id, fetched if it has to be and may be. `kid` is compared and nothing else.
    ///
    /// Dropping the returned future does not stop a fetch others wait for.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn key(&self, kid: &str) -> Result<Arc<DecodingKey>, KeyError> {
        let Some(source) = &self.inner.source else {
            return self.inner.state().keys.get(kid).map(|held| Arc::clone(&held.key)).ok_or(KeyError::Unknown);
        };
        let step = self.inner.step(kid, (source.clock)());
        if step.fly {
            self.inner.fly();
        }
        match step.outcome {
            Outcome::Now(result) => result,
            Outcome::AfterLanding(mut landed) => {
                // Its sender lives as long as we do, so this ends when the fetch does.
                let _ = landed.changed().await;
                self.inner.state().find(kid)
            }
        }
    }

    /// Starts a fetch if there are no keys yet, so that the first delivery need not wait for one.
    pub fn warm(&self) {
        let Some(source) = &self.inner.source else { return };
        let now = (source.clock)();
        let fly = {
            let mut state = self.inner.state();
            state.keys.is_empty() && state.take_off(now)
        };
        if fly {
            self.inner.fly();
        }
    }

    /// How often the issuer has been asked.
    pub fn fetches(&self) -> u64 {
        self.inner.fetches.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.inner.source.as_ref().map(|source| &source.url);
        f.debug_struct("Jwks").field("url", &url).field("fetches", &self.fetches()).finish_non_exhaustive()
    }
}

struct Inner {
    /// None: the keys are held, not fetched.
    source: Option<Source>,
    state: Mutex<State>,
    /// Told each time a fetch has ended, however it ended.
    landed: watch::Sender<()>,
    fetches: AtomicU64,
}

struct Source {
    url: String,
    client: outbound::Client,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
}

#[derive(Default)]
struct State {
    keys: HashMap<String, Held>,
    flying: bool,
    attempted: Option<Instant>,
    succeeded: Option<Instant>,
    failure: Option<String>,
}

struct Held {
    key: Arc<DecodingKey>,
    /// Successful fetches in a row whose answer lacked it.
    absences: u8,
}

/// What to do about a question, decided under the lock and done outside it: a runtime that is shutting down drops a new
/// task inside `spawn`, and the task's end takes the lock too.
struct Step {
    fly: bool,
    outcome: Outcome,
}

enum Outcome {
    Now(Result<Arc<DecodingKey>, KeyError>),
    AfterLanding(watch::Receiver<()>),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, kid: &str, now: Instant) -> Step {
        let mut state = self.state();
        let found = state.find(kid);
        if found.is_ok() {
            let stale = state.succeeded.is_none_or(|at| now.duration_since(at) > STALE_AFTER);
            return Step { fly: stale && state.take_off(now), outcome: Outcome::Now(found) };
        }
        // Subscribed while the lock is held: a landing cannot slip in between.
        let landed = self.landed.subscribe();
        let fly = state.take_off(now);
        let outcome = if state.flying { Outcome::AfterLanding(landed) } else { Outcome::Now(found) };
        Step { fly, outcome }
    }

    fn fly(self: &Arc<Self>) {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let landing = Landing(Arc::clone(self));
        tokio::spawn(async move { landing.0.fetch().await });
    }

    async fn fetch(&self) {
        let Some(source) = &self.source else { return };
        let answer = calls::watch(Call::KindeKeys, source.client.get(&source.url, MAX_ANSWER), |answer| match answer {
            Ok(_) => CallEnd::Ok,
            Err(error) => error.as_end(),
        })
        .await;
        let keys = answer.map_err(FetchError::from).and_then(|body| Ok(set::parse(&body)?));
        metrics::jwks_fetch(if keys.is_ok() { Fetch::Ok } else { Fetch::Failed });
        let mut state = self.state();
        match keys {
            Ok(keys) => state.learn(keys, (source.clock)()),
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(url = source.url, keys_kept = state.keys.len(), why, "an issuer's keys could not be fetched");
                state.failure = Some(why);
            }
        }
    }
}

impl State {
    fn find(&self, kid: &str) -> Result<Arc<DecodingKey>, KeyError> {
        match self.keys.get(kid) {
            Some(held) => Ok(Arc::clone(&held.key)),
            None if self.keys.is_empty() => {
                Err(KeyError::Unavailable { why: self.failure.clone().unwrap_or_else(|| "not fetched yet".to_owned()) })
            }
            None => Err(KeyError::Unknown),
        }
    }

    /// True when a fetch is to begin; it then counts as begun.
    fn take_off(&mut self, now: Instant) -> bool {
        let cool_down = if self.keys.is_empty() { COOL_DOWN_EMPTY } else { COOL_DOWN };
        let ready = !self.flying && self.attempted.is_none_or(|at| now.duration_since(at) >= cool_down);
        if ready {
            self.flying = true;
            self.attempted = Some(now);
        }
        ready
    }

    fn learn(&mut self, answer: HashMap<String, DecodingKey>, now: Instant) {
        for (kid, held) in &mut self.keys {
            if !answer.contains_key(kid) {
                held.absences += 1;
            }
        }
        self.keys.retain(|_, held| held.absences < ABSENCES);
        self.keys.extend(answer.into_iter().map(|(kid, key)| (kid, Held { key: Arc::new(key), absences: 0 })));
        self.succeeded = Some(now);
        self.failure = None;
    }
}

/// Ends a fetch even if its task is dropped half-way: nobody may wait for ever.
struct Landing(Arc<Inner>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.state().flying = false;
        self.0.landed.send_replace(());
    }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the key set was not obtained")]
    Call(#[from] OutboundError),
    #[error("the key set is of no use")]
    Set(#[from] set::NotAKeySet),
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(this) = cause {
        text.push_str(": ");
        text.push_str(&this.to_string());
        cause = this.source();
    }
    text
}
