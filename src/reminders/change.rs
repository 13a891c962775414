//! Changing a reminder: edit, snooze, done, resume, delete. Each under the account's lock.
//!
//! A form gives back the version it was made with. A change asked for twice is one change; a change made in another tab
//! meanwhile is never overwritten: the form comes back with the reminder as it is now.

use std::collections::BTreeSet;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

use crate::accounts;
use crate::billing::apply::Rules;
use crate::billing::{bottles, opening};
use crate::clock::Clock;
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::period::Period;
use crate::domain::zone::Zone;
use crate::outbox;

use super::draft::{Draft, Invalid};
use super::row::{Reminder, Status, stored};
use super::{Error, list};

/// For how long a reminder that rang is put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Snooze {
    TenMinutes,
    Hour,
    /// Tomorrow at its own time of day.
    Tomorrow,
    /// In a week at its own time of day.
    NextWeek,
}

impl Snooze {
    pub const ALL: [Self; 4] = [Self::TenMinutes, Self::Hour, Self::Tomorrow, Self::NextWeek];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TenMinutes => "10m",
            Self::Hour => "1h",
            Self::Tomorrow => "1d",
            Self::NextWeek => "7d",
        }
    }

    fn until(self, reminder: &Reminder, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let days = match self {
            Self::TenMinutes => return Some(now + Duration::minutes(10)),
            Self::Hour => return Some(now + Duration::HOUR),
            Self::Tomorrow => 1,
            Self::NextWeek => 7,
        };
        let zone = Zone::parse(&reminder.zone).unwrap_or_else(|_| Zone::utc());
        let date = zone.local(now).date().checked_add(jiff::Span::new().days(days)).ok()?;
        Some(zone.settle(date.to_datetime(reminder.local.time()))?.at)
    }
}

impl FromStr for Snooze {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| Error::Word(text.to_owned(), "time to snooze for"))
    }
}

/// What a form that changes a reminder meets.
enum Turn {
    Ours(Box<Reminder>),
    /// The same change was made already, by the same form.
    Made(Box<Reminder>),
}

/// Changes text, time and repeat of a reminder that has not rung. It keeps its bottle; a paused one stays paused.
///
/// # Errors
/// [`Error::NotNow`] once it has rung: then snooze it, or schedule another.
pub async fn edit(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    version: i32,
    draft: &Draft,
    clock: Clock,
) -> Result<Reminder, Error> {
    let change = format!("{version} edit {}", digest(draft));
    let reminder = match begin(&mut *conn, account, id, version, &change).await? {
        Turn::Made(reminder) => return Ok(*reminder),
        Turn::Ours(reminder) => reminder,
    };
    if !reminder.status.is_upcoming() || reminder.rung > 0 {
        return Err(Error::NotNow(reminder));
    }
    let now = clock.moment(&mut *conn).await?;
    let mut draft = draft.clone();
    draft.keep_day(reminder.series());
    let settled = draft.when(now)?;
    sqlx::query!(
        "update reminders set text = $4, search = $5, zone = $6, local = $7, month_day = $8, repeat = $9, due_at = $10,
                              changed_at = $11, version = version + 1, last_change = $12
         where id = $1 and account_id = $2 and version = $3",
        id.0,
        account.0,
        version,
        draft.text(),
        draft.text().to_lowercase(),
        draft.zone().name(),
        stored(draft.local()),
        i16::from(draft.series().month_day),
        draft.repeat().as_str(),
        settled.at,
        now,
        change
    )
    .execute(&mut *conn)
    .await?;
    accounts::choose_zone(&mut *conn, account, draft.zone().name()).await?;
    changed(conn, account, id).await
}

/// Lets a reminder that rang ring once more, later. It takes no further bottle.
///
/// # Errors
/// [`Error::NotNow`] unless it has rung and is not done.
pub async fn snooze(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    version: i32,
    snooze: Snooze,
    clock: Clock,
) -> Result<Reminder, Error> {
    let change = format!("{version} snooze {}", snooze.as_str());
    let reminder = match begin(&mut *conn, account, id, version, &change).await? {
        Turn::Made(reminder) => return Ok(*reminder),
        Turn::Ours(reminder) => reminder,
    };
    if reminder.status != Status::Due && !reminder.is_snoozed() {
        return Err(Error::NotNow(reminder));
    }
    let now = clock.moment(&mut *conn).await?;
    let until = snooze.until(&reminder, now).ok_or(Invalid::NoTime)?;
    sqlx::query!(
        "update reminders set status = 'scheduled', due_at = $4, changed_at = $5, version = version + 1, last_change = $6
         where id = $1 and account_id = $2 and version = $3",
        id.0,
        account.0,
        version,
        until,
        now,
        change
    )
    .execute(&mut *conn)
    .await?;
    changed(conn, account, id).await
}

/// Marks one that rang as done; one that is done already stays so. A letter about it that has not gone out yet stays here: it would
/// remind of what is done.
///
/// # Errors
/// [`Error::NotNow`] if it has not rung yet.
pub async fn done(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    version: i32,
    clock: Clock,
) -> Result<Reminder, Error> {
    let change = format!("{version} done");
    let reminder = match begin(&mut *conn, account, id, version, &change).await {
        Ok(Turn::Made(reminder)) => return Ok(*reminder),
        Ok(Turn::Ours(reminder)) => reminder,
        Err(Error::Changed(reminder)) if reminder.status == Status::Done => return Ok(*reminder),
        Err(error) => return Err(error),
    };
    match reminder.status {
        Status::Done => return Ok(*reminder),
        Status::Due => {}
        _ if reminder.is_snoozed() => {}
        _ => return Err(Error::NotNow(reminder)),
    }
    let now = clock.moment(&mut *conn).await?;
    sqlx::query!(
        "update reminders set status = 'done', done_at = $4, changed_at = $4, version = version + 1, last_change = $5,
                              mail = case when mail = 'waiting' then 'none' else mail end
         where id = $1 and account_id = $2 and version = $3",
        id.0,
        account.0,
        version,
        now,
        change
    )
    .execute(&mut *conn)
    .await?;
    outbox::withdraw(&mut *conn, account, id, now).await?;
    changed(conn, account, id).await
}

/// Lets a paused repeat go on, with a bottle of this period, at its next time that is still to come.
///
/// # Errors
/// [`Error::NoBottles`], and [`Error::Invalid`] if its time has passed and it does not repeat any more or its zone is unknown.
pub async fn resume(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    version: i32,
    rules: &Rules,
    clock: Clock,
) -> Result<Reminder, Error> {
    let change = format!("{version} resume");
    let reminder = match begin(&mut *conn, account, id, version, &change).await? {
        Turn::Made(reminder) => return Ok(*reminder),
        Turn::Ours(reminder) => reminder,
    };
    if !matches!(reminder.status, Status::Paused(_)) {
        return Err(Error::NotNow(reminder));
    }
    let now = clock.moment(&mut *conn).await?;
    let zone = Zone::parse(&reminder.zone).map_err(Invalid::from)?;
    let (local, due_at) = match zone.settle(reminder.local) {
        Some(settled) if settled.at > now => (reminder.local, settled.at),
        _ => {
            let (local, settled) = reminder.repeat.next(reminder.series(), &zone, now).ok_or(Invalid::Past)?;
            (local, settled.at)
        }
    };
    let found = opening::open_period(&mut *conn, account, rules, now).await?;
    if found.left <= 0 {
        return Err(Error::NoBottles(found));
    }
    bottles::take(&mut *conn, account, &found, reminder.series, reminder.n, now).await?;
    sqlx::query!(
        "update reminders set status = 'scheduled', paused_for = null, period = $4, local = $5, due_at = $6, changed_at = $7,
                              version = version + 1, last_change = $8
         where id = $1 and account_id = $2 and version = $3",
        id.0,
        account.0,
        version,
        found.period.to_string(),
        stored(local),
        due_at,
        now,
        change
    )
    .execute(&mut *conn)
    .await?;
    changed(conn, account, id).await
}

/// What deleting did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    /// The period that got its bottle back: the reminder had never rung.
    pub returned_to: Option<Period>,
}

/// Deletes a reminder; of a repeat, everything still to come. Its words are gone, and so is a letter not sent yet.
///
/// # Errors
/// [`Error::Changed`] if the form is older than the last change: what is deleted should be what was seen.
pub async fn delete(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    version: i32,
    clock: Clock,
) -> Result<Deleted, Error> {
    let change = format!("{version} delete");
    accounts::lock(&mut *conn, &BTreeSet::from([account])).await?;
    let reminder = list::find_any(&mut *conn, account, id).await?.ok_or(Error::NotFound)?;
    if reminder.status == Status::Deleted {
        return Ok(Deleted { returned_to: reminder.period.filter(|_| reminder.rung == 0) });
    }
    if reminder.version != version {
        return Err(Error::Changed(Box::new(reminder)));
    }
    let now = clock.moment(&mut *conn).await?;
    sqlx::query!(
        "update reminders set status = 'deleted', paused_for = null, text = '', search = '', mail_error = null, changed_at = $4,
                              version = version + 1, last_change = $5
         where id = $1 and account_id = $2 and version = $3",
        id.0,
        account.0,
        version,
        now,
        change
    )
    .execute(&mut *conn)
    .await?;
    let returned_to = reminder.period.filter(|_| reminder.rung == 0);
    if let Some(period) = returned_to {
        bottles::give_back(&mut *conn, account, period, reminder.series, reminder.n, now).await?;
    }
    outbox::withdraw(&mut *conn, account, reminder.id, now).await?;
    accounts::touch(conn, &[account]).await?;
    Ok(Deleted { returned_to })
}

async fn begin(conn: &mut PgConnection, account: AccountId, id: ReminderId, version: i32, change: &str) -> Result<Turn, Error> {
    accounts::lock(&mut *conn, &BTreeSet::from([account])).await?;
    let reminder = list::find(conn, account, id).await?.ok_or(Error::NotFound)?;
    if reminder.version == version {
        Ok(Turn::Ours(Box::new(reminder)))
    } else if reminder.last_change.as_deref() == Some(change) {
        Ok(Turn::Made(Box::new(reminder)))
    } else {
        Err(Error::Changed(Box::new(reminder)))
    }
}

async fn changed(conn: &mut PgConnection, account: AccountId, id: ReminderId) -> Result<Reminder, Error> {
    accounts::touch(&mut *conn, &[account]).await?;
    list::find(conn, account, id).await?.ok_or(Error::NotFound)
}

/// Two forms that say the same are the same change.
fn digest(draft: &Draft) -> String {
    let said = format!("{}\n{}\n{}\n{}", draft.text(), draft.local(), draft.zone(), draft.repeat());
    Sha256::digest(said).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
