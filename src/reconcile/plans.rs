//! Plans: of everybody here who is linked to a provider, and of whoever is a customer there and linked to nobody here.

use std::collections::BTreeSet;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use sqlx::PgConnection;

use super::findings::{Class, State};
use super::suspect::{Question, Suspect};
use super::{Done, Error, Reconciler};
use crate::accounts::{self, links};
use crate::billing::compare::{self, Answer, Compared};
use crate::domain::ask_again::Party;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, AgreementId, KindeUserId};
use crate::domain::instant::Instant;
use crate::providers::listing::ListError;

/// Accounts of one page: what is asked again after a crash.
const PAGE: i64 = 50;
/// The provider's arm has limits of its own, shared with the worker.
const ASKED_AT_ONCE: usize = 4;

/// What a look at one party came to.
pub(super) enum Seen {
    Answered(Box<(Answer, Compared)>),
    /// This release cannot read the answer.
    Unreadable(String),
}

impl Reconciler {
    pub(super) async fn plans_page(&self, conn: &mut PgConnection, source: Source, cursor: Option<&str>) -> Result<Done, Error> {
        let by_user = self.provider(source)?.lists().by_user;
        let after = AccountId(cursor.and_then(|id| id.parse().ok()).unwrap_or_default());
        let page = links::page(&mut *conn, source, &self.rules.tenant, by_user, after, PAGE).await?;
        let parties = page.iter().map(|one| {
            let user = by_user.then(|| one.user.clone());
            (Some(one.account), Party { user, customers: one.customers.clone() })
        });
        let next = page.last().filter(|_| i64::try_from(page.len()) == Ok(PAGE)).map(|last| last.account.to_string());
        let mut done = Done::at(next);
        done.count("accounts", page.len());
        done.found = self.look_at(source, parties.collect()).await?;
        Ok(done)
    }

    pub(super) async fn customers_page(
        &self,
        conn: &mut PgConnection,
        source: Source,
        cursor: Option<&str>,
    ) -> Result<Done, Error> {
        let provider = self.provider(source)?;
        let page = self.patiently(source, || provider.customers(cursor)).await?;
        let mut done = Done::at(page.next);
        done.count("customers", page.items.len());
        let ids: Vec<String> = page.items.iter().flat_map(|party| &party.customers).map(|id| id.0.clone()).collect();
        let linked = accounts::customers(&mut *conn, source, &ids).await?;
        let strangers: Vec<Party> =
            page.items.into_iter().filter(|party| !party.customers.iter().any(|id| linked.contains_key(id))).collect();
        let users: BTreeSet<&KindeUserId> = strangers.iter().filter_map(|party| party.user.as_ref()).collect();
        let users: Vec<String> = users.into_iter().map(|user| user.0.clone()).collect();
        let known = accounts::find(&mut *conn, &self.rules.tenant, &users).await?;
        let account = |party: &Party| party.user.as_ref().and_then(|user| known.get(user)).copied();
        let strangers = strangers.into_iter().map(|party| (account(&party), party)).collect();
        done.found = self.look_at(source, strangers).await?;
        Ok(done)
    }

    /// Asks about each; where the two sides differ.
    async fn look_at(&self, source: Source, parties: Vec<(Option<AccountId>, Party)>) -> Result<Vec<Suspect>, Error> {
        let seen: Vec<_> = stream::iter(parties)
            .map(|(account, party)| async move {
                let seen = self.look(source, account, &party).await?;
                Ok::<_, Error>((account, party, seen))
            })
            .buffer_unordered(ASKED_AT_ONCE)
            .try_collect()
            .await?;
        Ok(seen.into_iter().filter_map(|(account, party, seen)| suspect(source, account, party, &seen)).collect())
    }

    /// Asks about one party and sets the answer beside what is stored.
    pub(super) async fn look(&self, source: Source, account: Option<AccountId>, party: &Party) -> Result<Seen, Error> {
        self.goes_on()?;
        let provider = self.provider(source)?;
        let asked = Instant::from_datetime(self.clock.now(&self.pool).await?);
        let facts = match self.patiently(source, || provider.plans(party, asked)).await {
            Ok(facts) => facts,
            Err(Error::Provider { why: ListError::Unreadable { why }, .. }) => return Ok(Seen::Unreadable(why)),
            Err(error) => return Err(error),
        };
        let answer = Answer { source, asked, facts };
        let compared = self.compare(account, &answer).await?;
        Ok(Seen::Answered(Box::new((answer, compared))))
    }

    pub(super) async fn compare(&self, account: Option<AccountId>, answer: &Answer) -> Result<Compared, Error> {
        let mut conn = self.pool.acquire().await?;
        let now = Instant::from_datetime(self.clock.now(&mut *conn).await?);
        Ok(compare::compare(&mut conn, account, answer, &self.rules, now).await?)
    }
}

/// The difference that was seen, if one was.
fn suspect(source: Source, account: Option<AccountId>, party: Party, seen: &Seen) -> Option<Suspect> {
    let (class, ours, theirs) = difference(account, seen)?;
    Some(Suspect {
        class,
        source,
        subject: account.map_or_else(|| party.name().to_owned(), |account| format!("account {account}")),
        account,
        customer: party.customers.first().cloned(),
        ours,
        theirs,
        done: "",
        state: State::Suspected,
        question: Some(Question::Plan { party }),
    })
}

/// In what way the two sides differ: what we have, and what they say.
pub(super) fn difference(account: Option<AccountId>, seen: &Seen) -> Option<(Class, String, String)> {
    let compared = match seen {
        Seen::Answered(both) => &both.1,
        Seen::Unreadable(why) => {
            return Some((
                Class::PlanStale,
                "not compared".to_owned(),
                format!("an answer that this release cannot read: {why}"),
            ));
        }
    };
    let ours = compared.ours.to_string();
    if compared.is_unknown_there() {
        let theirs = match &compared.theirs {
            None => "nobody of this name".to_owned(),
            Some(_) => {
                let ids: Vec<&str> = compared.only_ours.iter().map(AgreementId::as_str).collect();
                format!("no agreement {}", ids.join(", "))
            }
        };
        return Some((Class::UnknownTheirs, ours, theirs));
    }
    let theirs = compared.theirs.as_ref().filter(|_| compared.is_stale())?.to_string();
    Some(match account {
        Some(_) => (Class::PlanStale, ours, theirs),
        None => (Class::UnknownOurs, "nobody of this name".to_owned(), theirs),
    })
}
