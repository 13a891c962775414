//! The plan of one source after each change, found in one pass through its facts.
//!
//! `plan` rules on one moment by looking at everything. Asking it about every moment at which a plan may have ended is a pass
//! for each, and an account that changes plans for years is then folded for minutes. Here the facts enter one after another,
//! what is live is kept up to date, and the plan is noted at every step. The rules are those of `plan`; the tests hold the two
//! to one another through the independent fold.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::AgreementId;
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::ends::{Ending, Ends};
use super::fold::end_of;
use super::plan::{self, CHANGE_SPAN};
use super::spans::Spans;

/// The plan at each moment that was asked for: as what was told by then has it, read then. `moments` are in order.
///
/// An answer about an agreement holds for all of the agreement's time, so it counts from when that began, whenever it was given,
/// and there is no step at which it would enter: what is to be known of such is in `spans`.
pub fn plans_at(facts: &[&Dated], keys: &PlanKeys, moments: &[Instant]) -> Vec<Plan> {
    if facts.iter().any(|f| matches!(f.fact, Fact::Agreement(_))) {
        let spans = Spans::of(facts, keys);
        let plan_at =
            |at: Instant| spans.as_ref().and_then(|spans| spans.plan_at(at)).unwrap_or_else(|| ruled_at(at, facts, keys));
        return moments.iter().map(|at| plan_at(*at)).collect();
    }
    let mut steps: Vec<Instant> = facts.iter().map(|f| f.at).chain(facts.iter().filter_map(|f| end_of(f))).collect();
    steps.extend(moments);
    steps.sort_unstable();
    steps.dedup();

    let mut course = Course::new(Ends::of(facts), keys);
    let mut rest = facts;
    for step in &steps {
        let until = rest.partition_point(|f| f.at <= *step);
        let (now, later) = rest.split_at(until);
        course.step(*step, now);
        rest = later;
    }
    moments.iter().map(|at| course.notes[steps.partition_point(|step| step < at)].after).collect()
}

fn ruled_at(at: Instant, facts: &[&Dated], keys: &PlanKeys) -> Plan {
    let counts = |fact: &Dated| match &fact.fact {
        Fact::Agreement(one) => one.began <= at,
        _ => fact.at <= at,
    };
    let known: Vec<&Dated> = facts.iter().copied().filter(|f| counts(f)).collect();
    plan::rule(&known, keys, at).plan
}

struct Course<'f> {
    ends: Ends<'f>,
    keys: &'f PlanKeys,
    /// When an agreement was last told to begin with a plan.
    began: HashMap<(&'f AgreementId, &'f str), Instant>,
    /// Since the last answer of the provider, oldest first.
    starts: Vec<Start<'f>>,
    /// Those that name an agreement and are live, all and with a known plan, by their place in `starts`.
    live: BTreeSet<usize>,
    live_known: BTreeSet<usize>,
    /// How many of them name it.
    named: BTreeMap<&'f AgreementId, usize>,
    deaths: BinaryHeap<Reverse<(Instant, Instant, usize)>>,
    /// The newest that name none, any and with a known plan. Whatever ends it ends all before it, too.
    unnamed: Option<usize>,
    unnamed_known: Option<usize>,
    /// Plan changes by the agreement they name, which may turn out to be the one they left.
    changes: HashMap<&'f AgreementId, Vec<usize>>,
    notes: Vec<Note>,
}

struct Start<'f> {
    at: Instant,
    plan: Option<Plan>,
    agreement: Option<&'f AgreementId>,
    ended: Option<Ending<'f>>,
}

/// The plan before and after what was told at one step.
struct Note {
    at: Instant,
    before: Plan,
    after: Plan,
}

/// Which Ends count at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Before,
    By,
}

impl Told {
    fn has_ended(self, end: Ending<'_>, at: Instant) -> bool {
        end.effective < at || end.effective == at && (self == Self::By || end.said < at)
    }
}

impl<'f> Course<'f> {
    fn new(ends: Ends<'f>, keys: &'f PlanKeys) -> Self {
        Self {
            ends,
            keys,
            began: HashMap::new(),
            starts: Vec::new(),
            live: BTreeSet::new(),
            live_known: BTreeSet::new(),
            named: BTreeMap::new(),
            deaths: BinaryHeap::new(),
            unnamed: None,
            unnamed_known: None,
            changes: HashMap::new(),
            notes: Vec::new(),
        }
    }

    fn step(&mut self, at: Instant, told: &[&'f Dated]) {
        self.bury(at, Told::Before);
        let before = self.plan(at, Told::Before);
        for fact in told {
            self.enter(fact);
        }
        self.bury(at, Told::By);
        let after = self.plan(at, Told::By);
        self.notes.push(Note { at, before, after });
    }

    fn enter(&mut self, fact: &'f Dated) {
        match &fact.fact {
            Fact::Start { agreement, plan_key, changed } => {
                let left = |a: &&AgreementId| *changed && self.ends.named_between(a, fact.at.minus(CHANGE_SPAN), fact.at);
                let named = agreement.as_ref().filter(|a| !left(a));
                let ended = named.and_then(|a| self.ends.naming(a, fact.at.minus(CHANGE_SPAN)));
                let ended = Ending::first(ended, self.ends.naming_none(fact.at.plus(CHANGE_SPAN)));
                let place = self.starts.len();
                if let Some(agreement) = agreement {
                    self.began.insert((agreement, plan_key), fact.at);
                }
                if let (Some(agreement), true) = (named, changed) {
                    self.changes.entry(agreement).or_default().push(place);
                }
                self.add(Start { at: fact.at, plan: self.keys.plan_of(plan_key), agreement: named, ended });
            }
            Fact::End { agreement: Some(agreement), .. } => {
                for place in self.changes.remove(agreement).unwrap_or_default() {
                    if self.starts[place].at >= fact.at.minus(CHANGE_SPAN) {
                        self.unname(place);
                    }
                }
            }
            Fact::Snapshot { live } => {
                let mut listed: Vec<_> = live
                    .iter()
                    .map(|item| {
                        let plan_key = item.plan_key.as_str();
                        let at = self.began.get(&(&item.agreement, plan_key)).copied().unwrap_or(fact.at);
                        let ended = self.ends.of_listed(&item.agreement, fact.at, CHANGE_SPAN);
                        let plan = self.keys.plan_of(plan_key);
                        (plan_key, Start { at, plan, agreement: Some(&item.agreement), ended })
                    })
                    .collect();
                listed.sort_by_key(|(plan_key, start)| (start.at, start.plan, *plan_key));
                self.begin_anew();
                for (_, start) in listed {
                    self.add(start);
                }
            }
            _ => {}
        }
    }

    fn begin_anew(&mut self) {
        self.starts.clear();
        self.live.clear();
        self.live_known.clear();
        self.named.clear();
        self.deaths.clear();
        self.changes.clear();
        (self.unnamed, self.unnamed_known) = (None, None);
    }

    fn add(&mut self, start: Start<'f>) {
        let place = self.starts.len();
        let is_known = start.plan.is_some();
        match start.agreement {
            Some(agreement) => {
                self.live.insert(place);
                if is_known {
                    self.live_known.insert(place);
                }
                *self.named.entry(agreement).or_default() += 1;
                self.deaths.extend(start.ended.map(|end| Reverse((end.effective, end.said, place))));
            }
            None => self.add_unnamed(place, is_known),
        }
        self.starts.push(start);
    }

    fn add_unnamed(&mut self, place: usize, is_known: bool) {
        self.unnamed = self.unnamed.max(Some(place));
        if is_known {
            self.unnamed_known = self.unnamed_known.max(Some(place));
        }
    }

    /// A plan change named the agreement it left.
    fn unname(&mut self, place: usize) {
        self.leave(place);
        let start = &mut self.starts[place];
        start.agreement = None;
        start.ended = self.ends.naming_none(start.at.plus(CHANGE_SPAN));
        let is_known = start.plan.is_some();
        self.add_unnamed(place, is_known);
    }

    fn bury(&mut self, at: Instant, told: Told) {
        while let Some(Reverse((effective, said, place))) = self.deaths.peek().copied() {
            if !(effective < at || effective == at && (told == Told::By || said < at)) {
                return;
            }
            self.deaths.pop();
            self.leave(place);
        }
    }

    fn leave(&mut self, place: usize) {
        self.live_known.remove(&place);
        if !self.live.remove(&place) {
            return;
        }
        if let Some(agreement) = self.starts[place].agreement
            && let Some(count) = self.named.get_mut(agreement)
        {
            *count -= 1;
            if *count == 0 {
                self.named.remove(agreement);
            }
        }
    }

    fn plan(&self, at: Instant, told: Told) -> Plan {
        let unnamed = |place: Option<usize>| place.filter(|place| self.is_live(&self.starts[*place], at, told));
        let known = self.live_known.last().copied().max(unnamed(self.unnamed_known));
        let known = known.and_then(|place| self.starts[place].plan).unwrap_or(Plan::Free);
        let Some(newest) = self.live.last().copied().max(unnamed(self.unnamed)) else { return Plan::Free };
        match self.starts[newest].plan {
            Some(plan) => plan,
            // A plan nobody knows leaves standing what stood before that change.
            None => known.max(self.plan_before(self.starts[newest].at.minus(CHANGE_SPAN))),
        }
    }

    /// One that names no agreement.
    fn is_live(&self, start: &Start<'_>, at: Instant, told: Told) -> bool {
        let other = self.ends.naming_other(start.at.plus(CHANGE_SPAN), self.named.keys().copied());
        !Ending::first(start.ended, other).is_some_and(|end| told.has_ended(end, at))
    }

    /// As what was told before a moment has it, read then.
    fn plan_before(&self, at: Instant) -> Plan {
        match self.notes.partition_point(|note| note.at < at) {
            n if self.notes.get(n).is_some_and(|note| note.at == at) => self.notes[n].before,
            0 => Plan::Free,
            n => self.notes[n - 1].after,
        }
    }
}
