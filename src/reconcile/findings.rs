//! What runs found. The SQL of `reconcile_findings`.
//!
//! What pages read: [`page`] and [`counts`].

use std::fmt;
use std::str::FromStr;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::event::Source;
use crate::domain::ids::{AccountId, EventId};

use super::runs::RunId;

/// In what way the two sides differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The provider made an event that never came to us.
    EventMissing,
    /// The plan is another than what the provider says would make it.
    PlanStale,
    /// A movement of money is another sum there.
    AmountDiffers,
    /// We have it, they don't.
    UnknownTheirs,
    /// They have it, we don't.
    UnknownOurs,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Seen once. It is looked at again before it is told.
    Suspected,
    /// Not repaired: by the run's mode, or because only a person can.
    Open,
    /// An event was stored because of it that has not run to its end.
    Asked,
    Repaired,
}

/// A difference.
#[derive(Debug, Clone)]
pub struct Finding {
    pub id: FindingId,
    pub run: RunId,
    pub class: Class,
    pub source: Source,
    /// The event, movement or customer it is about.
    pub subject: String,
    pub account: Option<AccountId>,
    pub customer: Option<String>,
    pub ours: String,
    pub theirs: String,
    pub done: String,
    pub state: State,
    /// The event that was stored because of it, or whose fault it is.
    pub event: Option<EventId>,
    pub found_at: OffsetDateTime,
}

/// `reconcile_findings.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct FindingId(pub i64);

#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is no class or state of a finding")]
pub struct NotAWord(String);

impl Class {
    pub const ALL: [Self; 5] = [Self::EventMissing, Self::PlanStale, Self::AmountDiffers, Self::UnknownTheirs, Self::UnknownOurs];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventMissing => "event_missing",
            Self::PlanStale => "plan_stale",
            Self::AmountDiffers => "amount_differs",
            Self::UnknownTheirs => "unknown_theirs",
            Self::UnknownOurs => "unknown_ours",
        }
    }

    /// As a heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::EventMissing => "Events that never came",
            Self::PlanStale => "Plans that are out of date",
            Self::AmountDiffers => "Amounts that differ",
            Self::UnknownTheirs => "We have it, they don't",
            Self::UnknownOurs => "They have it, we don't",
        }
    }

    /// What a person does about one that is still open.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::EventMissing => {
                "bottle reconcile --apply fetches and runs them; if there are many, see whether the webhook is still enabled there"
            }
            Self::PlanStale => {
                "bottle reconcile --apply asks again and repairs them; one that stays has a dead or parked event: mend it and replay it"
            }
            Self::AmountDiffers => {
                "compare the two at the provider; the ledger is never changed, so a real difference is settled there and noted"
            }
            Self::UnknownTheirs => {
                "see whether the keys belong to the account and mode that these came from, and whether it was deleted there"
            }
            Self::UnknownOurs => {
                "bottle reconcile --apply takes in whoever they name; of the others find out whose they are, or leave them"
            }
        }
    }
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspected => "suspected",
            Self::Open => "open",
            Self::Asked => "asked",
            Self::Repaired => "repaired",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Class {
    type Err = NotAWord;

    fn from_str(text: &str) -> Result<Self, NotAWord> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| NotAWord(text.to_owned()))
    }
}

impl FromStr for State {
    type Err = NotAWord;

    fn from_str(text: &str) -> Result<Self, NotAWord> {
        let all = [Self::Suspected, Self::Open, Self::Asked, Self::Repaired];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| NotAWord(text.to_owned()))
    }
}

/// The findings of a run in the order in which they were found, `limit` of them after the finding `after`. What is only
/// suspected is not among them.
///
/// # Errors
/// The database's.
pub async fn page(conn: &mut PgConnection, run: RunId, after: Option<FindingId>, limit: i64) -> sqlx::Result<Vec<Finding>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: FindingId", run_id as "run: RunId", class, source, subject, account_id as "account: AccountId", customer,
                  ours, theirs, done, state, event_id as "event: EventId", found_at
           from reconcile_findings
           where run_id = $1 and id > $2 and state <> 'suspected' order by id limit $3"#,
        run.0,
        after.map_or(0, |id| id.0),
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::finding).collect()
}

/// How many findings of each class a run has, and how many of these are repaired: (class, all, repaired).
///
/// # Errors
/// The database's.
pub async fn counts(conn: &mut PgConnection, run: RunId) -> sqlx::Result<Vec<(Class, i64, i64)>> {
    let rows = sqlx::query!(
        r#"select class, count(*) as "all!", count(*) filter (where state = 'repaired') as "repaired!" from reconcile_findings
           where run_id = $1 and state <> 'suspected' group by class"#,
        run.0
    )
    .fetch_all(conn)
    .await?;
    let mut counts =
        rows.into_iter().map(|row| Ok((word(&row.class)?, row.all, row.repaired))).collect::<sqlx::Result<Vec<_>>>()?;
    counts.sort();
    Ok(counts)
}

pub(super) struct Row {
    pub id: FindingId,
    pub run: RunId,
    pub class: String,
    pub source: String,
    pub subject: String,
    pub account: Option<AccountId>,
    pub customer: Option<String>,
    pub ours: String,
    pub theirs: String,
    pub done: String,
    pub state: String,
    pub event: Option<EventId>,
    pub found_at: OffsetDateTime,
}

impl Row {
    pub(super) fn finding(self) -> sqlx::Result<Finding> {
        Ok(Finding {
            id: self.id,
            run: self.run,
            class: word(&self.class)?,
            source: word(&self.source)?,
            subject: self.subject,
            account: self.account,
            customer: self.customer,
            ours: self.ours,
            theirs: self.theirs,
            done: self.done,
            state: word(&self.state)?,
            event: self.event,
            found_at: self.found_at,
        })
    }
}

fn word<T>(text: &str) -> sqlx::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
