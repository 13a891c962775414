//! The Engine Room: one schedule of deliveries, through the pipeline and through the handler most people write, side by side.
//!
//! What lives here: the script and its address, the naive handler, and the shape of a finished run with everything that is
//! derived from it. What does not: any billing rule. A run is made of what the real intake and the real worker did, and every
//! number shown comes out of it.

pub mod address;
pub mod scenario;
pub mod naive;
pub mod stand;
pub mod run;
pub mod every_order;
mod rows;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use self::scenario::{Event, Place, Script};
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

/// The run in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub copies_arrived: usize,
    pub events_stored: usize,
    pub copies_dropped: usize,
    pub interrupted: usize,
    pub naive: AccountJson,
    pub pipeline: PipelineJson,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct AccountJson {
    pub plan: &'static str,
    pub balance: i64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct PipelineJson {
    pub plan: &'static str,
    pub balance: i64,
    pub grants: usize,
}

/// The run as other programs read it. Its names are a promise.
#[derive(Debug, Serialize)]
pub struct RunJson<'a> {
    deliveries: Vec<DeliveryJson<'a>>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct DeliveryJson<'a> {
    n: usize,
    event: &'static str,
    naive: AccountJson,
    pipeline: OutcomeJson<'a>,
}

#[derive(Debug, Serialize)]
struct OutcomeJson<'a> {
    plan: &'static str,
    balance: i64,
    outcome: &'a str,
}

impl From<Account> for AccountJson {
    fn from(account: Account) -> Self {
        Self { plan: account.plan.as_str(), balance: account.balance }
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

    pub fn summary(&self) -> Summary {
        let rows = self.rows();
        let pipeline = self.pipeline();
        Summary {
            copies_arrived: self.steps.len(),
            events_stored: rows.inbox.len(),
            copies_dropped: rows.inbox.iter().map(|row| row.seen.saturating_sub(1) as usize).sum(),
            interrupted: self.steps.iter().filter(|step| step.stopped.is_some()).count(),
            naive: self.naive().into(),
            pipeline: PipelineJson { plan: pipeline.plan.as_str(), balance: pipeline.balance, grants: rows.grants() },
        }
    }

    pub fn json(&self) -> RunJson<'_> {
        let deliveries = self.steps.iter().map(|step| DeliveryJson {
            n: step.n,
            event: step.event.name(),
            naive: step.naive.into(),
            pipeline: OutcomeJson { plan: step.pipeline.plan.as_str(), balance: step.pipeline.balance, outcome: &step.outcome },
        });
        RunJson { deliveries: deliveries.collect(), summary: self.summary() }
    }

    /// The run for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        line(&mut out, "#", "at (UTC)", "delivery", "naive handler", "Bottle", "what Bottle did");
        for step in &self.steps {
            line(
                &mut out,
                &step.n.to_string(),
                &format!("{} {}", day(step.at), time_of_day(step.at)),
                &delivery_words(step),
                &account_words(step.naive),
                &account_words(step.pipeline),
                &step.outcome,
            );
        }
        let summary = self.summary();
        let _ = write!(
            out,
            "\n{} deliveries arrived, {} events stored, {} copies counted and dropped, {} stopped on the way.\n\
             Bottle: {}, {}; the Pro allowance was granted {}. Naive handler: {}, {}; {}.\n",
            summary.copies_arrived,
            summary.events_stored,
            summary.copies_dropped,
            summary.interrupted,
            summary.pipeline.plan,
            thousands(summary.pipeline.balance),
            times(summary.pipeline.grants),
            summary.naive.plan,
            thousands(summary.naive.balance),
            verdict(self.naive(), self.script.owed()).map_or_else(|| "right, here".into(), |off| format!("that is {off}")),
        );
        out
    }
}

fn line(out: &mut String, n: &str, at: &str, delivery: &str, naive: &str, ours: &str, did: &str) {
    let _ = writeln!(out, "{n:>2}  {at:<15}  {delivery:<16}  {naive:<13}  {ours:<10}  {did}");
}

fn account_words(account: Account) -> String {
    format!("{:<4}  {}", account.plan.as_str(), thousands(account.balance))
}

/// `UP, copy 2`, and whether it was stopped or sent again.
pub fn delivery_words(step: &Step) -> String {
    let copy = if step.copy == 1 { String::new() } else { format!(", copy {}", step.copy) };
    let again = if step.resend { ", again" } else { "" };
    let stop = if step.stopped.is_some() { ", stop" } else { "" };
    format!("{}{copy}{again}{stop}", step.event.name())
}

/// How far an ending is from what the customer is owed; none if it is right.
pub fn verdict(end: Account, owed: Account) -> Option<String> {
    match end.balance - owed.balance {
        0 if end.plan == owed.plan => None,
        0 => Some("on the wrong plan".into()),
        more if more > 0 => Some(format!("{} too many", thousands(more))),
        less => Some(format!("{} too few", thousands(-less))),
    }
}

pub fn times(count: usize) -> String {
    match count {
        0 => "never".into(),
        1 => "once".into(),
        2 => "twice".into(),
        more => format!("{more} times"),
    }
}

/// `2,950`.
pub fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "−" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `21 Oct`, UTC.
pub fn day(at: Instant) -> String {
    let at = at.datetime();
    format!("{} {}", at.day(), &at.month().to_string()[..3])
}

/// `10:03:00`, UTC.
pub fn time_of_day(at: Instant) -> String {
    let at = at.datetime();
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
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
