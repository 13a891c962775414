//! Reads: the three lists of a person, searched and a page at a time; and single reminders. All by the index they are kept in.

use std::fmt;
use std::str::FromStr;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::ids::{AccountId, ReminderId};

use super::Error;
use super::row::{Reminder, Row};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Soonest first: what will ring, and repeats that are paused.
    Upcoming,
    /// What rang last first.
    Due,
    /// What was done last first.
    Done,
}

/// A place in a list, to go on from; written into addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    at: OffsetDateTime,
    id: ReminderId,
}

#[derive(Debug, Clone)]
pub struct Page {
    pub reminders: Vec<Reminder>,
    /// Where the next page begins; none: this was the last.
    pub next: Option<Cursor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub upcoming: i64,
    pub due: i64,
    pub done: i64,
}

impl List {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upcoming => "upcoming",
            Self::Due => "due",
            Self::Done => "done",
        }
    }
}

impl FromStr for List {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Upcoming, Self::Due, Self::Done];
        all.into_iter().find(|l| l.as_str() == text).ok_or_else(|| Error::Word(text.to_owned(), "list"))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.unix_timestamp_nanos() / 1_000, self.id)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (micros, id) = text.split_once('.')?;
            // The calendar of the database begins later than this one's.
            let nanos = micros.parse::<i64>().ok().map(|micros| i128::from(micros) * 1_000)?;
            let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().filter(|at| at.year() > 0)?;
            Some(Self { at, id: ReminderId(id.parse().ok()?) })
        };
        read().ok_or_else(|| Error::Word(text.to_owned(), "place in a list"))
    }
}

/// One page of a list. `search` is looked for anywhere in the text, in any case, and means only itself: `%` is a per cent sign.
pub async fn page(
    db: impl PgExecutor<'_>,
    account: AccountId,
    list: List,
    search: &str,
    after: Option<Cursor>,
    limit: u8,
) -> Result<Page, Error> {
    let pattern = Some(search.trim()).filter(|s| !s.is_empty()).map(pattern);
    let (at, id) = after.map_or((None, None), |c| (Some(c.at), Some(c.id.0)));
    let limit = limit.max(1);
    let rows = match list {
        List::Upcoming => ascending(db, account, list, pattern.as_deref(), at, id, i64::from(limit) + 1).await?,
        List::Due | List::Done => descending(db, account, list, pattern.as_deref(), at, id, i64::from(limit) + 1).await?,
    };
    let mut reminders = rows.into_iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
    let more = reminders.len() > usize::from(limit);
    reminders.truncate(usize::from(limit));
    let next = reminders.last().filter(|_| more).map(|r| Cursor { at: r.listed_at, id: r.id });
    Ok(Page { reminders, next })
}

async fn ascending(
    db: impl PgExecutor<'_>,
    account: AccountId,
    list: List,
    pattern: Option<&str>,
    at: Option<OffsetDateTime>,
    id: Option<i64>,
    limit: i64,
) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"select id as "id: ReminderId", series as "series: ReminderId", n, text, zone, local, month_day, repeat, due_at, status,
                  paused_for, period, rung, version, last_change, mail, mail_error, created_at, changed_at, done_at, listed_at
           from reminders
           where account_id = $1 and list = $2 and status <> 'deleted'
             and (listed_at, id) > (coalesce($3::timestamptz, '-infinity'), coalesce($4::bigint, 0))
             and ($5::text is null or search like $5)
           order by listed_at, id limit $6"#,
        account.0,
        list.as_str(),
        at,
        id,
        pattern,
        limit
    )
    .fetch_all(db)
    .await
}

async fn descending(
    db: impl PgExecutor<'_>,
    account: AccountId,
    list: List,
    pattern: Option<&str>,
    at: Option<OffsetDateTime>,
    id: Option<i64>,
    limit: i64,
) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"select id as "id: ReminderId", series as "series: ReminderId", n, text, zone, local, month_day, repeat, due_at, status,
                  paused_for, period, rung, version, last_change, mail, mail_error, created_at, changed_at, done_at, listed_at
           from reminders
           where account_id = $1 and list = $2 and status <> 'deleted'
             and (listed_at, id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::bigint, 9223372036854775807))
             and ($5::text is null or search like $5)
           order by listed_at desc, id desc limit $6"#,
        account.0,
        list.as_str(),
        at,
        id,
        pattern,
        limit
    )
    .fetch_all(db)
    .await
}

fn pattern(search: &str) -> String {
    let mut pattern = String::from("%");
    for c in search.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// How long each list is.
pub async fn counts(db: impl PgExecutor<'_>, account: AccountId) -> Result<Counts, Error> {
    let row = sqlx::query!(
        r#"select count(*) filter (where list = 'upcoming') as "upcoming!", count(*) filter (where list = 'due') as "due!",
                  count(*) filter (where list = 'done') as "done!"
           from reminders where account_id = $1 and status <> 'deleted'"#,
        account.0
    )
    .fetch_one(db)
    .await?;
    Ok(Counts { upcoming: row.upcoming, due: row.due, done: row.done })
}

/// One of this account's; a deleted one counts as not there.
pub async fn find(db: impl PgExecutor<'_>, account: AccountId, id: ReminderId) -> Result<Option<Reminder>, Error> {
    let reminder = find_any(db, account, id).await?;
    Ok(reminder.filter(|r| r.status != super::Status::Deleted))
}

pub(super) async fn find_any(db: impl PgExecutor<'_>, account: AccountId, id: ReminderId) -> Result<Option<Reminder>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id: ReminderId", series as "series: ReminderId", n, text, zone, local, month_day, repeat, due_at, status,
                  paused_for, period, rung, version, last_change, mail, mail_error, created_at, changed_at, done_at, listed_at
           from reminders where account_id = $1 and id = $2"#,
        account.0,
        id.0
    )
    .fetch_optional(db)
    .await?;
    row.map(Row::read).transpose()
}

pub(super) async fn of_form(conn: &mut PgConnection, account: AccountId, form: Uuid) -> Result<Option<Reminder>, Error> {
    let id = sqlx::query_scalar!(
        r#"select id as "id: ReminderId" from reminders where account_id = $1 and form_key = $2"#,
        account.0,
        form
    )
    .fetch_optional(&mut *conn)
    .await?;
    match id {
        Some(id) => find_any(conn, account, id).await,
        None => Ok(None),
    }
}
