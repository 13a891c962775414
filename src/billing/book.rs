//! One locked account in memory, while the events of a batch run through it. Pure.

use std::collections::HashMap;

use time::OffsetDateTime;

use crate::accounts::{Standing, Upcoming};
use crate::domain::ask_again;
use crate::domain::fact::{Agreement, Dated, Fact, InvoiceState};
use crate::domain::ids::{AccountId, EventId, PurchaseId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::{Plan, PlanKeys};
use crate::domain::reason::Reason;
use crate::domain::told::Said;
use crate::ledger::{self, Entry};
use crate::money::{self, Purchase};

use super::apply::{Item, Verdict};
use super::booked::Booked;
use super::fold::{self, State, fold};
use super::runs::{Effects, Granted, Moved, PlanChange};
use super::verdict::{Before, Written, judge_all, of_answer};

#[derive(Clone)]
pub struct Book {
    account: AccountId,
    stored: Standing,
    standing: Standing,
    /// In their total order.
    facts: Vec<Dated>,
    entries: HashMap<String, i64>,
    booked: Booked,
    /// Events whose stored facts are replaced.
    pub stale: Vec<EventId>,
    /// Facts to be stored.
    pub fresh: Vec<Dated>,
    /// Ledger entries to be appended.
    pub appended: Vec<Entry>,
    /// Money that moved, to be appended to its own ledger.
    pub moved: Vec<money::Entry>,
    /// Purchases that are new, or stamped anew.
    pub stamped: HashMap<PurchaseId, (EventId, Purchase)>,
}

/// What is stored of an account, to begin a book with.
#[derive(Default)]
pub struct Stored {
    pub facts: Vec<Dated>,
    /// Its own ledger entries.
    pub entries: HashMap<String, i64>,
    /// Whatever account it was booked at.
    pub booked: Booked,
}

impl Book {
    pub fn new(account: AccountId, standing: Standing, stored: Stored) -> Self {
        Self {
            account,
            stored: standing.clone(),
            standing,
            facts: stored.facts,
            entries: stored.entries,
            booked: stored.booked,
            stale: Vec::new(),
            fresh: Vec::new(),
            appended: Vec::new(),
            moved: Vec::new(),
            stamped: HashMap::new(),
        }
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
        self.conclude(item, &own, &state, keys, now)
    }

    pub fn fold(&self, keys: &PlanKeys, now: Instant) -> State {
        fold(&self.facts, keys, now)
    }

    /// What follows from the state for the account and for this event, which itself said `own`.
    pub fn conclude(&mut self, item: &Item, own: &[Dated], state: &State, keys: &PlanKeys, now: Instant) -> Verdict {
        let standing = self.standing.at(now);
        let before = Before { plan: standing.plan, past_due: standing.past_due_since.is_some() };
        let (entries, packs) = self.grant(state, item);
        let moved = self.move_money(state, item);
        let granted = entries.iter().filter(|e| e.reason == ledger::Why::Pro).map(|e| e.period).collect();
        let told = moved.iter().map(|e| (e.movement.kind, e.movement.money.clone())).collect();
        let reason = match ask_again::asks(&item.kind) {
            Some(source) => of_answer(source, own, before, state),
            None => judge_all(own, before, state, Written { granted, packs, moved: told }),
        };
        let reason = reason.unwrap_or_else(|| match item.told.said {
            Said::Unasked => Reason::Unasked,
            _ => Reason::NoBillingChange { kind: item.kind.clone() },
        });
        self.standing = standing_of(state);
        let unknown_plan_key = own.iter().filter_map(|dated| plan_key(&dated.fact)).find(|key| keys.plan_of(key).is_none());
        let unknown_plan_key = unknown_plan_key.map(str::to_owned);
        let mut effects = effects(&reason, before.plan, state.plan, &entries);
        effects.money = moved.iter().map(told_of).collect();
        effects.by_answer =
            before.plan != state.plan && item.told.answer.is_some() && self.without_answer(item, keys, now) != state.plan;
        let doubt = item.told.doubt.clone();
        Verdict { effects, account: Some(self.account), due: None, unknown_plan_key, reason, doubt }
    }

    /// The plan by what the event itself says, without what its provider answered.
    fn without_answer(&self, item: &Item, keys: &PlanKeys, now: Instant) -> Plan {
        let facts: Vec<Dated> = self.facts.iter().filter(|f| f.event != item.id || is_own(item, f)).cloned().collect();
        fold(&facts, keys, now).plan
    }

    /// The event turned out to be somebody else's: its facts leave, and what is left is folded anew. Entries stay, and
    /// so does money that moved; the ledgers are append-only.
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
        // After its equals, which are its own event's: so they stay in the order in which they are stored.
        let place = self.facts.partition_point(|f| f.order() <= fact.order());
        self.fresh.push(fact.clone());
        self.facts.insert(place, fact);
    }

    /// What is stored of this event is what it still says: running it leaves the facts as they are.
    pub fn holds(&self, item: &Item) -> bool {
        match &item.told.said {
            Said::AsStored | Said::Unasked => true,
            _ => self.facts.iter().filter(|f| f.event == item.id).eq(self.said_by(item).iter()),
        }
    }

    /// What the event itself said, as it is stored; not what its provider answered about it.
    pub fn own(&self, item: &Item) -> Vec<Dated> {
        self.facts.iter().filter(|f| f.event == item.id && is_own(item, f)).cloned().collect()
    }

    /// All of it but the facts: enough to conclude from a state that is at hand.
    pub fn without_facts(&self) -> Self {
        let stored = Stored { facts: Vec::new(), entries: self.entries.clone(), booked: self.booked.clone() };
        Self::new(self.account, self.stored.clone(), stored)
    }

    /// The facts that an event whose body could be read comes to, in their total order.
    fn said_by(&self, item: &Item) -> Vec<Dated> {
        let dated = |at, fact| Dated { at, source: item.source, event: item.id, key: item.key.clone(), fact };
        let mut facts: Vec<Dated> = match &item.told.said {
            Said::Fact { at, .. } | Said::Answered { at, .. } => {
                item.told.said.facts().iter().map(|fact| dated(*at, fact.clone())).collect()
            }
            _ => Vec::new(),
        };
        if let Some(answer) = &item.told.answer {
            let mut live = answer.live.clone();
            live.sort();
            facts.push(dated(answer.asked, Fact::Snapshot { live }));
        } else if !facts.iter().any(|f| matches!(f.fact, Fact::Snapshot { .. })) && !facts.is_empty() {
            // What the provider answered an earlier run stays true of that moment; a run that got no answer does not unsay it.
            let answered = |f: &&Dated| f.event == item.id && matches!(f.fact, Fact::Snapshot { .. });
            facts.extend(self.facts.iter().filter(answered).cloned());
        }
        facts.sort_by(|a, b| a.order().cmp(&b.order()));
        facts
    }

    /// Returns what the event itself said about billing.
    fn take_in(&mut self, item: &Item) -> Vec<Dated> {
        if matches!(item.told.said, Said::AsStored | Said::Unasked) {
            return self.own(item);
        }
        let own = self.said_by(item);
        let told = own.iter().filter(|f| is_own(item, f)).cloned().collect();
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

    /// Entries that the state calls for and the ledger does not have yet, and the packs among them. A period's first entry brings
    /// its Free entry along.
    fn grant(&mut self, state: &State, item: &Item) -> (Vec<Entry>, Vec<(PurchaseId, i64, Period)>) {
        let event = item.id;
        let mut granted = Vec::new();
        for period in &state.pro_periods {
            let pro = ledger::pro_entry(self.account, *period, Some(event));
            match self.entries.get(&pro.key) {
                Some(delta) if *delta == pro.delta => continue,
                Some(delta) => {
                    // The first amount stands (it may have been spent); a person has to look.
                    tracing::error!(alert = "allowance-differs", account = %self.account, event = %item.key, event_id = %item.id, entry_key = pro.key, stored = delta, now = pro.delta, "an allowance entry differs from what the plan gives today");
                    continue;
                }
                None => {
                    granted.extend(self.append(ledger::free_entry(self.account, *period, Some(event))));
                    granted.extend(self.append(pro));
                }
            }
        }
        let mut packs = Vec::new();
        for (_, purchase) in &state.purchases {
            let period = Period::of(purchase.paid_at);
            let pack = ledger::pack_entry(self.account, &purchase.id, period, purchase.bottles, Some(event));
            match self.booked.pack(&pack.key) {
                None => {
                    granted.extend(self.append(ledger::free_entry(self.account, period, Some(event))));
                    self.booked.add_pack(&pack);
                    granted.extend(self.append(pack));
                    packs.push((purchase.id.clone(), purchase.bottles, period));
                }
                Some(stored) if stored != pack.delta => {
                    tracing::error!(alert = "pack-differs", account = %self.account, event = %item.key, event_id = %item.id, entry_key = pack.key, stored, now = pack.delta, "a pack's entry differs from what was bought");
                }
                Some(_) => {}
            }
        }
        (granted, packs)
    }

    /// Movements that the ledger does not have yet, and purchases to be stamped.
    fn move_money(&mut self, state: &State, item: &Item) -> Vec<money::Entry> {
        let mut fresh = Vec::new();
        for (event, movement) in &state.money {
            match self.booked.movement(&movement.key) {
                None => {
                    self.booked.add_movement(movement);
                    fresh.push(money::Entry { account: self.account, event: *event, movement: movement.clone() });
                }
                // What is written stays; a person has to look.
                Some((kind, stored)) if (*kind, stored) != (movement.kind, &movement.money) => {
                    tracing::error!(alert = "movement-differs", account = %self.account, event = %item.key, event_id = %item.id, movement_key = movement.key, %stored, now = %movement.money, "a movement of money differs from what the ledger says");
                }
                Some(_) => {}
            }
        }
        for (event, purchase) in &state.purchases {
            if self.booked.purchase(&purchase.id) != Some(purchase) {
                self.booked.add_purchase(purchase);
                self.stamped.insert(purchase.id.clone(), (*event, purchase.clone()));
            }
        }
        self.moved.extend(fresh.iter().cloned());
        fresh
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

/// Said by the event itself, and no answer to a question about it, unless the event is nothing but a question.
fn is_own(item: &Item, fact: &Dated) -> bool {
    !matches!(fact.fact, Fact::Snapshot { .. }) || ask_again::asks(&item.kind).is_some()
}

/// The plan key by which a fact says what was bought.
fn plan_key(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Start { plan_key, .. }
        | Fact::Agreement(Agreement { plan_key, .. })
        | Fact::Invoice { state: InvoiceState::Paid { opens: Some((plan_key, _)) }, .. } => Some(plan_key),
        _ => None,
    }
}

fn told_of(entry: &money::Entry) -> Moved {
    let movement = &entry.movement;
    Moved {
        key: movement.key.clone(),
        kind: movement.kind.to_string(),
        amount_minor: movement.money.minor,
        currency: movement.money.currency.as_str().to_owned(),
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
        ..Effects::default()
    }
}
