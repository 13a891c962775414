//! Events that were signed, and the way of each copy to the webhook endpoint: pure bookkeeping over the state, so that what is
//! still owed survives a restart.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::moment::At;
use super::sender::{Delivery, KINDE_WAITS, Manner, Outcome, wait_after};
use super::state::State;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SentEvent {
    pub event_id: String,
    pub event_type: String,
    pub webhook_id: String,
    /// Signed once: every attempt carries the same bytes, whatever became of the key.
    pub token: String,
    pub made_at: At,
}

/// One copy of one event on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Journey {
    pub id: u64,
    pub event_id: String,
    /// From 1.
    pub copy: u32,
    pub to: String,
    /// The wait for the next try, at ordinary speed, counted from `waits_from`.
    pub waits_from: At,
    pub wait: Duration,
    pub speed: f64,
    pub drop_answers: u32,
    pub attempts: u32,
    pub tries: Vec<Try>,
    pub end: Option<End>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Try {
    /// From 1.
    pub n: u32,
    pub at: At,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Delivered,
    GivenUp,
}

/// A try that is due.
pub struct Due {
    pub journey: u64,
    pub n: u32,
    pub delivery: Delivery,
    pub manner: Manner,
}

impl Journey {
    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }

    pub fn due(&self, speed: f64) -> At {
        self.waits_from.after(super::sender::hurried(self.wait, self.speed * speed))
    }

    fn next_try(&self) -> u32 {
        self.tries.last().map_or(1, |last| last.n + 1)
    }

    fn manner(&self) -> Manner {
        Manner {
            copies: 1,
            late: Duration::ZERO,
            drop_answers: self.drop_answers,
            attempts: self.attempts,
            speed: self.speed,
            answer_within: KINDE_WAITS,
        }
    }
}

/// Puts every copy of an event on its way: the first try after `manner.late`, counted from `from`.
pub fn begin(state: &mut State, event: SentEvent, to: &str, manner: Manner, from: At) {
    for copy in 1..=manner.copies {
        add(state, &event.event_id, copy, to, manner, from);
    }
    state.events.push(event);
}

/// One more delivery of an event that was sent before.
///
/// Returns false if no such event is remembered.
pub fn again(state: &mut State, event_id: &str, to: &str, now: At) -> bool {
    if !state.events.iter().any(|event| event.event_id == event_id) {
        return false;
    }
    let copies = state.journeys.iter().filter(|journey| journey.event_id == event_id).map(|journey| journey.copy).max();
    let manner =
        Manner { copies: 1, late: Duration::ZERO, drop_answers: 0, attempts: u32::MAX, speed: 1.0, answer_within: KINDE_WAITS };
    add(state, event_id, copies.unwrap_or(0) + 1, to, manner, now);
    true
}

fn add(state: &mut State, event_id: &str, copy: u32, to: &str, manner: Manner, from: At) {
    state.journeys.push(Journey {
        id: state.next_journey,
        event_id: event_id.to_owned(),
        copy,
        to: to.to_owned(),
        waits_from: from,
        wait: manner.late,
        speed: manner.speed,
        drop_answers: manner.drop_answers,
        attempts: manner.attempts,
        tries: Vec::new(),
        end: None,
    });
    state.next_journey += 1;
}

/// The tries that are due and not `under_way`, and when the next one will be.
pub fn due(state: &State, now: At, under_way: &HashSet<u64>) -> (Vec<Due>, Option<At>) {
    let switches = &state.switches.deliveries;
    if switches.hold {
        return (Vec::new(), None);
    }
    let waiting = || state.journeys.iter().filter(|journey| journey.is_open() && !under_way.contains(&journey.id));
    let due = waiting().filter(|journey| journey.due(switches.speed) <= now).filter_map(|journey| {
        let event = state.events.iter().find(|event| event.event_id == journey.event_id)?;
        let delivery = Delivery {
            to: journey.to.clone(),
            webhook_id: event.webhook_id.clone(),
            event_type: event.event_type.clone(),
            event_id: event.event_id.clone(),
            token: event.token.clone(),
        };
        Some(Due { journey: journey.id, n: journey.next_try(), delivery, manner: journey.manner() })
    });
    let next = waiting().map(|journey| journey.due(switches.speed)).filter(|at| *at > now).min();
    (due.collect(), next)
}

/// Notes what a try came to, and what is to happen next.
pub fn note(state: &mut State, journey: u64, done: Try, now: At) {
    let Some(journey) = state.journeys.iter_mut().find(|one| one.id == journey) else { return };
    let wait = if done.n >= journey.attempts { None } else { wait_after(done.n) };
    match wait {
        _ if done.outcome.is_delivered() => journey.end = Some(End::Delivered),
        Some(wait) => {
            journey.waits_from = now;
            journey.wait = wait;
        }
        None => journey.end = Some(End::GivenUp),
    }
    journey.tries.push(done);
}
