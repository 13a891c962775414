//! Since when a payment is owed. Shown to the customer; changes no plan.

use crate::domain::fact::{Dated, Fact};
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::course;
use super::fold::end_of;
use super::plan::CHANGE_SPAN;

/// What one source says is owed, to be read at any moment.
#[derive(Debug, Default)]
pub struct Owed {
    /// When a payment failed or an invoice was overdue and no payment came later, in order.
    since: Vec<Instant>,
    /// When the plan ended: that settles what was owed by then. In order.
    ended: Vec<Instant>,
}

impl Owed {
    /// Of one source's facts, in their total order.
    pub fn of(facts: &[&Dated], keys: &PlanKeys) -> Self {
        let unpaid = facts.iter().rposition(|f| matches!(f.fact, Fact::Paid { .. })).map_or(facts, |paid| &facts[paid + 1..]);
        let owed = unpaid.iter().filter(|f| matches!(f.fact, Fact::PaymentFailed { .. } | Fact::Overdue { .. }));
        let since: Vec<Instant> = owed.map(|f| f.at).collect();
        if since.is_empty() {
            return Self::default();
        }
        let mut moments: Vec<Instant> = facts.iter().filter_map(|f| may_end_plan(f, keys)).collect();
        moments.sort_unstable();
        moments.dedup();
        // The plan ended at a moment if the change that happened there, once complete, left the account on Free.
        let complete: Vec<Instant> = moments.iter().map(|at| at.plus(CHANGE_SPAN)).collect();
        let plans = course::plans_at(facts, keys, &complete);
        let ended = moments.into_iter().zip(plans).filter(|(_, plan)| *plan == Plan::Free).map(|(at, _)| at).collect();
        Self { since, ended }
    }

    /// The first failed payment or overdue invoice that neither a later payment nor the plan's end has settled by now.
    pub fn since(&self, now: Instant) -> Option<Instant> {
        let passed = self.ended.partition_point(|at| *at <= now);
        let settled = passed.checked_sub(1).map(|last| self.ended[last].plus(CHANGE_SPAN));
        self.since.get(self.since.partition_point(|at| settled.is_some_and(|settled| *at <= settled))).copied()
    }
}

/// The moment at which this fact may end the plan.
pub(super) fn may_end_plan(fact: &Dated, keys: &PlanKeys) -> Option<Instant> {
    match &fact.fact {
        Fact::Start { plan_key, .. } if keys.plan_of(plan_key) == Some(Plan::Free) => Some(fact.at),
        Fact::Snapshot { .. } => Some(fact.at),
        _ => end_of(fact),
    }
}
