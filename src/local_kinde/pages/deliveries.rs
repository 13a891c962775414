//! The list of what was sent: each event, each copy's tries, and what comes next.

use crate::local_kinde::journeys::{End, Journey, SentEvent};
use crate::local_kinde::moment::At;
use crate::local_kinde::state::State;

use super::words::in_words;

/// Of the latest events so many are shown, and so many copies of each.
pub const SHOWN: usize = 100;
const COPIES_SHOWN: usize = 20;

pub struct Sent {
    pub event_type: String,
    pub event_id: String,
    pub webhook_id: String,
    pub made_at: String,
    pub copies: Vec<CopyOnItsWay>,
    pub more_copies: usize,
}

pub struct CopyOnItsWay {
    pub n: u32,
    pub tries: Vec<String>,
    /// Delivered, given up, held, or waiting.
    pub class: &'static str,
    pub fate: String,
}

/// Newest first.
pub fn list(state: &State) -> Vec<Sent> {
    state.events.iter().rev().take(SHOWN).map(|event| sent(state, event)).collect()
}

fn sent(state: &State, event: &SentEvent) -> Sent {
    let journeys: Vec<&Journey> = state.journeys.iter().filter(|journey| journey.event_id == event.event_id).collect();
    Sent {
        event_type: event.event_type.clone(),
        event_id: event.event_id.clone(),
        webhook_id: event.webhook_id.clone(),
        made_at: event.made_at.for_people(),
        copies: journeys.iter().take(COPIES_SHOWN).map(|journey| copy(state, journey)).collect(),
        more_copies: journeys.len().saturating_sub(COPIES_SHOWN),
    }
}

fn copy(state: &State, journey: &Journey) -> CopyOnItsWay {
    let switches = &state.switches.deliveries;
    let tries = journey.tries.iter().map(|one| format!("{}: {}", at(one.at), in_words(&one.outcome))).collect();
    let (class, fate) = match journey.end {
        Some(End::Delivered) => ("good", "delivered".to_owned()),
        Some(End::GivenUp) => ("bad", "given up".to_owned()),
        None if switches.hold => ("wait", "held until deliveries are released".to_owned()),
        None => ("wait", format!("next try at {}", at(journey.due(switches.speed)))),
    };
    CopyOnItsWay { n: journey.copy, tries, class, fate }
}

fn at(at: At) -> String {
    at.0.strftime("%-d %b, %H:%M:%S%.3f UTC").to_string()
}
