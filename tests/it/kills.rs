//! The real process, killed at every step of the pipeline, killed at any moment under load, and stopped in good order.
//!
//! What a sender was told lives outside of it: a 200 counts once its whole answer was read. An independent fold over the facts
//! that were sent says how each account has to end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bottle::checkpoint::Step;
use bottle::engine_room::KILLS_A_CHECKPOINT;
use rand::seq::SliceRandom as _;
use rustix::process::Signal;
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::support::binary::{Bottle, Home};
use crate::support::cases;
use crate::support::db::{TestDb, fresh_db};
use crate::support::deliveries::{Event, Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, end_leases, settled};

/// A folder and a database that several processes use, one after another or at once.
struct Ground {
    home: Home,
    db: TestDb,
    pool: PgPool,
}

impl Ground {
    async fn new() -> Self {
        let db = fresh_db().await;
        Self { home: Home::new(), pool: db.pool().await, db }
    }

    async fn start(&self, command: &str, more: &[(&str, &str)]) -> Bottle {
        let url = self.db.url();
        let settings = [&[("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())], more].concat();
        self.home.start(&[command], &settings).await
    }

    async fn in_processing(&self) -> i64 {
        count(&self.pool, "select count(*) from inbox_events where status = 'processing'").await
    }

    /// At any moment: what was acknowledged is stored, and an event's effects are there whole and once, or not at all.
    async fn assert_whole(&self, acked: &BTreeSet<String>) {
        let stored: Vec<String> = sqlx::query_scalar("select dedupe_key from inbox_events").fetch_all(&self.pool).await.unwrap();
        let stored: BTreeSet<String> = stored.into_iter().collect();
        assert!(acked.is_subset(&stored), "acknowledged and lost: {:?}", acked.difference(&stored));
        let torn = "select count(*) from inbox_events e where
            (select count(*) from event_runs where event_id = e.id) <> (e.status in ('applied', 'ignored'))::int
            or (select count(*) from facts where event_id = e.id) <> (e.status in ('applied', 'ignored'))::int
            or (e.status not in ('applied', 'ignored') and exists (select from ledger where event_id = e.id))";
        assert_eq!(count(&self.pool, torn).await, 0, "events with half of their effects, or with effects twice");
        assert_eq!(count(&self.pool, "select count(*) from inbox_events where attempts > 0").await, 0, "nobody failed");
    }
}

#[tokio::test]
async fn killed_at_each_step_of_the_pipeline_it_loses_nothing_acknowledged_and_does_nothing_twice() {
    let times = KILLS_A_CHECKPOINT.expect("the Engine Room's page says how often this is done");
    let kills: Vec<(Step, u32)> = Step::ALL.into_iter().flat_map(|step| (1..=times).map(move |visit| (step, visit))).collect();
    let lane = async |odd: usize| {
        let ground = Ground::new().await;
        for (step, visit) in kills.iter().skip(odd).step_by(2) {
            kill_at(&ground, *step, *visit).await;
        }
    };
    tokio::join!(lane(0), lane(1));
    eprintln!("{} kills at {} steps", kills.len(), Step::ALL.len());
}

/// One life that ends at a step of the pipeline, and the next one, which has to make everything right.
async fn kill_at(ground: &Ground, step: Step, visit: u32) {
    let (sender, upgrade) = (Sender::new(), Upgrade::new());
    let wish = format!("{step}:{visit}");
    let mut doomed = ground.start("serve", &[("BOTTLE_DIE_AT", &wish)]).await;
    let (mut answered, mut acked) = (Vec::new(), BTreeSet::new());
    for (n, event) in upgrade.nine().into_iter().enumerate() {
        match sender.post(doomed.addr(), event).await {
            None => break,
            Some(status) => assert_eq!(status, 200, "{wish}"),
        }
        answered.push(n);
        acked.insert(event.key.clone());
        // One event after another: so the first visit is the payment's, the second the upgrade's, the third the cancellation's.
        let open = "select count(*) from inbox_events where status in ('received', 'processing', 'failed')";
        while count(&ground.pool, open).await > 0 && doomed.is_running() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let status = doomed.ended().await;
    assert_eq!(status.signal(), Some(9), "{wish} was not met: {status}\n{}", doomed.log());

    ground.assert_whole(&acked).await;
    let held = ground.in_processing().await;
    let expected = match step {
        Step::BeforeStore | Step::Committed => 0..=0,
        // A worker that looked just then may have taken it.
        Step::Stored => 0..=1,
        _ => 1..=1,
    };
    assert!(expected.contains(&held), "{wish}: {held} events in the dead process's hands");
    end_leases(&ground.pool).await;

    let alive = ground.start("serve", &[]).await;
    for (n, event) in upgrade.nine().into_iter().enumerate().filter(|(n, _)| !answered.contains(n)) {
        assert_eq!(sender.post(alive.addr(), event).await, Some(200), "{wish}: delivery {}", n + 1);
        acked.insert(event.key.clone());
    }
    settled(&ground.pool).await;
    ground.assert_whole(&acked).await;
    assert_as_the_oracle_says(&ground.pool, &upgrade.user, &upgrade.events()).await;
    // A kill between the store and the answer makes its sender come once more.
    let keys: Vec<String> = acked.into_iter().collect();
    let receipts: i64 =
        sqlx::query_scalar("select count(*) from receipts r join inbox_events e on e.id = event_id where dedupe_key = any($1)")
            .bind(&keys)
            .fetch_one(&ground.pool)
            .await
            .unwrap();
    assert!((9..=10).contains(&receipts) && (receipts == 9 || step >= Step::Stored), "{wish}: {receipts} receipts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_under_load_it_loses_nothing_acknowledged_and_does_nothing_twice() {
    let (ground, load, cycles) = (Ground::new().await, Load::new(), cases(12));
    for _ in 0..cycles {
        let mut bottle = ground.start("serve", &[]).await;
        let senders = load.hammer(bottle.addr());
        load.answered(rand::random_range(0..60)).await;
        bottle.killed().await;
        senders.join_all().await;
        ground.assert_whole(&load.acked()).await;
        end_leases(&ground.pool).await;
    }
    eprintln!("{cycles} kills, {}", load.finish(&ground).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_under_load_it_keeps_every_promise_charges_nobody_and_holds_no_lease() {
    let (ground, load, cycles) = (Ground::new().await, Load::new(), cases(6));
    let mut longest = Duration::ZERO;
    for _ in 0..cycles {
        let mut bottle = ground.start("serve", &[]).await;
        let senders = load.hammer(bottle.addr());
        load.answered(rand::random_range(0..60)).await;
        let (status, took) = bottle.told(Signal::TERM).await;
        assert!(status.code() == Some(0) && took < Duration::from_secs(15), "{status} after {took:?}\n{}", bottle.log());
        longest = longest.max(took);
        senders.join_all().await;
        ground.assert_whole(&load.acked()).await;
        assert_eq!(ground.in_processing().await, 0, "leases left");
        assert_eq!(count(&ground.pool, "select count(*) from inbox_events where claims > 0").await, 0, "claims left");
    }
    eprintln!("{cycles} stops, the longest took {longest:?}; {}", load.finish(&ground).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_beside_one_web_process_apply_everything_once_between_them() {
    let (ground, load) = (Ground::new().await, Load::new());
    let web = ground.start("web", &[]).await;
    let mut workers = [ground.start("worker", &[]).await, ground.start("worker", &[]).await];
    let senders = load.hammer(web.addr());
    tokio::time::sleep(Duration::from_secs(3)).await;
    load.stop();
    senders.join_all().await;
    settled(&ground.pool).await;
    ground.assert_whole(&load.acked()).await;
    let mut lines = Vec::new();
    for worker in &mut workers {
        assert_eq!(worker.told(Signal::TERM).await.0.code(), Some(0));
        lines.push(worker.log().lines().filter(|line| line.contains("event settled")).count());
    }
    assert!(!web.log().contains("event settled"), "a web process works on nothing");
    assert!(lines.iter().all(|n| *n > 0), "both work: {lines:?}");
    let events = count(&ground.pool, "select count(*) from inbox_events").await;
    assert_eq!(i64::try_from(lines.iter().sum::<usize>()).unwrap(), events, "{lines:?}");
    drop(web);
    eprintln!("settled by the two workers: {lines:?}; {}", load.finish(&ground).await);
}

/// Upgrades of many people, nine deliveries each in any order, sent side by side; and the memory of what was promised.
struct Load {
    sender: Sender,
    people: Mutex<Vec<Upgrade>>,
    to_send: Mutex<VecDeque<Event>>,
    /// How often each event was answered with 200.
    answers: Mutex<BTreeMap<String, i64>>,
    stopped: AtomicBool,
}

const SENDERS: usize = 16;

impl Load {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: Sender::new(),
            people: Mutex::default(),
            to_send: Mutex::default(),
            answers: Mutex::default(),
            stopped: AtomicBool::new(false),
        })
    }

    fn hammer(self: &Arc<Self>, to: SocketAddr) -> JoinSet<()> {
        self.stopped.store(false, Ordering::SeqCst);
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let load = Arc::clone(self);
            senders.spawn(async move { while !load.stopped.load(Ordering::SeqCst) && load.send_one(to, true).await {} });
        }
        senders
    }

    /// Until so many more were answered, and a moment longer: on a slow machine a span of time could be over before anything
    /// happened.
    async fn answered(&self, more: i64) {
        let all = || self.answers.lock().unwrap().values().sum::<i64>();
        let (before, began) = (all(), std::time::Instant::now());
        while all() < before + more {
            assert!(began.elapsed() < Duration::from_secs(30), "only {} of {more} deliveries were answered", all() - before);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..5_000))).await;
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// False once nobody answers any more, or nothing is left to send.
    async fn send_one(&self, to: SocketAddr, endless: bool) -> bool {
        let next = self.to_send.lock().unwrap().pop_front();
        let event = match next {
            Some(event) => event,
            None if endless => self.another(),
            None => return false,
        };
        let status = self.sender.post(to, &event).await;
        match status {
            Some(200) => *self.answers.lock().unwrap().entry(event.key).or_default() += 1,
            None | Some(503) => self.to_send.lock().unwrap().push_back(event),
            Some(other) => panic!("answered with {other}"),
        }
        status.is_some()
    }

    fn another(&self) -> Event {
        let person = Upgrade::new();
        let mut nine: Vec<Event> = person.nine().into_iter().cloned().collect();
        nine.shuffle(&mut rand::rng());
        let first = nine.remove(0);
        // Remembered before it is sent: nothing may be stored that nobody knows of.
        self.people.lock().unwrap().push(person);
        self.to_send.lock().unwrap().extend(nine);
        first
    }

    fn acked(&self) -> BTreeSet<String> {
        self.answers.lock().unwrap().keys().cloned().collect()
    }

    /// Sends what was never answered, lets everything run to its end, and holds the end against what was sent and promised.
    async fn finish(&self, ground: &Ground) -> String {
        end_leases(&ground.pool).await;
        let bottle = ground.start("serve", &[]).await;
        while self.send_one(bottle.addr(), false).await {}
        settled(&ground.pool).await;
        ground.assert_whole(&self.acked()).await;

        let people = self.people.lock().unwrap();
        let sent: BTreeSet<&str> = people.iter().flat_map(Upgrade::events).map(|event| event.key.as_str()).collect();
        let stored: Vec<(String, i64, i64, String)> = sqlx::query_as(
            "select dedupe_key, seen_count::bigint, (select count(*) from receipts where event_id = e.id), status from inbox_events e",
        )
        .fetch_all(&ground.pool)
        .await
        .unwrap();
        assert_eq!(stored.iter().map(|(key, ..)| key.as_str()).collect::<BTreeSet<_>>(), sent, "stored and sent");
        let answers = self.answers.lock().unwrap().clone();
        let mut unheard = 0;
        for (key, seen, receipts, status) in &stored {
            assert!(["applied", "ignored"].contains(&status.as_str()), "{key}: {status}");
            assert!(
                seen == receipts && *seen >= answers[key],
                "{key}: seen {seen}, receipts {receipts}, answered {}",
                answers[key]
            );
            unheard += seen - answers[key];
        }
        for person in people.iter() {
            assert_as_the_oracle_says(&ground.pool, &person.user, &person.events()).await;
        }
        assert_eq!(count(&ground.pool, "select count(*) from accounts").await, i64::try_from(people.len()).unwrap());
        let answered: i64 = answers.values().sum();
        format!(
            "{} people, {} events, {answered} deliveries answered, {unheard} stored whose answer was lost",
            people.len(),
            stored.len()
        )
    }
}
