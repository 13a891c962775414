//! Answers kept under an idempotency key: the same call again gets the same answer, a 500 included.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusal::Refusal;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answers(BTreeMap<String, Kept>);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    fingerprint: String,
    at: i64,
    pub request_id: String,
    pub status: u16,
    pub body: Value,
}

/// Stripe keeps them for at least a day.
const KEPT_SECS: i64 = 24 * 3600;
const LONGEST_KEY: usize = 255;

impl Answers {
    /// The answer this key got before, if it got one to the same call.
    pub fn find(&self, key: &str, fingerprint: &str) -> Result<Option<&Kept>, Refusal> {
        if key.chars().count() > LONGEST_KEY {
            let message = format!("Idempotency keys can be at most {LONGEST_KEY} characters long.");
            return Err(Refusal { kind: "idempotency_error", ..Refusal::invalid(message) });
        }
        match self.0.get(key) {
            Some(kept) if kept.fingerprint != fingerprint => Err(Refusal::key_reused(key)),
            found => Ok(found),
        }
    }

    /// What was refused before anything was begun is not kept, so that it can be mended and asked again.
    pub fn keep(&mut self, key: &str, fingerprint: &str, at: i64, request_id: &str, status: u16, body: &Value) {
        if !matches!(status, 400 | 401 | 403 | 409 | 429) {
            let (fingerprint, request_id) = (fingerprint.to_owned(), request_id.to_owned());
            self.0.insert(key.to_owned(), Kept { fingerprint, at, request_id, status, body: body.clone() });
        }
    }

    pub fn forget_old(&mut self, now: i64) {
        self.0.retain(|_, kept| now.saturating_sub(kept.at) < KEPT_SECS);
    }
}
