//! What looked different, looked at again before anybody is told: it may have been on its way, or be waiting in the queue.
//!
//! In this order: the provider is asked again; then the queue is looked through; then what is stored is compared once more. An
//! event that is still to run is found by the second, one that ran meanwhile by the third.

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
use crate::billing::compare::Compared;
use crate::checkpoint::Checkpoints;
use crate::domain::ask_again::{self, Party};
use crate::domain::event::{Delivery, Source, Status};
use crate::domain::fact::Fact;
use crate::domain::ids::{AccountId, AgreementId, EventId, EventKey};
use crate::domain::instant::Instant;
use crate::inbox::open;
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
        for pending in page {
            let again = match &pending.question {
                Some(Question::Plan { party }) => self.plan_again(conn, run, &pending, party).await?,
                Some(Question::TheirMovement { key, names, minor, currency }) => {
                    self.their_movement_again(conn, &pending, key, names, (*minor, currency), &mut done).await?
                }
                Some(Question::OurMovement { key, reference }) => {
                    self.our_movement_again(&pending, key, reference, &mut done).await?
                }
                None => Again::Gone,
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

    async fn plan_again(&self, conn: &mut PgConnection, run: &Run, pending: &Pending, party: &Party) -> Result<Again, Error> {
        let source = pending.finding.source;
        // Somebody who was nobody here may have an account by now.
        let account = match pending.finding.account {
            Some(account) => Some(account),
            None => self.account_of(&mut *conn, source, party).await?,
        };
        let seen = self.look(source, account, party).await?;
        let Some((class, ours, theirs)) = difference(account, &seen) else { return Ok(Again::Gone) };
        let Seen::Answered(both) = seen else {
            let done = "nothing: a newer release may be able to read it".to_owned();
            return Ok(Again::Stays(News { state: State::Open, ours, theirs, done, event: None }));
        };
        let (answer, compared) = *both;
        let named = compared.named.iter().map(AgreementId::as_str);
        let names: HashSet<&str> = party.names().chain(named).collect();
        if self.is_awaited(&mut *conn, account, &names).await? {
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
                let delivery = delivery(source, party, account, &compared, facts, answer.asked);
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
        key: &str,
        names: &[String],
        (minor, currency): (i64, &str),
        done: &mut Done,
    ) -> Result<Again, Error> {
        let finding = &pending.finding;
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        let is_awaited = self.is_awaited(&mut *conn, finding.account, &names).await?;
        // Whatever is in the ledger by now was seen too early.
        let here = matching::with_keys(&mut *conn, &[key]).await?;
        if let Some(row) = here.get(key) {
            done.add(money::sum(finding.source, "ours", row.money.currency.as_str()), row.money.minor);
            return Ok(Again::Gone);
        }
        if is_awaited {
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

    /// Whether an event that is still to run is this account's, or names one of these.
    async fn is_awaited(
        &self,
        conn: &mut PgConnection,
        account: Option<AccountId>,
        names: &HashSet<&str>,
    ) -> Result<bool, Error> {
        if let Some(account) = account
            && open::awaited(&mut *conn, &[account]).await?.contains(&account)
        {
            return Ok(true);
        }
        let mut after = EventId(0);
        loop {
            let page = open::unread(&mut *conn, after, UNREAD_PAGE).await?;
            let payload = |event: &open::Unread| providers::payload(event.source, event.body.as_deref()?);
            if page.iter().filter_map(payload).any(|payload| mentions(&payload, names)) {
                return Ok(true);
            }
            match page.last() {
                Some(last) if i64::try_from(page.len()) == Ok(UNREAD_PAGE) => after = last.id,
                _ => return Ok(false),
            }
        }
    }
}

fn stays(pending: &Pending, done: String, event: Option<EventId>) -> News {
    let finding = &pending.finding;
    News { state: State::Open, ours: finding.ours.clone(), theirs: finding.theirs.clone(), done, event }
}

/// Whether one of these names is anywhere in it.
fn mentions(payload: &Value, names: &HashSet<&str>) -> bool {
    match payload {
        Value::String(text) => names.contains(text.as_str()),
        Value::Array(all) => all.iter().any(|one| mentions(one, names)),
        Value::Object(all) => all.values().any(|one| mentions(one, names)),
        _ => false,
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
