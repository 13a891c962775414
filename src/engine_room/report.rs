//! A finished run in numbers and words: for the page, for a terminal, for other programs. All of it is read off the run.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Account, Run, Step};
use crate::domain::instant::Instant;

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
