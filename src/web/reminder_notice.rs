//! What just happened, said on the page that a form leads to. The address carries a word of this closed set and an id, never
//! text; what is said of a reminder is read from the reminder, and only its owner's.

use std::str::FromStr;

use crate::domain::ids::ReminderId;
use crate::reminders::row::Reminder;

use super::day_words::Days;
use super::fields::Fields;
use super::reminder_row::{clock_change, repeats};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Scheduled,
    /// The form had been sent before.
    Again,
    Saved,
    Done,
    Snoozed,
    Resumed,
    Deleted,
    /// Deleted, and its bottle is back.
    Returned,
    /// It was another version that was seen.
    Changed,
    /// What it has come to cannot be changed like that.
    NotNow,
    NoBottle,
    /// It cannot go on as it is.
    EditFirst,
    LinkRevoked,
}

#[derive(Debug)]
pub struct Notice {
    pub tone: &'static str,
    pub sentence: String,
    /// The reminder it is about, in its own words.
    pub text: Option<String>,
    pub more: Option<String>,
}

impl Said {
    const ALL: [Self; 13] = [
        Self::Scheduled,
        Self::Again,
        Self::Saved,
        Self::Done,
        Self::Snoozed,
        Self::Resumed,
        Self::Deleted,
        Self::Returned,
        Self::Changed,
        Self::NotNow,
        Self::NoBottle,
        Self::EditFirst,
        Self::LinkRevoked,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Again => "again",
            Self::Saved => "saved",
            Self::Done => "done",
            Self::Snoozed => "snoozed",
            Self::Resumed => "resumed",
            Self::Deleted => "deleted",
            Self::Returned => "returned",
            Self::Changed => "changed",
            Self::NotNow => "not-now",
            Self::NoBottle => "no-bottle",
            Self::EditFirst => "edit-first",
            Self::LinkRevoked => "link-revoked",
        }
    }

    const fn tone(self) -> &'static str {
        match self {
            Self::Changed | Self::NotNow | Self::NoBottle | Self::EditFirst => "wait",
            _ => "",
        }
    }
}

impl FromStr for Said {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|said| said.as_str() == text).ok_or(())
    }
}

/// The word and the id of an address.
pub fn asked(fields: &Fields) -> Option<(Said, Option<ReminderId>)> {
    Some((fields.read("said")?, fields.read("about").map(ReminderId)))
}

impl Notice {
    /// None: what it would tell of is not so (any more).
    pub fn new(said: Said, about: Option<&Reminder>, days: &Days) -> Option<Self> {
        let when = |r: &Reminder| days.when(r.due_at, &r.zone).text;
        let sentence = match (said, about) {
            (Said::Scheduled, Some(r)) if r.status.is_upcoming() => match repeats(r.repeat) {
                Some(often) => format!("Scheduled, {often}. It rings first: {}.", when(r)),
                None => format!("Scheduled: {}.", when(r)),
            },
            (Said::Again, Some(_)) => "This form had been sent before. It made one reminder and took one bottle:".to_owned(),
            (Said::Saved, Some(r)) if r.status.is_upcoming() => format!("Saved. It rings: {}.", when(r)),
            (Said::Done, Some(r)) if r.done_at.is_some() => "Done.".to_owned(),
            (Said::Snoozed, Some(r)) if r.is_snoozed() => format!("Snoozed. It rings once more: {}.", when(r)),
            (Said::Resumed, Some(r)) if r.status.is_upcoming() => {
                format!("It goes on, with a bottle of this month: {}.", when(r))
            }
            (Said::Deleted, _) => "Deleted.".to_owned(),
            (Said::Returned, _) => "Deleted. It had not rung yet, so its bottle is back in the month it came from.".to_owned(),
            (Said::Changed, _) => "Nothing was done: it had rung, or was changed in another tab, since the page was loaded. \
                                   This page shows it as it is now."
                .to_owned(),
            (Said::NotNow, Some(r)) => format!("Nothing was done: it is {} now, and that cannot be done with it.", r.status),
            (Said::NoBottle, Some(_)) => "It stays paused: no bottle is left this month.".to_owned(),
            (Said::EditFirst, Some(_)) => {
                "It stays paused: its time has passed, or its zone is no longer known. Edit it first.".to_owned()
            }
            (Said::LinkRevoked, _) => "The calendar link is revoked. Whoever has it sees nothing any more.".to_owned(),
            _ => return None,
        };
        let told = matches!(said, Said::Scheduled | Said::Saved | Said::Resumed);
        Some(Self {
            tone: said.tone(),
            sentence,
            text: about.map(|r| r.text.clone()),
            more: about.filter(|_| told).and_then(clock_change),
        })
    }
}
