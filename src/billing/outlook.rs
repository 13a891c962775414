//! The ruling at one coming moment after another, given what is known now.
//!
//! With all facts in place time only ends: what is not live any more never is again. So the newest live Start is found by going
//! back through the Starts once, however many moments are asked about.

use std::collections::BTreeMap;

use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::AgreementId;
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::ends::Ending;
use super::plan::{self, Starts};

/// What one source says of the plan, and since when.
pub type View = (Plan, Option<Instant>);

pub struct Outlook<'k, 'f> {
    facts: Vec<&'f Dated>,
    keys: &'k PlanKeys,
    starts: Starts<'f>,
    /// Starts from here on are over.
    over_from: usize,
    /// How many live Starts name it.
    named: BTreeMap<&'f AgreementId, usize>,
    /// When those that name an agreement end, the last first.
    deaths: Vec<(Instant, &'f AgreementId)>,
    /// Once every Start is over: nothing changes any more.
    at_last: Option<View>,
    /// Where the last answer listed nothing and nothing began since: when it was asked for, and what was told without it.
    answered: Option<(Instant, Box<Self>)>,
}

impl<'k, 'f> Outlook<'k, 'f> {
    pub fn of(facts: Vec<&'f Dated>, keys: &'k PlanKeys) -> Self {
        let starts = Starts::of(&facts, keys);
        let mut named = BTreeMap::new();
        let mut deaths = Vec::new();
        for start in &starts.all {
            if let Some(agreement) = start.agreement {
                *named.entry(agreement).or_default() += 1;
                deaths.extend(start.ended.map(|end| (end.effective, agreement)));
            }
        }
        deaths.sort_unstable_by(|a, b| b.cmp(a));
        let over_from = starts.all.len();
        let answered = facts.iter().rev().find(|f| starts.all.is_empty() && is_answer(f)).map(|answer| {
            let told = facts.iter().copied().filter(|f| !is_answer(f)).collect();
            (answer.at, Box::new(Self::of(told, keys)))
        });
        Self { facts, keys, starts, over_from, named, deaths, at_last: None, answered }
    }

    /// At a moment that is not before the last one asked about.
    pub fn at(&mut self, now: Instant) -> View {
        if let Some(view) = self.at_last {
            return view;
        }
        if let Some((asked, told)) = &mut self.answered {
            // The answer decides only where no End had said so already.
            let (plan, since) = told.at(now);
            return (Plan::Free, since.filter(|_| plan == Plan::Free).or(Some(*asked)));
        }
        self.bury(now);
        while let Some(start) = self.over_from.checked_sub(1).and_then(|n| self.starts.all.get(n)) {
            let ending = self.starts.ending(start, self.named.keys().copied());
            if ending.is_none_or(|end: Ending<'_>| end.effective > now) {
                return match self.keys.plan_of(start.plan_key) {
                    Some(plan) => (plan, Some(start.at)),
                    // What stood before a plan nobody knows is another reading of other facts.
                    None => self.ruled(now),
                };
            }
            self.over_from -= 1;
        }
        let view = self.ruled(now);
        self.at_last = Some(view);
        view
    }

    fn bury(&mut self, now: Instant) {
        while let Some((_, agreement)) = self.deaths.pop_if(|(at, _)| *at <= now) {
            if let Some(count) = self.named.get_mut(agreement) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(agreement);
                }
            }
        }
    }

    fn ruled(&self, now: Instant) -> View {
        let ruling = plan::rule(&self.facts, self.keys, now);
        (ruling.plan, ruling.decided.map(|d| d.at))
    }
}

fn is_answer(fact: &Dated) -> bool {
    matches!(fact.fact, Fact::Snapshot { .. })
}
