//! A record of calls to the API, so that a test can say how many a thing cost.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Debug, Default)]
pub struct Calls {
    /// By method and path, ids written `{id}`.
    counts: BTreeMap<String, u64>,
    latest: VecDeque<Call>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: String,
    pub version: Option<String>,
    pub idempotency_key: Option<String>,
    pub request_id: String,
    pub status: u16,
}

const KEPT: usize = 1000;

impl Calls {
    pub fn add(&mut self, call: Call) {
        *self.counts.entry(format!("{} {}", call.method, without_ids(&call.path))).or_default() += 1;
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(call);
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }

    pub fn report(&self) -> Value {
        json!({ "total": self.counts.values().sum::<u64>(), "paths": self.counts, "latest": self.latest })
    }

    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Ids have digits or capitals; the words of a path have neither.
fn without_ids(path: &str) -> String {
    let is_id = |part: &str| part != "v1" && part.chars().any(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    path.split('/').map(|part| if is_id(part) { "{id}" } else { part }).collect::<Vec<_>>().join("/")
}
