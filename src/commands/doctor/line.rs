//! What the doctor says: a line a finding, for a person or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ok,
    /// It works, and somebody should know.
    Warning,
    Wrong,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What was looked at; two lines may be about one thing.
    pub check: &'static str,
    pub state: State,
    pub words: String,
    /// What to do; nothing where all is well.
    pub todo: String,
}

impl Line {
    pub fn ok(check: &'static str, words: impl Into<String>) -> Self {
        Self { check, state: State::Ok, words: words.into(), todo: String::new() }
    }

    pub fn warning(check: &'static str, words: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: State::Warning, words: words.into(), todo: todo.into() }
    }

    pub fn wrong(check: &'static str, words: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: State::Wrong, words: words.into(), todo: todo.into() }
    }
}

pub fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{:<8} {:<13} {}", line.state.word(), line.check, line.words);
        if !line.todo.is_empty() {
            let _ = writeln!(text, "{:23}do: {}", "", line.todo);
        }
    }
    let count = |state| lines.iter().filter(|line| line.state == state).count();
    let _ = match (count(State::Wrong), count(State::Warning)) {
        (0, 0) => write!(text, "\nAll is well."),
        (0, warnings) => write!(text, "\nNothing is wrong; {warnings} warning(s)."),
        (wrong, warnings) => write!(text, "\n{wrong} wrong, {warnings} warning(s)."),
    };
    text
}

pub fn json(lines: &[Line]) -> Value {
    let one = |line: &Line| {
        json!({
            "check": line.check, "state": line.state.word(), "words": line.words,
            "do": (!line.todo.is_empty()).then_some(&line.todo),
        })
    };
    json!({
        "healthy": lines.iter().all(|line| line.state != State::Wrong),
        "lines": lines.iter().map(one).collect::<Vec<_>>(),
    })
}
