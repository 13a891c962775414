//! Is what is stored what the facts give? Folds accounts afresh and names what differs. Reads only.
//!
//! The caller's transaction has to see one moment of the database (repeatable read), or a run that commits in between would look
//! like a difference.
//!
//! An event that turned out to be somebody else's took its facts along, and both ledgers are append-only. So an entry, a movement
//! or a purchase may stand at the account that it came from while its facts are at another: at the one it is an honest remnant if
//! the event that brought it about has its facts elsewhere now, at the other it counts as booked.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use sqlx::PgConnection;

use crate::accounts;
use crate::domain::fact::{Fact, PackState};
use crate::domain::ids::{AccountId, EventId, PurchaseId};
use crate::domain::instant::Instant;
use crate::domain::money::{Money, MoneyKind};
use crate::domain::period::Period;
use crate::ledger;
use crate::money::{self, Purchase};

use super::apply::{Error, Rules};
use super::book::standing_of;
use super::booked::{self, Booked};
use super::facts;
use super::fold::{State, fold};
use super::stamps;

/// Something that is stored, and what the facts say it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub account: AccountId,
    pub what: String,
    pub stored: String,
    pub folded: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "account {}, {}: stored is {}, the facts give {}", self.account, self.what, self.stored, self.folded)
    }
}

/// The first difference of each of these accounts that has one, by account.
///
/// # Errors
/// The database's, and facts that cannot be read.
pub async fn accounts(
    conn: &mut PgConnection,
    ids: &BTreeSet<AccountId>,
    rules: &Rules,
    now: Instant,
) -> Result<Vec<Difference>, Error> {
    let mut facts = facts::load(&mut *conn, ids).await?;
    let entries = ledger::allowances(&mut *conn, ids).await?;
    let known = money::known(&mut *conn, ids).await?;
    let purchases = money::purchases(&mut *conn, ids).await?;
    let booked = booked::of(&mut *conn, facts.values().flatten().map(|dated| &dated.fact)).await?;
    let charges = facts.values().flatten().filter_map(|dated| match &dated.fact {
        Fact::Pack { state: PackState::Paid { charge, .. }, .. } => charge.clone(),
        _ => None,
    });
    let stamps = stamps::of(&mut *conn, &charges.collect()).await?;
    let (none, no_money, no_purchases) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut differences = Vec::new();
    for id in ids {
        let Some(standing) = accounts::standing_of(&mut *conn, *id).await? else { continue };
        let mut state = fold(&facts.remove(id).unwrap_or_default(), &rules.keys, now);
        state.purchases = state.purchases.into_iter().map(|(event, purchase)| (event, stamps.on(purchase))).collect();
        let differs = |what: &str, stored: String, folded: String| {
            let what = what.to_owned();
            (stored != folded).then_some(Difference { account: *id, what, stored, folded })
        };
        let (stored, folded) = (standing.at(now), standing_of(&state).at(now));
        let found = differs("plan", stored.plan.to_string(), folded.plan.to_string())
            .or_else(|| differs("time of the plan's change", shown(stored.plan_changed), shown(folded.plan_changed)))
            .or_else(|| differs("coming changes", format!("{:?}", stored.upcoming), format!("{:?}", folded.upcoming)))
            .or_else(|| differs("past due since", shown(stored.past_due_since), shown(folded.past_due_since)));
        let books = Books {
            account: *id,
            entries: entries.get(id).unwrap_or(&none),
            money: known.get(id).unwrap_or(&no_money),
            purchases: purchases.get(id).unwrap_or(&no_purchases),
            booked: &booked,
        };
        let found = match found {
            None if books.difference(&state, &BTreeSet::new()).is_some() => {
                books.difference(&state, &left_behind(&mut *conn, *id).await?)
            }
            found => found,
        };
        differences.extend(found);
    }
    Ok(differences)
}

fn shown<T: fmt::Debug>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"))
}

/// Keys of entries and movements and ids of purchases whose event's facts are at another account by now.
async fn left_behind(conn: &mut PgConnection, account: AccountId) -> Result<BTreeSet<String>, Error> {
    let mut brought = ledger::granted_by(&mut *conn, account).await?;
    brought.extend(money::told_by(&mut *conn, account).await?);
    let events: Vec<EventId> = brought.values().copied().collect();
    let homes = facts::homes(conn, &events).await?;
    let is_elsewhere = |event: &EventId| homes.get(event).is_some_and(|home| *home != account);
    Ok(brought.into_iter().filter(|(_, event)| is_elsewhere(event)).map(|(key, _)| key).collect())
}

/// What is written of one account's bottles and money.
struct Books<'a> {
    account: AccountId,
    entries: &'a HashMap<String, i64>,
    money: &'a money::Known,
    purchases: &'a HashMap<PurchaseId, Purchase>,
    /// At whatever account.
    booked: &'a Booked,
}

impl Books<'_> {
    /// The first difference; what is in `left` may stand here without facts.
    fn difference(&self, state: &State, left: &BTreeSet<String>) -> Option<Difference> {
        self.bottles(state, left).or_else(|| self.movements(state, left)).or_else(|| self.bought(state, left))
    }

    /// Every month and pack that the facts grant is in the ledger, and nothing else is. Free entries need no fact.
    fn bottles(&self, state: &State, left: &BTreeSet<String>) -> Option<Difference> {
        let pro = state.pro_periods.iter().map(|period| ledger::pro_entry(self.account, *period, None));
        let pack = |p: &Purchase| ledger::pack_entry(self.account, &p.id, Period::of(p.paid_at), p.bottles, None);
        let packs = state.purchases.iter().map(|(_, p)| pack(p));
        let folded: HashMap<String, i64> = pro.chain(packs).map(|entry| (entry.key, entry.delta)).collect();
        let stored = |key: &String| self.entries.get(key).copied().or_else(|| self.booked.pack(key));
        let is_granted = |key: &&String| key.starts_with("pro:") || key.starts_with("pack:");
        let kept = self.entries.keys().filter(is_granted).filter(|key| !left.contains(*key));
        let keys: BTreeSet<&String> = folded.keys().chain(kept).collect();
        let amount = |n: Option<i64>| n.map_or_else(|| "none".to_owned(), |n| format!("{n:+}"));
        keys.into_iter()
            .map(|key| (key, stored(key), folded.get(key).copied()))
            .find(|(_, stored, folded)| stored != folded)
            .map(|(key, stored, folded)| self.differs(format!("bottle ledger entry {key}"), amount(stored), amount(folded)))
    }

    fn movements(&self, state: &State, left: &BTreeSet<String>) -> Option<Difference> {
        let folded: money::Known = state.money.iter().map(|(_, m)| (m.key.clone(), (m.kind, m.money.clone()))).collect();
        let stored = |key: &String| self.money.get(key).or_else(|| self.booked.movement(key));
        let kept = self.money.keys().filter(|key| !left.contains(*key));
        let keys: BTreeSet<&String> = folded.keys().chain(kept).collect();
        let sum =
            |row: Option<&(MoneyKind, Money)>| row.map_or_else(|| "none".to_owned(), |(kind, money)| format!("{kind} {money}"));
        keys.into_iter()
            .map(|key| (key, stored(key), folded.get(key)))
            .find(|(_, stored, folded)| stored != folded)
            .map(|(key, stored, folded)| self.differs(format!("money ledger row {key}"), sum(stored), sum(folded)))
    }

    fn bought(&self, state: &State, left: &BTreeSet<String>) -> Option<Difference> {
        let folded: HashMap<&PurchaseId, &Purchase> = state.purchases.iter().map(|(_, p)| (&p.id, p)).collect();
        let stored = |id: &PurchaseId| self.purchases.get(id).or_else(|| self.booked.purchase(id));
        let kept = self.purchases.keys().filter(|id| !left.contains(id.as_str()));
        let ids: BTreeSet<&PurchaseId> = folded.keys().copied().chain(kept).collect();
        ids.into_iter()
            .map(|id| (id, stored(id), folded.get(id).copied()))
            .find(|(_, stored, folded)| stored != folded)
            .map(|(id, stored, folded)| self.differs(format!("purchase {id}"), shown(stored), shown(folded)))
    }

    fn differs(&self, what: String, stored: String, folded: String) -> Difference {
        Difference { account: self.account, what, stored, folded }
    }
}
