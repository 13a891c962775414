//! A dry run: what applying stored events again would do, each by itself. The same reading, the same fold, the same verdict as
//! `apply`, on a copy in memory; nothing is locked, created or written, so it may run in a read-only transaction.
//!
//! Many events of one account, as a page shows them, cost one reading of its facts and one fold: an event whose stored facts
//! are what it still says leaves the set of facts as it is, and so the state.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts::{self, Standing};
use crate::domain::event::Source;
use crate::domain::ids::AccountId;
use crate::domain::instant::Instant;
use crate::domain::plan::Plan;
use crate::domain::reason::Reason;
use crate::ledger;

use super::apply::{Error, Item, Rules, Verdict, ahead};
use super::book::{Book, Stored};
use super::booked;
use super::facts;
use super::fold::{self, State};
use super::whose;

/// What a run would come to.
#[derive(Debug, Clone)]
pub struct Rehearsed {
    pub verdict: Verdict,
    /// The account as it stands, and as it would stand.
    pub before: Standing,
    pub after: Standing,
}

impl Rehearsed {
    pub fn changes_nothing(&self) -> bool {
        self.verdict.effects.is_nothing() && self.before == self.after
    }
}

/// One account, read once.
struct Desk {
    book: Book,
    /// The fold of its facts as they are stored, made when it is first needed.
    settled: Option<State>,
}

/// With more facts than this an account is not folded for a page that only lists its events.
const LISTED_FACTS_MAX: i64 = 1_000;

/// Whether a rehearsal costs little enough to be made for every event of a list.
pub async fn is_light(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<bool> {
    facts::at_most(conn, account, LISTED_FACTS_MAX).await
}

/// The providers by whose word an account is Pro at this moment.
pub async fn pro_through(
    conn: &mut PgConnection,
    account: AccountId,
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<Vec<Source>, Error> {
    let facts = facts::load(conn, &BTreeSet::from([account])).await?.remove(&account).unwrap_or_default();
    Ok(fold::pro_through(&facts, &rules.keys, Instant::from_datetime(now)))
}

/// In the order of the items.
pub async fn rehearse(
    conn: &mut PgConnection,
    items: &[Item],
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<Vec<Rehearsed>, Error> {
    let owners = whose::look(&mut *conn, items, rules).await?;
    let ids: BTreeSet<AccountId> =
        owners.iter().filter(|o| o.declined.is_none()).filter_map(|o| o.account).filter(|a| *a != whose::NEW).collect();
    let mut desks = read(&mut *conn, items, &ids).await?;
    let at = Instant::from_datetime(now);
    let mut rehearsed = Vec::with_capacity(items.len());
    for (item, owner) in items.iter().zip(owners) {
        let account = owner.account.filter(|a| *a != whose::NEW);
        rehearsed.push(match (owner.declined, owner.account) {
            (Some(reason), _) => unchanged(Verdict { account, ..Verdict::without_account(reason) }),
            (None, None) => return Err(sqlx::Error::RowNotFound.into()),
            (None, Some(owner)) => match ahead(item, at) {
                Some(happens) => {
                    unchanged(Verdict { account, ..Verdict::without_account(Reason::FromTheFuture { at: happens }) })
                }
                None => desks.entry(owner).or_insert_with(|| Desk::new_account(now)).run(item, rules, at),
            },
        });
    }
    Ok(rehearsed)
}

async fn read(conn: &mut PgConnection, items: &[Item], ids: &BTreeSet<AccountId>) -> Result<HashMap<AccountId, Desk>, Error> {
    let mut desks = HashMap::new();
    if ids.is_empty() {
        return Ok(desks);
    }
    let mut stored = facts::load(&mut *conn, ids).await?;
    let mut entries = ledger::allowances(&mut *conn, ids).await?;
    let told = stored.values().flatten().map(|dated| &dated.fact).chain(items.iter().flat_map(|item| item.told.said.facts()));
    let booked = booked::of(&mut *conn, told).await?;
    for id in ids {
        let standing = accounts::standing_of(&mut *conn, *id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let facts = stored.remove(id).unwrap_or_default();
        let entries = entries.remove(id).unwrap_or_default();
        let book = Book::new(*id, standing, Stored { facts, entries, booked: booked.clone() });
        desks.insert(*id, Desk { book, settled: None });
    }
    Ok(desks)
}

impl Desk {
    /// The account that the event would create.
    fn new_account(now: OffsetDateTime) -> Self {
        let mut book = Book::new(whose::NEW, fresh(), Stored::default());
        book.open(now);
        Self { book, settled: None }
    }

    fn run(&mut self, item: &Item, rules: &Rules, now: Instant) -> Rehearsed {
        let before = self.book.standing().at(now);
        let (book, verdict) = if self.book.holds(item) {
            let state = self.settled.get_or_insert_with(|| self.book.fold(&rules.keys, now));
            let mut book = self.book.without_facts();
            let verdict = book.conclude(item, &self.book.own(item), state, &rules.keys, now);
            (book, verdict)
        } else {
            let mut book = self.book.clone();
            let verdict = book.run(item, &rules.keys, now);
            (book, verdict)
        };
        Rehearsed { verdict, before, after: book.standing().at(now) }
    }
}

fn unchanged(verdict: Verdict) -> Rehearsed {
    Rehearsed { verdict, before: fresh(), after: fresh() }
}

fn fresh() -> Standing {
    Standing { plan: Plan::Free, plan_changed: None, upcoming: Vec::new(), past_due_since: None }
}
