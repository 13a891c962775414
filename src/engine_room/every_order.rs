//! Every order of the nine deliveries × every stop, through the real intake and worker.
//!
//! The 504 orders of one stop go through together, each on an account of its own, in one timeline: what is delivered at one
//! moment is stored in one statement, and events of different accounts share the worker's transactions, as they do live. An
//! event whose process is to stop is handed to a worker of its own, so that a stop hits its schedule alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as Stopwatch};

use sqlx::PgPool;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::naive::{self, Repairs};
use super::run::stop_step;
use super::scenario::{Event, Script, every_order};
use super::stand::{Stand, Turn, event_key, user_id};
use super::stop::{Place, every_stop};
use super::timetable::Sending;
use super::{Account, EveryOrderResult, RoomError};
use crate::checkpoint::{Break, Checkpoints, Observer, Pause, Step};
use crate::clock::Clock;
use crate::domain::event::Delivery;
use crate::domain::ids::EventKey;
use crate::domain::instant::Instant;
use crate::domain::plan::Plan;
use crate::inbox::queue;
use crate::intake::{self, AcceptError};
use crate::worker::process::{Charge, Outcome};

/// Deliveries of one statement, as the live batcher has at most.
const BATCH_MAX: usize = 128;
/// Times the worker looks again after the last delivery, each a lease later.
const LOOKS_AFTER: u32 = 3;

/// Runs every schedule. `progress` hears (done, total) after each stop.
pub async fn run(stand: &Stand, mut progress: impl FnMut(usize, usize)) -> Result<EveryOrderResult, RoomError> {
    let begun = Stopwatch::now();
    let orders: Vec<[Event; 9]> = every_order().collect();
    let events = verify_all(stand, orders.len()).await?;
    let stops: Vec<_> = orders.iter().map(|order| every_stop(order)).collect();
    let waves = stops.first().map_or(0, Vec::len);
    let total = orders.len() * waves;
    progress(0, total);

    let mut result =
        EveryOrderResult { schedules: 0, ended_right: 0, one_grant: 0, took: Duration::ZERO, naive_spread: BTreeMap::new() };
    for wave in 0..waves {
        // A turn for each stop: visitors who run one script come in between.
        let mut turn = loop {
            match stand.turn().await {
                Err(RoomError::Busy) => tokio::time::sleep(Duration::from_millis(200)).await,
                turn => break turn?,
            }
        };
        let mut scripts = Vec::with_capacity(orders.len());
        for (order, stops) in orders.iter().zip(&stops) {
            scripts.push(Script::new(order.to_vec(), stops[wave]).map_err(|e| RoomError::Refused(e.to_string()))?);
        }
        for (script, ending) in scripts.iter().zip(run_together(stand, &mut turn, &scripts, &events).await?) {
            result.schedules += 1;
            result.ended_right += usize::from(ending.account == script.owed());
            result.one_grant += usize::from(ending.grants == 1);
            *result.naive_spread.entry(naive::last(script, Repairs::default())).or_default() += 1;
        }
        turn.clear().await?;
        progress(result.schedules, total);
    }
    result.took = begun.elapsed();
    Ok(result)
}

/// What each event of each account is delivered as. Signed and verified once: a copy is the same bytes.
type Deliveries = Vec<[Delivery; 3]>;

async fn verify_all(stand: &Stand, accounts: usize) -> Result<Deliveries, RoomError> {
    let mut all = Vec::with_capacity(accounts);
    for account in 0..accounts {
        let mut verified = Vec::with_capacity(Event::ALL.len());
        for event in Event::ALL {
            let webhook_id = format!("webhook_{}", event_key(event, account));
            verified.push(stand.verify(&stand.token(event, account)?, &webhook_id).await?);
        }
        all.push(verified.try_into().map_err(|_| RoomError::StrangeRow)?);
    }
    Ok(all)
}

#[derive(Debug, Clone, Copy)]
struct Ending {
    account: Account,
    grants: i64,
}

/// Runs scripts side by side from empty tables, the n-th on account n, and says how each ended.
async fn run_together(stand: &Stand, turn: &mut Turn, scripts: &[Script], events: &Deliveries) -> Result<Vec<Ending>, RoomError> {
    turn.clear().await?;
    let mut timeline: BTreeMap<Instant, Vec<(usize, Sending)>> = BTreeMap::new();
    for (account, script) in scripts.iter().enumerate() {
        for sending in script.sends() {
            timeline.entry(sending.at).or_default().push((account, sending));
        }
    }
    let mut last = Instant::from_nanos(0);
    for (at, sendings) in timeline {
        deliver(stand, at, &sendings, events).await?;
        last = at;
    }
    for n in 1..=LOOKS_AFTER {
        work(stand, last.plus(Duration::from_secs(31) * n), &HashMap::new()).await?;
    }
    endings(&stand.pool, scripts.len()).await
}

/// Everything that is delivered at one moment, then the worker.
async fn deliver(stand: &Stand, at: Instant, sendings: &[(usize, Sending)], events: &Deliveries) -> Result<(), RoomError> {
    let mut stops = HashMap::new();
    let mut deliveries = Vec::with_capacity(sendings.len());
    let mut asleep = HashSet::new();
    for (account, sending) in sendings {
        let key = EventKey(event_key(sending.event, *account));
        let delivery = &events[*account][sending.event as usize];
        match sending.stop {
            Some(place) if place.is_unanswered() => {
                store_and_stop(stand, at, delivery, place).await?;
                asleep.insert(*account);
            }
            Some(place) => {
                stops.insert(key, place);
                deliveries.push(delivery);
            }
            None => deliveries.push(delivery),
        }
    }
    for batch in deliveries.chunks(BATCH_MAX) {
        intake::accept(&stand.pool, batch, Clock::At(at), &Checkpoints::default()).await?;
    }
    // A process that stopped around the store does no work either: what it left is found at the next delivery.
    work_unless_asleep(stand, at, &stops, &asleep).await
}

async fn store_and_stop(stand: &Stand, at: Instant, delivery: &Delivery, place: Place) -> Result<(), RoomError> {
    let checkpoints = Checkpoints::observed_by(Arc::new(StopAt(stop_step(place))));
    match intake::accept(&stand.pool, &[delivery], Clock::At(at), &checkpoints).await {
        Err(AcceptError::Break(Break::Stop)) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(RoomError::Refused("a stop was passed by".to_owned())),
    }
}

async fn work(stand: &Stand, at: Instant, stops: &HashMap<EventKey, Place>) -> Result<(), RoomError> {
    work_unless_asleep(stand, at, stops, &HashSet::new()).await
}

async fn work_unless_asleep(
    stand: &Stand,
    at: Instant,
    stops: &HashMap<EventKey, Place>,
    asleep: &HashSet<usize>,
) -> Result<(), RoomError> {
    let engine = stand.engine(at, Checkpoints::default());
    let asleep: HashSet<EventKey> =
        asleep.iter().flat_map(|account| Event::ALL.map(|event| EventKey(event_key(event, *account)))).collect();
    loop {
        let claimed = engine.claim(queue::CLAIM_LIMIT).await?;
        if claimed.is_empty() {
            return Ok(());
        }
        let (gone, awake): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|c| asleep.contains(&c.key));
        let (stopping, going_on): (Vec<_>, Vec<_>) = awake.into_iter().partition(|c| stops.contains_key(&c.key));
        // Its worker died with the lease in hand; the claim stands until it ends.
        drop(gone);
        let outcomes = engine.process(going_on, Charge::Charged).await;
        if outcomes.iter().any(|o| !matches!(o, Outcome::Settled { .. })) {
            return Err(RoomError::Refused(format!("an event did not settle: {outcomes:?}")));
        }
        for event in stopping {
            let observer = StopAt(stops.get(&event.key).map_or(Step::HalfWay, |place| stop_step(*place)));
            let engine = stand.engine(at, Checkpoints::observed_by(Arc::new(observer)));
            engine.process(vec![event], Charge::Charged).await;
        }
    }
}

struct StopAt(Step);

impl Observer for StopAt {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(std::future::ready(if step == self.0 { Err(Break::Stop) } else { Ok(()) }))
    }
}

async fn endings(pool: &PgPool, accounts: usize) -> Result<Vec<Ending>, RoomError> {
    let rows = sqlx::query!(
        r#"select a.kinde_user_id as "user", a.plan, coalesce(sum(l.delta), 0)::bigint as "balance!",
                  count(*) filter (where l.entry_key like 'pro:%') as "grants!"
           from accounts a left join ledger l on l.account_id = a.id group by a.id"#
    )
    .fetch_all(pool)
    .await?;
    let mut by_user = HashMap::new();
    for row in rows {
        let plan: Plan = row.plan.parse().map_err(|_| RoomError::StrangeRow)?;
        by_user.insert(row.user, Ending { account: Account { plan, balance: row.balance }, grants: row.grants });
    }
    (0..accounts).map(|n| by_user.get(&user_id(n)).copied().ok_or(RoomError::StrangeRow)).collect()
}

/// The run of this build, shared by all visitors of this process.
#[derive(Default)]
pub struct Shared(Mutex<super::EveryOrder>);

impl Shared {
    pub fn state(&self) -> super::EveryOrder {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the run unless it runs or is done.
    pub fn start(self: &Arc<Self>, stand: Arc<Stand>) {
        use super::EveryOrder::{Done, Failed, NotRun, Running};
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, NotRun | Failed { .. }) {
            *state = Running { done: 0, total: 0 };
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                let all = run(&stand, |done, total| shared.set(Running { done, total }));
                let result = all.with_subscriber(NoSubscriber::new()).await;
                shared.set(match result {
                    Ok(result) => Done(result),
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "the run of every order failed");
                        Failed { why: error.to_string() }
                    }
                });
            });
        }
    }

    fn set(&self, state: super::EveryOrder) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
