//! Events that the database will not let through though it answers everybody else: a statement that always takes too long, a
//! lock that is never free. They are not charged, so no sixth attempt ends them, and nobody would ever hear of them.
//!
//! Counted in memory: a restart begins anew, and what is forgotten is only when somebody is told.

use std::collections::HashMap;

use crate::domain::ids::EventId;

use super::process::Outcome;

/// As many times as a worker may die over one event.
const TIMES_MAX: u32 = 20;
/// More events than this in trouble at once are no trouble of the events.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Stuck {
    times: HashMap<EventId, u32>,
    alarms: u32,
}

impl Stuck {
    /// How often somebody had to be told.
    pub fn alarms(&self) -> u32 {
        self.alarms
    }

    /// Takes in what came of a claim. Returns how many times an event was given back when somebody has to be told of it: at the
    /// twentieth, and at every twentieth more.
    pub fn saw(&mut self, outcome: &Outcome) -> Option<u32> {
        match outcome {
            Outcome::Troubled { id, .. } => {
                if self.times.len() >= EVENTS_MAX && !self.times.contains_key(id) {
                    self.times.clear();
                }
                let times = self.times.entry(*id).or_default();
                *times += 1;
                let tell = times.is_multiple_of(TIMES_MAX).then_some(*times);
                self.alarms += u32::from(tell.is_some());
                tell
            }
            Outcome::Settled { id, .. } | Outcome::Failed { id, .. } => {
                self.times.remove(id);
                None
            }
            Outcome::Released | Outcome::LeaseLost | Outcome::Stopped => None,
        }
    }
}
