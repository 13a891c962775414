//! Two workers cut at every checkpoint, their steps in many orders. A step that waits for a lock of the other is not enabled:
//! the other goes on until it is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bottle::checkpoint::{Checkpoints, Observer, Pause, Step};
use bottle::clock::Clock;
use bottle::domain::ids::{EventId, EventKey};
use bottle::domain::plan::PlanKeys;
use bottle::replay;
use bottle::worker::process::{Charge, Engine, Outcome};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::oracle::oracle;
use crate::support::cases;
use crate::support::claims::{customer_only, says};
use crate::support::histories::meanings;
use crate::support::pipeline::Pipeline;

/// Where a worker waits until it may go on. It reports that it is there, then takes one permit.
struct Gate {
    /// Closed by the worker's end.
    arrived: mpsc::UnboundedSender<Step>,
    permits: Arc<Semaphore>,
}

impl Gate {
    async fn pass(&self, step: Step) {
        let _ = self.arrived.send(step);
        self.permits.acquire().await.unwrap().forget();
    }
}

impl Observer for Gate {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(async move {
            self.pass(step).await;
            Ok(())
        })
    }
}

/// One of the two: it begins at a gate, before its first statement.
struct Worker {
    /// Of its sessions.
    name: String,
    permits: Arc<Semaphore>,
    arrivals: mpsc::UnboundedReceiver<Step>,
    task: JoinHandle<()>,
    is_at_gate: bool,
    is_done: bool,
}

impl Worker {
    fn start<F: Future<Output = ()> + Send + 'static>(pool: &PgPool, work: impl FnOnce(Arc<Gate>) -> F) -> Self {
        let name = pool.connect_options().get_application_name().unwrap().to_owned();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let task = tokio::spawn(work(Arc::new(Gate { arrived, permits: Arc::clone(&permits) })));
        Self { name, permits, arrivals, task, is_at_gate: false, is_done: false }
    }

    fn claiming(engine: Engine, pool: &PgPool) -> Self {
        let pool = pool.clone();
        Self::start(&pool.clone(), async move |gate| {
            gate.pass(Step::Stored).await;
            let engine = Engine { pool, checkpoints: Checkpoints::observed_by(gate), ..engine };
            let claimed = engine.claim(1).await.unwrap();
            if !claimed.is_empty() {
                let outcomes = engine.process(claimed, Charge::Charged).await;
                assert!(matches!(outcomes[0], Outcome::Settled { .. } | Outcome::LeaseLost), "{outcomes:?}");
            }
        })
    }

    fn asking_for_a_replay(pool: &PgPool, id: i64, now: OffsetDateTime) -> Self {
        let pool = pool.clone();
        Self::start(&pool.clone(), async move |gate| {
            gate.pass(Step::Stored).await;
            let mut tx = pool.begin().await.unwrap();
            gate.pass(Step::Held).await;
            replay::request(&mut tx, &[EventId(id)], "a test", now).await.unwrap();
            gate.pass(Step::Marked).await;
            tx.commit().await.unwrap();
            gate.pass(Step::Committed).await;
        })
    }

    /// Until it is at its next gate or done. False: it waits for the other.
    async fn settles(&mut self, pool: &PgPool) -> bool {
        for _ in 0..1_000 {
            match tokio::time::timeout(Duration::from_millis(3), self.arrivals.recv()).await {
                Ok(step) => {
                    (self.is_at_gate, self.is_done) = (step.is_some(), step.is_none());
                    return true;
                }
                Err(_) => {
                    let waits = "select exists (select 1 from pg_stat_activity where datname = current_database() \
                                 and application_name = $1 and cardinality(pg_blocking_pids(pid)) > 0)";
                    if sqlx::query_scalar(waits).bind(&self.name).fetch_one(pool).await.unwrap() {
                        return false;
                    }
                }
            }
        }
        panic!("a worker neither comes to a gate nor waits for a lock");
    }
}

/// Lets the two go on in an order drawn from the seed, to the end of both. Returns the order that came of it.
async fn interleave(pool: &PgPool, workers: &mut [Worker; 2], rng: &mut StdRng) -> String {
    let mut order = String::new();
    for worker in workers.iter_mut() {
        assert!(worker.settles(pool).await, "both begin at a gate");
    }
    // A worker that was heard of as waiting for a lock, and is not at a gate.
    let mut waiting = [false; 2];
    // Long stretches of one worker are as telling as frequent changes.
    let stay = rng.random_range(0.1..0.9);
    let mut turn = usize::from(rng.random_bool(0.5));
    while workers.iter().any(|w| !w.is_done) {
        if rng.random_bool(1.0 - stay) {
            turn = 1 - turn;
        }
        if waiting[turn] || workers[turn].is_done {
            turn = 1 - turn;
        }
        let _ = write!(order, "{}", ["A", "B"][turn]);
        let worker = &mut workers[turn];
        if worker.is_at_gate {
            worker.is_at_gate = false;
            worker.permits.add_permits(1);
        }
        waiting[turn] = !worker.settles(pool).await;
        // What the step set free may be at its next gate by now.
        let other = 1 - turn;
        if waiting[other] {
            waiting[other] = !workers[other].settles(pool).await;
        }
        assert_ne!(waiting, [true, true], "they wait for each other: {order}");
    }
    for worker in workers.iter_mut() {
        (&mut worker.task).await.unwrap();
    }
    order
}

/// Each pair of workers in some of its orders, each on an account of its own.
async fn explore<F: Future<Output = ([Worker; 2], Vec<Value>)>>(
    pair: &str,
    set_up: impl AsyncFn(&mut Pipeline, &str, [PgPool; 2]) -> F,
) {
    let mut p = Pipeline::new().await;
    let pools =
        ["A", "B"].map(|name| PgPoolOptions::new().max_connections(2).connect_lazy_with(p.db.options().application_name(name)));
    let mut orders = BTreeSet::new();
    let runs = cases(40);
    for seed in 0..u64::from(runs) {
        let user = format!("u{seed}");
        let (mut workers, events) = set_up(&mut p, &user, pools.clone()).await.await;
        let order = interleave(&p.pool, &mut workers, &mut StdRng::seed_from_u64(seed)).await;
        // Whatever was left behind comes due.
        p.later(Duration::from_secs(120)).drain().await;
        check(&p, &user, &events, &format!("{pair}, seed {seed}: {order}")).await;
        orders.insert(order);
    }
    p.check_invariants().await;
    println!("{pair}: {} different orders in {runs} runs", orders.len());
}

async fn check(p: &Pipeline, user: &str, events: &[Value], order: &str) {
    let state = oracle(&meanings(events), &PlanKeys::default(), p.now);
    let account = p.account(user).await;
    assert!(account.starts_with(&state.plan.to_string()), "{order}: {account}");
    let granted: Vec<String> = state.pro_periods.iter().map(|period| format!("pro:{period} +490")).collect();
    assert_eq!(account.matches("pro:").count(), granted.len(), "{order}: {account}");
    assert!(granted.iter().all(|entry| account.contains(entry)), "{order}: {account}");
    for event in events {
        let row = p.event_of(event).await;
        let runs = p.runs(event).await;
        let facts: i64 = p.value(&format!("select count(*) from facts where event_id = {}", row.id)).await;
        assert!(["applied", "ignored"].contains(&row.status.as_str()) && facts == 1, "{order}: {}", row.said());
        assert_eq!((row.attempts, row.claims, row.leased), (0, 0, false), "{order}");
        // One run for its arrival, one for each replay, and one for the time it was parked.
        let replays: i64 = p.value(&format!("select count(*) from replays where event_id = {}", row.id)).await;
        let parked = runs.iter().filter(|run| run.0.starts_with("parked")).count();
        assert_eq!(runs.len(), 1 + usize::try_from(replays).unwrap() + parked, "{order}: {runs:?}");
        assert!(parked <= 1, "{order}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_whose_lease_ends_while_its_worker_lives() {
    explore("one event, two workers", async |p, user, [a, b]| {
        let up = says(user, &format!("{user}zup"), "10-21 10:00:00 changed - pro");
        p.deliver(&up).await;
        let late = Engine { clock: Clock::At(p.now.plus(Duration::from_secs(31))), ..p.engine() };
        let engine = p.engine();
        async move { ([Worker::claiming(engine, &a), Worker::claiming(late, &b)], vec![up]) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_events_of_one_account() {
    explore("two events, one account", async |p, user, [a, b]| {
        let up = says(user, &format!("{user}zup"), "10-21 10:00:00 changed - pro");
        let old = says(user, &format!("{user}zold"), "10-21 09:57:00 changed - starter");
        // The account exists: to make one would be a lock as well.
        let first = says(user, &format!("{user}zfirst"), "10-20 10:00:00 paid -");
        p.run(&first).await;
        p.deliver(&up).await;
        p.deliver(&old).await;
        let (one, other) = (p.engine(), p.engine());
        async move { ([Worker::claiming(one, &a), Worker::claiming(other, &b)], vec![first, up, old]) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_and_a_request_to_replay_it() {
    explore("event and replay", async |p, user, [a, b]| {
        let up = says(user, &format!("{user}zup"), "10-21 10:00:00 changed - pro");
        let id = p.deliver(&up).await.id.0;
        let (engine, now) = (p.engine(), p.now.datetime());
        async move { ([Worker::claiming(engine, &a), Worker::asking_for_a_replay(&b, id, now)], vec![up]) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_parked_while_its_customer_becomes_known() {
    explore("park and learn", async |p, user, [a, b]| {
        let parked = customer_only(says(user, &format!("{user}zup"), "10-21 10:00:00 changed - pro"));
        let both = says(user, &format!("{user}zpay"), "10-21 10:03:00 paid -");
        p.deliver(&parked).await;
        p.deliver(&both).await;
        let (one, other) = (p.engine(), p.engine());
        async move { ([Worker::claiming(one, &a), Worker::claiming(other, &b)], vec![parked, both]) }
    })
    .await;
}
