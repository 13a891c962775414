//! Applying events: the accounts are locked, each event's facts replaced, the whole folded, and what differs written.
//!
//! In the caller's transaction, never committing, never waiting on a network. Events of several accounts, and several of one
//! account, go through together: they are decided one after another in memory and written in one statement a table.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts;
use crate::checkpoint::{Break, Checkpoints, Step};
use crate::domain::event::{Source, UnknownWord};
use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::{AccountId, ChargeId, CustomerId, EventId, EventKey};
use crate::domain::instant::Instant;
use crate::domain::plan::PlanKeys;
use crate::domain::reason::{self, Reason};
use crate::domain::told::{Doubt, Said, Told};
use crate::ledger;
use crate::money;

use super::book::{Book, Stored};
use super::booked;
use super::facts;
use super::runs::{self, Effects, Run};
use super::stamps;
use super::whose;

/// An event that says it happens later than this after it was heard waits until then.
pub const AHEAD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// What is the same for every event.
#[derive(Debug, Clone)]
pub struct Rules {
    pub keys: PlanKeys,
    /// The tenant whose user ids name accounts.
    pub tenant: String,
}

/// One event to apply.
#[derive(Debug, Clone)]
pub struct Item {
    pub id: EventId,
    pub source: Source,
    pub key: EventKey,
    pub kind: String,
    pub received: Instant,
    pub account: Option<AccountId>,
    pub requested_by: Option<String>,
    pub told: Told,
}

/// What came of one event.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub reason: Reason,
    pub account: Option<AccountId>,
    pub effects: Effects,
    /// When a parked event is looked at again; none means when what it waits for is learned.
    pub due: Option<OffsetDateTime>,
    /// The plan key it names, if that is not configured: whatever came of the event, it runs again once it is.
    pub unknown_plan_key: Option<String>,
    /// Why it counts by its own word alone, although its provider was to be asked.
    pub doubt: Option<Doubt>,
}

#[derive(Debug, Default)]
pub struct Applied {
    /// In the order of the items.
    pub verdicts: Vec<Verdict>,
    /// Customer ids whose owner is known from now on.
    pub learned: Vec<(Source, CustomerId)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the billing tables could not be read or written")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Accounts(#[from] accounts::Error),
    #[error("a stored word cannot be read")]
    Word(#[from] UnknownWord),
    #[error("the stored facts of event {0} cannot be read")]
    UnreadableFact(EventId),
    #[error(transparent)]
    Break(#[from] Break),
}

impl Verdict {
    pub fn without_account(reason: Reason) -> Self {
        Self { reason, account: None, effects: Effects::default(), due: None, unknown_plan_key: None, doubt: None }
    }

    /// As its owner reads it.
    pub fn sentence(&self) -> String {
        reason::sentence(&self.reason, self.doubt.as_ref())
    }
}

/// Applies a batch, all or nothing.
pub async fn apply(
    conn: &mut PgConnection,
    items: &[Item],
    rules: &Rules,
    checkpoints: &Checkpoints,
    now: OffsetDateTime,
) -> Result<Applied, Error> {
    let keys: Vec<&EventKey> = items.iter().map(|i| &i.key).collect();
    let owners = whose::find(&mut *conn, items, rules, now).await?;

    // Those of declined events too: their person sees a line more, so their page's number grows.
    let mut ids: BTreeSet<AccountId> = owners.of_items.iter().filter_map(|o| o.account).collect();
    // One that was only just made has its first entry coming, even if the event that named it is declined.
    ids.extend(&owners.created);
    // Facts move with their event, so the account that has them now changes too. A first run has none.
    let ran: Vec<EventId> = items.iter().filter(|i| i.account.is_some()).map(|i| i.id).collect();
    let homes = if ran.is_empty() { HashMap::new() } else { facts::homes(&mut *conn, &ran).await? };
    ids.extend(homes.values());
    let mut books = load(&mut *conn, items, &ids, &owners.created, now).await?;
    checkpoints.reach(Step::Locked, &keys).await?;

    let at = Instant::from_datetime(now);
    let mut verdicts = Vec::with_capacity(items.len());
    for (item, owner) in items.iter().zip(&owners.of_items) {
        verdicts.push(match (&owner.declined, owner.account) {
            (Some(reason), account) => Verdict { account, ..Verdict::without_account(reason.clone()) },
            (None, account) => {
                let account = account.ok_or(sqlx::Error::RowNotFound)?;
                if let Some(home) = homes.get(&item.id).filter(|home| **home != account) {
                    let left = books.get_mut(home).ok_or(sqlx::Error::RowNotFound)?.give_up(item.id, &rules.keys, at);
                    books.get_mut(&account).ok_or(sqlx::Error::RowNotFound)?.take_over(left);
                }
                let book = books.get_mut(&account).ok_or(sqlx::Error::RowNotFound)?;
                match ahead(item, at) {
                    Some(happens) => Verdict {
                        account: Some(account),
                        // The column keeps microseconds: the next whole one, or it would be due before it happens.
                        due: Some(happens.plus(Duration::from_nanos(999)).datetime()),
                        ..Verdict::without_account(Reason::FromTheFuture { at: happens })
                    },
                    None => book.run(item, &rules.keys, at),
                }
            }
        });
    }
    write(conn, items, &verdicts, &books, checkpoints, &keys, now).await?;
    Ok(Applied { verdicts, learned: owners.learned })
}

async fn load(
    conn: &mut PgConnection,
    items: &[Item],
    ids: &BTreeSet<AccountId>,
    created: &BTreeSet<AccountId>,
    now: OffsetDateTime,
) -> Result<HashMap<AccountId, Book>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let standings = accounts::lock(&mut *conn, ids).await?;
    let mut stored = facts::load(&mut *conn, ids).await?;
    let mut entries = ledger::allowances(&mut *conn, ids).await?;
    // Facts may move from one of these accounts to another, and what they say was booked where they came from.
    let told = stored.values().flatten().map(|dated| &dated.fact).chain(items.iter().flat_map(|item| item.told.said.facts()));
    let booked = booked::of(&mut *conn, told).await?;
    Ok(standings
        .into_iter()
        .map(|(id, standing)| {
            let stored = Stored {
                facts: stored.remove(&id).unwrap_or_default(),
                entries: entries.remove(&id).unwrap_or_default(),
                booked: booked.clone(),
            };
            let mut book = Book::new(id, standing, stored);
            if created.contains(&id) {
                book.open(now);
            }
            (id, book)
        })
        .collect())
}

async fn write(
    conn: &mut PgConnection,
    items: &[Item],
    verdicts: &[Verdict],
    books: &HashMap<AccountId, Book>,
    checkpoints: &Checkpoints,
    keys: &[&EventKey],
    now: OffsetDateTime,
) -> Result<(), Error> {
    let stale: Vec<EventId> = books.values().flat_map(|b| b.stale.iter().copied()).collect();
    let fresh: Vec<(AccountId, Dated)> = books.iter().flat_map(|(id, b)| b.fresh.iter().map(|f| (*id, f.clone()))).collect();
    facts::replace(&mut *conn, &stale, &fresh).await?;

    let touched: Vec<AccountId> = books.iter().filter(|(_, b)| !b.changed()).map(|(id, _)| *id).collect();
    if !touched.is_empty() {
        accounts::touch(&mut *conn, &touched).await?;
    }
    let changes: Vec<_> = books.iter().filter(|(_, b)| b.changed()).map(|(id, b)| (*id, b.standing().clone())).collect();
    if !changes.is_empty() {
        accounts::write(&mut *conn, &changes).await?;
    }
    checkpoints.reach(Step::HalfWay, keys).await?;

    let entries: Vec<_> = books.values().flat_map(|b| b.appended.iter().cloned()).collect();
    if !entries.is_empty() {
        ledger::append(&mut *conn, &entries, now).await?;
    }
    let moved: Vec<_> = books.values().flat_map(|b| b.moved.iter().cloned()).collect();
    if !moved.is_empty() {
        money::append(&mut *conn, &moved, now).await?;
    }
    let stamped: Vec<_> =
        books.iter().flat_map(|(id, b)| b.stamped.values().map(|(event, purchase)| (*id, *event, purchase.clone()))).collect();
    if !stamped.is_empty() {
        money::stamp(&mut *conn, &stamped).await?;
    }
    stamps::renew(&mut *conn, &charges(books)).await?;
    let runs: Vec<Run> = items
        .iter()
        .zip(verdicts)
        .map(|(item, verdict)| Run {
            event: item.id,
            status: verdict.reason.status(),
            sentence: verdict.sentence(),
            effects: verdict.effects.clone(),
            requested_by: item.requested_by.clone(),
        })
        .collect();
    runs::record(conn, &runs, now).await?;
    checkpoints.reach(Step::BeforeMark, keys).await?;
    Ok(())
}

/// The charges that something new is known of: money that moved, a purchase, an answer about a dispute.
fn charges(books: &HashMap<AccountId, Book>) -> BTreeSet<ChargeId> {
    let moved = books.values().flat_map(|b| b.moved.iter().filter_map(|entry| entry.movement.charge.clone()));
    let bought = books.values().flat_map(|b| b.stamped.values().filter_map(|(_, purchase)| purchase.charge.clone()));
    let disputed = books.values().flat_map(|b| &b.fresh).filter_map(|dated| match &dated.fact {
        Fact::Dispute { charge, .. } => Some(charge.clone()),
        _ => None,
    });
    moved.chain(bought).chain(disputed).collect()
}

/// When an event happens that says it lies too far ahead to be run now.
pub(super) fn ahead(item: &Item, now: Instant) -> Option<Instant> {
    match item.told.said {
        Said::Fact { at, .. } if at > item.received.plus(AHEAD_LIMIT) && at > now => Some(at),
        _ => None,
    }
}
