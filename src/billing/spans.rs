//! When agreements that were asked about gave Pro: the plan at any moment, without ruling on each.

use std::collections::HashMap;

use crate::domain::fact::{Dated, Fact};
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::plan::newest_answers;

/// The begins and the ends of agreements, each in order.
#[derive(Debug, Default)]
struct Times {
    begins: Vec<Instant>,
    ends: Vec<Instant>,
}

impl Times {
    fn add(&mut self, began: Instant, until: Option<Instant>) {
        self.begins.push(began);
        self.ends.extend(until);
    }

    fn sort(&mut self) {
        self.begins.sort_unstable();
        self.ends.sort_unstable();
    }

    fn any_at(&self, at: Instant) -> bool {
        let passed = |times: &[Instant]| times.partition_point(|time| *time <= at);
        passed(&self.begins) > passed(&self.ends)
    }
}

#[derive(Debug)]
pub struct Spans {
    pro: Times,
    unknown: Times,
}

impl Spans {
    /// None: something else than answers speaks of the plan, or two answers date the beginning of one agreement differently.
    pub fn of(facts: &[&Dated], keys: &PlanKeys) -> Option<Self> {
        let mut spans = Self { pro: Times::default(), unknown: Times::default() };
        if facts.iter().any(|f| matches!(f.fact, Fact::Start { .. } | Fact::End { .. } | Fact::Snapshot { .. })) {
            return None;
        }
        let mut began = HashMap::new();
        for fact in facts {
            let Fact::Agreement(one) = &fact.fact else { continue };
            if *began.entry(&one.agreement).or_insert(one.began) != one.began {
                return None;
            }
        }
        for (_, one) in newest_answers(facts) {
            match keys.plan_of(&one.plan_key) {
                Some(Plan::Pro) => spans.pro.add(one.began, one.until),
                Some(Plan::Free) => {}
                None => spans.unknown.add(one.began, one.until),
            }
        }
        spans.pro.sort();
        spans.unknown.sort();
        Some(spans)
    }

    /// None: a plan that nobody knows has a say, and leaves standing what stood before it.
    pub fn plan_at(&self, at: Instant) -> Option<Plan> {
        match (self.pro.any_at(at), self.unknown.any_at(at)) {
            (true, _) => Some(Plan::Pro),
            (false, true) => None,
            (false, false) => Some(Plan::Free),
        }
    }
}
