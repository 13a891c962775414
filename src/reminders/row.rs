//! A reminder as it is stored: one occurrence.

use std::fmt;

use jiff::civil::DateTime;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use crate::domain::ids::ReminderId;
use crate::domain::period::Period;
use crate::domain::zone::Zone;

use super::Error;
use super::repeat::{Repeat, Series};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reminder {
    pub id: ReminderId,
    /// The first occurrence of the repeat that this is one of; without a repeat, this one.
    pub series: ReminderId,
    /// Which occurrence it is, from 1.
    pub n: i32,
    pub text: String,
    /// The IANA name as it is stored.
    pub zone: String,
    /// The wall clock's time that was asked for. What a clock shows when it rings is [`Reminder::shown`].
    pub local: DateTime,
    pub month_day: i8,
    pub repeat: Repeat,
    /// When it rings next, or rang last. A snoozed one rings elsewhere than at `local`.
    pub due_at: OffsetDateTime,
    pub status: Status,
    /// The month whose bottle it took.
    pub period: Option<Period>,
    /// How often it came due.
    pub rung: i32,
    /// What a form gives back, so that two tabs do not overwrite each other.
    pub version: i32,
    pub mail: Mail,
    pub created_at: OffsetDateTime,
    pub changed_at: OffsetDateTime,
    pub done_at: Option<OffsetDateTime>,
    pub(super) listed_at: OffsetDateTime,
    pub(super) last_change: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Scheduled,
    /// A repeat that goes on when somebody says so.
    Paused(PausedFor),
    Due,
    Done,
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PausedFor {
    /// None was left when its time to be scheduled came.
    Bottles,
    /// Its zone is no longer known.
    Zone,
}

/// How the letter about it went, the last time it rang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mail {
    /// Mail is not set up, or the person has no proven address.
    None,
    Waiting,
    Sent,
    Failed {
        error: String,
    },
}

impl Reminder {
    /// What the wall clock shows when it rings.
    pub fn shown(&self) -> DateTime {
        Zone::parse(&self.zone).map_or(self.local, |zone| zone.local(self.due_at))
    }

    /// It rings at a time that snoozing chose.
    pub fn is_snoozed(&self) -> bool {
        self.status == Status::Scheduled && self.rung > 0
    }

    pub(super) fn series(&self) -> Series {
        Series { local: self.local, month_day: self.month_day }
    }
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Paused(_) => "paused",
            Self::Due => "due",
            Self::Done => "done",
            Self::Deleted => "deleted",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PausedFor {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bottles => "bottles",
            Self::Zone => "zone",
        }
    }
}

/// The columns as they come.
pub(super) struct Row {
    pub id: ReminderId,
    pub series: ReminderId,
    pub n: i32,
    pub text: String,
    pub zone: String,
    pub local: PrimitiveDateTime,
    pub month_day: i16,
    pub repeat: String,
    pub due_at: OffsetDateTime,
    pub status: String,
    pub paused_for: Option<String>,
    pub period: Option<String>,
    pub rung: i32,
    pub version: i32,
    pub last_change: Option<String>,
    pub mail: String,
    pub mail_error: Option<String>,
    pub created_at: OffsetDateTime,
    pub changed_at: OffsetDateTime,
    pub done_at: Option<OffsetDateTime>,
    pub listed_at: OffsetDateTime,
}

impl Row {
    pub fn read(self) -> Result<Reminder, Error> {
        let unreadable = |what: &str| Error::Unreadable(self.id, what.to_owned());
        let status = match (self.status.as_str(), self.paused_for.as_deref()) {
            ("scheduled", _) => Status::Scheduled,
            ("paused", Some("zone")) => Status::Paused(PausedFor::Zone),
            ("paused", _) => Status::Paused(PausedFor::Bottles),
            ("due", _) => Status::Due,
            ("done", _) => Status::Done,
            ("deleted", _) => Status::Deleted,
            (other, _) => return Err(unreadable(other)),
        };
        let mail = match self.mail.as_str() {
            "none" => Mail::None,
            "waiting" => Mail::Waiting,
            "sent" => Mail::Sent,
            "failed" => Mail::Failed { error: self.mail_error.unwrap_or_default() },
            other => return Err(unreadable(other)),
        };
        Ok(Reminder {
            local: civil(self.local).ok_or_else(|| unreadable("its local time"))?,
            month_day: i8::try_from(self.month_day).map_err(|_| unreadable("its day of the month"))?,
            repeat: self.repeat.parse()?,
            period: self.period.map(|p| p.parse()).transpose().map_err(|_| unreadable("its period"))?,
            status,
            mail,
            id: self.id,
            series: self.series,
            n: self.n,
            text: self.text,
            zone: self.zone,
            due_at: self.due_at,
            rung: self.rung,
            version: self.version,
            created_at: self.created_at,
            changed_at: self.changed_at,
            done_at: self.done_at,
            listed_at: self.listed_at,
            last_change: self.last_change,
        })
    }
}

fn civil(stored: PrimitiveDateTime) -> Option<DateTime> {
    let (date, time) = (stored.date(), stored.time());
    let day = |n: u8| i8::try_from(n).ok();
    DateTime::new(
        i16::try_from(date.year()).ok()?,
        day(date.month().into())?,
        day(date.day())?,
        day(time.hour())?,
        day(time.minute())?,
        day(time.second())?,
        0,
    )
    .ok()
}

/// As a column keeps it.
pub(super) fn stored(local: DateTime) -> PrimitiveDateTime {
    let n = |n: i8| u8::try_from(n).expect("the parts of a civil time are not negative");
    let month = Month::try_from(n(local.month())).expect("a civil month is one of twelve");
    let date = Date::from_calendar_date(i32::from(local.year()), month, n(local.day()));
    let time = Time::from_hms(n(local.hour()), n(local.minute()), n(local.second()));
    PrimitiveDateTime::new(
        date.expect("a civil date of four digits is one for the other crate too"),
        time.expect("a civil time has no leap second"),
    )
}
