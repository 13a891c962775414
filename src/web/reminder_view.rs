//! The page of one reminder, put together.

use askama::Template;
use sqlx::PgPool;
use uuid::Uuid;

use super::day_words::Days;
use super::page::Frame;
use super::person::Person;
use super::reminder::is_editable;
use super::reminder_form::{Form, Mark, Problem, Typed};
use super::reminder_row::Row;
use crate::accounts;
use crate::clock::Clock;
use crate::db::READ_ONLY;
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::zone::Zone;
use crate::reminders::repeat::Repeat;
use crate::reminders::row::Reminder;
use crate::reminders::{Error, list};

#[derive(Debug)]
pub struct Found {
    pub reminder: Reminder,
    days: Days,
}

/// What stands between an edit and the reminder.
#[derive(Debug)]
pub enum Clash {
    None,
    Wrong(Problem),
    /// It was changed elsewhere since the form was made.
    Changed,
    /// It has rung since.
    TooLate,
}

#[derive(Template)]
#[template(path = "reminder.html")]
struct ReminderPage<'a> {
    frame: Frame,
    row: Row,
    heading: &'a str,
    /// An edit, or what was typed as a new reminder.
    form: Option<Form>,
    changed: bool,
    too_late: bool,
    is_repeat: bool,
    has_rung: bool,
    /// It took a bottle that comes back with it.
    returns: bool,
    back: &'static str,
}

/// # Errors
/// Those of the rooms that are read.
pub async fn find(pool: &PgPool, account: AccountId, id: ReminderId) -> Result<Option<Found>, Error> {
    let mut conn = pool.begin_with(READ_ONLY).await?;
    let Some(reminder) = list::find(&mut *conn, account, id).await? else { return Ok(None) };
    let now = Clock::Database.now(&mut *conn).await?;
    let zone = accounts::profile(&mut *conn, account).await?.and_then(|p| p.zone);
    let home = zone.and_then(|z| Zone::parse(&z).ok()).unwrap_or_else(Zone::utc);
    Ok(Some(Found { reminder, days: Days::new(now, home) }))
}

/// # Errors
/// Only if the template itself fails.
pub fn render(person: &Person, found: &Found, typed: Typed, clash: Clash) -> Result<String, askama::Error> {
    let Found { reminder, days } = found;
    let edit = |typed| Form::new(format!("/reminders/{}", reminder.id), "Save", Mark::Version(reminder.version), typed, days);
    let (changed, too_late) = (matches!(clash, Clash::Changed), matches!(clash, Clash::TooLate));
    let form = match clash {
        // What was typed is not lost: it can become a reminder of its own.
        Clash::TooLate => {
            Some(Form::new("/reminders".to_owned(), "Schedule it as a new one", Mark::Key(Uuid::new_v4()), typed, days))
        }
        _ if !is_editable(reminder) => None,
        Clash::Wrong(problem) => Some(edit(typed).with_problem(Some(problem))),
        Clash::Changed => Some(Form { submit: "Save this over it", ..edit(typed) }),
        Clash::None => Some(edit(typed)),
    };
    let heading = match (&form, changed, too_late) {
        (_, true, _) => "It was changed in another tab",
        (_, _, true) => "It has rung since you opened it",
        (Some(_), ..) => "Edit a reminder",
        (None, ..) => "A reminder",
    };
    ReminderPage {
        frame: Frame::new(format!("{heading} · Bottle"), "reminders").of(Some(person)),
        row: Row::new(reminder, days),
        heading,
        form,
        changed,
        too_late,
        is_repeat: reminder.repeat != Repeat::Never,
        has_rung: reminder.rung > 0,
        returns: reminder.rung == 0 && reminder.period.is_some(),
        back: "",
    }
    .render()
}
