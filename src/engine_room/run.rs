//! One script, delivery by delivery, through the live endpoint's intake and the real worker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as Stopwatch};

use super::naive::{self, Repairs};
use super::report::time_of_day;
use super::scenario::Script;
use super::stand::{Stand, event_key};
use super::stop::Place;
use super::timetable::Sending;
use super::{Account, RoomError, Rows, Run, Step as RunStep, TraceLine, rows, trace};
use crate::checkpoint::{Break, Checkpoints, Observer, Pause, Step};
use crate::domain::event::Status;
use crate::domain::ids::EventKey;
use crate::domain::instant::Instant;
use crate::domain::plan::{FREE_BOTTLES, Plan};
use crate::inbox::queue::{self, LEASE_SECS};
use crate::intake::{self, AcceptError};
use crate::worker::process::{Charge, Outcome};

/// One test account a run.
const ACCOUNT: usize = 1;

/// Runs a script to its end. The clock is the scenario's: nobody waits.
pub async fn run(stand: &Stand, script: &Script) -> Result<Run, RoomError> {
    let begun = Stopwatch::now();
    let mut turn = stand.turn().await?;
    let sends = script.sends();
    let naive = naive::run(script, Repairs::default());
    let mut steps = Vec::with_capacity(sends.len());
    let mut before = Rows::default();
    for (n, sending) in sends.iter().enumerate() {
        let mut step = deliver(stand, sending, &before).await?;
        step.naive = naive.get(n).map_or(naive::FRESH, |step| step.account);
        if n + 1 == sends.len() {
            finish(stand, &mut step).await?;
        }
        before = step.rows.clone();
        steps.push(step);
    }
    turn.clear().await?;
    Ok(Run { script: script.clone(), steps, took: begun.elapsed() })
}

async fn deliver(stand: &Stand, sending: &Sending, before: &Rows) -> Result<RunStep, RoomError> {
    let watch = Arc::new(Watch::new(sending));
    let checkpoints = Checkpoints::observed_by(Arc::clone(&watch) as Arc<dyn Observer>);

    let body = stand.token(sending.event, ACCOUNT)?;
    let delivery = stand.verify(&body, &format!("webhook_{}", sending.event.name().to_lowercase())).await?;
    let clock = crate::clock::Clock::At(sending.at);
    let answered = match intake::accept(&stand.pool, &[&delivery], clock, &checkpoints).await {
        Ok(_) => true,
        Err(AcceptError::Break(Break::Stop)) => false,
        Err(error) => return Err(error.into()),
    };
    // A process that stopped around the store is gone; the next one starts with the next delivery.
    if answered {
        work(stand, sending.at, &checkpoints).await?;
    }

    let rows = rows::read(&stand.pool).await?;
    Ok(RunStep {
        n: sending.n,
        at: sending.at,
        event: sending.event,
        copy: sending.copy,
        resend: sending.resend,
        stopped: sending.stop.filter(|_| watch.stopped()),
        naive: naive::FRESH,
        pipeline: account(&rows),
        outcome: outcome(sending, before, &rows, watch.stopped()),
        trace: trace::lines(
            &watch.steps(),
            rows.inbox.iter().any(|r| r.event == sending.event && r.seen > 1),
            sending.stop.filter(|_| watch.stopped()),
        ),
        rows,
    })
}

/// The worker, until nothing is due or the process stops.
async fn work(stand: &Stand, now: Instant, checkpoints: &Checkpoints) -> Result<(), RoomError> {
    let engine = stand.engine(now, checkpoints.clone());
    loop {
        let claimed = engine.claim(queue::CLAIM_LIMIT).await?;
        if claimed.is_empty() || engine.process(claimed, Charge::Charged).await.contains(&Outcome::Stopped) {
            return Ok(());
        }
    }
}

/// After the last delivery: a stop may have left a lease behind; when it ends the event runs.
async fn finish(stand: &Stand, step: &mut RunStep) -> Result<(), RoomError> {
    if step.rows.inbox.iter().all(|row| is_settled(row.status)) {
        return Ok(());
    }
    let later = step.at.plus(Duration::from_secs_f64(LEASE_SECS) + Duration::from_secs(1));
    work(stand, later, &Checkpoints::default()).await?;
    step.rows = rows::read(&stand.pool).await?;
    step.pipeline = account(&step.rows);
    step.outcome = format!("{}; at {} what was left open ran to its end", step.outcome, time_of_day(later));
    step.trace.push(TraceLine {
        step: "claimed again".to_owned(),
        guard: "The lease ended, so the stored event was due again and ran from the start.".to_owned(),
        source: "src/inbox/queue.rs",
    });
    Ok(())
}

/// Until an event made the account, it is what a new account is.
fn account(rows: &Rows) -> Account {
    Account {
        plan: rows.account.as_ref().map_or(Plan::Free, |a| a.plan),
        balance: if rows.account.is_some() { rows.ledger.iter().map(|l| l.delta).sum() } else { FREE_BOTTLES },
    }
}

fn is_settled(status: Status) -> bool {
    matches!(status, Status::Applied | Status::Ignored | Status::Dead)
}

/// What was made of the delivery, in one line, read off the rows.
fn outcome(sending: &Sending, before: &Rows, after: &Rows, stopped: bool) -> String {
    let row = |rows: &Rows| rows.inbox.iter().find(|r| r.event == sending.event).cloned();
    let (was, Some(is)) = (row(before), row(after)) else {
        return "not stored: the process stopped before it could be, and nobody was told otherwise".to_owned();
    };
    let reason = is.reason.clone().unwrap_or_default();
    match (was, sending.stop.filter(|_| stopped)) {
        (Some(was), Some(Place::BeforeStore)) if was.seen == is.seen => "copy not counted: the process stopped before".to_owned(),
        (Some(was), _) if !is_settled(was.status) && is_settled(is.status) => {
            format!("copy counted; the stored event runs to the end: {reason}")
        }
        (Some(_), _) => "copy counted, nothing runs".to_owned(),
        (None, Some(Place::AfterStore)) => "stored, but the answer was lost: the sender will come again".to_owned(),
        (None, Some(place)) => {
            let lease = time_of_day(sending.at.plus(Duration::from_secs_f64(LEASE_SECS)));
            format!("stored; stopped {}: rolled back whole, its lease ends at {lease}", place.words())
        }
        (None, None) => format!("stored; {reason}"),
    }
}

/// Notes every step, and stops where the script says.
struct Watch {
    key: EventKey,
    stop: Option<Place>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    steps: Vec<Step>,
    stopped: bool,
}

impl Watch {
    fn new(sending: &Sending) -> Self {
        Self { key: EventKey(event_key(sending.event, ACCOUNT)), stop: sending.stop, seen: Mutex::default() }
    }

    fn stopped(&self) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }

    fn steps(&self) -> Vec<Step> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).steps.clone()
    }
}

impl Observer for Watch {
    fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.steps.push(step);
        let stops = self.stop.map(stop_step) == Some(step) && events.contains(&&self.key);
        seen.stopped |= stops;
        Box::pin(std::future::ready(if stops { Err(Break::Stop) } else { Ok(()) }))
    }
}

/// Where in the pipeline a place of the script lies.
pub(super) const fn stop_step(place: Place) -> Step {
    match place {
        Place::BeforeStore => Step::BeforeStore,
        Place::AfterStore => Step::Stored,
        Place::HalfWay => Step::HalfWay,
        Place::BeforeMark => Step::BeforeMark,
    }
}
