//! Tells a bad release from bad events, so that neither can do the other's harm.
//!
//! When everything fails alike, it is either the handler or the events. An event that was applied before is run again and
//! rolled back: if even that fails, the release is bad, and the worker pauses and probes, charging nobody; if it works, the
//! events are at fault and go on towards their sixth attempt.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::event::Status;
use crate::domain::ids::EventId;

use super::process::Outcome;

/// Failures in a row after which the release is doubted.
const STREAK_MAX: usize = 20;
const STREAK_EVENTS_MIN: usize = 2;
const PROBE_FIRST: Duration = Duration::from_secs(5);
const PROBE_LAST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Breaker {
    state: State,
    alarms: u32,
}

#[derive(Debug)]
enum State {
    Closed { streak: Vec<EventId>, fingerprint: String, kind: String },
    Open { fingerprint: String, kind: String, wait: Duration, next_probe: Instant },
}

/// What the worker should do about what it just saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    GoOn,
    /// Everything fails alike: run the last applied event of this type again, to see whose fault it is.
    Doubt {
        kind: String,
        fingerprint: String,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::closed(), alarms: 0 }
    }
}

impl State {
    fn closed() -> Self {
        Self::Closed { streak: Vec::new(), fingerprint: String::new(), kind: String::new() }
    }
}

impl Breaker {
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// How often somebody had to be told.
    pub fn alarms(&self) -> u32 {
        self.alarms
    }

    /// How long until the next probe; none while closed.
    pub fn probe_in(&self, now: Instant) -> Option<Duration> {
        match &self.state {
            State::Closed { .. } => None,
            State::Open { next_probe, .. } => Some(next_probe.saturating_duration_since(now)),
        }
    }

    /// Takes in the outcomes of one claim. `more_due`: the claim was full, so there may be events that have not failed.
    pub fn saw(&mut self, outcomes: &[Outcome], more_due: bool) -> Advice {
        for outcome in outcomes {
            match (outcome, &mut self.state) {
                // Nothing less shows that this release can apply an event.
                (Outcome::Settled { status: Status::Applied, .. }, state) => *state = State::closed(),
                (Outcome::Failed { id, kind, fingerprint: print }, State::Closed { streak, fingerprint, kind: of }) => {
                    if *print != *fingerprint {
                        streak.clear();
                        fingerprint.clone_from(print);
                    }
                    of.clone_from(kind);
                    streak.push(*id);
                }
                _ => {}
            }
        }
        match &self.state {
            State::Closed { streak, fingerprint, kind } if doubtful(streak, more_due) => {
                Advice::Doubt { kind: kind.clone(), fingerprint: fingerprint.clone() }
            }
            State::Open { fingerprint, kind, .. } if outcomes.iter().any(|o| matches!(o, Outcome::Failed { .. })) => {
                Advice::Doubt { kind: kind.clone(), fingerprint: fingerprint.clone() }
            }
            _ => Advice::GoOn,
        }
    }

    /// The release is bad. Returns true the first time, when somebody has to be told.
    pub fn open(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Closed { fingerprint, kind, .. } => {
                self.state = State::Open {
                    fingerprint: std::mem::take(fingerprint),
                    kind: std::mem::take(kind),
                    wait: PROBE_FIRST,
                    next_probe: now + PROBE_FIRST,
                };
                self.alarms += 1;
                true
            }
            State::Open { wait, next_probe, .. } => {
                *wait = (*wait * 2).min(PROBE_LAST);
                *next_probe = now + *wait;
                false
            }
        }
    }

    /// The release can apply events after all.
    pub fn close(&mut self) {
        self.state = State::closed();
    }
}

/// Twenty failures in a row, or every one of fewer due events failed twice. One event alone says nothing about the release.
fn doubtful(streak: &[EventId], more_due: bool) -> bool {
    let mut times: HashMap<EventId, usize> = HashMap::new();
    for id in streak {
        *times.entry(*id).or_default() += 1;
    }
    if times.len() < STREAK_EVENTS_MIN {
        return false;
    }
    streak.len() >= STREAK_MAX || (!more_due && times.values().all(|n| *n >= 2))
}
