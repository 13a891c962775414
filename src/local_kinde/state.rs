//! All that this Kinde remembers, as it stands in its state file. Plain data; what may happen to it is told by the other files.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::history;
use super::journeys::{Journey, SentEvent};
use super::key::Jwk;
use super::moment::At;
use super::people::{self, Person};
use super::plans::Agreement;
use super::switches::Switches;

/// The form of the file. A program that knows only older forms refuses a newer one.
pub const FORM: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    pub form: u32,
    pub made_at: At,
    pub credentials: Credentials,
    pub people: Vec<Person>,
    /// Oldest first.
    pub agreements: Vec<Agreement>,
    /// By the cookie's value.
    #[serde(default)]
    pub sessions: BTreeMap<String, Session>,
    #[serde(default)]
    pub codes: BTreeMap<String, Code>,
    #[serde(default)]
    pub refresh_tokens: BTreeMap<String, Lasting>,
    /// By the one-time part of the link.
    #[serde(default)]
    pub portal_links: BTreeMap<String, Visit>,
    /// What a link opened: a stay on somebody's plan page.
    #[serde(default)]
    pub visits: BTreeMap<String, Visit>,
    /// Oldest first.
    #[serde(default)]
    pub events: Vec<SentEvent>,
    #[serde(default)]
    pub journeys: Vec<Journey>,
    #[serde(default)]
    pub next_journey: u64,
    /// When the latest thing happened, so that the next one happens later.
    #[serde(default)]
    pub last_happened: Option<At>,
    #[serde(default)]
    pub switches: Switches,
    /// Still published, no longer used to sign.
    #[serde(default)]
    pub retired_keys: Vec<RetiredKey>,
}

/// What the app and its back end say who they are with. Made once by chance, unless somebody chose them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Credentials {
    pub client_id: String,
    pub client_secret: String,
    pub m2m_client_id: String,
    pub m2m_client_secret: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    pub user_id: String,
    pub signed_in_at: At,
    pub expires: At,
}

/// What somebody let an app do, from the sign-in until the last refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    pub client_id: String,
    pub user_id: String,
    pub scopes: Vec<String>,
    pub signed_in_at: At,
    /// One per code: what came of one code can be withdrawn together.
    pub family: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Code {
    pub consent: Consent,
    pub redirect_uri: String,
    pub challenge: String,
    pub nonce: Option<String>,
    pub expires: At,
    pub used: bool,
}

/// A refresh token's worth.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lasting {
    pub consent: Consent,
    pub expires: At,
    /// When it was used; good for a short while after it.
    pub replaced_at: Option<At>,
}

impl Lasting {
    pub fn begin(consent: &Consent, now: At, secs: u64) -> Self {
        Self { consent: consent.clone(), expires: now.after(Duration::from_secs(secs)), replaced_at: None }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Visit {
    pub user_id: String,
    pub return_url: Option<String>,
    pub expires: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RetiredKey {
    pub jwk: Jwk,
    pub retired_at: At,
}

impl State {
    /// A fresh one: the sample people, and the past of those who have one.
    pub fn new(now: At) -> Self {
        let credentials = Credentials {
            client_id: people::fresh(""),
            client_secret: people::fresh("secret"),
            m2m_client_id: people::fresh(""),
            m2m_client_secret: people::fresh("secret"),
        };
        let mut state = Self {
            form: FORM,
            made_at: now,
            credentials,
            people: people::samples(now.before(history::AGE)),
            agreements: Vec::new(),
            sessions: BTreeMap::new(),
            codes: BTreeMap::new(),
            refresh_tokens: BTreeMap::new(),
            portal_links: BTreeMap::new(),
            visits: BTreeMap::new(),
            events: Vec::new(),
            journeys: Vec::new(),
            next_journey: 1,
            last_happened: None,
            switches: Switches::default(),
            retired_keys: Vec::new(),
        };
        history::write(&mut state, now);
        state
    }

    pub fn find_person(&self, user_id: &str) -> Option<&Person> {
        self.people.iter().find(|person| person.id == user_id)
    }

    pub fn find_person_mut(&mut self, user_id: &str) -> Option<&mut Person> {
        self.people.iter_mut().find(|person| person.id == user_id)
    }

    /// Who a browser is signed in as.
    pub fn find_session(&self, cookie: Option<&str>, now: At) -> Option<&Session> {
        self.sessions.get(cookie?).filter(|session| session.expires > now && self.find_person(&session.user_id).is_some())
    }

    /// Throws away what nobody can use any more.
    pub fn tidy(&mut self, now: At) {
        self.sessions.retain(|_, session| session.expires > now);
        // A code is remembered past its time, so that a second use of it is still known as one.
        self.codes.retain(|_, code| code.expires.after(REMEMBERED) > now);
        self.refresh_tokens.retain(|_, token| token.expires > now);
        self.portal_links.retain(|_, link| link.expires > now);
        self.visits.retain(|_, visit| visit.expires > now);
        self.forget_old_deliveries();
    }

    /// The oldest events whose journeys have ended; without a bound the file would grow for ever.
    fn forget_old_deliveries(&mut self) {
        let surplus = self.events.len().saturating_sub(KEPT_EVENTS);
        if surplus == 0 {
            return;
        }
        let open = |id: &str| self.journeys.iter().any(|journey| journey.event_id == id && journey.is_open());
        let gone: Vec<String> =
            self.events.iter().map(|event| event.event_id.clone()).filter(|id| !open(id)).take(surplus).collect();
        self.events.retain(|event| !gone.contains(&event.event_id));
        self.journeys.retain(|journey| !gone.contains(&journey.event_id));
    }
}

const REMEMBERED: Duration = Duration::from_mins(30);
const KEPT_EVENTS: usize = 1000;
