//! Reminders: kept, changed, rung, and shown.
//!
//! ```text
//!             ┌───────────────── snooze ──────────────────┐
//!             ▼                                           │
//! schedule ▶ scheduled ── its time comes (`ring`) ──────▶ due ── done ▶ done
//!             ▲   │                 │
//!      resume │   └── delete ▶ deleted (its bottle goes back, unless it has rung)
//!             │                     └── a repeat: the next occurrence is scheduled, with a bottle of its own,
//!           paused ◀──────────────────── or paused if none is left
//! ```
//! Reading order: `repeat` (pure: when it comes next), `draft` (what a form says, checked), `row` (what is stored),
//! `schedule`, `change`, `ring` (in the caller's transaction, under the account's lock), `list` (reads), `calendar` and `feed`.
//!
//! Every function takes the caller's connection first; the caller begins, commits, and rolls back after an error. Lock order
//! everywhere: the account, then its reminders, then the outbox.

use crate::accounts;
use crate::billing::apply;
use crate::billing::bottles::Bottles;

pub mod calendar;
pub mod change;
pub mod draft;
pub mod feed;
pub mod list;
pub mod repeat;
pub mod ring;
pub mod row;
pub mod schedule;

use draft::Invalid;
use row::{Reminder, Status};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// For the person who filled in the form.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// For the person too: what is left, and when more comes.
    #[error("no bottle of {} is left; the next period begins on {}", .0.period, .0.renews_at.date())]
    NoBottles(Bottles),
    /// There is none with that id, or it is somebody else's.
    #[error("there is no such reminder")]
    NotFound,
    /// Another tab, or the clock, changed it since the form was made. It is as given here now.
    #[error("the reminder has changed since the page was loaded")]
    Changed(Box<Reminder>),
    /// What it has come to cannot be changed like that.
    #[error("a reminder that is {} cannot be changed like that", .0.status)]
    NotNow(Box<Reminder>),
    #[error("the reminders could not be read or written")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Accounts(#[from] accounts::Error),
    #[error(transparent)]
    Billing(#[from] apply::Error),
    #[error(transparent)]
    Break(#[from] crate::checkpoint::Break),
    #[error("reminder {0} cannot be read: {1}")]
    Unreadable(crate::domain::ids::ReminderId, String),
    #[error("`{0}` is no {1}")]
    Word(String, &'static str),
}

impl Status {
    /// Whether it still has its way before it.
    pub const fn is_upcoming(self) -> bool {
        matches!(self, Self::Scheduled | Self::Paused(_))
    }
}
