//! Scheduling a reminder: it and its bottle together, or neither.

use std::collections::BTreeSet;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::accounts;
use crate::billing::apply::Rules;
use crate::billing::bottles::{self, Bottles};
use crate::billing::opening;
use crate::clock::Clock;
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::period::Period;
use crate::domain::zone::{ClockChange, Settled};

use super::Error;
use super::draft::Draft;
use super::list;
use super::row::{PausedFor, Reminder, stored};

#[derive(Debug, Clone)]
pub struct Scheduled {
    pub reminder: Reminder,
    /// What is left after it.
    pub bottles: Bottles,
    /// Clocks are changed at that time.
    pub change: Option<ClockChange>,
    /// This form had been taken already: nothing was written.
    pub again: bool,
}

/// Schedules what a form asks for, and takes its bottle from the period of this moment.
///
/// `form` is made with the form and comes back with it: pressed twice, sent from two tabs or sent again after a lost answer,
/// it is one reminder and one bottle. Of a sent-again form the first reminder is returned as it is by now.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::NoBottles`] are for the person.
pub async fn schedule(
    conn: &mut PgConnection,
    account: AccountId,
    draft: &Draft,
    form: Uuid,
    rules: &Rules,
    clock: Clock,
) -> Result<Scheduled, Error> {
    accounts::lock(&mut *conn, &BTreeSet::from([account])).await?;
    // After the lock: whoever waited for it past the end of a month takes from the new one.
    let now = clock.moment(&mut *conn).await?;
    if let Some(reminder) = list::of_form(&mut *conn, account, form).await? {
        let bottles = bottles::of(&mut *conn, account, now).await?;
        return Ok(Scheduled { reminder, bottles, change: None, again: true });
    }
    let settled = draft.when(now)?;
    let bottles = opening::open_period(&mut *conn, account, rules, now).await?;
    if bottles.left <= 0 {
        return Err(Error::NoBottles(bottles));
    }
    let id = insert(&mut *conn, account, draft, settled, form, bottles.period, now).await?;
    let bottles = bottles::take(&mut *conn, account, &bottles, id, 1, now).await?;
    accounts::choose_zone(&mut *conn, account, draft.zone().name()).await?;
    accounts::touch(&mut *conn, &[account]).await?;
    let reminder = list::find(conn, account, id).await?.ok_or(Error::NotFound)?;
    Ok(Scheduled { reminder, bottles, change: settled.change, again: false })
}

async fn insert(
    conn: &mut PgConnection,
    account: AccountId,
    draft: &Draft,
    settled: Settled,
    form: Uuid,
    period: Period,
    now: OffsetDateTime,
) -> sqlx::Result<ReminderId> {
    sqlx::query_scalar!(
        r#"insert into reminders (id, series, n, account_id, form_key, text, search, zone, local, month_day, repeat, due_at,
                                  status, period, created_at, changed_at)
           select s.id, s.id, 1, $1, $2, $3, $4, $5, $6, $7, $8, $9, 'scheduled', $10, $11, $11
           from (select nextval('reminders_id_seq') as id) s
           returning id as "id: ReminderId""#,
        account.0,
        form,
        draft.text(),
        draft.text().to_lowercase(),
        draft.zone().name(),
        stored(draft.local()),
        i16::from(draft.series().month_day),
        draft.repeat().as_str(),
        settled.at,
        period.to_string(),
        now
    )
    .fetch_one(conn)
    .await
}

/// The occurrence after `last`, whose bottle the caller takes if it has one: `from` says which period it would come from.
pub(super) struct Following<'a> {
    pub last: &'a Reminder,
    pub local: jiff::civil::DateTime,
    pub due_at: OffsetDateTime,
    pub pause: Option<PausedFor>,
    pub from: Option<Period>,
}

/// Writes it, once: whoever comes second finds it there.
pub(super) async fn follow(
    conn: &mut PgConnection,
    account: AccountId,
    next: &Following<'_>,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        r#"insert into reminders (series, n, account_id, text, search, zone, local, month_day, repeat, due_at, status, paused_for,
                                  period, created_at, changed_at)
           select series, n + 1, account_id, text, search, zone, $3, month_day, repeat, $4,
                  case when $5::text is null then 'scheduled' else 'paused' end, $5, $6, $7, $7
           from reminders where id = $1 and account_id = $2
           on conflict (series, n) do nothing"#,
        next.last.id.0,
        account.0,
        stored(next.local),
        next.due_at,
        next.pause.map(PausedFor::as_str),
        next.from.map(|p| p.to_string()),
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
