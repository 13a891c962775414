//! Money: the provider's books beside our ledger, movement by movement, both ways, and in total.
//!
//! Nothing is ever repaired here. The ledger is append-only, and what it lacks comes with the event that tells of it; a sum that
//! differs is for a person.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::findings::{Class, State};
use super::runs::{Run, Tallies, Total};
use super::suspect::{Question, Suspect};
use super::{Done, Error, Reconciler, books};
use crate::accounts;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, ChargeId};
use crate::money::matching::{self, Standing};
use crate::providers::listing::{Booking, Rows};

const PAGE: i64 = 200;
/// What takes days to be paid reaches the provider's books days after it was told.
const BOOKED_LATE: time::Duration = time::Duration::days(2);
/// Sums are counted as the run goes, under names of this form.
const SUM: &str = "sum";

pub(super) const ONLY_A_PERSON: &str = "nothing: the ledger is never changed, a person has to look";

impl Reconciler {
    pub(super) async fn copy_page(
        &self,
        conn: &mut PgConnection,
        run: &Run,
        source: Source,
        cursor: Option<&str>,
    ) -> Result<Done, Error> {
        let provider = self.provider(source)?;
        let rows = Rows::Between { since: run.since, until: run.until };
        let page = self.patiently(source, || provider.books(rows, cursor)).await?;
        let mut done = Done::at(page.next);
        done.count("bookings", page.items.len());
        books::copy(conn, run.id, source, &page.items).await?;
        Ok(done)
    }

    /// Each row of theirs: do we have it, and is it the same?
    pub(super) async fn theirs_page(
        &self,
        conn: &mut PgConnection,
        run: &Run,
        source: Source,
        cursor: Option<&str>,
    ) -> Result<Done, Error> {
        let rows = books::page(&mut *conn, run.id, source, cursor.unwrap_or_default(), PAGE).await?;
        let mut done = Done::at(rows.last().filter(|_| i64::try_from(rows.len()) == Ok(PAGE)).map(|last| last.entry.clone()));
        let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        let here = matching::with_keys(&mut *conn, &keys).await?;
        let owners = self.owners(&mut *conn, source, &rows).await?;
        for row in &rows {
            let owner = owners.get(&row.entry).copied();
            let ours = here.get(&row.key);
            if ours.is_none() && owner.is_none() && !row.marked {
                // Somebody who never had to do with us pays into the same account.
                done.add("foreign", 1);
                continue;
            }
            done.add("movements", 1);
            done.add(sum(source, "theirs", row.money.currency.as_str()), row.money.minor);
            if let Some(ours) = ours {
                done.add(sum(source, "ours", ours.money.currency.as_str()), ours.money.minor);
            }
            done.found.extend(judge(source, row, ours, owner));
        }
        Ok(done)
    }

    /// Whose the rows are: by the customer they name, or by who paid the charge they are about.
    async fn owners(
        &self,
        conn: &mut PgConnection,
        source: Source,
        rows: &[Booking],
    ) -> Result<HashMap<String, AccountId>, Error> {
        let customers: Vec<String> = rows.iter().filter_map(|row| row.customer.as_ref()).map(|id| id.0.clone()).collect();
        let linked = accounts::customers(&mut *conn, source, &customers).await?;
        let charges: Vec<&str> = rows.iter().filter_map(|row| row.charge.as_ref()).map(ChargeId::as_str).collect();
        let payers = matching::payers(&mut *conn, &charges).await?;
        let owner = |row: &Booking| {
            let by_customer = row.customer.as_ref().and_then(|id| linked.get(id));
            by_customer.or_else(|| row.charge.as_ref().and_then(|id| payers.get(id))).copied()
        };
        Ok(rows.iter().filter_map(|row| Some((row.entry.clone(), owner(row)?))).collect())
    }

    /// Each movement of ours: do they have it at all? What is the same in both was seen before.
    pub(super) async fn ours_page(
        &self,
        conn: &mut PgConnection,
        run: &Run,
        source: Source,
        cursor: Option<&str>,
    ) -> Result<Done, Error> {
        let after = cursor.map_or(Some((run.since, 0)), place).ok_or_else(|| Error::Note("its cursor is none".to_owned()))?;
        let rows = matching::between(&mut *conn, after, run.until - BOOKED_LATE, PAGE).await?;
        let full = i64::try_from(rows.len()) == Ok(PAGE);
        let next = rows.last().filter(|_| full).map(|(at, last)| cursor_of(*at, last.row)).transpose()?;
        let keys: Vec<&str> = rows.iter().map(|(_, row)| row.key.as_str()).collect();
        let there = books::holding(&mut *conn, run.id, &keys).await?;
        let missing = rows.iter().map(|(_, row)| row).filter(|row| !there.contains(&row.key));
        let suspects: Vec<Suspect> = missing
            .map(|row| Suspect {
                class: Class::UnknownTheirs,
                source,
                subject: row.key.clone(),
                account: Some(row.account),
                customer: None,
                ours: row.money.to_string(),
                theirs: "not in their books".to_owned(),
                done: ONLY_A_PERSON,
                state: State::Suspected,
                question: Some(Question::OurMovement { key: row.key.clone(), reference: row.reference.clone() }),
            })
            .collect();
        Ok(Done { found: suspects, ..Done::at(next) })
    }
}

fn judge(source: Source, row: &Booking, ours: Option<&Standing>, owner: Option<AccountId>) -> Option<Suspect> {
    let suspect = |class, ours: String, state, question| Suspect {
        class,
        source,
        subject: row.key.clone(),
        account: owner,
        customer: row.customer.clone(),
        ours,
        theirs: row.money.to_string(),
        done: ONLY_A_PERSON,
        state,
        question,
    };
    match ours {
        Some(ours) if (ours.kind, &ours.money) == (row.kind, &row.money) => None,
        Some(ours) => {
            let found = suspect(Class::AmountDiffers, ours.money.to_string(), State::Open, None);
            Some(Suspect { account: Some(ours.account), ..found })
        }
        None => {
            let reference = row.key.split_once(':').map_or(row.key.as_str(), |(_, reference)| reference).to_owned();
            let names =
                [row.customer.as_ref().map(|id| id.0.clone()), row.charge.as_ref().map(|id| id.0.clone()), Some(reference)];
            let question = Question::TheirMovement {
                key: row.key.clone(),
                names: names.into_iter().flatten().collect(),
                minor: row.money.minor,
                currency: row.money.currency.as_str().to_owned(),
            };
            Some(suspect(Class::UnknownOurs, "not in our ledger".to_owned(), State::Suspected, Some(question)))
        }
    }
}

pub(super) fn sum(source: Source, whose: &str, currency: &str) -> String {
    format!("{SUM}:{source}:{currency}:{whose}")
}

/// The sums among what a run counted, one total a currency.
pub(super) fn totals(tallies: &Tallies) -> Vec<Total> {
    let mut totals: BTreeMap<(&str, &str), Total> = BTreeMap::new();
    for (name, n) in tallies {
        let [SUM, source, currency, whose] = name.split(':').collect::<Vec<_>>()[..] else { continue };
        let total = totals.entry((source, currency)).or_insert_with(|| Total {
            source: source.to_owned(),
            currency: currency.to_owned(),
            ours_minor: 0,
            theirs_minor: 0,
        });
        if whose == "ours" {
            total.ours_minor = *n;
        } else {
            total.theirs_minor = *n;
        }
    }
    totals.into_values().collect()
}

/// What a run counted, without the sums.
pub fn counts(tallies: &Tallies) -> Tallies {
    tallies.iter().filter(|(name, _)| !name.starts_with(SUM)).map(|(name, n)| (name.clone(), *n)).collect()
}

fn cursor_of(at: OffsetDateTime, row: i64) -> Result<String, Error> {
    let at = at.format(&Rfc3339).map_err(|error| Error::Note(error.to_string()))?;
    Ok(format!("{at} {row}"))
}

fn place(cursor: &str) -> Option<(OffsetDateTime, i64)> {
    let (at, row) = cursor.split_once(' ')?;
    Some((OffsetDateTime::parse(at, &Rfc3339).ok()?, row.parse().ok()?))
}
