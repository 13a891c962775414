//! How far an event has come, as a word and a shape; the colour only repeats it.

use askama::Template;

use crate::domain::event::Status;

#[derive(Debug, Clone, Copy, Template)]
#[template(path = "_status.html")]
pub struct StatusMark {
    pub word: &'static str,
    tone: &'static str,
    /// A path in a box of 16 by 16.
    shape: &'static str,
}

pub const fn mark(status: Status) -> StatusMark {
    let (tone, shape) = match status {
        Status::Received => ("wait", "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M8 4.5V8l2.5 1.5"),
        Status::Processing => ("wait", "M8 1.5a6.5 6.5 0 0 1 6.5 6.5M14.5 8A6.5 6.5 0 0 1 8 14.5M8 5v6M5 8h6"),
        Status::Applied => ("good", "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.2 2.2L11.2 6"),
        Status::Ignored => ("", "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8h6"),
        Status::Failed => ("wait", "M13.8 8A5.8 5.8 0 1 1 12 3.8M12.4 1v3.2H9.2"),
        Status::Parked => ("wait", "M2 2h12v12H2zM6.2 5.5v5M9.8 5.5v5"),
        Status::Dead => ("bad", "M8 1.6 15 14.2H1zM8 6v4M8 12v.1"),
    };
    StatusMark { word: word(status), tone, shape }
}

/// The state as people are told of it.
pub const fn word(status: Status) -> &'static str {
    match status {
        Status::Received => "Waiting",
        Status::Processing => "In progress",
        Status::Applied => "Applied",
        Status::Ignored => "Ignored",
        Status::Failed => "Retrying",
        Status::Parked => "On hold",
        Status::Dead => "Set aside",
    }
}
