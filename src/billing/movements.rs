//! What money moved, and what was bought once. Pure; both only ever grow with the facts.

use std::collections::{BTreeMap, HashSet};

use crate::domain::fact::{Dated, Fact, PackState};
use crate::domain::ids::{ChargeId, EventId, PurchaseId};
use crate::domain::money::{MoneyKind, Movement};
use crate::money::Purchase;

/// Each movement once, with the event that told of it first, in the order in which they were told.
pub fn money(facts: &[Dated]) -> Vec<(EventId, Movement)> {
    let mut seen = HashSet::new();
    moved(facts).filter(|(_, m)| seen.insert(&m.key)).map(|(event, m)| (event, m.clone())).collect()
}

/// Each purchase that was ever paid, stamped with what came of it later.
pub fn purchases(facts: &[Dated]) -> Vec<(EventId, Purchase)> {
    let mut paid: BTreeMap<&PurchaseId, (EventId, Purchase)> = BTreeMap::new();
    for fact in facts {
        let Fact::Pack { purchase, state: PackState::Paid { at, bottles, charge } } = &fact.fact else { continue };
        paid.entry(purchase).or_insert_with(|| {
            let purchase = Purchase {
                id: purchase.clone(),
                bottles: *bottles,
                charge: charge.clone(),
                paid_at: *at,
                refunded_minor: charge.as_ref().map_or(0, |charge| refunded(facts, charge)),
                disputed: charge.as_ref().and_then(|charge| disputed(facts, charge)),
            };
            (fact.event, purchase)
        });
    }
    paid.into_values().collect()
}

fn moved(facts: &[Dated]) -> impl Iterator<Item = (EventId, &Movement)> {
    facts.iter().filter_map(|f| match &f.fact {
        Fact::Moved(movement) => Some((f.event, movement)),
        _ => None,
    })
}

/// What was given back of a charge and stayed given.
fn refunded(facts: &[Dated], charge: &ChargeId) -> i64 {
    let mut seen = HashSet::new();
    moved(facts)
        .filter(|(_, m)| m.charge.as_ref() == Some(charge) && matches!(m.kind, MoneyKind::Refund | MoneyKind::RefundFailed))
        .filter(|(_, m)| seen.insert(&m.key))
        .fold(0_i64, |sum, (_, m)| sum.saturating_sub(m.money.minor))
}

/// How the dispute about a charge stands, by the newest answer.
fn disputed(facts: &[Dated], charge: &ChargeId) -> Option<String> {
    facts.iter().rev().find_map(|f| match &f.fact {
        Fact::Dispute { charge: about, status, .. } if about == charge => Some(status.clone()),
        _ => None,
    })
}
