//! The handler most people write first: every delivery is applied as it arrives. Pure, so all its endings can be counted.
//!
//! It has the four usual repairs as switches, each done the way it is usually done, for a reader to see what each of them does
//! and does not mend. Nothing outside the Engine Room may use this.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Account;
use super::scenario::{Event, Script, every_order};
use super::stop::{Place, Stop};
use super::timetable::Sending;
use crate::domain::instant::Instant;
use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE, Plan};

/// Which repairs are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Repairs {
    /// Remember each event's id when it comes, and skip an id already remembered.
    pub dedupe: bool,
    /// All writes of a delivery in one transaction, the remembered id with them.
    pub transaction: bool,
    /// A plan change applies only if it is newer than the one stored; otherwise the handler returns there.
    pub guard: bool,
    /// The month's allowance is written under a key, so a second time writes nothing.
    pub entry_key: bool,
}

/// One of the four switches, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    Dedupe,
    Transaction,
    Guard,
    EntryKey,
}

impl Repair {
    pub const ALL: [Self; 4] = [Self::Dedupe, Self::Transaction, Self::Guard, Self::EntryKey];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Dedupe => "dedupe",
            Self::Transaction => "transaction",
            Self::Guard => "guard",
            Self::EntryKey => "key",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no repair called “{word}”; the four are dedupe, transaction, guard and key")]
pub struct UnknownRepair {
    word: String,
}

impl Repairs {
    pub const fn has(self, repair: Repair) -> bool {
        match repair {
            Repair::Dedupe => self.dedupe,
            Repair::Transaction => self.transaction,
            Repair::Guard => self.guard,
            Repair::EntryKey => self.entry_key,
        }
    }

    pub const fn set(&mut self, repair: Repair) {
        match repair {
            Repair::Dedupe => self.dedupe = true,
            Repair::Transaction => self.transaction = true,
            Repair::Guard => self.guard = true,
            Repair::EntryKey => self.entry_key = true,
        }
    }

    pub fn none(self) -> bool {
        self == Self::default()
    }

    pub fn count(self) -> usize {
        Repair::ALL.into_iter().filter(|&repair| self.has(repair)).count()
    }
}

/// `dedupe.guard`, as in an address.
impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for repair in Repair::ALL.into_iter().filter(|&repair| self.has(repair)) {
            write!(f, "{}{}", if first { "" } else { "." }, repair.name())?;
            first = false;
        }
        Ok(())
    }
}

impl FromStr for Repairs {
    type Err = UnknownRepair;

    fn from_str(text: &str) -> Result<Self, UnknownRepair> {
        let mut on = Self::default();
        for word in text.split('.').filter(|word| !word.is_empty()) {
            let known = Repair::ALL.into_iter().find(|repair| repair.name() == word);
            on.set(known.ok_or_else(|| UnknownRepair { word: super::scenario::shortened(word) })?);
        }
        Ok(on)
    }
}

/// The naive account after one delivery, and what the handler did, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NaiveStep {
    pub account: Account,
    pub note: String,
    /// The process stopped while it handled this delivery.
    pub stopped: bool,
}

/// Runs a script through the handler, delivery by delivery.
pub fn run(script: &Script, repairs: Repairs) -> Vec<NaiveStep> {
    let mut handler = Handler::new(repairs);
    script.sends().iter().map(|sending| handler.deliver(sending)).collect()
}

/// What became of all orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endings {
    /// Orders that end with what the customer is owed.
    pub right: usize,
    pub orders: usize,
    /// How many orders end in each state.
    pub spread: BTreeMap<Account, usize>,
}

/// Runs the nine deliveries in every order, the process stopping half-way through the upgrade's first run as in the article.
pub fn endings(repairs: Repairs) -> Endings {
    ends_of(every_order().map(|order| order.to_vec()), repairs)
}

/// The same with each event delivered once, in all six orders. What copies had mended by luck shows here.
pub fn endings_without_copies(repairs: Repairs) -> Endings {
    let [a, b, c] = Event::ALL;
    ends_of([[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]].map(Vec::from), repairs)
}

fn ends_of(orders: impl IntoIterator<Item = Vec<Event>>, repairs: Repairs) -> Endings {
    let mut spread = BTreeMap::new();
    for order in orders {
        let first_upgrade = order.iter().position(|&event| event == Event::Up).map(|at| at + 1);
        let stop = first_upgrade.map(|delivery| Stop { delivery, place: Place::HalfWay });
        if let Ok(script) = Script::new(order, stop) {
            *spread.entry(last(&script, repairs)).or_insert(0) += 1;
        }
    }
    let owed = Script::article().owed();
    Endings { right: spread.get(&owed).copied().unwrap_or(0), orders: spread.values().sum(), spread }
}

/// How the naive account ends.
pub fn last(script: &Script, repairs: Repairs) -> Account {
    run(script, repairs).last().map_or(FRESH, |step| step.account)
}

/// An account before anything arrived.
pub const FRESH: Account = Account { plan: Plan::Free, balance: FREE_BOTTLES };

/// What the handler keeps between deliveries: its tables.
#[derive(Clone, Copy)]
struct Tables {
    account: Account,
    plan_changed_at: Option<Instant>,
    remembered: [bool; Event::ALL.len()],
    allowance_keyed: bool,
}

struct Handler {
    repairs: Repairs,
    tables: Tables,
}

/// A write that a delivery causes.
enum Write {
    Plan(Plan),
    Allowance,
}

impl Handler {
    fn new(repairs: Repairs) -> Self {
        let tables =
            Tables { account: FRESH, plan_changed_at: None, remembered: [false; Event::ALL.len()], allowance_keyed: false };
        Self { repairs, tables }
    }

    fn deliver(&mut self, sending: &Sending) -> NaiveStep {
        let before = self.tables;
        let (mut note, stopped) = self.handle(sending);
        if stopped && self.repairs.transaction && sending.stop != Some(Place::BeforeStore) {
            self.tables = before;
            note.push_str("; the transaction rolls back whole");
        }
        NaiveStep { account: self.tables.account, note, stopped }
    }

    /// What it did, and whether it stopped.
    fn handle(&mut self, sending: &Sending) -> (String, bool) {
        let event = sending.event;
        if sending.stop == Some(Place::BeforeStore) {
            return ("stops before it does anything".into(), true);
        }
        let mut lost = "";
        if self.repairs.dedupe {
            let remembered = &mut self.tables.remembered[event as usize];
            if *remembered {
                return ("id already remembered, does nothing".into(), false);
            }
            *remembered = true;
            lost = if self.repairs.transaction { "" } else { "; its id is remembered, so no copy will mend it" };
        }
        if sending.stop == Some(Place::AfterStore) {
            return (format!("stops before its first write{lost}"), true);
        }
        let mut did: Vec<String> = Vec::new();
        let writes = self.writes_for(event, &mut did);
        let count = writes.len();
        for (done, write) in (1..).zip(writes) {
            did.push(self.write(&write, event));
            if sending.stop == Some(Place::HalfWay) && done < count {
                return (format!("{}, then stops: no allowance{lost}", did.join(", ")), true);
            }
        }
        let did = did.join(", ");
        match sending.stop {
            Some(Place::HalfWay | Place::BeforeMark) => (format!("{did}, then stops before it answers"), true),
            _ => (did, false),
        }
    }

    fn writes_for(&self, event: Event, did: &mut Vec<String>) -> Vec<Write> {
        let newer = self.tables.plan_changed_at.is_none_or(|stored| event.occurred_at() > stored);
        let refused = self.repairs.guard && !newer;
        match event {
            Event::Up | Event::Old if refused => {
                did.push("not newer than the stored plan change, returns".into());
                vec![]
            }
            Event::Up => vec![Write::Plan(Plan::Pro), Write::Allowance],
            Event::Old => vec![Write::Plan(Plan::Free)],
            Event::Pay if self.tables.account.plan == Plan::Pro => vec![Write::Allowance],
            Event::Pay => {
                did.push("plan is Free, adds nothing".into());
                vec![]
            }
        }
    }

    fn write(&mut self, write: &Write, event: Event) -> String {
        match *write {
            Write::Plan(plan) => {
                let was = std::mem::replace(&mut self.tables.account.plan, plan);
                self.tables.plan_changed_at = Some(event.occurred_at());
                if was == plan { format!("writes {} again", title(plan)) } else { format!("writes {}", title(plan)) }
            }
            Write::Allowance if self.repairs.entry_key && self.tables.allowance_keyed => {
                "finds the month's allowance there".into()
            }
            Write::Allowance => {
                self.tables.allowance_keyed = true;
                self.tables.account.balance += PRO_BOTTLES_MORE;
                format!("adds {PRO_BOTTLES_MORE}")
            }
        }
    }
}

fn title(plan: Plan) -> &'static str {
    match plan {
        Plan::Free => "Free",
        Plan::Pro => "Pro",
    }
}
