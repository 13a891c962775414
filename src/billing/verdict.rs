//! What one event did to its account, in one of the closed set of reasons. Pure.

use crate::domain::fact::{Dated, Fact};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::Plan;
use crate::domain::reason::{Allowance, Newer, Reason};

use super::fold::{State, Upcoming};
use super::plan::Deciding;

/// The account as it stood before this event ran: what was stored, read at this moment.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    pub plan: Plan,
    pub past_due: bool,
}

/// `fact` is what the event itself said (not the provider's answer to a question about it); `granted` are the months that get
/// their Pro entry by this run.
pub fn judge(fact: &Dated, before: Before, after: &State, granted: Vec<Period>) -> Reason {
    let changed = before.plan != after.plan;
    match &fact.fact {
        Fact::Start { plan_key, .. } => {
            if after.unknown.as_ref().is_some_and(|u| u.key == fact.key) {
                return Reason::WaitsForPlanKey { key: plan_key.clone() };
            }
            if changed {
                return Reason::PlanSet { plan: after.plan, granted, from: None };
            }
            match newer_than(fact, after) {
                Some(newer) if granted.is_empty() => Reason::NewerStored { newer: Some(newer) },
                Some(newer) => Reason::NewerStoredGranted { granted, newer: Some(newer) },
                None => Reason::PlanAlready { plan: after.plan, granted },
            }
        }
        Fact::End { .. } => {
            if changed {
                return Reason::PlanSet { plan: after.plan, granted, from: None };
            }
            if let Some(change) = super::fold::end_of(fact).and_then(|at| change_at(after, at)) {
                return Reason::PlanSet { plan: change.plan, granted, from: Some(change.at) };
            }
            let held = after.unknown.is_some() || after.decided.as_ref().is_some_and(|d| d.by != Deciding::End);
            match newer_than(fact, after) {
                _ if !held => Reason::PlanAlready { plan: after.plan, granted },
                Some(newer) => Reason::NewerStored { newer: Some(newer) },
                None => Reason::NotCurrentAgreement,
            }
        }
        Fact::Paid { .. } => {
            let allowance = if !granted.is_empty() {
                Allowance::Granted(granted)
            } else if after.belonging.contains(&fact.event) {
                Allowance::AlreadyGranted
            } else {
                Allowance::NoProPlan
            };
            Reason::PaymentRecorded { allowance, cleared: before.past_due && after.past_due_since.is_none() }
        }
        Fact::PaymentFailed { .. } => Reason::PaymentFailureRecorded,
        Fact::Overdue { .. } => Reason::InvoiceOverdueRecorded,
        Fact::Opened | Fact::Snapshot { .. } if changed => Reason::PlanSet { plan: after.plan, granted, from: None },
        Fact::Opened | Fact::Snapshot { .. } => Reason::PlanAlready { plan: after.plan, granted },
    }
}

/// The change of plan that is to come at this moment.
fn change_at(after: &State, at: Instant) -> Option<&Upcoming> {
    let before = std::iter::once(after.plan).chain(after.upcoming.iter().map(|u| u.plan));
    before.zip(&after.upcoming).find(|(before, u)| u.at == at && u.plan != *before).map(|(_, u)| u)
}

/// The plan change that decides, if it is newer than this one by the order of facts.
fn newer_than(fact: &Dated, after: &State) -> Option<Newer> {
    let (at, key) = match (&after.unknown, &after.decided) {
        (Some(unknown), _) => (unknown.at, &unknown.key),
        (None, Some(decided)) => (decided.at, &decided.key),
        (None, None) => return None,
    };
    // A Start outranks an End of the same nanosecond; two Starts are told apart by their event.
    let newer = match fact.fact {
        Fact::End { .. } => at >= fact.at,
        _ => (at, key) > (fact.at, &fact.key),
    };
    (newer && *key != fact.key).then(|| Newer { key: key.0.clone(), at })
}
