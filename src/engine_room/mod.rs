//! The Engine Room: one schedule of deliveries, through the pipeline and through the handler most people write, side by side.
//!
//! What lives here: the script and its address, the naive handler, and the shape of a finished run with everything that is
//! derived from it. What does not: any billing rule. A run is made of what the real intake and the real worker did, and every
//! number shown comes out of it.

pub mod address;
pub mod every_order;
pub mod naive;
pub mod report;
mod rows;
pub mod run;
pub mod scenario;
pub mod stand;
pub mod stop;
pub mod timetable;
mod trace;
pub mod visits;

use std::collections::BTreeMap;
use std::time::Duration;

use self::scenario::{Event, Script};
use self::stop::Place;
use crate::domain::event::Status;
use crate::domain::instant::Instant;
use crate::domain::plan::Plan;

/// Why a run did not come to its end. The visitor may try again.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    #[error("the database could not be used")]
    Database(#[from] sqlx::Error),
    #[error("the room's own schema could not be made")]
    Schema(#[from] crate::db::Error),
    #[error(
        "the Engine Room is closed: it needs a schema `engine_room` of its own, and this role may not make one; docs/roles.sql does"
    )]
    Closed,
    #[error("a delivery could not be stored")]
    Intake(#[from] crate::intake::AcceptError),
    #[error("somebody else's run takes longer than usual; try again in a moment")]
    Busy,
    #[error("no key pair could be made")]
    Key,
    #[error("a row that no script stored is in the room's schema")]
    StrangeRow,
    #[error("{0}")]
    Refused(String),
}

/// How often a test kills the real process with SIGKILL at each checkpoint where the room lets it stop. The test reads this
/// too, so the page says what is done.
pub const KILLS_A_CHECKPOINT: Option<u32> = Some(3);

/// A script, run to its end.
#[derive(Debug, Clone)]
pub struct Run {
    pub script: Script,
    /// One for each of [`Script::sends`].
    pub steps: Vec<Step>,
    pub took: Duration,
}

/// Both lanes after one delivery.
#[derive(Debug, Clone)]
pub struct Step {
    pub n: usize,
    pub at: Instant,
    pub event: Event,
    /// How often this event has been sent by now: 1 is the first.
    pub copy: usize,
    /// Sent again because a stop left an earlier delivery unanswered.
    pub resend: bool,
    /// Where the pipeline really was stopped during this delivery; a stop in effects that never ran is none.
    pub stopped: Option<Place>,
    /// The handler most people write, without repairs.
    pub naive: Account,
    pub pipeline: Account,
    /// What the pipeline did with it, in one line.
    pub outcome: String,
    pub trace: Vec<TraceLine>,
    /// The test account's rows after this delivery.
    pub rows: Rows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub plan: Plan,
    pub balance: i64,
}

/// One step inside the pipeline.
#[derive(Debug, Clone)]
pub struct TraceLine {
    /// `stored`, `claimed`, …
    pub step: String,
    /// The guard that held, in words.
    pub guard: String,
    /// The file to read about it.
    pub source: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub inbox: Vec<InboxRow>,
    pub receipts: usize,
    pub ledger: Vec<LedgerRow>,
    pub account: Option<AccountRow>,
}

#[derive(Debug, Clone)]
pub struct InboxRow {
    pub event: Event,
    pub key: String,
    pub kind: String,
    pub status: Status,
    pub reason: Option<String>,
    pub seen: u32,
    pub claims: u32,
    pub attempts: u32,
}

#[derive(Debug, Clone)]
pub struct LedgerRow {
    pub entry_key: String,
    pub delta: i64,
}

#[derive(Debug, Clone)]
pub struct AccountRow {
    pub plan: Plan,
    pub plan_changed_at: Option<Instant>,
}

impl Rows {
    fn of(&self, event: Event) -> Option<&InboxRow> {
        self.inbox.iter().find(|row| row.event == event)
    }

    pub fn grants(&self) -> usize {
        self.ledger.iter().filter(|entry| entry.entry_key.starts_with("pro:")).count()
    }
}

/// What the pipeline made of one delivery, read off the rows before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// The process stopped before anything was stored.
    Lost,
    /// Stored, and the process stopped before it could answer.
    Unanswered,
    /// Stored, and the process stopped before its effects counted.
    RolledBack,
    Applied,
    Ignored,
    /// Stored, still open.
    Waiting,
    /// A copy: counted, nothing else.
    Counted,
    /// A copy, counted; the event stored earlier ran to its end meanwhile.
    Completed,
}

impl Became {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lost => "not stored",
            Self::Unanswered => "stored",
            Self::RolledBack => "rolled back",
            Self::Applied => "applied",
            Self::Ignored => "ignored",
            Self::Waiting => "waits",
            Self::Counted => "counted",
            Self::Completed => "completed",
        }
    }

    pub const fn is_copy(self) -> bool {
        matches!(self, Self::Counted | Self::Completed)
    }

    /// It got past the door where copies stop.
    pub const fn is_let_in(self) -> bool {
        !matches!(self, Self::Lost | Self::Counted)
    }
}

impl Run {
    /// The rows after the last delivery.
    pub fn rows(&self) -> Rows {
        self.steps.last().map(|step| step.rows.clone()).unwrap_or_default()
    }

    pub fn naive(&self) -> Account {
        self.steps.last().map_or(naive::FRESH, |step| step.naive)
    }

    pub fn pipeline(&self) -> Account {
        self.steps.last().map_or(naive::FRESH, |step| step.pipeline)
    }

    /// What became of the delivery at this index of `steps`.
    pub fn became(&self, index: usize) -> Option<Became> {
        let step = self.steps.get(index)?;
        let before = index.checked_sub(1).and_then(|before| self.steps[before].rows.of(step.event));
        let settled = |row: &InboxRow| matches!(row.status, Status::Applied | Status::Ignored | Status::Dead);
        Some(match (before, step.rows.of(step.event)) {
            (_, None) => Became::Lost,
            (Some(before), Some(now)) if now.seen == before.seen => Became::Lost,
            (Some(before), Some(now)) if !settled(before) && settled(now) => Became::Completed,
            (Some(_), Some(_)) => Became::Counted,
            (None, Some(_)) if step.stopped.is_some_and(Place::is_unanswered) => Became::Unanswered,
            (None, Some(_)) if step.stopped.is_some() => Became::RolledBack,
            (None, Some(now)) => match now.status {
                Status::Applied => Became::Applied,
                Status::Ignored => Became::Ignored,
                Status::Received | Status::Processing | Status::Failed | Status::Parked | Status::Dead => Became::Waiting,
            },
        })
    }
}

/// How far the run of all schedules has come.
#[derive(Debug, Clone, Default)]
pub enum EveryOrder {
    #[default]
    NotRun,
    Running {
        done: usize,
        total: usize,
    },
    Done(EveryOrderResult),
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone)]
pub struct EveryOrderResult {
    pub schedules: usize,
    /// Ended with what the customer is owed.
    pub ended_right: usize,
    /// Wrote exactly one Pro grant.
    pub one_grant: usize,
    pub took: Duration,
    /// How many schedules ended in each state of the naive handler.
    pub naive_spread: BTreeMap<Account, usize>,
}
