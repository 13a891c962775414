//! The fold: the set of an account's facts → its billing state. Pure, and the only place that knows what a plan change does.
//!
//! Nothing here depends on the order in which the facts came, so copies, late messages and second runs cannot either.
//! `plan` says which Start decides, `standing` when a payment is owed, `allowance` which months have their Pro entry,
//! `movements` what money moved and what was bought once.

use std::collections::{BTreeSet, HashSet};

use crate::domain::event::Source;
use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::{EventId, EventKey};
use crate::domain::instant::Instant;
use crate::domain::money::Movement;
use crate::domain::period::Period;
use crate::domain::plan::{Plan, PlanKeys};
use crate::money::Purchase;

use super::allowance;
use super::belief;
use super::movements;
use super::outlook::{Outlook, View};
use super::plan::{self, Deciding, Ruling};
use super::standing::{Owed, may_end_plan};

/// What a set of facts amounts to, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub plan: Plan,
    /// What decides the plan; none while no fact ever said anything about it.
    pub decided: Option<Decided>,
    /// The changes already known to come, soonest first.
    pub upcoming: Vec<Upcoming>,
    pub past_due_since: Option<Instant>,
    /// The months that have their Pro entry. Only ever grows with the facts.
    pub pro_periods: BTreeSet<Period>,
    /// The payments that belong to a Pro plan.
    pub belonging: HashSet<EventId>,
    /// The newest live Start, when its plan key is not configured: the plan stays as it was before it.
    pub unknown: Option<UnknownKey>,
    /// The packs that were paid for. Only ever grows; refunds and disputes stamp them.
    pub purchases: Vec<(EventId, Purchase)>,
    /// The money that moved, each movement once. Only ever grows.
    pub money: Vec<(EventId, Movement)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub at: Instant,
    pub by: Deciding,
    pub key: EventKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    pub plan_key: String,
    pub at: Instant,
    pub key: EventKey,
    /// What was known before this moment still holds.
    pub before: Instant,
}

/// What holds from a coming moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upcoming {
    pub at: Instant,
    pub plan: Plan,
    /// When what decides the plan happened.
    pub decided: Option<Instant>,
    pub past_due_since: Option<Instant>,
}

/// Folds the facts of one account, given in their total order ([`Dated::order`]), as read at `now`.
pub fn fold(facts: &[Dated], keys: &PlanKeys, now: Instant) -> State {
    debug_assert!(facts.is_sorted_by(|a, b| a.order() <= b.order()), "facts come in their total order");
    let sides = [of_source(facts, Source::Kinde), of_source(facts, Source::Stripe)];
    let rulings = sides.each_ref().map(|side| plan::rule(side, keys, now));
    let ruling = foremost(&rulings);
    let owed = sides.each_ref().map(|side| Owed::of(side, keys));
    let current = upcoming_of(now, (ruling.plan, ruling.decided.as_ref().map(|d| d.at)), &owed);

    let mut pro_periods = BTreeSet::new();
    let mut belonging = HashSet::new();
    for side in &sides {
        allowance::collect(side, keys, &mut pro_periods, &mut belonging);
    }

    State {
        plan: ruling.plan,
        decided: ruling.decided.as_ref().map(|d| Decided { at: d.at, by: d.by, key: d.key.clone() }),
        upcoming: upcoming(&sides, &owed, keys, current),
        past_due_since: current.past_due_since,
        pro_periods,
        belonging,
        unknown: rulings.iter().find_map(|r| r.unknown.clone()),
        purchases: movements::purchases(facts),
        money: movements::money(facts),
    }
}

/// The providers by whose word the account is Pro at `now`; more than one if it is paid for twice.
pub fn pro_through(facts: &[Dated], keys: &PlanKeys, now: Instant) -> Vec<Source> {
    let is_pro = |source: &Source| plan::rule(&of_source(facts, *source), keys, now).plan == Plan::Pro;
    [Source::Kinde, Source::Stripe].into_iter().filter(is_pro).collect()
}

/// Each provider's facts are folded by themselves: two clocks are never compared. What we store ourselves belongs to both.
fn of_source(facts: &[Dated], source: Source) -> Vec<&Dated> {
    belief::without_stale_answers(facts.iter().filter(|f| f.source == source || f.source == Source::Bottle).collect())
}

/// Pro if either source says so; among those that agree, the one that changed last.
fn foremost<'r, 'f>(rulings: &'r [Ruling<'f>; 2]) -> &'r Ruling<'f> {
    let [kinde, stripe] = rulings;
    let weight = |r: &Ruling<'_>| (r.plan, r.decided.as_ref().map(|d| d.at));
    if weight(stripe) > weight(kinde) { stripe } else { kinde }
}

/// Every change of what is read at `current` that the facts already call for: an end that takes effect settles what was owed,
/// too, and nobody will be there to fold again.
fn upcoming(sides: &[Vec<&Dated>; 2], owed: &[Owed; 2], keys: &PlanKeys, mut current: Upcoming) -> Vec<Upcoming> {
    let moments = sides.iter().flatten().filter_map(|f| may_end_plan(f, keys));
    let moments: BTreeSet<Instant> = moments.filter(|at| *at > current.at).collect();
    if moments.is_empty() {
        return Vec::new();
    }
    let mut outlooks = sides.each_ref().map(|side| Outlook::of(side.clone(), keys));
    let mut changes = Vec::new();
    for at in moments {
        let [kinde, stripe] = outlooks.each_mut().map(|outlook| outlook.at(at));
        let then = upcoming_of(at, kinde.max(stripe), owed);
        if (Upcoming { at, ..current }) != then {
            current = then;
            changes.push(then);
        }
    }
    changes
}

fn upcoming_of(at: Instant, (plan, decided): View, owed: &[Owed; 2]) -> Upcoming {
    Upcoming { at, plan, decided, past_due_since: owed.iter().filter_map(|owed| owed.since(at)).min() }
}

/// When an End takes effect: never before it was said.
pub(super) fn end_of(fact: &Dated) -> Option<Instant> {
    match &fact.fact {
        Fact::End { effective, .. } => Some(effective.unwrap_or(fact.at).max(fact.at)),
        _ => None,
    }
}
