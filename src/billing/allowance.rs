//! Which months have their Pro entry. The rule only ever adds, so it commutes: a guard that stops at "newer wins" would lose
//! the month of a Pro change that arrives after a later Starter change.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use crate::domain::fact::{Dated, Fact, InvoiceState};
use crate::domain::ids::{AgreementId, EventId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::{Plan, PlanKeys};

/// A payment that names no agreement belongs to a Pro plan seen at most this long before it: one month, and time to pay.
pub const PAYMENT_REACH: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// Adds the Pro months of one source's facts (in their total order), and the payments that belong to Pro.
pub fn collect(facts: &[&Dated], keys: &PlanKeys, periods: &mut BTreeSet<Period>, belonging: &mut HashSet<EventId>) {
    let is_pro = |plan_key: &str| keys.plan_of(plan_key) == Some(Plan::Pro);
    let pro_agreements: HashSet<&AgreementId> = facts
        .iter()
        .filter_map(|f| match &f.fact {
            Fact::Start { agreement: Some(agreement), plan_key, .. } if is_pro(plan_key) => Some(agreement),
            _ => None,
        })
        .collect();

    // A bill says itself which plan it paid for, and for which time.
    for fact in facts {
        if let Fact::Invoice { state: InvoiceState::Paid { opens: Some((plan_key, from)) }, .. } = &fact.fact
            && is_pro(plan_key)
        {
            periods.insert(Period::of(*from));
            belonging.insert(fact.event);
        }
    }

    // Facts of one moment reach one another whatever their rank, so all that stands by itself comes before what leans on it.
    let mut reach: Option<Instant> = None;
    for moment in facts.chunk_by(|a, b| a.at == b.at) {
        let stands = |f: &Dated| match &f.fact {
            Fact::Start { plan_key, .. } => is_pro(plan_key),
            Fact::Opened => true,
            Fact::Paid { agreement: Some(agreement) } => pro_agreements.contains(agreement),
            _ => false,
        };
        if moment.iter().any(|f| stands(f)) {
            reach = Some(moment[0].at);
        }
        for fact in moment {
            let leans = matches!(fact.fact, Fact::Paid { agreement: None })
                && reach.is_some_and(|since| fact.at <= since.plus(PAYMENT_REACH));
            if leans {
                reach = Some(fact.at);
            }
            if leans || stands(fact) {
                periods.insert(Period::of(fact.at));
                if matches!(fact.fact, Fact::Paid { .. }) {
                    belonging.insert(fact.event);
                }
            }
        }
    }
}
