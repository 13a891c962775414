//! The claims around an event: what makes a signed token an event of ours.

use serde_json::value::RawValue;

use crate::domain::ids::EventKey;
use crate::domain::instant::Instant;
use crate::providers::fields::{Fields, Twice, text};

/// Claims of ID and access tokens, which the same keys sign. An event carries none of them.
const USER_TOKEN_MARKS: [&str; 7] = ["sub", "azp", "scp", "nonce", "at_hash", "auth_time", "gty"];
/// What may differ between two attempts to deliver one event.
const VOLATILE: [&[u8]; 5] = [b"timestamp", b"iat", b"exp", b"nbf", b"jti"];
const LEEWAY_SECS: f64 = 60.0;

#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) event_id: EventKey,
    pub(super) kind: String,
    pub(super) at: Option<Instant>,
    pub(super) sent: Option<Instant>,
    /// An object.
    pub(super) data: &'a RawValue,
    claims: Fields<'a>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NotAnEvent {
    #[error("its claims are no JSON object ({0})")]
    NotAnObject(#[from] serde_json::Error),
    #[error("claim {0}")]
    Ambiguous(#[from] Twice),
    #[error("it has no `{0}` as an event has it")]
    Lacks(&'static str),
    #[error("it has `{0}`, so it is a token about a user")]
    AboutAUser(&'static str),
    #[error("its `{0}` is not what it would be in a token for us")]
    NotForUs(&'static str),
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
}

impl<'a> Envelope<'a> {
    /// Everything that must hold of an event at any time: stored ones pass too.
    pub(super) fn read(json: &'a str) -> Result<Self, NotAnEvent> {
        let claims = Fields::of(json)?;
        for mark in USER_TOKEN_MARKS {
            if claims.get(mark)?.is_some() {
                return Err(NotAnEvent::AboutAUser(mark));
            }
        }
        let kind = claims.text("type")?.filter(|kind| is_kind(kind)).ok_or(NotAnEvent::Lacks("type"))?;
        let event_id = claims.text("event_id")?.filter(|id| is_event_id(id)).ok_or(NotAnEvent::Lacks("event_id"))?;
        let data = claims.get("data")?.filter(|data| data.get().starts_with('{')).ok_or(NotAnEvent::Lacks("data"))?;
        // The event's own time decides as soon as it is there: the other one may be that of an attempt.
        let sent = claims.get("timestamp")?;
        let at = claims.get("event_timestamp")?.filter(|at| at.get() != "null").or(sent);
        let [at, sent] = [at, sent].map(|time| time.and_then(text).and_then(|text| Instant::parse(&text).ok()));
        Ok(Self { event_id: EventKey(event_id), kind, at, sent, data, claims })
    }

    /// Claims that Kinde does not send today. Should it begin to, a true one must not lock us out and a wrong one must not
    /// pass: `iss` names the tenant; `aud` names, maybe among others, the tenant or our webhook address; `exp` and `nbf` are
    /// seconds, with a minute's leeway. An `aud` that names nobody, or a claim of another JSON type, is a wrong one.
    pub(super) fn is_for(&self, issuers: &[String], audiences: &[String], now: Instant) -> Result<(), NotAnEvent> {
        if let Some(iss) = self.claims.get("iss")? {
            let iss = text(iss).ok_or(NotAnEvent::NotForUs("iss"))?;
            if !names(issuers, &iss) {
                return Err(NotAnEvent::NotForUs("iss"));
            }
        }
        if let Some(aud) = self.claims.get("aud")? {
            let one = || serde_json::from_str::<String>(aud.get()).map(|aud| vec![aud]);
            let many = serde_json::from_str::<Vec<String>>(aud.get()).or_else(|_| one());
            if !many.is_ok_and(|many| many.iter().any(|aud| names(audiences, aud))) {
                return Err(NotAnEvent::NotForUs("aud"));
            }
        }
        let now = now.nanos() as f64 / 1e9;
        if self.seconds("exp")?.is_some_and(|exp| exp + LEEWAY_SECS < now) {
            return Err(NotAnEvent::Expired);
        }
        if self.seconds("nbf")?.is_some_and(|nbf| nbf - LEEWAY_SECS > now) {
            return Err(NotAnEvent::NotYet);
        }
        Ok(())
    }

    /// SHA-256 of what was said, without what may differ between attempts.
    pub(super) fn digest(self) -> [u8; 32] {
        self.claims.digest(&VOLATILE)
    }

    fn seconds(&self, name: &'static str) -> Result<Option<f64>, NotAnEvent> {
        let Some(value) = self.claims.get(name)? else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|_| NotAnEvent::NotForUs(name))
    }
}

/// An address without the slash that some people write at its end.
pub(super) fn bare(address: &str) -> &str {
    address.strip_suffix('/').unwrap_or(address)
}

fn names(ours: &[String], name: &str) -> bool {
    ours.iter().any(|our| our == bare(name))
}

/// `customer.plan_changed`: two or more words.
fn is_kind(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    (3..=100).contains(&text.len()) && text.contains('.') && text.split('.').all(is_word)
}

/// Today 32 hex digits; other lengths and alphabets are let through, a path or a quote is not.
fn is_event_id(text: &str) -> bool {
    text.strip_prefix("event_")
        .is_some_and(|rest| (8..=64).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
