//! What a form says about a reminder, checked: words a person can act on, or a draft that can be stored.

use jiff::civil::DateTime;
use time::{Duration, OffsetDateTime};

use crate::domain::zone::{Settled, UnknownZone, Zone};

use super::repeat::{Repeat, Series};

/// Characters of a reminder's text.
pub const TEXT_MAX: usize = 500;
/// Further ahead than this is taken for a slip of the finger.
const AHEAD_MAX: Duration = Duration::days(3660);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    text: String,
    local: DateTime,
    zone: Zone,
    repeat: Repeat,
    month_day: i8,
}

/// What is wrong with a form, in words for the person who filled it in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Invalid {
    #[error("Write what you want to be reminded of.")]
    NoText,
    #[error("The text has {0} characters; {TEXT_MAX} are the most.")]
    TextTooLong(usize),
    #[error("The text has line breaks or other invisible characters in it; write it in one line.")]
    TextUnprintable,
    #[error("The date and time cannot be read; write them like 2026-12-24T18:30.")]
    NoTime,
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error("Choose how often it comes again: never, daily, on weekdays, weekly or monthly.")]
    NoRepeat,
    #[error("That time has passed. Choose one that is still to come.")]
    Past,
    #[error("That is more than ten years ahead. Choose a nearer time.")]
    TooFarAhead,
}

/// Which field of the form it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Text,
    When,
    Zone,
    Repeat,
}

impl Invalid {
    pub const fn field(&self) -> Field {
        match self {
            Self::NoText | Self::TextTooLong(_) | Self::TextUnprintable => Field::Text,
            Self::NoTime | Self::Past | Self::TooFarAhead => Field::When,
            Self::Zone(_) => Field::Zone,
            Self::NoRepeat => Field::Repeat,
        }
    }
}

impl Draft {
    /// `local` as `<input type="datetime-local">` sends it, `zone` an IANA name, `repeat` one of [`Repeat::ALL`].
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn new(text: &str, local: &str, zone: &str, repeat: &str) -> Result<Self, Invalid> {
        let text = checked(text)?;
        let zone = Zone::parse(zone)?;
        let repeat: Repeat = repeat.parse().map_err(|_| Invalid::NoRepeat)?;
        let local = read_local(local)?;
        // The day that was asked for, also when a repeat on weekdays begins later.
        Ok(Self { text, local: repeat.first(local), zone, repeat, month_day: local.day() })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn local(&self) -> DateTime {
        self.local
    }

    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    pub fn repeat(&self) -> Repeat {
        self.repeat
    }

    pub(super) fn series(&self) -> Series {
        Series { local: self.local, month_day: self.month_day }
    }

    /// An edit that leaves the date of a clamped occurrence as it is does not forget the day that was asked for.
    pub(super) fn keep_day(&mut self, stored: Series) {
        if self.repeat == Repeat::Monthly && self.local.date() == stored.local.date() {
            self.month_day = stored.month_day;
        }
    }

    /// The moment it means, and whether clocks are changed just then: a form can tell before anything is stored.
    ///
    /// # Errors
    /// [`Invalid::Past`] and [`Invalid::TooFarAhead`].
    pub fn when(&self, now: OffsetDateTime) -> Result<Settled, Invalid> {
        // Every zone has each time of a nearer year.
        let settled =
            self.zone.settle(self.local).ok_or(if self.local.year() > 1970 { Invalid::TooFarAhead } else { Invalid::Past })?;
        if settled.at <= now {
            return Err(Invalid::Past);
        }
        if settled.at > now + AHEAD_MAX {
            return Err(Invalid::TooFarAhead);
        }
        Ok(settled)
    }
}

fn checked(text: &str) -> Result<String, Invalid> {
    let text = text.trim();
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    match text.chars().count() {
        0 => Err(Invalid::NoText),
        _ if text.chars().any(is_break) => Err(Invalid::TextUnprintable),
        n if n > TEXT_MAX => Err(Invalid::TextTooLong(n)),
        _ => Ok(text.to_owned()),
    }
}

/// `2026-12-24T18:30`, with or without seconds. Nothing that says an offset: whose clock it is, the zone says.
fn read_local(text: &str) -> Result<DateTime, Invalid> {
    let text = text.trim();
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'T'));
    let (date, time) = text.split_once('T').filter(|_| plain).ok_or(Invalid::NoTime)?;
    // Browsers let a year have six digits.
    if date.split('-').next().is_some_and(|year| matches!(year.len(), 5 | 6)) {
        return Err(Invalid::TooFarAhead);
    }
    let is_plain_time = !time.contains('-') && matches!(time.len(), 5 | 8);
    (date.len() == 10 && is_plain_time).then(|| text.parse().ok()).flatten().ok_or(Invalid::NoTime)
}
