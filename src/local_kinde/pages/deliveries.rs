//! The list of what was sent: each event, each copy's tries, and what comes next.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::local_kinde::journeys::{End, Journey, SentEvent};
use crate::local_kinde::moment::At;
use crate::local_kinde::state::State;

use super::words::in_words;

/// Of the latest events so many are shown, so many of them at once, and so many copies of each.
pub const SHOWN: usize = 100;
const AT_ONCE: usize = 12;
const COPIES_SHOWN: usize = 20;

pub struct Sent {
    pub event_type: String,
    /// None: nobody who is known here.
    pub whose: Option<String>,
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

/// Newest first: those to show at once, and those before them.
pub fn list(state: &State) -> (Vec<Sent>, Vec<Sent>) {
    let mut latest: Vec<Sent> = state.events.iter().rev().take(SHOWN).map(|event| sent(state, event)).collect();
    let earlier = latest.split_off(latest.len().min(AT_ONCE));
    (latest, earlier)
}

fn sent(state: &State, event: &SentEvent) -> Sent {
    let journeys: Vec<&Journey> = state.journeys.iter().filter(|journey| journey.event_id == event.event_id).collect();
    Sent {
        event_type: event.event_type.clone(),
        whose: whose(state, &event.token),
        event_id: event.event_id.clone(),
        webhook_id: event.webhook_id.clone(),
        made_at: event.made_at.for_people(),
        copies: journeys.iter().take(COPIES_SHOWN).map(|journey| copy(state, journey)).collect(),
        more_copies: journeys.len().saturating_sub(COPIES_SHOWN),
    }
}

/// Who is named in what was signed, by either id.
fn whose(state: &State, token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims = String::from_utf8(claims).ok()?;
    let named = |id: &str| claims.contains(&format!("\"{id}\""));
    let person = state.people.iter().find(|person| named(&person.id) || named(&person.customer_id()))?;
    Some(person.name())
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
