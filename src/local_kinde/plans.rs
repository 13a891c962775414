//! Plans, agreements, invoices, and what can be done with them. Pure: each deed changes the state and says which events Kinde
//! would emit for it.
//!
//! What is published about that is little; see the notes at each deed. Whether a cancellation takes effect at once or at the
//! period's end, and when it is told, nobody has published, so both can be chosen, and it is told when it takes effect.

use serde::{Deserialize, Serialize};

use super::Error;
use super::events::Told;
use super::moment::At;
use super::people;
use super::state::State;

/// A plan of the pricing table.
#[derive(Debug)]
pub struct Plan {
    /// One value, which Kinde calls key, code or plan code by turns.
    pub key: &'static str,
    pub name: &'static str,
    /// Cents a month.
    pub price: u32,
    pub what: &'static str,
    /// Of the one metered feature.
    pub limit: u32,
}

pub const STARTER: &str = "customer_starter_plan";
pub const PRO: &str = "customer_pro_plan";

pub const PLANS: [Plan; 2] = [
    Plan { key: STARTER, name: "Starter", price: 0, what: "10 bottles a month", limit: 10 },
    Plan { key: PRO, name: "Pro", price: 900, what: "500 bottles a month", limit: 500 },
];

pub fn find(key: &str) -> Option<&'static Plan> {
    PLANS.iter().find(|plan| plan.key == key)
}

/// The contract by which somebody has a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    pub id: String,
    pub user_id: String,
    pub plan_code: String,
    pub starts_at: At,
    /// When we got to know of it; a lagging API does not know of it before.
    pub recorded_at: At,
    pub end: Option<AgreementEnd>,
    pub invoice: Invoice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreementEnd {
    pub at: At,
    pub recorded_at: At,
    /// Whether its event was emitted.
    pub told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoice {
    pub state: InvoiceState,
    pub due_on: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvoiceState {
    /// The latest one; or none was ever needed.
    Paid,
    Open,
    Failed,
    Overdue,
}

impl Agreement {
    pub fn is_live(&self, now: At) -> bool {
        self.end.as_ref().is_none_or(|end| end.at > now)
    }

    pub fn costs(&self) -> bool {
        // A key that no plan here has was named by an order; it costs something, as most plans do.
        find(&self.plan_code).is_none_or(|plan| plan.price > 0)
    }
}

/// The agreement that somebody has now: the newest live one.
pub fn current<'a>(state: &'a State, user_id: &str, now: At) -> Option<&'a Agreement> {
    state.agreements.iter().rev().find(|agreement| agreement.user_id == user_id && agreement.is_live(now))
}

fn current_mut<'a>(state: &'a mut State, user_id: &str, now: At) -> Option<&'a mut Agreement> {
    state.agreements.iter_mut().rev().find(|agreement| agreement.user_id == user_id && agreement.is_live(now))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Choose {
        plan: String,
    },
    CancelNow,
    CancelAtPeriodEnd,
    /// What was to end at the period's end ends now.
    LetPeriodEnd,
    /// The next period's invoice is there, unpaid. Kinde tells of no such thing.
    Bill,
    Pay,
    FailPayment,
    MarkOverdue,
    MeterUsage {
        quantity: u32,
    },
}

/// Does it.
///
/// # Errors
/// It cannot be done as things are; the text says why.
pub fn carry_out(state: &mut State, user_id: &str, deed: &Deed, now: At) -> Result<Vec<Told>, Error> {
    let refused = |why: &str| Err(Error::Usage(why.to_owned()));
    if let Deed::Choose { plan } = deed {
        return choose(state, user_id, plan, now);
    }
    let Some(agreement) = current_mut(state, user_id, now) else {
        return refused("there is no plan yet: choose one first");
    };
    let id = agreement.id.clone();
    let told = |name| Told::new(name, user_id, &id);
    match deed {
        Deed::CancelNow => {
            agreement.end = Some(AgreementEnd { at: now, recorded_at: now, told: true });
            return Ok(vec![told("agreement_cancelled")]);
        }
        Deed::CancelAtPeriodEnd => {
            let (_, end) = agreement.starts_at.month_around(now);
            agreement.end = Some(AgreementEnd { at: end, recorded_at: now, told: false });
            return Ok(Vec::new());
        }
        Deed::LetPeriodEnd => {
            let Some(end) = agreement.end.as_mut() else {
                return refused("nothing is to end at the period's end");
            };
            end.at = now;
            return Ok(end_periods(state, now));
        }
        Deed::MeterUsage { quantity } => return Ok(vec![Told { quantity: Some(*quantity), ..told("meter_usage_updated") }]),
        _ => {}
    }
    if !agreement.costs() {
        return refused("this plan costs nothing, so there is nothing to pay");
    }
    match deed {
        Deed::Bill if agreement.invoice.state != InvoiceState::Paid => refused("an invoice is open already"),
        Deed::Bill => {
            agreement.invoice = Invoice { state: InvoiceState::Open, due_on: now };
            Ok(Vec::new())
        }
        Deed::Pay if agreement.invoice.state == InvoiceState::Paid => refused("no invoice is open: bill the next period first"),
        Deed::Pay => {
            agreement.invoice.state = InvoiceState::Paid;
            Ok(vec![told("payment_succeeded")])
        }
        Deed::FailPayment => {
            open_one(agreement, now);
            agreement.invoice.state = InvoiceState::Failed;
            Ok(vec![told("payment_failed")])
        }
        _ => {
            open_one(agreement, now);
            agreement.invoice.state = InvoiceState::Overdue;
            Ok(vec![Told { invoice_due_on: Some(agreement.invoice.due_on), ..told("invoice_overdue") }])
        }
    }
}

/// There is an invoice whose payment can fail, billed now if need be.
fn open_one(agreement: &mut Agreement, now: At) {
    if agreement.invoice.state == InvoiceState::Paid {
        agreement.invoice = Invoice { state: InvoiceState::Open, due_on: now };
    }
}

/// A new agreement takes the place of any other, as at Kinde. A first plan is assigned; a later one is changed to as well.
fn choose(state: &mut State, user_id: &str, key: &str, now: At) -> Result<Vec<Told>, Error> {
    let Some(plan) = find(key) else {
        return Err(Error::Usage(format!("there is no plan `{key}`: choose one of {STARTER}, {PRO}")));
    };
    if state.find_person(user_id).is_none() {
        return Err(Error::Usage(format!("there is nobody with the id {user_id}")));
    }
    let old = current(state, user_id, now).cloned();
    if old.as_ref().is_some_and(|old| old.plan_code == key && old.end.is_none()) {
        return Err(Error::Usage(format!("{} is the plan already", plan.name)));
    }
    let mut told = end_others(state, user_id, None, now);
    let agreement = begin(state, people::fresh("agreement_"), user_id, key, now, now);
    let due = agreement.invoice.due_on;
    let about = |name| Told { plan: Some(key.to_owned()), ..Told::new(name, user_id, &agreement.id) };
    told.push(Told { invoice_due_on: Some(due), ..about("agreement_created") });
    told.push(about("plan_assigned"));
    if old.is_some() {
        told.push(about("plan_changed"));
    }
    if plan.price > 0 {
        told.push(Told::new("payment_succeeded", user_id, &agreement.id));
    }
    Ok(told)
}

/// Adds an agreement, with its first invoice paid.
pub fn begin(state: &mut State, id: String, user_id: &str, key: &str, starts_at: At, recorded_at: At) -> Agreement {
    let (_, due_on) = starts_at.month_around(recorded_at);
    let invoice = Invoice { state: InvoiceState::Paid, due_on };
    let (user_id, plan_code) = (user_id.to_owned(), key.to_owned());
    let agreement = Agreement { id, user_id, plan_code, starts_at, recorded_at, end: None, invoice };
    state.agreements.push(agreement.clone());
    agreement
}

/// Ends what somebody has, but for one agreement.
pub fn end_others(state: &mut State, user_id: &str, except: Option<&str>, now: At) -> Vec<Told> {
    let live = |agreement: &&mut Agreement| {
        agreement.user_id == user_id && agreement.is_live(now) && Some(agreement.id.as_str()) != except
    };
    let mut told = Vec::new();
    for agreement in state.agreements.iter_mut().filter(live) {
        agreement.end = Some(AgreementEnd { at: now, recorded_at: now, told: true });
        told.push(Told::new("agreement_cancelled", user_id, &agreement.id));
    }
    told
}

/// What had been cancelled for its period's end, where that has come.
pub fn end_periods(state: &mut State, now: At) -> Vec<Told> {
    let mut told = Vec::new();
    for agreement in &mut state.agreements {
        if let Some(end) = agreement.end.as_mut().filter(|end| !end.told && end.at <= now) {
            end.told = true;
            told.push(Told::new("agreement_cancelled", &agreement.user_id, &agreement.id));
        }
    }
    told
}

/// When the next period ends with an agreement that was cancelled for then.
pub fn next_end(state: &State) -> Option<At> {
    state.agreements.iter().filter_map(|agreement| agreement.end.as_ref()).filter(|end| !end.told).map(|end| end.at).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ben() -> (State, String, At) {
        let now = At("2026-10-21T10:00:00Z".parse().unwrap());
        (State::new(now), people::user_id("ben").unwrap(), now)
    }

    fn names(told: &[Told]) -> Vec<&'static str> {
        told.iter().map(|told| told.name).collect()
    }

    fn choose(plan: &str) -> Deed {
        Deed::Choose { plan: plan.into() }
    }

    #[test]
    fn a_first_plan_is_assigned_and_a_change_ends_the_agreement_before() {
        let (mut state, ben, now) = ben();
        let first = carry_out(&mut state, &ben, &choose(STARTER), now).unwrap();
        assert_eq!(names(&first), ["agreement_created", "plan_assigned"]);
        let second = carry_out(&mut state, &ben, &choose(PRO), now).unwrap();
        assert_eq!(
            names(&second),
            ["agreement_cancelled", "agreement_created", "plan_assigned", "plan_changed", "payment_succeeded"]
        );
        assert_eq!(second[0].agreement_id, first[0].agreement_id);
        assert!(
            second[1..]
                .iter()
                .all(|told| told.agreement_id == second[1].agreement_id && told.agreement_id != first[0].agreement_id)
        );
        assert_eq!(current(&state, &ben, now).unwrap().plan_code, PRO);
        assert!(carry_out(&mut state, &ben, &choose(PRO), now).is_err());
        assert!(carry_out(&mut state, &ben, &choose("gold"), now).is_err());
    }

    #[test]
    fn a_cancellation_for_the_periods_end_is_told_when_it_comes() {
        let (mut state, ben, now) = ben();
        carry_out(&mut state, &ben, &choose(PRO), now).unwrap();
        assert!(carry_out(&mut state, &ben, &Deed::LetPeriodEnd, now).is_err());
        assert!(carry_out(&mut state, &ben, &Deed::CancelAtPeriodEnd, now).unwrap().is_empty());
        let end = At("2026-11-21T10:00:00Z".parse().unwrap());
        assert_eq!(next_end(&state), Some(end));
        assert!(current(&state, &ben, now).is_some() && current(&state, &ben, end).is_none());
        assert!(end_periods(&mut state, now).is_empty());
        assert_eq!(names(&end_periods(&mut state, end)), ["agreement_cancelled"]);
        assert!(end_periods(&mut state, end).is_empty(), "told once");
    }

    #[test]
    fn an_invoice_is_billed_fails_and_is_paid_late() {
        let (mut state, ben, now) = ben();
        let mut does = |deed: Deed| carry_out(&mut state, &ben, &deed, now).map(|told| names(&told));
        assert!(does(Deed::Pay).is_err(), "no plan yet");
        does(choose(STARTER)).unwrap();
        assert!(does(Deed::FailPayment).is_err(), "nothing to pay");
        assert_eq!(does(Deed::MeterUsage { quantity: 3 }).unwrap(), ["meter_usage_updated"]);
        does(choose(PRO)).unwrap();
        assert!(does(Deed::Pay).is_err(), "it was paid on choosing");
        assert!(does(Deed::Bill).unwrap().is_empty());
        assert!(does(Deed::Bill).is_err(), "one at a time");
        assert_eq!(does(Deed::FailPayment).unwrap(), ["payment_failed"]);
        assert_eq!(does(Deed::MarkOverdue).unwrap(), ["invoice_overdue"]);
        assert_eq!(does(Deed::Pay).unwrap(), ["payment_succeeded"]);
        assert_eq!(does(Deed::CancelNow).unwrap(), ["agreement_cancelled"]);
        assert!(does(Deed::CancelNow).is_err());
    }
}
