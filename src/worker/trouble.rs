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
        matches!(self, Self::LeaseLost) || self.database().is_some_and(transient)
    }

    fn database(&self) -> Option<&sqlx::Error> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<sqlx::Error>() {
                return Some(error);
            }
            cause = error.source();
        }
        None
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
            // Connection exceptions, resources, operator intervention, the server's own files; serialisation, deadlock, lock wait, idle or read-only.
            ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
                || ["40001", "40P01", "55P03", "25P02", "25P03", "25006"].contains(&code.as_ref())
        }),
        _ => false,
    }
}

/// The same trouble gives the same fingerprint: words with a digit in them (ids, times, amounts) are taken out.
pub fn fingerprint(error: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
    let mut print = String::new();
    for part in error.split_inclusive(|c| !is_of_word(c)) {
        let word = part.trim_end_matches(|c| !is_of_word(c));
        print.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        print.push_str(&part[word.len()..]);
    }
    print.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn what_differs_from_event_to_event_is_not_in_the_fingerprint() {
        for (one, other) in [
            ("event_0a1b2c cannot be read", "event_9f8e cannot be read"),
            ("key free:12:2026-10 exists", "key free:7:2026-11 exists"),
            ("at 10:00:00.5 of 3", "at 09:59:01 of 12"),
        ] {
            assert_eq!(fingerprint(one), fingerprint(other));
        }
        assert_ne!(fingerprint("no plan `gold`"), fingerprint("no plan `silver`"));
    }
}
