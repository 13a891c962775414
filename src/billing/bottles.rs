//! What a period has left, and taking from it.
//!
//! An entry that the next spend would write first (the Free entry, the Pro entry of a Pro account that has not used this
//! period yet) counts as present: what is shown is what can be spent, and no page has to write anything to show it.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts::{self, Standing};
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE, Plan};
use crate::ledger::{self, Sums};

use super::apply::Error;

/// The bottles of one account and period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottles {
    pub period: Period,
    pub plan: Plan,
    /// All that the period has been given.
    pub allowance: i64,
    pub used: i64,
    /// The bottles of Pro are among them: they stay for the month, whatever becomes of the plan.
    pub has_pro: bool,
    /// Never below zero.
    pub left: i64,
    /// When the next period begins, with bottles of its own.
    pub renews_at: OffsetDateTime,
    /// The entries that are counted here and not written yet.
    pub(super) to_write: ToWrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToWrite {
    pub free: bool,
    pub pro: bool,
}

/// What can be spent at this moment. Locks and writes nothing; who is about to spend holds the account's lock already.
///
/// # Errors
/// [`Error::Database`] with `RowNotFound` if there is no such account.
pub async fn of(conn: &mut PgConnection, account: AccountId, now: OffsetDateTime) -> Result<Bottles, Error> {
    let standing = accounts::standing_of(&mut *conn, account).await?.ok_or(sqlx::Error::RowNotFound)?;
    let period = Period::of(Instant::from_datetime(now));
    let sums = ledger::sums(conn, account, period).await?;
    Ok(count(&standing.at(Instant::from_datetime(now)), sums, period))
}

fn count(standing: &Standing, sums: Sums, period: Period) -> Bottles {
    let good = standing.plan == Plan::Pro && standing.past_due_since.is_none();
    let to_write = ToWrite { free: !sums.has_free, pro: !sums.has_pro && good };
    let coming = if to_write.free { FREE_BOTTLES } else { 0 } + if to_write.pro { PRO_BOTTLES_MORE } else { 0 };
    let left = sums.left + coming;
    Bottles {
        period,
        plan: standing.plan,
        allowance: left + sums.used,
        used: sums.used,
        has_pro: sums.has_pro || to_write.pro,
        left: left.max(0),
        renews_at: period.next().begins(),
        to_write,
    }
}

/// Takes one for an occurrence of a reminder. The caller holds the account's lock, has opened the period (`opening`) and seen
/// that one is left; the entry's key makes a second taking for the same occurrence nothing.
pub async fn take(
    conn: &mut PgConnection,
    account: AccountId,
    bottles: &Bottles,
    reminder: ReminderId,
    n: i32,
    now: OffsetDateTime,
) -> Result<Bottles, Error> {
    let entry = ledger::spend_entry(account, bottles.period, reminder, n);
    let taken = i64::try_from(ledger::append(conn, &[entry], now).await?).unwrap_or(0);
    Ok(Bottles { used: bottles.used + taken, left: bottles.left - taken, ..*bottles })
}

/// Gives an occurrence's bottle back to the period that it came from, once.
pub async fn give_back(
    conn: &mut PgConnection,
    account: AccountId,
    period: Period,
    reminder: ReminderId,
    n: i32,
    now: OffsetDateTime,
) -> Result<(), Error> {
    ledger::append(conn, &[ledger::return_entry(account, period, reminder, n)], now).await?;
    Ok(())
}
