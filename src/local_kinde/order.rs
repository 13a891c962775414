//! An order: what to send and how, in plain text, the same for the command line, a form and JSON.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::Error;
use super::events::{self, Event, Happening};
use super::key::SigningKey;
use super::moment::At;
use super::people::{self, Person};
use super::plans::{self, AgreementEnd, InvoiceState};
use super::sender::{Delivery, KINDE_WAITS, Manner};
use super::state::State;

#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct Order {
    /// What happens; `upgrade` is all four events of a plan change
    #[arg(value_parser = PossibleValuesParser::new(events::NAMES))]
    pub event: String,
    /// To whom: a user id (kp_…), or ada, ben, olga or olive
    #[arg(long, default_value = "ada")]
    #[serde(default = "ada")]
    pub user: String,
    /// The plan's key; of the new plan, where it changes
    #[arg(long, default_value = "customer_pro_plan")]
    #[serde(default = "pro")]
    pub plan: String,
    /// The plan that `upgrade` leaves [default: customer_starter_plan, or customer_pro_plan on the way down]
    #[arg(long)]
    #[serde(default)]
    pub from_plan: Option<String>,
    /// The agreement's id [default: one per user and plan]
    #[arg(long)]
    #[serde(default)]
    pub agreement: Option<String>,
    /// When it happened, such as 2026-10-21T10:00:00Z [default: now]
    #[arg(long)]
    #[serde(default)]
    pub at: Option<String>,
    /// Identical deliveries of each event, each with retries of its own
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    pub copies: u32,
    /// Wait this long before the first attempt: 10s, 5m, 2h
    #[arg(long)]
    #[serde(default)]
    pub late: Option<String>,
    /// Treat the answers to this many first attempts as lost, so that the event comes again
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub drop_answers: u32,
    /// Give up after this many attempts [default: as Kinde does, after nine in 36 hours]
    #[arg(long)]
    #[serde(default)]
    pub attempts: Option<u32>,
    /// How fast the waits pass: 3600 is an hour a second
    #[arg(long, default_value_t = 1.0)]
    #[serde(default = "real_time")]
    pub speed: f64,
}

/// Copies of one order at most: each is a task that may wait for 36 hours.
const MOST_COPIES: u32 = 1000;

impl Order {
    /// The events it stands for. Each call makes new ones.
    ///
    /// # Errors
    /// The order does not make sense; the text says why.
    pub fn events(&self) -> Result<Vec<Event>, Error> {
        events::write(&self.happening()?)
    }

    /// Lets it happen here, so that the APIs agree with what the events say, and gives the events. Where the order names no
    /// agreement, the one that the person really has is meant.
    ///
    /// # Errors
    /// The order does not make sense; the text says why.
    pub fn take_place(&self, state: &mut State, now: At) -> Result<Vec<Event>, Error> {
        let mut what = self.happening()?;
        if state.find_person(&what.user_id).is_none() {
            state.people.push(Person::new(what.user_id.clone(), "Somebody", "", None, now));
        }
        let has = plans::current(state, &what.user_id, now).cloned();
        let begins = BEGINNINGS.contains(&what.event.as_str());
        if given(self.agreement.as_ref()).is_none() {
            let known = state.agreements.iter().any(|agreement| agreement.id == what.agreement_id);
            what.agreement_id = match &has {
                Some(has) if !begins || has.plan_code == what.plan => has.id.clone(),
                // Ended before: a second agreement for the same plan is another one.
                _ if begins && known => people::fresh("agreement_"),
                _ => what.agreement_id,
            };
        }
        let old = has.as_ref().map(|has| has.id.clone()).filter(|id| *id != what.agreement_id);
        let events = events::write_as(&what, old.as_deref(), state.switches.spelling)?;
        // News from before what is true by now changes nothing.
        let at = what.at.map_or(now, At);
        if has.is_none_or(|has| has.starts_at <= at || has.id == what.agreement_id) {
            happen(state, &what, begins, at, now);
        }
        Ok(events)
    }

    fn happening(&self) -> Result<Happening, Error> {
        let user_id = people::user_id(self.user.trim())?;
        let plan = given(Some(&self.plan)).ok_or_else(|| Error::Usage("the plan's key is empty".into()))?;
        let from_plan = given(self.from_plan.as_ref()).unwrap_or_else(|| if plan == STARTER { pro() } else { STARTER.into() });
        if self.event == "upgrade" && from_plan == plan {
            return Err(Error::Usage(format!("an upgrade from {plan} to {plan} changes nothing")));
        }
        let at = given(self.at.as_ref())
            .map(|text| {
                text.parse().map_err(|why| Error::Usage(format!("`{text}` is not a time such as 2026-10-21T10:00:00Z: {why}")))
            })
            .transpose()?;
        let agreement_id = given(self.agreement.as_ref()).unwrap_or_else(|| people::agreement_id(&user_id, &plan));
        Ok(Happening { event: self.event.clone(), user_id, plan, from_plan, agreement_id, at })
    }

    /// How to carry them.
    ///
    /// # Errors
    /// The order does not make sense; the text says why.
    pub fn manner(&self) -> Result<Manner, Error> {
        if !(1..=MOST_COPIES).contains(&self.copies) {
            return Err(Error::Usage(format!("copies: between 1 and {MOST_COPIES}, not {}", self.copies)));
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err(Error::Usage(format!("speed: a number above 0, not {}", self.speed)));
        }
        if self.attempts == Some(0) {
            return Err(Error::Usage("attempts: at least 1".into()));
        }
        let late = given(self.late.as_ref()).map_or(Ok(Duration::ZERO), |text| duration(&text))?;
        Ok(Manner {
            copies: self.copies,
            late,
            drop_answers: self.drop_answers,
            attempts: self.attempts.unwrap_or(u32::MAX),
            speed: self.speed,
            answer_within: KINDE_WAITS,
        })
    }
}

/// Events after which somebody has the plan they name.
const BEGINNINGS: [&str; 4] = ["upgrade", "plan_changed", "plan_assigned", "agreement_created"];

fn happen(state: &mut State, what: &Happening, begins: bool, at: At, now: At) {
    if begins {
        plans::end_others(state, &what.user_id, Some(&what.agreement_id), now);
    }
    if !state.agreements.iter().any(|agreement| agreement.id == what.agreement_id) {
        plans::begin(state, what.agreement_id.clone(), &what.user_id, &what.plan, at, now);
    }
    let Some(agreement) = state.agreements.iter_mut().find(|agreement| agreement.id == what.agreement_id) else { return };
    let invoice = match what.event.as_str() {
        "agreement_cancelled" => {
            agreement.end = Some(AgreementEnd { at, recorded_at: now, told: true });
            return;
        }
        "payment_succeeded" => InvoiceState::Paid,
        "payment_failed" => InvoiceState::Failed,
        "invoice_overdue" => InvoiceState::Overdue,
        _ => {
            if begins {
                agreement.plan_code.clone_from(&what.plan);
                agreement.end = None;
            }
            return;
        }
    };
    agreement.invoice.state = invoice;
}

/// Signed, and addressed to an endpoint.
///
/// # Errors
/// The library refused to sign.
pub fn sign(events: Vec<Event>, key: &SigningKey, to: &str) -> Result<Vec<Delivery>, Error> {
    let sign_one = |event: Event| {
        Ok(Delivery {
            to: to.to_owned(),
            webhook_id: people::webhook_id(to, &event.event_id),
            token: key.sign(&event.claims)?,
            event_type: event.event_type,
            event_id: event.event_id,
        })
    };
    events.into_iter().map(sign_one).collect()
}

/// `10s`, `5m`, `2h`, `1h 30m`. jiff is here already and reads these; a crate for it alone would be one more to keep.
fn duration(text: &str) -> Result<Duration, Error> {
    let bad = || Error::Usage(format!("`{text}` is not a duration such as 10s, 5m or 2h"));
    text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok()).ok_or_else(bad)
}

/// Forms send a field left empty as an empty text.
fn given(field: Option<&String>) -> Option<String> {
    field.map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

const STARTER: &str = "customer_starter_plan";

fn ada() -> String {
    "ada".into()
}

fn pro() -> String {
    "customer_pro_plan".into()
}

fn one() -> u32 {
    1
}

fn real_time() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &str, complaint: &str) {
        let order: Order = serde_json::from_str(&format!(r#"{{"event":"upgrade"{fields}}}"#)).unwrap();
        let said = order.events().map(drop).and(order.manner().map(drop)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(if complaint.is_empty() { said.is_empty() } else { said.contains(complaint) }, "{fields}: {said}");
    }

    #[test]
    fn an_order_that_makes_no_sense_is_refused_with_its_reason() {
        check("", "");
        check(r#","late":" ","at":"","agreement":"","from_plan":"""#, "");
        check(r#","plan":"customer_starter_plan""#, "");
        check(r#","late":"10s","at":"2026-10-21T10:00:00+11""#, "");
        check(r#","user":"adda""#, "adda");
        check(r#","plan":" ""#, "plan's key is empty");
        check(r#","from_plan":"customer_pro_plan""#, "changes nothing");
        check(r#","at":"yesterday""#, "`yesterday`");
        check(r#","late":"-10s""#, "`-10s`");
        check(r#","late":"soon""#, "`soon`");
        check(r#","copies":0"#, "copies");
        check(r#","attempts":0"#, "attempts");
        check(r#","speed":0"#, "speed");
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        for (text, secs) in [("10s", 10), ("5m", 300), ("2h", 7200), ("1h 30m", 5400), ("1h30m", 5400), ("0s", 0)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(secs), "{text}");
        }
    }
}
