//! Since when a payment is owed. Shown to the customer; changes no plan.

use std::collections::HashMap;

use crate::domain::fact::{Dated, Fact, InvoiceState};
use crate::domain::ids::InvoiceId;
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::course;
use super::fold::end_of;
use super::plan::CHANGE_SPAN;

/// What one source says is owed, to be read at any moment.
#[derive(Debug, Default)]
pub struct Owed {
    /// When a payment failed or an invoice was overdue and no payment came later, and since when a bill is owed; in order.
    since: Vec<Instant>,
    /// When the plan ended: that settles what was owed by then. In order.
    ended: Vec<Instant>,
}

impl Owed {
    /// Of one source's facts, in their total order.
    pub fn of(facts: &[&Dated], keys: &PlanKeys) -> Self {
        let unpaid = facts.iter().rposition(|f| matches!(f.fact, Fact::Paid { .. })).map_or(facts, |paid| &facts[paid + 1..]);
        let failed = unpaid.iter().filter(|f| matches!(f.fact, Fact::PaymentFailed { .. } | Fact::Overdue { .. })).map(|f| f.at);
        let mut since: Vec<Instant> = failed.chain(bills_owed(facts)).collect();
        since.sort_unstable();
        let Some(first) = since.first() else { return Self::default() };
        // An end settles nothing that came later than its change.
        let mut moments: Vec<Instant> =
            facts.iter().filter_map(|f| may_end_plan(f, keys)).filter(|at| at.plus(CHANGE_SPAN) >= *first).collect();
        moments.sort_unstable();
        moments.dedup();
        // The plan ended at a moment if the change that happened there, once complete, left the account on Free.
        let complete: Vec<Instant> = moments.iter().map(|at| at.plus(CHANGE_SPAN)).collect();
        let plans = course::plans_at(facts, keys, &complete);
        let ended = moments.into_iter().zip(plans).filter(|(_, plan)| *plan == Plan::Free).map(|(at, _)| at).collect();
        Self { since, ended }
    }

    /// The first failed payment, overdue invoice or owed bill that neither a later payment nor the plan's end has settled by now.
    pub fn since(&self, now: Instant) -> Option<Instant> {
        let passed = self.ended.partition_point(|at| *at <= now);
        let settled = passed.checked_sub(1).map(|last| self.ended[last].plus(CHANGE_SPAN));
        self.since.get(self.since.partition_point(|at| settled.is_some_and(|settled| *at <= settled))).copied()
    }
}

/// Since when each bill is owed that is, by the newest answer about it.
fn bills_owed(facts: &[&Dated]) -> Vec<Instant> {
    let mut newest: HashMap<&InvoiceId, &InvoiceState> = HashMap::new();
    for fact in facts {
        if let Fact::Invoice { invoice, state, .. } = &fact.fact {
            newest.insert(invoice, state);
        }
    }
    let since = |state: &InvoiceState| match state {
        InvoiceState::Owed { since } => Some(*since),
        InvoiceState::Paid { .. } | InvoiceState::Settled => None,
    };
    newest.into_values().filter_map(since).collect()
}

/// The moment at which this fact may end the plan.
pub(super) fn may_end_plan(fact: &Dated, keys: &PlanKeys) -> Option<Instant> {
    match &fact.fact {
        Fact::Start { plan_key, .. } if keys.plan_of(plan_key) == Some(Plan::Free) => Some(fact.at),
        Fact::Snapshot { .. } => Some(fact.at),
        Fact::Agreement(one) => one.until,
        _ => end_of(fact),
    }
}
