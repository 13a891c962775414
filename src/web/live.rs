//! `GET /live`: tells a signed-in person's open pages that something of theirs changed, as server-sent events. It carries a
//! number and nothing else: a page that finds it changed asks for itself again, so what is shown is only ever made in one place.
//!
//! One task a process asks the database once a second, for all accounts whose pages are open, and none while no page is. A
//! stream ends by itself after a while (the browser opens the next, and is asked again who it is) and at a stop at once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use sqlx::{PgConnection, PgPool};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ops::guard::Operator;
use super::person::Person;
use super::state::AppState;
use crate::billing::log;
use crate::domain::ids::AccountId;
use crate::replay::bulk;
use crate::{accounts, alerts, inbox};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a browser waits before it opens the next stream.
const RETRY: Duration = Duration::from_secs(2);
const STREAM_LASTS: Duration = Duration::from_secs(5 * 60);
/// Open pages of one person, and of all people in one process.
pub const STREAMS_EACH: usize = 8;
/// Open pages of all operators in one process.
const STREAMS_OF_OPERATORS: usize = 64;
const STREAMS_MAX: usize = 2_000;

/// The open streams of this process.
#[derive(Debug)]
pub struct Live {
    pool: PgPool,
    stop: CancellationToken,
    open: Mutex<Open>,
}

/// What an open page is a picture of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Topic {
    Account(AccountId),
    /// What the operators' pages show that changes while one looks.
    Operators,
}

impl Topic {
    const fn streams_max(self) -> usize {
        match self {
            Self::Account(_) => STREAMS_EACH,
            Self::Operators => STREAMS_OF_OPERATORS,
        }
    }
}

#[derive(Debug, Default)]
struct Open {
    topics: HashMap<Topic, Watched>,
    streams: usize,
    /// A task is looking.
    looking: bool,
}

#[derive(Debug)]
struct Watched {
    version: watch::Sender<String>,
    streams: usize,
}

/// One stream's place, given up when it is dropped.
struct Seat {
    live: Arc<Live>,
    topic: Topic,
}

impl Live {
    pub fn new(pool: PgPool, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { pool, stop, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: this person, or everybody together, has as many as may be.
    fn sit_down(self: &Arc<Self>, topic: Topic) -> Option<(Seat, watch::Receiver<String>)> {
        let mut open = self.open();
        if open.streams >= STREAMS_MAX || open.topics.get(&topic).is_some_and(|w| w.streams >= topic.streams_max()) {
            return None;
        }
        open.streams += 1;
        let watched =
            open.topics.entry(topic).or_insert_with(|| Watched { version: watch::channel(String::new()).0, streams: 0 });
        watched.streams += 1;
        let changes = watched.version.subscribe();
        if !std::mem::replace(&mut open.looking, true) {
            tokio::spawn(Arc::clone(self).look());
        }
        drop(open);
        Some((Seat { live: Arc::clone(self), topic }, changes))
    }

    /// Asks for the versions of all that is open, until nothing is.
    async fn look(self: Arc<Self>) {
        loop {
            let topics: Vec<Topic> = {
                let mut open = self.open();
                if open.topics.is_empty() || self.stop.is_cancelled() {
                    open.looking = false;
                    return;
                }
                open.topics.keys().copied().collect()
            };
            match self.versions_of(&topics).await {
                Ok(versions) => {
                    let open = self.open();
                    for (topic, version) in versions {
                        if let Some(watched) = open.topics.get(&topic) {
                            watched.version.send_if_modified(|now| std::mem::replace(now, version.clone()) != version);
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "open pages could not be told of changes; asked again in a second"),
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn versions_of(&self, topics: &[Topic]) -> sqlx::Result<Vec<(Topic, String)>> {
        let mut conn = self.pool.acquire().await?;
        let ids: Vec<AccountId> =
            topics.iter().filter_map(|topic| if let Topic::Account(id) = topic { Some(*id) } else { None }).collect();
        let mut told = Vec::with_capacity(topics.len());
        if !ids.is_empty() {
            told.extend(versions(&mut conn, &ids).await?.into_iter().map(|(id, version)| (Topic::Account(id), version)));
        }
        if topics.contains(&Topic::Operators) {
            told.push((Topic::Operators, version_for_operators(&mut conn).await?));
        }
        Ok(told)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.live.open();
        open.streams -= 1;
        if let Some(watched) = open.topics.get_mut(&self.topic) {
            watched.streams -= 1;
            if watched.streams == 0 {
                open.topics.remove(&self.topic);
            }
        }
    }
}

/// What a page of this account is a picture of.
///
/// # Errors
/// The database's.
pub async fn version(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<String> {
    Ok(versions(conn, &[account]).await?.remove(&account).unwrap_or_default())
}

/// What the operators' pages that stay open are a picture of.
///
/// # Errors
/// The database's.
pub async fn version_for_operators(conn: &mut PgConnection) -> sqlx::Result<String> {
    let inbox = inbox::health::version(&mut *conn).await?;
    let alerts = alerts::board::version(&mut *conn).await.map_err(|alerts::Error::Database(error)| error)?;
    let bulk = bulk::version(conn).await?;
    Ok(format!("{inbox:x}.{alerts:x}.{bulk:x}"))
}

async fn versions(conn: &mut PgConnection, ids: &[AccountId]) -> sqlx::Result<HashMap<AccountId, String>> {
    let accounts = accounts::versions(&mut *conn, ids).await?;
    let log = log::versions(conn, ids).await?;
    let both = |id: &AccountId| format!("{:x}.{:x}", accounts.get(id).unwrap_or(&0), log.get(id).unwrap_or(&0));
    Ok(ids.iter().map(|id| (*id, both(id))).collect())
}

/// The stream of whoever is signed in.
pub async fn stream(person: Option<Person>, State(app): State<AppState>) -> Response {
    // Anything but 200 tells a browser not to try again by itself.
    let Some(person) = person else {
        return (StatusCode::UNAUTHORIZED, "Nobody is signed in.\n").into_response();
    };
    told(&app, Topic::Account(person.account))
}

/// The stream of an operator, for pages about everybody.
pub async fn stream_for_operators(_: Operator, State(app): State<AppState>) -> Response {
    told(&app, Topic::Operators)
}

fn told(app: &AppState, topic: Topic) -> Response {
    let Some((seat, changes)) = app.live.sit_down(topic) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open; reload by hand.\n").into_response();
    };
    let stop = app.live.stop.clone();
    let ends = Instant::now() + STREAM_LASTS;
    let told = stream::unfold((seat, changes, true), move |(seat, mut changes, first)| {
        let stop = stop.clone();
        async move {
            // The first answer waits for the first look, so that a page learns of what changed while it was on its way.
            let version = changes.borrow_and_update().clone();
            if first && !version.is_empty() {
                return Some((said(&version).retry(RETRY), (seat, changes, false)));
            }
            tokio::select! {
                () = stop.cancelled() => None,
                () = sleep_until(ends) => None,
                changed = changes.changed() => {
                    changed.ok()?;
                    let version = changes.borrow_and_update().clone();
                    let event = said(&version);
                    Some((if first { event.retry(RETRY) } else { event }, (seat, changes, false)))
                }
            }
        }
    });
    let told = futures_util::StreamExt::map(told, Ok::<Event, Infallible>);
    Sse::new(told).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("still here")).into_response()
}

fn said(version: &str) -> Event {
    Event::default().event("version").data(version)
}
