//! The page of somebody's reminders: what is read for it, in one moment and without writing, and how it is put together.

use askama::Template;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::assets;
use super::bottles_left::BottlesLeft;
use super::day_words::Days;
use super::fields::{Fields, query};
use super::live;
use super::page::Frame;
use super::person::Person;
use super::reminder_form::{Form, Mark, Problem, Typed};
use super::reminder_notice::{Notice, Said};
use super::reminder_row::Row;
use crate::accounts;
use crate::billing::bottles::{self, Bottles};
use crate::clock::Clock;
use crate::db::READ_ONLY;
use crate::domain::ids::{AccountId, ReminderId};
use crate::domain::zone::Zone;
use crate::reminders::list::{self, Counts, Cursor, List, Page};
use crate::reminders::row::Reminder;
use crate::reminders::{Error, feed};

/// Characters that are searched for; what is longer finds nothing anyway.
const SEARCH_MAX: usize = 200;
/// Reminders of each list on one page.
const DUE: u8 = 20;
const UPCOMING: u8 = 25;
const DONE: u8 = 10;

/// Where in the lists a page is; all of it stands in the address.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub search: String,
    due: Option<Cursor>,
    upcoming: Option<Cursor>,
    done: Option<Cursor>,
}

/// What one moment's reading found.
#[derive(Debug)]
pub struct Found {
    pub days: Days,
    /// The zone last used, if there is one.
    pub zone: Option<String>,
    pub bottles: Bottles,
    counts: Counts,
    due: Page,
    upcoming: Page,
    done: Page,
    about: Option<Reminder>,
    feed_since: Option<OffsetDateTime>,
    /// What open pages compare.
    version: String,
}

/// A form that comes back.
#[derive(Debug)]
pub struct Returned {
    pub typed: Typed,
    pub key: Uuid,
    pub problem: Option<Problem>,
}

#[derive(Debug)]
struct Section {
    rows: Vec<Row>,
    total: i64,
    next: Option<String>,
    /// Back to where the list begins.
    first: Option<String>,
}

#[derive(Template)]
#[template(path = "reminders.html")]
struct RemindersPage<'a> {
    frame: Frame,
    script_js: String,
    notice: Option<Notice>,
    bottles: BottlesLeft,
    /// None: no bottle is left, and nothing was typed.
    form: Option<Form>,
    search: &'a str,
    due: Section,
    upcoming: Section,
    done: Section,
    /// The address of this page, for what leads back to it.
    back: String,
    has_feed: bool,
    /// Some list does not begin at its beginning.
    is_paged: bool,
    js: String,
    version: &'a str,
    here: String,
}

impl Place {
    pub fn of(fields: &Fields) -> Self {
        Self {
            search: fields.get("q").trim().chars().filter(|c| !c.is_control()).take(SEARCH_MAX).collect(),
            due: fields.read("due"),
            upcoming: fields.read("upcoming"),
            done: fields.read("done"),
        }
    }

    /// The query of its address.
    pub fn query(&self) -> String {
        self.query_and(&[])
    }

    /// The same, saying what happened.
    pub fn saying(&self, said: Said, about: Option<ReminderId>) -> String {
        let about = about.map(|id| id.to_string());
        let mut more = vec![("said", said.as_str())];
        more.extend(about.as_deref().map(|id| ("about", id)));
        format!("{}#said", self.query_and(&more))
    }

    fn query_and(&self, more: &[(&str, &str)]) -> String {
        let cursors = [("due", self.due), ("upcoming", self.upcoming), ("done", self.done)];
        let cursors = cursors.map(|(name, cursor)| (name, cursor.map(|c| c.to_string())));
        let mut pairs = Vec::new();
        if !self.search.is_empty() {
            pairs.push(("q", self.search.as_str()));
        }
        pairs.extend(cursors.iter().filter_map(|(name, cursor)| Some((*name, cursor.as_deref()?))));
        pairs.extend_from_slice(more);
        query(&pairs)
    }

    fn at(&self, list: List, cursor: Option<Cursor>) -> String {
        let mut there = self.clone();
        *(match list {
            List::Due => &mut there.due,
            List::Upcoming => &mut there.upcoming,
            List::Done => &mut there.done,
        }) = cursor;
        format!("/reminders{}#{}", there.query(), list.as_str())
    }
}

/// Reads everything the page shows. It is a picture of one moment, and the database refuses any write meanwhile.
///
/// # Errors
/// Those of the rooms that are read.
pub async fn find(pool: &PgPool, account: AccountId, place: &Place, about: Option<ReminderId>) -> Result<Found, Error> {
    let mut conn = pool.begin_with(READ_ONLY).await?;
    let now = Clock::Database.now(&mut *conn).await?;
    let zone = accounts::profile(&mut *conn, account).await?.and_then(|p| p.zone);
    let search = place.search.as_str();
    Ok(Found {
        days: Days::new(now, zone.as_deref().and_then(|z| Zone::parse(z).ok()).unwrap_or_else(Zone::utc)),
        zone,
        bottles: bottles::of(&mut conn, account, now).await?,
        counts: list::counts(&mut *conn, account).await?,
        due: list::page(&mut *conn, account, List::Due, search, place.due, DUE).await?,
        upcoming: list::page(&mut *conn, account, List::Upcoming, search, place.upcoming, UPCOMING).await?,
        done: list::page(&mut *conn, account, List::Done, search, place.done, DONE).await?,
        about: match about {
            Some(id) => list::find(&mut *conn, account, id).await?,
            None => None,
        },
        feed_since: feed::made_at(&mut *conn, account).await?,
        version: live::version(&mut conn, account).await?,
    })
}

/// # Errors
/// Only if the template itself fails.
pub fn render(
    person: &Person,
    found: &Found,
    place: &Place,
    said: Option<Said>,
    returned: Option<Returned>,
) -> Result<String, askama::Error> {
    let days = &found.days;
    let back = place.query();
    let form = match returned {
        Some(Returned { typed, key, problem }) => Some(form(&back, typed, key, days).with_problem(problem)),
        None if found.bottles.left > 0 => {
            let typed = Typed::fresh(days, found.zone.as_deref());
            Some(Form { fresh: true, ..form(&back, typed, Uuid::new_v4(), days) })
        }
        None => None,
    };
    let section = |list, page: &Page, here: Option<Cursor>, total| Section {
        rows: page.reminders.iter().map(|r| Row::new(r, days)).collect(),
        total,
        next: page.next.map(|next| place.at(list, Some(next))),
        first: here.map(|_| place.at(list, None)),
    };
    let title = match found.counts.due {
        0 => "Reminders · Bottle".to_owned(),
        due => format!("({due}) Reminders · Bottle"),
    };
    RemindersPage {
        frame: Frame::new(title, "reminders").of(Some(person)),
        script_js: assets::url("reminders.js"),
        notice: said.and_then(|said| Notice::new(said, found.about.as_ref(), days)),
        bottles: BottlesLeft::new(&found.bottles),
        form,
        search: &place.search,
        due: section(List::Due, &found.due, place.due, found.counts.due),
        upcoming: section(List::Upcoming, &found.upcoming, place.upcoming, found.counts.upcoming),
        done: section(List::Done, &found.done, place.done, found.counts.done),
        js: assets::url("live.js"),
        version: &found.version,
        here: format!("/reminders{back}"),
        back,
        has_feed: found.feed_since.is_some(),
        is_paged: place.due.is_some() || place.upcoming.is_some() || place.done.is_some(),
    }
    .render()
}

fn form(back: &str, typed: Typed, key: Uuid, days: &Days) -> Form {
    Form::new(format!("/reminders{back}"), "Remind me", Mark::Key(key), typed, days)
}
