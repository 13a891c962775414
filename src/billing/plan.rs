//! Which Start decides the plan.
//!
//! An upgrade makes Kinde send the old agreement's cancellation around the new plan's events, in any order, and payloads name
//! agreements differently or not at all. The rules here never leave a payer on Free in any of these; [`CHANGE_SPAN`] is how far
//! apart the events of one change may lie.
//!
//! A provider that is asked about each agreement leaves nothing to guess: the newest answer about one is how it stands, and any
//! agreement that gives Pro now makes the account Pro.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::domain::fact::{Agreement, Dated, Fact};
use crate::domain::ids::{AgreementId, EventKey};
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::ends::{Ending, Ends};
use super::fold::UnknownKey;

/// The events of one change lie within this span of one another.
pub const CHANGE_SPAN: Duration = Duration::from_secs(10);

/// What one source says about the plan.
#[derive(Debug, Clone)]
pub struct Ruling<'f> {
    pub plan: Plan,
    pub decided: Option<DecidedBy<'f>>,
    pub unknown: Option<UnknownKey>,
}

#[derive(Debug, Clone)]
pub struct DecidedBy<'f> {
    pub at: Instant,
    pub by: Deciding,
    /// The event that said so.
    pub key: &'f EventKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deciding {
    Start,
    End,
    Snapshot,
}

/// A Start that can decide the plan: a fact, or an agreement that the provider's own answer lists.
pub struct Candidate<'f> {
    pub at: Instant,
    by: Deciding,
    key: &'f EventKey,
    pub plan_key: &'f str,
    /// The agreement it stands for; none also for a plan change that names the agreement it left.
    pub agreement: Option<&'f AgreementId>,
    /// When an End that names its agreement, or none, ends it.
    pub ended: Option<Ending<'f>>,
    /// What was known before this moment is what was before it.
    before: Instant,
}

/// Every Start of one source that counts, oldest first, and what ends them. The same at whatever moment it is read.
pub struct Starts<'f> {
    pub all: Vec<Candidate<'f>>,
    ends: Ends<'f>,
    snapshot: Option<usize>,
}

impl<'f> Starts<'f> {
    pub fn of(facts: &[&'f Dated], keys: &PlanKeys) -> Self {
        let ends = Ends::of(facts);
        let snapshot = facts.iter().rposition(|f| matches!(f.fact, Fact::Snapshot { .. }));
        Self { all: candidates(facts, snapshot, &ends, keys), ends, snapshot }
    }

    /// What ends one of them first, while Starts of these agreements are live.
    pub fn ending<'l>(&self, start: &Candidate<'f>, live: impl Iterator<Item = &'l AgreementId>) -> Option<Ending<'f>> {
        match start.agreement {
            Some(_) => start.ended,
            None => Ending::first(start.ended, self.ends.naming_other(start.at.plus(CHANGE_SPAN), live)),
        }
    }
}

/// The ruling of one source's facts, in their total order, read at `now`.
///
/// A plan key that is not configured leaves the plan as it was just before that change, or as a Start that is still live has
/// it: whichever is better for the payer.
pub fn rule<'f>(facts: &[&'f Dated], keys: &PlanKeys, now: Instant) -> Ruling<'f> {
    let (mut facts, mut now) = (facts, now);
    let mut best: Option<Ruling<'f>> = None;
    let mut unknown = None;
    loop {
        let (known, newest_unknown) = newest_live(facts, keys, now);
        let weight = |r: &Ruling<'_>| (r.plan, r.decided.as_ref().map(|d| d.at));
        if let Some(known) = known
            && best.as_ref().is_none_or(|best| weight(&known) > weight(best))
        {
            best = Some(known);
        }
        let Some(start) = newest_unknown else {
            let best = best.unwrap_or(Ruling { plan: Plan::Free, decided: None, unknown: None });
            return Ruling { unknown, ..best };
        };
        now = start.before;
        facts = &facts[..facts.partition_point(|f| f.at < now)];
        unknown = unknown.or(Some(start));
    }
}

/// The ruling of the newest live Start with a known plan key, or that none is live; and the newest live Start with an unknown
/// one, if it is newer than that.
fn newest_live<'f>(facts: &[&'f Dated], keys: &PlanKeys, now: Instant) -> (Option<Ruling<'f>>, Option<UnknownKey>) {
    let starts = Starts::of(facts, keys);
    let live = live_agreements(&starts.all, now);

    let mut last_end: Option<Ending<'f>> = None;
    let mut unknown: Option<UnknownKey> = None;
    for candidate in starts.all.iter().rev() {
        let ending = starts.ending(candidate, live.iter().copied());
        if let Some(ending) = ending.filter(|end| end.effective <= now) {
            last_end = Ending::last(last_end, Some(ending));
        } else if let Some(plan) = keys.plan_of(candidate.plan_key) {
            let decided = DecidedBy { at: candidate.at, by: candidate.by, key: candidate.key };
            return (Some(Ruling { plan, decided: Some(decided), unknown: None }), unknown);
        } else if unknown.is_none() {
            let (plan_key, key) = (candidate.plan_key.to_owned(), candidate.key.clone());
            unknown = Some(UnknownKey { plan_key, at: candidate.at, key, before: candidate.before });
        }
    }
    let none = if unknown.is_none() { Some(nothing_live(facts, starts.snapshot, last_end, keys, now)) } else { None };
    (none, unknown)
}

fn nothing_live<'f>(
    facts: &[&'f Dated],
    snapshot: Option<usize>,
    last_end: Option<Ending<'f>>,
    keys: &PlanKeys,
    now: Instant,
) -> Ruling<'f> {
    let by_end = last_end.map(|end| DecidedBy { at: end.effective, by: Deciding::End, key: end.key });
    let by_answer = || {
        // The answer "nothing is live" decides only where no End had said so already.
        let asked = facts[snapshot?];
        let told: Vec<&Dated> = facts.iter().copied().filter(|f| !matches!(f.fact, Fact::Snapshot { .. })).collect();
        let ruling = rule(&told, keys, now);
        ruling.decided.filter(|_| ruling.plan == Plan::Free).or_else(|| Some(answered(asked)))
    };
    Ruling { plan: Plan::Free, decided: by_end.or_else(by_answer), unknown: None }
}

fn answered<'f>(snapshot: &'f Dated) -> DecidedBy<'f> {
    DecidedBy { at: snapshot.at, by: Deciding::Snapshot, key: &snapshot.key }
}

/// Every Start that counts, oldest first. A snapshot replaces all Starts before it by the agreements it lists.
fn candidates<'f>(facts: &[&'f Dated], snapshot: Option<usize>, ends: &Ends<'f>, keys: &PlanKeys) -> Vec<Candidate<'f>> {
    let mut all = answered_for(facts, keys);
    let after = match snapshot {
        Some(n) => {
            all.extend(listed(facts[n], &facts[..n], ends, keys));
            &facts[n + 1..]
        }
        None => facts,
    };
    for fact in after {
        let Fact::Start { agreement, plan_key, changed } = &fact.fact else { continue };
        let agreement = agreement
            .as_ref()
            .filter(|a| !(*changed && ends.named_between(a, fact.at.minus(CHANGE_SPAN), fact.at.plus(CHANGE_SPAN))));
        let named = agreement.and_then(|a| ends.naming(a, fact.at.minus(CHANGE_SPAN)));
        let ended = Ending::first(named, ends.naming_none(fact.at.plus(CHANGE_SPAN)));
        let before = fact.at.minus(CHANGE_SPAN);
        all.push(Candidate { at: fact.at, by: Deciding::Start, key: &fact.key, plan_key, agreement, ended, before });
    }
    all
}

/// The newest answer about each agreement. Those that give Pro come last, which is where the newest stand: who pays for Pro has
/// it, whatever else they buy.
fn answered_for<'f>(facts: &[&'f Dated], keys: &PlanKeys) -> Vec<Candidate<'f>> {
    let mut all: Vec<Candidate<'f>> = newest_answers(facts)
        .map(|(fact, one)| Candidate {
            at: one.began,
            by: Deciding::Start,
            key: &fact.key,
            plan_key: &one.plan_key,
            agreement: Some(&one.agreement),
            ended: one.until.map(|until| Ending { said: fact.at, effective: until, key: &fact.key }),
            before: fact.at,
        })
        .collect();
    all.sort_by_key(|c| (keys.plan_of(c.plan_key), c.at, c.agreement));
    all
}

/// Of several answers about an agreement the newest counts, and one that it is over counts for good.
pub fn newest_answers<'f>(facts: &[&'f Dated]) -> impl Iterator<Item = (&'f Dated, &'f Agreement)> {
    let mut newest: HashMap<&AgreementId, (&'f Dated, &'f Agreement)> = HashMap::new();
    for fact in facts {
        let Fact::Agreement(one) = &fact.fact else { continue };
        if newest.get(&one.agreement).is_none_or(|(_, other)| one.over || !other.over) {
            newest.insert(&one.agreement, (fact, one));
        }
    }
    newest.into_values().filter(|(_, one)| !one.never_was())
}

/// The agreements of a snapshot as Starts, dated by the fact that began them where we have it.
fn listed<'f>(snapshot: &'f Dated, before: &[&'f Dated], ends: &Ends<'f>, keys: &PlanKeys) -> Vec<Candidate<'f>> {
    let Fact::Snapshot { live } = &snapshot.fact else { return Vec::new() };
    let mut began: HashMap<(&AgreementId, &str), &'f Dated> = HashMap::new();
    for fact in before {
        if let Fact::Start { agreement: Some(agreement), plan_key, .. } = &fact.fact {
            began.insert((agreement, plan_key), fact);
        }
    }
    let mut all: Vec<Candidate<'f>> = live
        .iter()
        .map(|item| {
            let start = began.get(&(&item.agreement, item.plan_key.as_str()));
            Candidate {
                at: start.map_or(snapshot.at, |f| f.at),
                by: if start.is_some() { Deciding::Start } else { Deciding::Snapshot },
                key: start.map_or(&snapshot.key, |f| &f.key),
                plan_key: &item.plan_key,
                agreement: Some(&item.agreement),
                ended: ends.of_listed(&item.agreement, snapshot.at, CHANGE_SPAN),
                before: start.map_or(snapshot.at, |f| f.at).minus(CHANGE_SPAN),
            }
        })
        .collect();
    // Of agreements that nobody told us about, Pro counts for more than Free, and either for more than an unknown key.
    all.sort_by_key(|c| (c.at, keys.plan_of(c.plan_key), c.plan_key));
    all
}

fn live_agreements<'f>(candidates: &[Candidate<'f>], now: Instant) -> BTreeSet<&'f AgreementId> {
    candidates.iter().filter(|c| c.ended.is_none_or(|end| end.effective > now)).filter_map(|c| c.agreement).collect()
}
