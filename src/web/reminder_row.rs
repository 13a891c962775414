//! A reminder as a page shows it: its words, when it is, how far it has come, and what can be done with it.

use crate::domain::ids::ReminderId;
use crate::domain::zone::{ClockChange, Zone};
use crate::reminders::repeat::Repeat;
use crate::reminders::row::{Mail, PausedFor, Reminder, Status};

use super::day_words::{Days, Words};

/// Characters of what a mail server said.
const SAID_MAX: usize = 200;

#[derive(Debug)]
pub struct Row {
    pub id: ReminderId,
    pub version: i32,
    pub text: String,
    pub when: Words,
    pub repeat: Option<&'static str>,
    pub state: State,
    /// Clocks are changed at its time.
    pub hint: Option<String>,
    pub mark: Option<Mark>,
    /// What the mark means for the person.
    pub more: Option<String>,
    /// When it was done.
    pub done: Option<Words>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Upcoming,
    /// It rang, and rings once more.
    Snoozed,
    Paused,
    Due,
    Done,
}

/// A word and a shape; the colour only repeats them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub word: &'static str,
    pub tone: &'static str,
    /// A path in a box of 16 by 16.
    pub shape: &'static str,
}

const PAUSED: Mark = Mark { word: "Paused", tone: "wait", shape: "M2 2h12v12H2zM6.2 5.5v5M9.8 5.5v5" };
const SNOOZED: Mark =
    Mark { word: "Snoozed", tone: "wait", shape: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M8 4.5V8l2.5 1.5" };
const WAITING: Mark = Mark { word: "Mail is on its way", tone: "wait", shape: "M1.5 3.5h13v9h-13zM2 4l6 4.8L14 4" };
const SENT: Mark =
    Mark { word: "Sent by mail", tone: "good", shape: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.2 2.2L11.2 6" };
const FAILED: Mark = Mark { word: "Mail could not be sent", tone: "bad", shape: "M8 1.6 15 14.2H1zM8 6v4M8 12v.1" };

impl Row {
    pub fn new(reminder: &Reminder, days: &Days) -> Self {
        let state = match reminder.status {
            Status::Paused(_) => State::Paused,
            Status::Scheduled if reminder.is_snoozed() => State::Snoozed,
            Status::Scheduled => State::Upcoming,
            Status::Due => State::Due,
            Status::Done | Status::Deleted => State::Done,
        };
        let (mark, more) = match (reminder.status, &reminder.mail) {
            (Status::Paused(PausedFor::Bottles), _) => {
                (Some(PAUSED), Some("No bottle was left when its turn came. It goes on when you say so.".to_owned()))
            }
            (Status::Paused(PausedFor::Zone), _) => {
                (Some(PAUSED), Some("Its time zone is no longer known. Edit it and choose another one.".to_owned()))
            }
            (Status::Scheduled, _) if reminder.is_snoozed() => (Some(SNOOZED), None),
            (Status::Due | Status::Done, Mail::Failed { error }) => (Some(FAILED), Some(failure(error))),
            (Status::Due, Mail::Waiting) => (Some(WAITING), None),
            (Status::Due | Status::Done, Mail::Sent) => (Some(SENT), None),
            _ => (None, None),
        };
        Self {
            id: reminder.id,
            version: reminder.version,
            text: reminder.text.clone(),
            when: days.when(reminder.due_at, &reminder.zone),
            repeat: repeats(reminder.repeat),
            state,
            hint: (state == State::Upcoming).then(|| clock_change(reminder)).flatten(),
            mark,
            more,
            done: reminder.done_at.map(|at| days.here_at(at)),
        }
    }

    /// Done and snooze are for what has rung.
    pub fn has_rung(&self) -> bool {
        matches!(self.state, State::Due | State::Snoozed)
    }

    pub fn is(&self, state: &str) -> bool {
        let name = match self.state {
            State::Upcoming => "upcoming",
            State::Snoozed => "snoozed",
            State::Paused => "paused",
            State::Due => "due",
            State::Done => "done",
        };
        name == state
    }
}

fn failure(error: &str) -> String {
    let said: String = error.chars().filter(|c| !c.is_control()).take(SAID_MAX).collect();
    match said.trim().trim_end_matches('.') {
        "" => "It is due here all the same.".to_owned(),
        said => {
            let mut rest = said.chars();
            let first = rest.next().into_iter().flat_map(char::to_uppercase).collect::<String>();
            format!("{first}{}. It is due here all the same.", rest.as_str())
        }
    }
}

/// "every day"; nothing for one that does not repeat.
pub const fn repeats(repeat: Repeat) -> Option<&'static str> {
    match repeat {
        Repeat::Never => None,
        Repeat::Daily => Some("every day"),
        Repeat::Weekdays => Some("Monday to Friday"),
        Repeat::Weekly => Some("every week"),
        Repeat::Monthly => Some("every month"),
    }
}

/// What a change of the clocks does to the time that was asked for.
pub fn clock_change(reminder: &Reminder) -> Option<String> {
    let settled = Zone::parse(&reminder.zone).ok()?.settle(reminder.local)?;
    // Snoozed, it rings at another time than was asked for.
    if settled.at != reminder.due_at {
        return None;
    }
    let asked = reminder.local.strftime("%H:%M");
    Some(match settled.change? {
        ClockChange::Skipped { shown } => {
            format!("Clocks go forward that day and never show {asked}; it rings at {} instead.", shown.strftime("%H:%M"))
        }
        ClockChange::Twice => format!("Clocks are set back that day and show {asked} twice; it rings the first time."),
    })
}
