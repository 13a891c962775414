//! One locked account in memory, while the events of a batch run through it. Pure.

use std::collections::HashMap;

use time::OffsetDateTime;

use crate::accounts::{Standing, Upcoming};
use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::{AccountId, EventId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::{Plan, PlanKeys};
use crate::domain::reason::Reason;
use crate::domain::told::Said;
use crate::ledger::{self, Entry};

use super::apply::{Item, Verdict};
use super::fold::{self, State, fold};
use super::runs::{Effects, Granted, PlanChange};
use super::verdict::{Before, judge};

#[derive(Clone)]
pub struct Book {
    account: AccountId,
    stored: Standing,
    standing: Standing,
    /// In their total order.
    facts: Vec<Dated>,
    entries: HashMap<String, i64>,
    /// Events whose stored facts are replaced.
    pub stale: Vec<EventId>,
    /// Facts to be stored.
    pub fresh: Vec<Dated>,
    /// Ledger entries to be appended.
    pub appended: Vec<Entry>,
}

impl Book {
    pub fn new(account: AccountId, stored: Standing, facts: Vec<Dated>, entries: HashMap<String, i64>) -> Self {
        let standing = stored.clone();
        Self { account, stored, standing, facts, entries, stale: Vec::new(), fresh: Vec::new(), appended: Vec::new() }
    }

    /// A new account has the bottles of the month it was created in.
    pub fn open(&mut self, now: OffsetDateTime) {
        let period = Period::of(Instant::from_datetime(now));
        self.append(ledger::free_entry(self.account, period, None));
    }

    pub fn changed(&self) -> bool {
        self.standing != self.stored
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Runs one event: its facts take the place of what was stored of it, and the whole is folded anew.
    pub fn run(&mut self, item: &Item, keys: &PlanKeys, now: Instant) -> Verdict {
        let own = self.take_in(item);
        let state = self.fold(keys, now);
        self.conclude(item, own, &state, keys, now)
    }

    pub fn fold(&self, keys: &PlanKeys, now: Instant) -> State {
        fold(&self.facts, keys, now)
    }

    /// What follows from the state for the account and for this event, which itself said `own`.
    pub fn conclude(&mut self, item: &Item, own: Option<Dated>, state: &State, keys: &PlanKeys, now: Instant) -> Verdict {
        let standing = self.standing.at(now);
        let before = Before { plan: standing.plan, past_due: standing.past_due_since.is_some() };
        let entries = self.grant(state, item);
        let granted = entries.iter().filter(|e| e.reason == ledger::Why::Pro).map(|e| e.period).collect();
        let reason = match &own {
            Some(fact) => judge(fact, before, state, granted),
            None => Reason::NoBillingChange { kind: item.kind.clone() },
        };
        self.standing = standing_of(state);
        let unknown_plan_key = own.and_then(|dated| match dated.fact {
            Fact::Start { plan_key, .. } if keys.plan_of(&plan_key).is_none() => Some(plan_key),
            _ => None,
        });
        let effects = effects(&reason, before.plan, state.plan, &entries);
        let doubt = item.told.doubt.clone();
        Verdict { effects, account: Some(self.account), due: None, unknown_plan_key, reason, doubt }
    }

    /// The event turned out to be somebody else's: its facts leave, and what is left is folded anew. Entries stay; the ledger
    /// is append-only.
    pub fn give_up(&mut self, event: EventId, keys: &PlanKeys, now: Instant) -> Vec<Dated> {
        let (left, kept) = std::mem::take(&mut self.facts).into_iter().partition(|f| f.event == event);
        self.facts = kept;
        self.fresh.retain(|f| f.event != event);
        self.stale.push(event);
        self.standing = standing_of(&fold(&self.facts, keys, now));
        left
    }

    /// Facts that another account gave up.
    pub fn take_over(&mut self, facts: Vec<Dated>) {
        for fact in facts {
            self.put(fact);
        }
    }

    fn put(&mut self, fact: Dated) {
        let place = self.facts.partition_point(|f| f.order() < fact.order());
        self.fresh.push(fact.clone());
        self.facts.insert(place, fact);
    }

    /// What is stored of this event is what it still says: running it leaves the facts as they are.
    pub fn holds(&self, item: &Item) -> bool {
        match &item.told.said {
            Said::AsStored => true,
            _ => self.facts.iter().filter(|f| f.event == item.id).eq(self.said_by(item).iter()),
        }
    }

    /// What the event itself said, as it is stored; not what its provider answered about it.
    pub fn own(&self, item: &Item) -> Option<Dated> {
        self.facts.iter().find(|f| f.event == item.id && !matches!(f.fact, Fact::Snapshot { .. })).cloned()
    }

    /// All of it but the facts: enough to conclude from a state that is at hand.
    pub fn without_facts(&self) -> Self {
        Self::new(self.account, self.stored.clone(), Vec::new(), self.entries.clone())
    }

    /// The facts that an event whose body could be read comes to, in their total order.
    fn said_by(&self, item: &Item) -> Vec<Dated> {
        let dated = |at, fact| Dated { at, source: item.source, event: item.id, key: item.key.clone(), fact };
        let mut facts = match &item.told.said {
            Said::Fact { at, fact } => vec![dated(*at, fact.clone())],
            Said::Nothing | Said::NotRead | Said::AsStored => Vec::new(),
        };
        if let Some(answer) = &item.told.answer {
            let mut live = answer.live.clone();
            live.sort();
            facts.push(dated(answer.asked, Fact::Snapshot { live }));
        } else if !facts.is_empty() {
            // What the provider answered an earlier run stays true of that moment; a run that got no answer does not unsay it.
            let answered = |f: &&Dated| f.event == item.id && matches!(f.fact, Fact::Snapshot { .. });
            facts.extend(self.facts.iter().filter(answered).cloned());
        }
        facts.sort_by(|a, b| a.order().cmp(&b.order()));
        facts
    }

    /// Returns what the event itself said, if it said anything about billing.
    fn take_in(&mut self, item: &Item) -> Option<Dated> {
        if item.told.said == Said::AsStored {
            return self.own(item);
        }
        let own = self.said_by(item);
        let told = own.iter().find(|f| !matches!(f.fact, Fact::Snapshot { .. })).cloned();
        if self.facts.iter().filter(|f| f.event == item.id).ne(own.iter()) {
            if self.facts.iter().any(|f| f.event == item.id) {
                self.facts.retain(|f| f.event != item.id);
                self.stale.push(item.id);
            }
            self.fresh.retain(|f| f.event != item.id);
            for fact in own {
                self.put(fact);
            }
        }
        told
    }

    /// Entries that the state calls for and the ledger does not have yet. A period's first entry brings its Free entry along.
    fn grant(&mut self, state: &State, item: &Item) -> Vec<Entry> {
        let event = item.id;
        let mut granted = Vec::new();
        for period in &state.pro_periods {
            let pro = ledger::pro_entry(self.account, *period, Some(event));
            match self.entries.get(&pro.key) {
                Some(delta) if *delta == pro.delta => continue,
                Some(delta) => {
                    // The first amount stands (it may have been spent); a person has to look.
                    tracing::error!(alert = "allowance-differs", account = %self.account, event = %item.key, entry_key = pro.key, stored = delta, now = pro.delta, "an allowance entry differs from what the plan gives today");
                    continue;
                }
                None => {
                    granted.extend(self.append(ledger::free_entry(self.account, *period, Some(event))));
                    granted.extend(self.append(pro));
                }
            }
        }
        granted
    }

    fn append(&mut self, entry: Entry) -> Option<Entry> {
        if self.entries.contains_key(&entry.key) {
            return None;
        }
        self.entries.insert(entry.key.clone(), entry.delta);
        self.appended.push(entry.clone());
        Some(entry)
    }
}

/// The state as the account's row keeps it.
pub fn standing_of(state: &State) -> Standing {
    Standing {
        plan: state.plan,
        plan_changed: state.decided.as_ref().map(|d| d.at),
        upcoming: state.upcoming.iter().map(upcoming_of).collect(),
        past_due_since: state.past_due_since.map(microseconds),
    }
}

fn upcoming_of(change: &fold::Upcoming) -> Upcoming {
    Upcoming {
        at_ns: change.at.nanos(),
        plan: change.plan,
        changed_ns: change.decided.map(Instant::nanos),
        past_due_ns: change.past_due_since.map(|at| Instant::from_datetime(microseconds(at)).nanos()),
    }
}

/// As `timestamptz` gives it back, so that reading and folding compare equal.
fn microseconds(at: Instant) -> OffsetDateTime {
    Instant::from_nanos(at.nanos().div_euclid(1_000) * 1_000).datetime()
}

fn effects(reason: &Reason, before: Plan, after: Plan, entries: &[Entry]) -> Effects {
    Effects {
        plan: Some(PlanChange { before: before.to_string(), after: after.to_string() }),
        entries: entries.iter().map(|e| Granted { key: e.key.clone(), period: e.period.to_string(), delta: e.delta }).collect(),
        newer: match reason {
            Reason::NewerStored { newer } | Reason::NewerStoredGranted { newer, .. } => newer.as_ref().map(|n| n.key.clone()),
            _ => None,
        },
    }
}
