//! Calls that are to go wrong: the next so many, of a path or of all.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Calls it meets.
    pub times: u32,
    /// Only paths that begin so, such as `/v1/subscriptions`; empty is every path.
    pub path: String,
    /// Only this method; empty is every method.
    pub method: String,
    /// The answer instead of the real one; 0 leaves the real one.
    pub status: u16,
    /// What was asked is done, and only the answer is wrong.
    pub done: bool,
    /// Before the call is looked at.
    pub slow_ms: u64,
    /// Said with a 429; Stripe does not promise it.
    pub retry_after: Option<u64>,
    /// What a 429 is about: `rate_limit`, or `lock_timeout` for an object in use.
    pub code: String,
}

impl Default for Fault {
    fn default() -> Self {
        Self {
            times: 1,
            path: String::new(),
            method: String::new(),
            status: 0,
            done: false,
            slow_ms: 0,
            retry_after: None,
            code: "rate_limit".into(),
        }
    }
}

impl Fault {
    /// # Errors
    /// A text that says what of it makes no sense.
    pub fn check(&self) -> Result<(), String> {
        match self.status {
            0 if self.slow_ms == 0 => Err("a fault needs a status, or slow_ms".into()),
            0 | 429 | 500..=504 => Ok(()),
            other => Err(format!("status: 429, or 500 to 504, not {other}")),
        }
    }

    fn meets(&self, method: &str, path: &str) -> bool {
        path.starts_with(&self.path) && (self.method.is_empty() || self.method.eq_ignore_ascii_case(method))
    }

    pub fn refusal(&self) -> Option<Refusal> {
        match self.status {
            0 => None,
            429 if self.code == "lock_timeout" => Some(Refusal::locked()),
            429 => Some(Refusal::too_many()),
            other => Some(Refusal::broken(other)),
        }
    }
}

/// Takes the fault that this call meets off the list, the oldest first.
pub fn take(faults: &mut Vec<Fault>, method: &str, path: &str) -> Option<Fault> {
    let at = faults.iter().position(|fault| fault.meets(method, path))?;
    let fault = faults[at].clone();
    faults[at].times = faults[at].times.saturating_sub(1);
    if faults[at].times == 0 {
        faults.remove(at);
    }
    Some(fault)
}
