//! How things are put into words, on pages and on the command line.

use crate::local_kinde::moment::At;
use crate::local_kinde::people::{self, Person};
use crate::local_kinde::plans::{self, Agreement, InvoiceState, PLANS};
use crate::local_kinde::sender::Outcome;
use crate::local_kinde::state::State;

/// A plan to choose.
pub struct Offer {
    pub key: &'static str,
    pub name: &'static str,
    pub price: String,
    pub what: &'static str,
    pub current: bool,
}

pub fn offers(current: Option<&str>) -> Vec<Offer> {
    let offer = |plan: &'static plans::Plan| Offer {
        key: plan.key,
        name: plan.name,
        price: price(plan.price),
        what: plan.what,
        current: current == Some(plan.key),
    };
    PLANS.iter().map(offer).collect()
}

fn price(cents: u32) -> String {
    match cents {
        0 => "free".into(),
        cents => format!("{}.{:02} a month", cents / 100, cents % 100),
    }
}

/// A plan's name, or its key where nothing here has it.
pub fn plan_name(key: &str) -> &str {
    plans::find(key).map_or(key, |plan| plan.name)
}

/// Somebody in a few words.
pub fn about(state: &State, person: &Person) -> String {
    let plan = match plans::current(state, &person.id, At::now()) {
        Some(agreement) => format!("{} since {}", plan_name(&agreement.plan_code), agreement.starts_at.0.strftime("%-d %b %Y")),
        None if state.agreements.iter().any(|agreement| agreement.user_id == person.id) => "no plan any more".to_owned(),
        None => "new, no plan yet".to_owned(),
    };
    match people::user_id("olive") {
        Ok(olive) if olive == person.id => format!("for operating Bottle; {plan}"),
        _ => plan,
    }
}

pub fn invoice(agreement: &Agreement) -> String {
    let due = agreement.invoice.due_on.0.strftime("%-d %b %Y");
    match agreement.invoice.state {
        InvoiceState::Paid if agreement.costs() => format!("paid; the next one is due on {due}"),
        InvoiceState::Paid => "none: this plan costs nothing".to_owned(),
        InvoiceState::Open => format!("open, due on {due}"),
        InvoiceState::Failed => format!("open, due on {due}; the payment failed"),
        InvoiceState::Overdue => format!("overdue since {due}"),
    }
}

/// The answer on one line.
pub fn in_words(outcome: &Outcome) -> String {
    let answer = |status: &u16, body: &str| {
        let words: Vec<&str> = body.split_whitespace().collect();
        format!("{status} {}", words.join(" ")).trim_end().to_owned()
    };
    match outcome {
        Outcome::Answered { status, body } => answer(status, body),
        Outcome::AnswerDropped { status, body } => format!("answer lost on purpose ({})", answer(status, body)),
        Outcome::Failed { why } => format!("no answer: {why}"),
    }
}
