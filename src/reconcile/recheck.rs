//! What looked different, looked at again before anybody is told: it may have been on its way, or be waiting in the queue.
//!
//! In this order, for a page of differences at a time: the provider is asked again; then the queue is looked through, once for all
//! of them; then what is stored is compared once more. An event that is still to run is found by the second, one that ran
//! meanwhile by the third.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use tokio::time::sleep;

use super::findings::{Class, FindingId, State};
use super::journal::{self, News, Pending};
use super::plans::{Seen, difference};
use super::runs::{Mode, Run};
use super::suspect::Question;
use super::{Done, Error, Reconciler, money};
use crate::accounts;
use crate::billing::compare::{Answer, Compared};
use crate::checkpoint::Checkpoints;
use crate::domain::ask_again::{self, Party};
use crate::domain::event::{Delivery, Source, Status};
use crate::domain::fact::Fact;
use crate::domain::ids::{AccountId, AgreementId, EventId, EventKey};
use crate::domain::instant::Instant;
use crate::inbox::open::{self, Place, Unread};
use crate::intake;
use crate::money::matching;
use crate::providers::{self, listing::Rows};

const PAGE: i64 = 25;
/// Events of the queue that are read at once.
const UNREAD_PAGE: i64 = 200;
pub(super) const ONLY_LOOKED: &str = "nothing: this run only looked";

/// What came of a second look.
pub(super) enum Again {
    /// There is no difference any more.
    Gone,
    /// Something about it is still to run: not now.
    Waits,
    Stays(News),
}

/// What was asked again, and what is needed to go on once the queue was looked through.
enum Asked {
    /// Nothing in the queue makes it another.
    Settled(Again),
    Plan(Box<PlanAsked>),
    TheirMovement(TheirMovement),
}

struct PlanAsked {
    party: Party,
    account: Option<AccountId>,
    class: Class,
    ours: String,
    theirs: String,
    answer: Answer,
    /// By which an event about it may be waiting.
    names: Vec<String>,
}

struct TheirMovement {
    key: String,
    names: Vec<String>,
    minor: i64,
    currency: String,
}

/// What of a page of differences is still to run.
#[derive(Default)]
struct Queue {
    accounts: HashSet<AccountId>,
    names: HashSet<String>,
}

impl Queue {
    /// Whether an event that is still to run is this account's, or names one of these.
    fn has(&self, account: Option<AccountId>, names: &[String]) -> bool {
        account.is_some_and(|account| self.accounts.contains(&account)) || names.iter().any(|name| self.names.contains(name))
    }
}

impl Reconciler {
    pub(super) async fn recheck_page(&self, conn: &mut PgConnection, run: &Run, cursor: Option<&str>) -> Result<Done, Error> {
        let after = FindingId(cursor.and_then(|id| id.parse().ok()).unwrap_or_default());
        let page = journal::in_state(&mut *conn, run.id, State::Suspected, after, PAGE).await?;
        if cursor.is_none() && !page.is_empty() {
            tokio::select! {
                () = sleep(self.settle) => {}
                () = self.stop.cancelled() => return Err(Error::Stopped),
            }
        }
        let next = page.last().filter(|_| i64::try_from(page.len()) == Ok(PAGE)).map(|last| last.finding.id.0.to_string());
        let mut done = Done::at(next);
        let mut asked = Vec::with_capacity(page.len());
        for pending in page {
            self.goes_on()?;
            let now = self.asked_again(&mut *conn, &pending, &mut done).await?;
            asked.push((pending, now));
        }
        let queue = self.queue(&mut *conn, &asked).await?;
        for (pending, now) in asked {
            self.goes_on()?;
            let again = match now {
                Asked::Settled(again) => again,
                Asked::Plan(plan) => self.plan_again(&mut *conn, run, *plan, &queue, pending.finding.source).await?,
                Asked::TheirMovement(movement) => {
                    self.their_movement_again(&mut *conn, &pending, &movement, &queue, &mut done).await?
                }
            };
            match again {
                Again::Gone => done.settled.push((pending.finding.id, None)),
                Again::Waits => {
                    done.add("waiting", 1);
                    done.settled.push((pending.finding.id, None));
                }
                Again::Stays(news) => done.settled.push((pending.finding.id, Some(news))),
            }
        }
        Ok(done)
    }

    async fn asked_again(&self, conn: &mut PgConnection, pending: &Pending, done: &mut Done) -> Result<Asked, Error> {
        match &pending.question {
            Some(Question::Plan { party }) => self.plan_asked(conn, pending, party).await,
            Some(Question::TheirMovement { key, names, minor, currency }) => Ok(Asked::TheirMovement(TheirMovement {
                key: key.clone(),
                names: names.clone(),
                minor: *minor,
                currency: currency.clone(),
            })),
            Some(Question::OurMovement { key, reference }) => {
                Ok(Asked::Settled(self.our_movement_again(pending, key, reference, done).await?))
            }
            None => Ok(Asked::Settled(Again::Gone)),
        }
    }

    async fn plan_asked(&self, conn: &mut PgConnection, pending: &Pending, party: &Party) -> Result<Asked, Error> {
        let source = pending.finding.source;
        // Somebody who was nobody here may have an account by now.
        let account = match pending.finding.account {
            Some(account) => Some(account),
            None => self.account_of(&mut *conn, source, party).await?,
        };
        let seen = self.look(source, account, party).await?;
        let Some((class, ours, theirs)) = difference(account, &seen) else { return Ok(Asked::Settled(Again::Gone)) };
        let Seen::Answered(both) = seen else {
            let done = "nothing: a newer release may be able to read it".to_owned();
            return Ok(Asked::Settled(Again::Stays(News { state: State::Open, ours, theirs, done, event: None })));
        };
        let (answer, compared) = *both;
        let named = compared.named.iter().map(AgreementId::as_str);
        let names = party.names().chain(named).map(str::to_owned).collect();
        Ok(Asked::Plan(Box::new(PlanAsked { party: party.clone(), account, class, ours, theirs, answer, names })))
    }

    async fn plan_again(
        &self,
        conn: &mut PgConnection,
        run: &Run,
        plan: PlanAsked,
        queue: &Queue,
        source: Source,
    ) -> Result<Again, Error> {
        let PlanAsked { party, account, class, ours, theirs, answer, names } = plan;
        if queue.has(account, &names) {
            return Ok(Again::Waits);
        }
        let compared = self.compare(account, &answer).await?;
        let seen = Seen::Answered(Box::new((answer.clone(), compared.clone())));
        if difference(account, &seen).is_none() {
            return Ok(Again::Gone);
        }
        let stuck = match account {
            Some(account) => open::stuck(&mut *conn, account).await?,
            None => None,
        };
        let because = stuck.map_or_else(String::new, |(event, status)| format!("; its event {event} is {status}"));
        let told = |state, done: &str, event| News { state, ours, theirs, done: format!("{done}{because}"), event };
        let event = stuck.map(|(event, _)| event);
        let can_be_asked = class == Class::PlanStale || class == Class::UnknownOurs && party.user.is_some();
        Ok(Again::Stays(match (class, run.mode) {
            (Class::UnknownTheirs, _) => {
                told(State::Open, "nothing: what they do not know is not taken away by itself, a person has to look", event)
            }
            (Class::UnknownOurs, _) if !can_be_asked => told(State::Open, "nothing: they do not say who it is", event),
            (_, Mode::Look) => told(State::Open, ONLY_LOOKED, event),
            (_, Mode::Apply) => {
                let facts = answer.facts.as_deref().unwrap_or_default();
                let delivery = delivery(source, &party, account, &compared, facts, answer.asked);
                let (event, status) = self.ask_again(&mut *conn, &delivery).await?;
                match status {
                    Status::Dead | Status::Parked | Status::Applied | Status::Ignored => {
                        told(State::Open, &format!("it was asked again before: event {event} is {status}"), Some(event))
                    }
                    Status::Received | Status::Processing | Status::Failed => {
                        told(State::Asked, "asked again through the inbox", Some(event))
                    }
                }
            }
        }))
    }

    /// Stores the event that asks, unless it is stored already: the same difference is asked about once.
    async fn ask_again(&self, conn: &mut PgConnection, delivery: &Delivery) -> Result<(EventId, Status), Error> {
        let stored = open::stored(conn, delivery.source, &[delivery.key.as_str()]).await?;
        if let Some(found) = stored.get(&delivery.key) {
            return Ok(*found);
        }
        let stored = intake::accept(&self.pool, &[delivery], self.clock, &Checkpoints::default()).await?;
        self.wake.wake();
        let id = stored.first().map(|stored| stored.id).ok_or(sqlx::Error::RowNotFound)?;
        Ok((id, Status::Received))
    }

    async fn their_movement_again(
        &self,
        conn: &mut PgConnection,
        pending: &Pending,
        movement: &TheirMovement,
        queue: &Queue,
        done: &mut Done,
    ) -> Result<Again, Error> {
        let finding = &pending.finding;
        let TheirMovement { key, names, minor, currency } = movement;
        // Whatever is in the ledger by now was seen too early.
        let here = matching::with_keys(&mut *conn, &[key.as_str()]).await?;
        if let Some(row) = here.get(key) {
            done.add(money::sum(finding.source, "ours", row.money.currency.as_str()), row.money.minor);
            return Ok(Again::Gone);
        }
        if queue.has(finding.account, names) {
            // Neither side counts it today.
            done.add(money::sum(finding.source, "theirs", currency), minor.saturating_neg());
            return Ok(Again::Waits);
        }
        let stuck = match finding.account {
            Some(account) => open::stuck(&mut *conn, account).await?,
            None => None,
        };
        let done = match stuck {
            Some((event, status)) => format!("nothing: event {event} is {status}; mend it and replay it"),
            None => "nothing: no event told of it, or it is not listed any more; a person has to look".to_owned(),
        };
        Ok(Again::Stays(stays(pending, done, stuck.map(|(event, _)| event))))
    }

    async fn our_movement_again(&self, pending: &Pending, key: &str, reference: &str, done: &mut Done) -> Result<Again, Error> {
        let source = pending.finding.source;
        let provider = self.provider(source)?;
        let mut after: Option<String> = None;
        loop {
            let rows = Rows::About(reference);
            let page = self.patiently(source, || provider.books(rows, after.as_deref())).await?;
            if page.items.iter().any(|row| row.key == key) {
                return Ok(Again::Gone);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut conn = self.pool.acquire().await?;
        if let Some(row) = matching::with_keys(&mut conn, &[key]).await?.get(key) {
            done.add(money::sum(source, "ours", row.money.currency.as_str()), row.money.minor);
        }
        Ok(Again::Stays(stays(pending, money::ONLY_A_PERSON.to_owned(), None)))
    }

    async fn account_of(&self, conn: &mut PgConnection, source: Source, party: &Party) -> Result<Option<AccountId>, Error> {
        let ids: Vec<String> = party.customers.iter().map(|id| id.0.clone()).collect();
        if let Some(account) = accounts::customers(&mut *conn, source, &ids).await?.into_values().next() {
            return Ok(Some(account));
        }
        let Some(user) = &party.user else { return Ok(None) };
        Ok(accounts::find(conn, &self.rules.tenant, std::slice::from_ref(&user.0)).await?.into_values().next())
    }

    /// Looks through the queue for whatever these are about.
    async fn queue(&self, conn: &mut PgConnection, asked: &[(Pending, Asked)]) -> Result<Queue, Error> {
        let mut names: HashSet<&str> = HashSet::new();
        let mut accounts: Vec<AccountId> = Vec::new();
        for (pending, now) in asked {
            let (account, of_it) = match now {
                Asked::Settled(_) => continue,
                Asked::Plan(plan) => (plan.account, &plan.names),
                Asked::TheirMovement(movement) => (pending.finding.account, &movement.names),
            };
            names.extend(of_it.iter().map(String::as_str));
            accounts.extend(account);
        }
        let mut queue = Queue::default();
        let mut after = (!names.is_empty()).then_some(Place::FRONT);
        while let Some(place) = after {
            self.goes_on()?;
            let show = |event: Unread| {
                let payload = event.body.as_deref().and_then(|body| providers::payload(event.source, body));
                if let Some(payload) = payload {
                    mentioned(&payload, &names, &mut queue.names);
                }
            };
            after = open::unread(&mut *conn, place, UNREAD_PAGE, show).await?;
        }
        // Whoever was read meanwhile is somebody's by now.
        queue.accounts = open::awaited(conn, &accounts).await?;
        Ok(queue)
    }
}

fn stays(pending: &Pending, done: String, event: Option<EventId>) -> News {
    let finding = &pending.finding;
    News { state: State::Open, ours: finding.ours.clone(), theirs: finding.theirs.clone(), done, event }
}

/// Which of these names are anywhere in it.
fn mentioned(payload: &Value, names: &HashSet<&str>, found: &mut HashSet<String>) {
    match payload {
        Value::String(text) if names.contains(text.as_str()) => {
            found.insert(text.clone());
        }
        Value::Array(all) => all.iter().for_each(|one| mentioned(one, names, found)),
        Value::Object(all) => all.values().for_each(|one| mentioned(one, names, found)),
        _ => {}
    }
}

/// Keyed by what differs: the same answer to the same facts is asked about once, however many runs find it; a later one anew.
fn delivery(
    source: Source,
    party: &Party,
    account: Option<AccountId>,
    compared: &Compared,
    answer: &[Fact],
    at: Instant,
) -> Delivery {
    let kind = ask_again::kind(source).unwrap_or_default();
    let who = account.map_or_else(|| party.name().to_owned(), |account| account.to_string());
    let mut says = BTreeSet::new();
    for fact in answer {
        match fact {
            Fact::Agreement(one) => says.insert(format!("{} {} {}", one.agreement, one.plan_key, one.over)),
            Fact::Snapshot { live } => {
                says.extend(live.iter().map(|one| format!("{} {}", one.agreement, one.plan_key)));
                true
            }
            _ => false,
        };
    }
    let newest = compared.newest.map_or(0, |event| event.0);
    let differs = format!("{newest} {} {:?} {says:?}", compared.ours, compared.theirs.as_ref().map(ToString::to_string));
    let print: String = Sha256::digest(differs.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let body = serde_json::to_vec(party).unwrap_or_default();
    Delivery {
        source: Source::Bottle,
        key: EventKey(format!("asked:{source}:{who}:{print}")),
        kind: kind.to_owned(),
        webhook_id: None,
        digest: Sha256::digest(&body).into(),
        body,
        occurred: Some(at),
        sent: None,
    }
}
