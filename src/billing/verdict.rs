//! What one event did to its account, in one of the closed set of reasons. Pure.

use crate::domain::event::Source;
use crate::domain::fact::{Agreement, Dated, Fact, InvoiceState, PackState};
use crate::domain::ids::PurchaseId;
use crate::domain::instant::Instant;
use crate::domain::money::{Money, MoneyKind};
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

/// What is written by this run.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The months that get their Pro entry.
    pub granted: Vec<Period>,
    pub packs: Vec<(PurchaseId, i64, Period)>,
    pub moved: Vec<(MoneyKind, Money)>,
}

/// An event that its provider was asked about may have said several things: the one its owner would name first is told.
pub fn judge_all(facts: &[Dated], before: Before, after: &State, written: Written) -> Option<Reason> {
    let first = facts.iter().min_by_key(|f| match f.fact {
        Fact::Pack { .. } => 0,
        Fact::Invoice { .. } => 1,
        Fact::Dispute { .. } => 2,
        Fact::Moved(_) => 4,
        _ => 3,
    })?;
    Some(match &first.fact {
        Fact::Agreement(agreement) => of_agreement(first, agreement, before, after, written.granted),
        Fact::Invoice { state, .. } => of_invoice(first, state, before, after, written.granted),
        Fact::Pack { purchase, state } => of_pack(purchase, state, written.packs),
        Fact::Dispute { money, status, .. } => {
            Reason::Disputed { money: money.clone(), status: status.clone(), moved: written.moved }
        }
        Fact::Moved(_) if written.moved.is_empty() => Reason::MoneyKnown,
        Fact::Moved(_) => Reason::MoneyMoved { moved: written.moved },
        _ => judge(first, before, after, written.granted),
    })
}

/// What came of asking a provider again. None: it said nothing.
pub fn of_answer(source: Source, facts: &[Dated], before: Before, after: &State) -> Option<Reason> {
    let first = facts.first()?;
    if let Some(unknown) = after.unknown.as_ref().filter(|unknown| unknown.key == first.key) {
        return Some(Reason::WaitsForPlanKey { key: unknown.plan_key.clone() });
    }
    let to_come = facts.iter().find_map(|fact| match &fact.fact {
        Fact::Agreement(agreement) => agreement.until.and_then(|until| change_at(after, until)),
        _ => None,
    });
    Some(match to_come {
        _ if before.plan != after.plan => Reason::AskedAgain { source, plan: after.plan, from: None, changed: true },
        Some(change) => Reason::AskedAgain { source, plan: change.plan, from: Some(change.at), changed: true },
        None => Reason::AskedAgain { source, plan: after.plan, from: None, changed: false },
    })
}

fn of_agreement(fact: &Dated, agreement: &Agreement, before: Before, after: &State, granted: Vec<Period>) -> Reason {
    if after.unknown.as_ref().is_some_and(|u| u.key == fact.key) {
        return Reason::WaitsForPlanKey { key: agreement.plan_key.clone() };
    }
    if before.plan != after.plan {
        return Reason::PlanSet { plan: after.plan, granted, from: None };
    }
    match agreement.until.and_then(|until| change_at(after, until)) {
        Some(change) => Reason::PlanSet { plan: change.plan, granted, from: Some(change.at) },
        None => Reason::PlanAlready { plan: after.plan, granted },
    }
}

fn of_invoice(fact: &Dated, state: &InvoiceState, before: Before, after: &State, granted: Vec<Period>) -> Reason {
    let allowance = match state {
        InvoiceState::Owed { .. } => return Reason::PaymentFailureRecorded,
        InvoiceState::Settled => return Reason::InvoiceSettled,
        InvoiceState::Paid { .. } if !granted.is_empty() => Allowance::Granted(granted),
        InvoiceState::Paid { .. } if after.belonging.contains(&fact.event) => Allowance::AlreadyGranted,
        InvoiceState::Paid { opens: Some(_) } => Allowance::NoProPlan,
        InvoiceState::Paid { opens: None } => Allowance::NoPeriod,
    };
    Reason::PaymentRecorded { allowance, cleared: before.past_due && after.past_due_since.is_none() }
}

fn of_pack(purchase: &PurchaseId, state: &PackState, packs: Vec<(PurchaseId, i64, Period)>) -> Reason {
    match state {
        PackState::Paid { .. } => match packs.into_iter().find(|(id, ..)| id == purchase) {
            Some((_, bottles, period)) => Reason::PackGranted { bottles, period },
            None => Reason::PackAlreadyGranted,
        },
        PackState::Awaited => Reason::PackAwaited,
        PackState::Failed => Reason::PackFailed,
    }
}

/// `fact` is what the event itself said (not the provider's answer to a question about it); `granted` are the months that get
/// their Pro entry by this run.
fn judge(fact: &Dated, before: Before, after: &State, granted: Vec<Period>) -> Reason {
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
        _ if changed => Reason::PlanSet { plan: after.plan, granted, from: None },
        _ => Reason::PlanAlready { plan: after.plan, granted },
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
