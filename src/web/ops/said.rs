//! What just happened, said on the page that an operator's form leads to. The address carries a word of this closed set.

use axum::http::Uri;

use crate::web::fields::Fields;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Replayed,
    InProgress,
    Noted,
    Acknowledged,
    /// The form had been sent before.
    Again,
    /// It no longer stands as it was seen.
    Changed,
    Empty,
    Asked,
    Cancelled,
    Over,
}

pub(super) struct Notice {
    pub tone: &'static str,
    pub sentence: &'static str,
}

impl Said {
    const ALL: [Self; 10] = [
        Self::Replayed,
        Self::InProgress,
        Self::Noted,
        Self::Acknowledged,
        Self::Again,
        Self::Changed,
        Self::Empty,
        Self::Asked,
        Self::Cancelled,
        Self::Over,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::InProgress => "in-progress",
            Self::Noted => "noted",
            Self::Acknowledged => "acknowledged",
            Self::Again => "again",
            Self::Changed => "changed",
            Self::Empty => "empty",
            Self::Asked => "asked",
            Self::Cancelled => "cancelled",
            Self::Over => "over",
        }
    }

    pub(super) fn of(uri: &Uri) -> Option<Notice> {
        let fields = Fields::of_address(uri);
        Self::ALL.into_iter().find(|said| said.as_str() == fields.get("said")).map(Self::notice)
    }

    const fn notice(self) -> Notice {
        let (tone, sentence) = match self {
            Self::Replayed => ("", "It is back in the queue. What comes of it shows here within seconds."),
            Self::InProgress => ("wait", "It is on its way already: there is nothing more to ask for. Look again in a moment."),
            Self::Noted => ("", "The note is kept."),
            Self::Acknowledged => ("", "It is out of its box. A replay or a new failure puts it back."),
            Self::Again => ("wait", "This form had been sent before. Nothing was done twice."),
            Self::Changed => {
                ("bad", "Nothing was done: since you looked, something else became of it. Look at it as it stands now.")
            }
            Self::Empty => ("bad", "Nothing was done: say a word about why. It is what the next person will read."),
            Self::Asked => ("", "It was asked for. A worker takes it up within seconds."),
            Self::Cancelled => ("", "It was called off: nothing more is put back in the queue."),
            Self::Over => ("wait", "There was nothing to call off: it was over already."),
        };
        Notice { tone, sentence }
    }
}
