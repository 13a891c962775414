//! Reconcile: what each provider says is true now, set beside what is stored here.
//!
//! A run goes through `steps`, a page at a time: events that never came (`events`), plans of everybody who is linked and of
//! whoever is a customer there (`plans`), money (`money`), then whatever looked different once more (`recheck`), and at last
//! what came of the repairs (`settle`). After each page the run notes where it is (`journal`), so one that is killed goes on
//! there. `runs` and `findings` are what is kept and what pages read, `books` the provider's books while they are compared,
//! `patience` waits for a provider that limits our rate, `night` runs it once a night.
//!
//! It repairs nothing by itself. A missed event is stored like any delivery; a stale plan becomes an event that only asks; the
//! worker does the rest, through the rules that every event goes through. So a run that is wrong about something, or older than
//! the newest event, can write no old truth.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::watch as seen;
use tokio_util::sync::CancellationToken;

use crate::billing::apply::{self, Rules};
use crate::clock::Clock;
use crate::domain::event::Source;
use crate::intake::AcceptError;
use crate::providers::listing::{ListError, Lists};
use crate::providers::{Provider, Providers};
use crate::wake::Wake;

mod books;
mod events;
pub mod findings;
mod journal;
mod money;
pub mod night;
mod patience;
mod plans;
mod recheck;
pub mod runs;
mod settle;
mod steps;
mod suspect;
pub mod watch;

use findings::FindingId;
use journal::News;
use runs::{Mode, Run, Tallies};
use steps::Step;
use suspect::Suspect;

/// Whoever holds it compares. Held by one connection for as long as the run lasts, and all that the run notes goes through that
/// connection: who loses it can note nothing more.
pub const LOCK: i64 = 0x0062_6f74_746c_6503;
/// Stripe lists events this long; one day is left for the run itself.
const SINCE_DAYS: i64 = 29;
/// What happened a moment ago may still be on its way to us.
const YOUNG: time::Duration = time::Duration::minutes(10);

/// Everything a run needs.
#[derive(Clone)]
pub struct Reconciler {
    pub pool: PgPool,
    pub providers: Arc<Providers>,
    pub rules: Arc<Rules>,
    pub clock: Clock,
    /// Told of every event that is stored.
    pub wake: Wake,
    /// A difference is looked at again after so long, and told only if it is still there.
    pub settle: Duration,
    /// How long the events that a run stored are waited for while none of them gets on.
    pub wait: Duration,
    /// One answer is waited for so long at most; a run that gives up goes on where it was, later.
    pub patience: Duration,
    /// Where it is, for whoever looks.
    pub progress: seen::Sender<Progress>,
    pub stop: CancellationToken,
}

/// Where a run is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// `stripe: events, 1200 looked at`
    pub doing: String,
    /// Why it waits, if it does.
    pub waits: Option<String>,
}

/// What is to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// In their order.
    pub sources: Vec<Source>,
    /// Money and events from then on; none is as far back as providers list events.
    pub since: Option<OffsetDateTime>,
    pub mode: Mode,
    /// None: somebody asked for it.
    pub night: Option<time::Date>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database could not be used")]
    Database(#[from] sqlx::Error),
    #[error("another run is under way")]
    Busy,
    #[error("the run was stopped; the next one goes on where it was")]
    Stopped,
    #[error("{0} cannot be asked here")]
    NotConfigured(Source),
    #[error("{provider} could not be asked: {why}")]
    Provider { provider: &'static str, why: ListError },
    #[error("what was missing could not be stored")]
    Store(#[from] AcceptError),
    #[error("what is stored could not be compared")]
    Compare(#[from] apply::Error),
    #[error("what is noted of a run cannot be read: {0}")]
    Note(String),
}

/// The lock, and the connection that holds it.
struct Desk {
    conn: PgConnection,
}

impl Desk {
    /// None: somebody else compares.
    async fn take(pool: &PgPool) -> sqlx::Result<Option<Self>> {
        let mut conn = pool.acquire().await?.detach();
        let mine = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "mine!""#, LOCK).fetch_one(&mut conn).await?;
        Ok(mine.then_some(Self { conn }))
    }

    /// Gives the lock back. Dropped, the connection ends, and the lock with it.
    async fn leave(self) {
        let _ = self.conn.close().await;
    }
}

impl Reconciler {
    /// What these sources can be asked for.
    ///
    /// # Errors
    /// [`Error::NotConfigured`] for the first that cannot be asked.
    pub fn check(&self, sources: &[Source]) -> Result<(), Error> {
        sources.iter().try_for_each(|source| self.provider(*source).map(|_| ()))
    }

    /// Does what is wished for, or goes on with the run that was begun for the same wish and did not end.
    ///
    /// # Errors
    /// See [`Error`]. Where it is is noted, so the same wish goes on there.
    pub async fn run(&self, wish: &Wish) -> Result<Run, Error> {
        self.check(&wish.sources)?;
        let mut desk = Desk::take(&self.pool).await?.ok_or(Error::Busy)?;
        let done = self.run_at(&mut desk, wish).await;
        desk.leave().await;
        done
    }

    async fn run_at(&self, desk: &mut Desk, wish: &Wish) -> Result<Run, Error> {
        let now = self.clock.now(&mut desk.conn).await?;
        let run = match journal::take_up(&mut desk.conn, wish, now).await? {
            Some(run) => run,
            None => {
                let since = wish.since.unwrap_or(now - time::Duration::days(SINCE_DAYS));
                // None: that night was done a moment ago.
                journal::begin(&mut desk.conn, wish, since, now - YOUNG, now).await?.ok_or(Error::Busy)?
            }
        };
        let id = run.id;
        match self.go_on(desk, run).await {
            Ok(run) => Ok(run),
            // Left as it is: whoever comes next takes it up.
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => {
                let why = chain(&error);
                if let Err(unnoted) = journal::fail(&mut desk.conn, id, &why, self.clock).await {
                    tracing::warn!(run = %id, %unnoted, "why a run of reconcile stopped could not be noted");
                }
                Err(error)
            }
        }
    }

    async fn go_on(&self, desk: &mut Desk, mut run: Run) -> Result<Run, Error> {
        let steps = self.steps(&run)?;
        loop {
            let done = usize::try_from(run.step).unwrap_or_default();
            let Some(step) = steps.get(done) else { break };
            self.goes_on()?;
            self.progress.send_replace(Progress { doing: step.in_words(&run.tallies), waits: None });
            let page = self.page(&mut desk.conn, &run, *step).await?;
            for (name, n) in &page.tallies {
                *run.tallies.entry(name.clone()).or_default() += n;
            }
            run.step += i32::from(page.next.is_none());
            run.cursor = page.next;
            // What was found, what was counted and where to go on: together or not at all.
            let mut tx = desk.conn.begin().await?;
            journal::found(&mut tx, run.id, &page.found, self.clock).await?;
            for (id, news) in &page.settled {
                match news {
                    Some(news) => journal::settle(&mut tx, *id, news).await?,
                    None => journal::drop_finding(&mut tx, *id).await?,
                }
            }
            journal::note(&mut tx, &run, self.clock).await?;
            tx.commit().await?;
        }
        journal::finish(&mut desk.conn, run.id, &money::totals(&run.tallies), self.clock).await?;
        Ok(runs::find(&mut desk.conn, run.id).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// Unless it is to stop. What a page has seen by then is seen again.
    fn goes_on(&self) -> Result<(), Error> {
        if self.stop.is_cancelled() { Err(Error::Stopped) } else { Ok(()) }
    }

    fn steps(&self, run: &Run) -> Result<Vec<Step>, Error> {
        let lists = run.sources.iter().map(|source| Ok((*source, self.provider(*source)?.lists())));
        Ok(steps::all(&lists.collect::<Result<Vec<(Source, Lists)>, Error>>()?, run.mode))
    }

    async fn page(&self, conn: &mut PgConnection, run: &Run, step: Step) -> Result<Done, Error> {
        let cursor = run.cursor.as_deref();
        match step {
            Step::Events(source) => self.events_page(conn, run, source, cursor).await,
            Step::Wait => self.wait_for_events(conn, run).await,
            Step::Plans(source) => self.plans_page(conn, source, cursor).await,
            Step::Customers(source) => self.customers_page(conn, source, cursor).await,
            Step::Copy(source) => self.copy_page(conn, run, source, cursor).await,
            Step::Theirs(source) => self.theirs_page(conn, run, source, cursor).await,
            Step::Ours(source) => self.ours_page(conn, run, source, cursor).await,
            Step::Recheck => self.recheck_page(conn, run, cursor).await,
            Step::Settle => self.settle_page(conn, run, cursor).await,
        }
    }

    fn provider(&self, source: Source) -> Result<&Provider, Error> {
        let provider = self.providers.of(source).filter(|provider| provider.lists().plans);
        provider.ok_or(Error::NotConfigured(source))
    }
}

/// The sources that can be asked here.
pub fn askable(providers: &Providers) -> Vec<Source> {
    let can_be = |source: &Source| providers.of(*source).is_some_and(|provider| provider.lists().plans);
    providers.configured().into_iter().filter(can_be).collect()
}

/// What a run counted: accounts, events, movements, and how many differences wait for events in the queue.
pub fn counts(tallies: &Tallies) -> Tallies {
    money::counts(tallies)
}

/// A page that was gone through.
#[derive(Debug, Default)]
struct Done {
    /// Where to go on; none at the end of the step.
    next: Option<String>,
    tallies: Tallies,
    found: Vec<Suspect>,
    /// What became of findings; none is no difference after all.
    settled: Vec<(FindingId, Option<News>)>,
}

impl Done {
    fn at(next: Option<String>) -> Self {
        Self { next, ..Self::default() }
    }

    fn count(&mut self, name: impl Into<String>, n: usize) {
        self.add(name, i64::try_from(n).unwrap_or(i64::MAX));
    }

    fn add(&mut self, name: impl Into<String>, n: i64) {
        if n != 0 {
            *self.tallies.entry(name.into()).or_default() += n;
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let all: Vec<String> = std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect();
    all.join(": ")
}
