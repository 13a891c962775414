//! Somebody signs in: their account, and which customer they are.
//!
//! An event may have come first and have made the account, or come at this very moment; both sides use the same statements in
//! the same order, so one account comes of it whoever is faster. It is found by (tenant, Kinde user id) and never by an
//! e-mail address, which anybody can claim and Kinde may hand on.
//!
//! In the caller's transaction, like all that writes.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, KindeUserId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::ledger;

/// What became of the news that a customer id is somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// Nobody's until now: the events that waited for it can be run.
    New,
    Known,
    /// It is stored as another person's, and that stands.
    Somebodys(AccountId),
}

/// The account of this person. A new one has the bottles of the month it is made in.
pub async fn account(conn: &mut PgConnection, tenant: &str, user: &KindeUserId, now: OffsetDateTime) -> sqlx::Result<AccountId> {
    if let Some(account) = find(&mut *conn, tenant, user).await? {
        return Ok(account);
    }
    let made = accounts::create(&mut *conn, tenant, &BTreeSet::from([user.clone()]), now).await?;
    if let Some(account) = made.get(user).copied() {
        let period = Period::of(Instant::from_datetime(now));
        ledger::append(conn, &[ledger::free_entry(account, period, None)], now).await?;
        return Ok(account);
    }
    // Somebody else was faster and has committed, or there would have been no conflict to end the statement.
    find(conn, tenant, user).await?.ok_or(sqlx::Error::RowNotFound)
}

async fn find(conn: &mut PgConnection, tenant: &str, user: &KindeUserId) -> sqlx::Result<Option<AccountId>> {
    Ok(accounts::find(conn, tenant, std::slice::from_ref(&user.0)).await?.get(user).copied())
}

/// Stores that this customer is this account's. Whoever parks an event for want of it waits for the same lock, so re-arming in
/// this transaction misses none.
pub async fn learn_customer(
    conn: &mut PgConnection,
    source: Source,
    account: AccountId,
    customer: &CustomerId,
    now: OffsetDateTime,
) -> sqlx::Result<Learned> {
    accounts::lock_customers(&mut *conn, &BTreeSet::from([customer.clone()])).await?;
    let known = accounts::customers(&mut *conn, source, std::slice::from_ref(&customer.0)).await?;
    match known.get(customer).copied() {
        Some(other) if other != account => Ok(Learned::Somebodys(other)),
        Some(_) => Ok(Learned::Known),
        None => {
            accounts::learn(conn, source, &HashMap::from([(customer.clone(), account)]), now).await?;
            Ok(Learned::New)
        }
    }
}
