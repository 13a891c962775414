//! What went wrong with a run, and whose fault it is.

use std::error::Error as StdError;

use crate::billing::apply;
use crate::checkpoint::Break;

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("the database could not be used")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Apply(#[from] apply::Error),
    #[error(transparent)]
    Break(#[from] Break),
    #[error("the lease ended while the event was being handled")]
    LeaseLost,
    #[error("the stored body cannot be read: {0}")]
    Unreadable(String),
    #[error("the handler panicked: {0}")]
    Panic(String),
}

impl Trouble {
    /// As if the process had died: nobody is left to write anything.
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Break(Break::Stop) | Self::Apply(apply::Error::Break(Break::Stop)))
    }

    /// Database or network trouble: the event is not at fault, so it is not charged.
    pub fn is_transient(&self) -> bool {
        if matches!(self, Self::LeaseLost) {
            return true;
        }
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<sqlx::Error>() {
                return transient(error);
            }
            cause = error.source();
        }
        false
    }

    /// The whole chain in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let part = error.to_string();
            if !text.ends_with(&part) {
                text = format!("{text}: {part}");
            }
            cause = error.source();
        }
        text
    }
}

fn transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(db) => db.code().is_some_and(|code| {
            // Connection exceptions, resources, operator intervention; serialisation, deadlock, lock wait, idle or read-only.
            ["08", "53", "57"].iter().any(|class| code.starts_with(class))
                || ["40001", "40P01", "55P03", "25P02", "25P03", "25006"].contains(&code.as_ref())
        }),
        _ => false,
    }
}

/// The same trouble gives the same fingerprint: ids and numbers are taken out.
pub fn fingerprint(error: &str) -> String {
    let mut print = String::new();
    for c in error.chars().take(200) {
        if !c.is_ascii_digit() {
            print.push(c);
        } else if !print.ends_with('#') {
            print.push('#');
        }
    }
    print
}
