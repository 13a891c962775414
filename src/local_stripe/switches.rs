//! How the local Stripe misbehaves. One set for everything, changed while it runs.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Deliveries of each event, all with its one id.
    pub copies: u32,
    pub order: Order,
    /// Before the first attempt; `speed` divides it.
    pub late_ms: u64,
    /// The answers to this many first attempts of each delivery count as lost, so that it comes again.
    pub drop_answers: u32,
    /// New deliveries wait until this is off again.
    pub hold: bool,
    /// Sign with a wrong secret.
    pub tamper: bool,
    /// Make `t` this much older than now; below 0 it lies ahead.
    pub age_secs: i64,
    /// Say `livemode: true` in what is sent.
    pub livemode: bool,
    /// Two events, with an id each, for one thing.
    pub twins: bool,
    /// This many of the next events are never delivered; the list of events has them.
    pub lose: u32,
    /// This many of the next events never come to be at all.
    pub omit: u32,
    /// Divides every wait between attempts.
    pub speed: f64,
    pub answer_within_ms: u64,
    /// What the endpoint subscribed to; `*` is everything.
    pub enabled_events: Vec<String>,
    /// Payloads are written as this version of the API writes them, whatever version a caller asks in.
    pub endpoint_version: String,
    /// What becomes of a subscription whose invoice was not paid after every attempt.
    pub after_dunning: AfterDunning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All at once, as they come: whichever is faster is first.
    Together,
    /// One after the other.
    AsCreated,
    /// The last of what one change caused comes first.
    Reversed,
    Shuffled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDunning {
    Cancel,
    Unpaid,
    PastDue,
}

/// The version the objects are kept in, and the one spoken where a caller names none.
pub const NEWEST: &str = "2026-10-28.endive";

/// Versions of the API whose names were published.
pub const VERSIONS: &[&str] = &[
    "2022-11-15",
    "2023-08-16",
    "2023-10-16",
    "2024-04-10",
    "2024-06-20",
    "2024-09-30.acacia",
    "2024-10-28.acacia",
    "2024-11-20.acacia",
    "2024-12-18.acacia",
    "2025-01-27.acacia",
    "2025-02-24.acacia",
    "2025-03-31.basil",
    "2025-04-30.basil",
    "2025-05-28.basil",
    "2025-06-30.basil",
    "2025-07-30.basil",
    "2025-08-27.basil",
    "2025-09-30.clover",
    "2025-10-29.clover",
    "2025-11-17.clover",
    "2025-12-15.clover",
    "2026-01-28.clover",
    "2026-02-25.clover",
    "2026-03-25.dahlia",
    "2026-04-22.dahlia",
    "2026-05-27.dahlia",
    "2026-06-24.dahlia",
    "2026-07-29.dahlia",
    "2026-08-26.dahlia",
    "2026-09-30.endive",
    NEWEST,
];

const MOST_COPIES: u32 = 1000;

impl Default for Switches {
    fn default() -> Self {
        Self {
            copies: 1,
            order: Order::Together,
            late_ms: 0,
            drop_answers: 0,
            hold: false,
            tamper: false,
            age_secs: 0,
            livemode: false,
            twins: false,
            lose: 0,
            omit: 0,
            speed: 1.0,
            answer_within_ms: 10_000,
            enabled_events: vec!["*".into()],
            endpoint_version: NEWEST.into(),
            after_dunning: AfterDunning::Cancel,
        }
    }
}

impl Switches {
    /// # Errors
    /// A text that says which of them makes no sense.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MOST_COPIES).contains(&self.copies) {
            return Err(format!("copies: between 1 and {MOST_COPIES}, not {}", self.copies));
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err(format!("speed: a number above 0, not {}", self.speed));
        }
        if self.answer_within_ms == 0 {
            return Err("answer_within_ms: above 0".into());
        }
        if !VERSIONS.contains(&self.endpoint_version.as_str()) {
            return Err(format!("endpoint_version: `{}` is not one of {}", self.endpoint_version, VERSIONS.join(", ")));
        }
        Ok(())
    }

    pub fn wants(&self, event_type: &str) -> bool {
        self.enabled_events.iter().any(|name| {
            name == "*"
                || name == event_type
                || name.strip_suffix(".*").is_some_and(|group| event_type.starts_with(&format!("{group}.")))
        })
    }
}
