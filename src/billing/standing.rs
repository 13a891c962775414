//! Since when a payment is owed. Shown to the customer; changes no plan.

use std::collections::BTreeSet;

use crate::domain::fact::{Dated, Fact};
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::fold::end_of;
use super::plan::{self, CHANGE_SPAN};

/// The first failed payment or overdue invoice that neither a later payment nor the plan's end has settled.
pub fn past_due_since(facts: &[&Dated], keys: &PlanKeys, now: Instant) -> Option<Instant> {
    let unpaid = facts.iter().rposition(|f| matches!(f.fact, Fact::Paid { .. })).map_or(facts, |paid| &facts[paid + 1..]);
    let owed: Vec<Instant> =
        unpaid.iter().filter(|f| matches!(f.fact, Fact::PaymentFailed { .. } | Fact::Overdue { .. })).map(|f| f.at).collect();
    let first = *owed.first()?;

    let moments: BTreeSet<Instant> =
        facts.iter().filter_map(|f| may_end_plan(f, keys)).filter(|at| at.plus(CHANGE_SPAN) >= first && *at <= now).collect();
    // The plan ended at a moment if the change that happened there, once complete, left the account on Free.
    let ended = moments.into_iter().rev().find(|at| {
        let complete = at.plus(CHANGE_SPAN);
        let until = &facts[..facts.partition_point(|f| f.at <= complete)];
        plan::rule(until, keys, complete).plan == Plan::Free
    });
    owed.into_iter().find(|at| ended.is_none_or(|ended| *at > ended.plus(CHANGE_SPAN)))
}

/// The moment at which this fact may end the plan.
pub(super) fn may_end_plan(fact: &Dated, keys: &PlanKeys) -> Option<Instant> {
    match &fact.fact {
        Fact::Start { plan_key, .. } if keys.plan_of(plan_key) == Some(Plan::Free) => Some(fact.at),
        Fact::Snapshot { .. } => Some(fact.at),
        _ => end_of(fact),
    }
}
