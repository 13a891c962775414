//! What happens when a reminder's time comes: it is due, a letter about it lies in the outbox, and of a repeat the next
//! occurrence is scheduled with a bottle of its own. All in the caller's transaction, so a crash leaves all of it or nothing.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::accounts;
use crate::billing::apply::Rules;
use crate::billing::{bottles, opening};
use crate::checkpoint::{Checkpoints, Step};
use crate::clock::Clock;
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::zone::Zone;
use crate::outbox::{self, Letter, Outgoing};

use super::Error;
use super::repeat::Repeat;
use super::row::{PausedFor, Reminder, Row};
use super::schedule::{Following, follow};

/// Reminders of one account that ring together.
const TOGETHER: i64 = 100;

/// Mail is set up: letters are written.
#[derive(Debug, Clone)]
pub struct Letters {
    /// The address of the page on which reminders are snoozed and done.
    pub page: String,
}

/// What a turn at one account came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Somebody else has the account; they, or the next turn, will see to it.
    Busy,
    Some(usize),
}

/// An account with a reminder whose time has come, and since when.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    pub since: OffsetDateTime,
    pub account: AccountId,
}

/// Accounts with reminders whose time has come, the longest overdue first; those that come `after` one of them.
pub async fn waiting(db: impl PgExecutor<'_>, after: Option<Waits>, limit: i64, clock: Clock) -> sqlx::Result<Vec<Waits>> {
    sqlx::query_as!(
        Waits,
        r#"select min(due_at) as "since!", account_id as "account: AccountId" from reminders
           where status = 'scheduled' and due_at <= coalesce($1, now())
           group by account_id
           having $3::timestamptz is null or (min(due_at), account_id) > ($3, $4::bigint)
           order by min(due_at), account_id limit $2"#,
        clock.param(),
        limit,
        after.map(|waits| waits.since),
        after.map(|waits| waits.account.0)
    )
    .fetch_all(db)
    .await
}

/// Rings what is due of one account. Without `letters`, only on its pages.
pub async fn ring(
    conn: &mut PgConnection,
    account: AccountId,
    rules: &Rules,
    letters: Option<&Letters>,
    checkpoints: &Checkpoints,
    clock: Clock,
) -> Result<Rung, Error> {
    if !accounts::try_lock(&mut *conn, account).await? {
        return Ok(Rung::Busy);
    }
    let now = clock.moment(&mut *conn).await?;
    let due = due(&mut *conn, account, now).await?;
    if due.is_empty() {
        return Ok(Rung::Some(0));
    }
    checkpoints.reach(Step::Ringing, &[]).await?;
    let profile = accounts::profile(&mut *conn, account).await?;
    let address = profile.as_ref().and_then(accounts::Profile::mail_address);
    for reminder in &due {
        let post = letters.zip(address).map(|(letters, to)| outgoing(account, reminder, letters, to));
        mark(&mut *conn, account, reminder, post.is_some(), now).await?;
        if let Some(post) = post {
            outbox::add(&mut *conn, &post, now).await?;
        }
        if reminder.repeat != Repeat::Never && reminder.rung == 0 {
            go_on(&mut *conn, account, reminder, rules, now).await?;
        }
    }
    accounts::touch(&mut *conn, &[account]).await?;
    checkpoints.reach(Step::Rung, &[]).await?;
    Ok(Rung::Some(due.len()))
}

async fn due(conn: &mut PgConnection, account: AccountId, now: OffsetDateTime) -> Result<Vec<Reminder>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: ReminderId", series as "series: ReminderId", n, text, zone, local, month_day, repeat, due_at, status,
                  paused_for, period, rung, version, last_change, mail, mail_error, created_at, changed_at, done_at, listed_at
           from reminders where account_id = $1 and list = 'upcoming' and status = 'scheduled' and listed_at <= $2
           order by listed_at, id limit $3"#,
        account.0,
        now,
        TOGETHER
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::read).collect()
}

async fn mark(
    conn: &mut PgConnection,
    account: AccountId,
    reminder: &Reminder,
    post: bool,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update reminders set status = 'due', rung = rung + 1, version = version + 1, last_change = null, mail = $3,
                              mail_error = null, changed_at = $4
         where id = $1 and account_id = $2 and status = 'scheduled'",
        reminder.id.0,
        account.0,
        if post { "waiting" } else { "none" },
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Schedules the occurrence after this one, or pauses the repeat where that is not possible.
async fn go_on(
    conn: &mut PgConnection,
    account: AccountId,
    reminder: &Reminder,
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let paused =
        |pause| Following { last: reminder, local: reminder.local, due_at: reminder.due_at, pause: Some(pause), from: None };
    let Ok(zone) = Zone::parse(&reminder.zone) else {
        tracing::warn!(reminder = %reminder.id, zone = reminder.zone, "a repeat is paused: its time zone is no longer known");
        follow(conn, account, &paused(PausedFor::Zone), now).await?;
        return Ok(());
    };
    let Some((local, settled)) = reminder.repeat.next(reminder.series(), &zone, now.max(reminder.due_at)) else { return Ok(()) };
    let found = opening::open_period(&mut *conn, account, rules, now).await?;
    if found.left <= 0 {
        let next = Following { local, due_at: settled.at, ..paused(PausedFor::Bottles) };
        follow(conn, account, &next, now).await?;
        return Ok(());
    }
    let next = Following { last: reminder, local, due_at: settled.at, pause: None, from: Some(found.period) };
    if follow(&mut *conn, account, &next, now).await? {
        bottles::take(conn, account, &found, reminder.series, reminder.n + 1, now).await?;
    }
    Ok(())
}

/// How the letter about it went. Written by the courier with the outbox row that it tells of; a reminder that rang again, or
/// is deleted, is told nothing of an older letter.
pub async fn mail_went(
    conn: &mut PgConnection,
    account: AccountId,
    id: ReminderId,
    rung: i32,
    outcome: Result<(), &str>,
) -> sqlx::Result<()> {
    let (mail, error) = match outcome {
        Ok(()) => ("sent", None),
        Err(error) => ("failed", Some(error)),
    };
    sqlx::query!(
        "update reminders set mail = $4, mail_error = $5
         where id = $1 and account_id = $2 and rung = $3 and status <> 'deleted'",
        id.0,
        account.0,
        rung,
        mail,
        error
    )
    .execute(&mut *conn)
    .await?;
    accounts::touch(conn, &[account]).await
}

/// One letter each time it rings.
fn letter_key(id: ReminderId, rung: i32) -> String {
    format!("reminder:{id}:{rung}")
}

fn outgoing(account: AccountId, reminder: &Reminder, letters: &Letters, to: &str) -> Outgoing {
    let rung = reminder.rung + 1;
    let when = reminder.shown().strftime("%A, %-d %B %Y, %H:%M").to_string();
    Outgoing {
        key: letter_key(reminder.id, rung),
        account,
        recipient: to.to_owned(),
        letter: Letter {
            subject: format!("Reminder: {}", shortened(&reminder.text)),
            text: format!(
                "{}\n\n{when} ({})\n\nSnooze it or mark it as done: {}\n\nYou get this letter because you asked Bottle to remind you.\n",
                reminder.text, reminder.zone, letters.page
            ),
            reminder: reminder.id,
            rung,
        },
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
