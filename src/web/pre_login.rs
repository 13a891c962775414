//! What a browser keeps while its owner is away at Kinde: one sealed cookie, with a sign-in for each tab that began one.
//!
//! Nothing of it is in the database, or whoever calls `/login` in a loop would fill it. That makes a sign-in this browser's
//! and no other's: a callback that somebody else began finds nothing here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum_extra::extract::cookie::{Cookie, Key, PrivateCookieJar, SameSite};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use crate::config::Secret;
use crate::oidc::Transaction;
use crate::seal;

/// From going to Kinde to coming back.
pub const WITHIN: Duration = Duration::from_secs(600);
/// Tabs that can be at Kinde at once; a cookie has 4 KB. One more lets go of the oldest.
const TABS: usize = 4;
/// States remembered as used. Beyond it the oldest is forgotten; its code is used up at Kinde all the same.
const USED_MAX: usize = 100_000;

/// One tab's sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub transaction: Transaction,
    pub return_to: String,
    /// Unix seconds.
    began_at: i64,
}

/// Reads and writes the cookie.
pub struct PreLogin {
    key: Key,
    https: bool,
    used: Mutex<HashMap<[u8; 32], Instant>>,
}

impl PreLogin {
    pub fn new(secret: &Secret, https: bool) -> Self {
        let key = Key::from(&seal::derive::<64>(secret, "the cookie of a sign-in under way"));
        Self { key, https, used: Mutex::default() }
    }

    /// The cookie with one more sign-in.
    pub fn add(&self, headers: &HeaderMap, transaction: Transaction, return_to: &str) -> PrivateCookieJar {
        let (jar, mut tabs) = self.read(headers);
        tabs.push(UnderWay { transaction, return_to: return_to.to_owned(), began_at: unix_now() });
        let surplus = tabs.len().saturating_sub(TABS);
        tabs.drain(..surplus);
        self.write(jar, &tabs)
    }

    /// The sign-in of this state, which is taken out and cannot be taken again, and the cookie without it.
    ///
    /// The browser is told to forget it; a copy of the cookie would not be, so we remember too. In this process only: another
    /// one would send a code to Kinde that is used up.
    pub fn take(&self, headers: &HeaderMap, state: &str) -> (Option<UnderWay>, PrivateCookieJar) {
        let (jar, mut tabs) = self.read(headers);
        let found = tabs.iter().position(|tab| tab.transaction.state == state).map(|at| tabs.remove(at));
        (found.filter(|_| self.is_first_use(state)), self.write(jar, &tabs))
    }

    /// Whether this browser has a sign-in under way at all.
    pub fn has_any(&self, headers: &HeaderMap) -> bool {
        !self.read(headers).1.is_empty()
    }

    fn read(&self, headers: &HeaderMap) -> (PrivateCookieJar, Vec<UnderWay>) {
        let jar = PrivateCookieJar::from_headers(headers, self.key.clone());
        let tabs: Vec<UnderWay> =
            jar.get(self.name()).and_then(|cookie| serde_json::from_str(cookie.value()).ok()).unwrap_or_default();
        let now = unix_now();
        let lives = |tab: &UnderWay| (0..=WITHIN.as_secs().cast_signed()).contains(&(now - tab.began_at));
        (jar, tabs.into_iter().filter(lives).collect())
    }

    fn write(&self, jar: PrivateCookieJar, tabs: &[UnderWay]) -> PrivateCookieJar {
        let value = serde_json::to_string(tabs).expect("texts and numbers are always JSON");
        let cookie = Cookie::build((self.name(), value))
            .path("/")
            .http_only(true)
            .secure(self.https)
            // `Strict` would keep it back when Kinde sends its owner to us.
            .same_site(SameSite::Lax)
            .max_age(WITHIN.try_into().unwrap_or(time::Duration::MINUTE))
            .build();
        if tabs.is_empty() { jar.remove(cookie) } else { jar.add(cookie) }
    }

    fn name(&self) -> &'static str {
        if self.https { "__Host-bottle-login" } else { "bottle-login" }
    }

    fn is_first_use(&self, state: &str) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if used.len() >= USED_MAX {
            used.retain(|_, at| now.duration_since(*at) <= WITHIN);
            if used.len() >= USED_MAX
                && let Some(oldest) = used.iter().min_by_key(|(_, at)| **at).map(|(state, _)| *state)
            {
                used.remove(&oldest);
            }
        }
        used.insert(Sha256::digest(state).into(), now).is_none()
    }
}

impl std::fmt::Debug for PreLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreLogin(not shown)")
    }
}

fn unix_now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}
