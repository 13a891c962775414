//! A difference as it is first seen, with what is needed to look at it again.

use serde::{Deserialize, Serialize};

use crate::domain::ask_again::Party;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId};

use super::findings::{Class, State};

/// What is to be noted of a difference.
#[derive(Debug, Clone)]
pub struct Suspect {
    pub class: Class,
    pub source: Source,
    pub subject: String,
    pub account: Option<AccountId>,
    pub customer: Option<CustomerId>,
    pub ours: String,
    pub theirs: String,
    pub done: &'static str,
    pub state: State,
    pub question: Option<Question>,
}

/// How it is looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What do they have?
    Plan { party: Party },
    /// A movement in their books that ours lack: names by which an event about it may be waiting.
    TheirMovement { key: String, names: Vec<String>, minor: i64, currency: String },
    /// A movement in ours that theirs lack.
    OurMovement { key: String, reference: String },
}
