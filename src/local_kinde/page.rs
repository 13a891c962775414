//! The index page and the record of attempts it lists. Both live as long as the process: what matters is in Bottle's database.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;

use super::events;
use super::people;
use super::sender::{Attempt, Outcome};

/// The latest attempts, shared.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<VecDeque<Attempt>>>);

const KEPT: usize = 1000;

impl Record {
    pub fn add(&self, attempt: Attempt) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(attempt);
    }

    fn newest_first(&self) -> Vec<Attempt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

/// # Errors
/// The template cannot be written out.
pub fn index(url: &str, webhook_url: Option<&str>, under_way: usize, record: &Record) -> Result<String, askama::Error> {
    let rows = record.newest_first().into_iter().map(Row::from).collect();
    Index { url, webhook_url, under_way, rows, events: &events::NAMES, users: &people::NAMES, kept: KEPT }.render()
}

#[derive(Template)]
#[template(path = "local_kinde.html")]
struct Index<'a> {
    url: &'a str,
    webhook_url: Option<&'a str>,
    under_way: usize,
    rows: Vec<Row>,
    events: &'a [&'a str],
    users: &'a [&'a str],
    kept: usize,
}

struct Row {
    at: String,
    attempt: Attempt,
    answer: String,
    next_try: String,
}

impl From<Attempt> for Row {
    fn from(attempt: Attempt) -> Self {
        let next_try = match attempt.next_try {
            Some(at) => clock(at),
            None if attempt.outcome.is_delivered() => "delivered".into(),
            None => "given up".into(),
        };
        Self { at: clock(attempt.at), answer: in_words(&attempt.outcome), next_try, attempt }
    }
}

/// The answer on one line; the command line prints the same.
pub fn in_words(outcome: &Outcome) -> String {
    let answer = |status: &u16, body: &str| {
        let words: Vec<&str> = body.split_whitespace().collect();
        format!("{status} {}", words.join(" ")).trim_end().to_owned()
    };
    match outcome {
        Outcome::Answered { status, body } => answer(status, body),
        Outcome::AnswerDropped { status, body } => format!("answer lost on purpose ({})", answer(status, body)),
        Outcome::Failed { why } => format!("no answer: {why}"),
    }
}

fn clock(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}
