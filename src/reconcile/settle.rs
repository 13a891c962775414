//! What came of the events that a run stored.

use sqlx::PgConnection;
use tokio::time::{Duration, Instant, sleep};

use super::findings::{Class, FindingId, State};
use super::journal::{self, News};
use super::runs::Run;
use super::{Done, Error, Reconciler};
use crate::domain::event::Status;
use crate::domain::ids::EventId;
use crate::inbox::{history, open};

const PAGE: i64 = 500;
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Reconciler {
    /// Until what was stored has run, or does not get on any more: an event that fails is tried again for longer than a run lasts.
    pub(super) async fn wait_for_events(&self, conn: &mut PgConnection, run: &Run) -> Result<Done, Error> {
        let (mut least, mut since) = (i64::MAX, Instant::now());
        loop {
            let open = self.still_open(&mut *conn, run).await?;
            if open < least {
                (least, since) = (open, Instant::now());
            }
            if open == 0 || since.elapsed() >= self.wait {
                return Ok(Done::default());
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = self.stop.cancelled() => return Err(Error::Stopped),
            }
        }
    }

    async fn still_open(&self, conn: &mut PgConnection, run: &Run) -> Result<i64, Error> {
        let (mut open, mut after) = (0, FindingId(0));
        loop {
            let page = journal::in_state(&mut *conn, run.id, State::Asked, after, PAGE).await?;
            let ids: Vec<EventId> = page.iter().filter_map(|one| one.finding.event).collect();
            open += history::waiting(&mut *conn, &ids).await?;
            match page.last() {
                Some(last) if i64::try_from(page.len()) == Ok(PAGE) => after = last.finding.id,
                _ => return Ok(open),
            }
        }
    }

    pub(super) async fn settle_page(&self, conn: &mut PgConnection, run: &Run, cursor: Option<&str>) -> Result<Done, Error> {
        let after = FindingId(cursor.and_then(|id| id.parse().ok()).unwrap_or_default());
        let page = journal::in_state(&mut *conn, run.id, State::Asked, after, PAGE).await?;
        let next = page.last().filter(|_| i64::try_from(page.len()) == Ok(PAGE)).map(|last| last.finding.id.0.to_string());
        let mut done = Done::at(next);
        for one in page {
            let finding = one.finding;
            let event = match finding.event {
                Some(id) => history::of_ids(&mut *conn, &[id]).await?.pop().map(|event| (event.id, event.status)),
                // Stored by a process that did not live to note it.
                None => open::stored(&mut *conn, finding.source, &[&finding.subject]).await?.into_values().next(),
            };
            let (event, state, became) = match event {
                None => (None, State::Open, "it could not be stored".to_owned()),
                Some((id, status)) => (Some(id), became(finding.class, status), format!("event {id} is {status}")),
            };
            let what = format!("{}; {became}", finding.done);
            done.settled.push((finding.id, Some(News { state, ours: finding.ours, theirs: finding.theirs, done: what, event })));
        }
        Ok(done)
    }
}

const fn became(class: Class, status: Status) -> State {
    match (class, status) {
        (_, Status::Applied) | (Class::EventMissing, Status::Ignored | Status::Parked) => State::Repaired,
        (_, Status::Received | Status::Processing | Status::Failed) => State::Asked,
        (_, Status::Ignored | Status::Parked | Status::Dead) => State::Open,
    }
}
