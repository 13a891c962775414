//! Many deliveries side by side, and the memory of what their senders were promised: what processes are killed and stopped under.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::seq::SliceRandom as _;
use sqlx::PgPool;
use tokio::task::JoinSet;

use super::binary::{Bottle, Home, Said};
use super::db::{TestDb, fresh_db};
use super::deliveries::{Event, Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, end_leases, settled};

/// A folder and a database that several processes use, one after another or at once.
pub struct Ground {
    pub home: Home,
    db: TestDb,
    pub pool: PgPool,
}

impl Ground {
    pub async fn new() -> Self {
        let db = fresh_db().await;
        Self { home: Home::new(), pool: db.pool().await, db }
    }

    /// As somebody has it who has just made a database.
    pub async fn new_without_migrations() -> Self {
        let ground = Self::new().await;
        sqlx::raw_sql("drop schema public cascade; create schema public").execute(&ground.pool).await.unwrap();
        ground
    }

    pub fn url(&self) -> String {
        self.db.url()
    }

    pub async fn start(&self, command: &str, more: &[(&str, &str)]) -> Bottle {
        let url = self.db.url();
        let settings = [&[("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())], more].concat();
        self.home.start(&[command], &settings).await
    }

    pub async fn run(&self, args: &[&str]) -> Said {
        self.home.run(args, &[("DATABASE_URL", &self.db.url()), ("KINDE_DOMAIN", &TENANT_URL)]).await
    }

    pub async fn in_processing(&self) -> i64 {
        count(&self.pool, "select count(*) from inbox_events where status = 'processing'").await
    }

    /// At any moment: what was acknowledged is stored, and an event's effects are there whole and once, or not at all.
    pub async fn assert_whole(&self, acked: &BTreeSet<String>) {
        let stored: Vec<String> = sqlx::query_scalar("select dedupe_key from inbox_events").fetch_all(&self.pool).await.unwrap();
        let stored: BTreeSet<String> = stored.into_iter().collect();
        assert!(acked.is_subset(&stored), "acknowledged and lost: {:?}", acked.difference(&stored));
        let torn = "select concat_ws(' ', e.id, status, reason, 'runs', n.runs, 'facts', n.facts, 'entries', n.entries, last_error)
            from inbox_events e, lateral (select
                (select count(*) from event_runs where event_id = e.id) as runs, (select count(*) from facts where event_id = e.id) as facts,
                (select count(*) from ledger where event_id = e.id) as entries) n
            where case when status in ('applied', 'ignored') then n.runs <> 1 or n.facts <> 1 else n.runs + n.facts + n.entries > 0 end";
        let torn: Vec<String> = sqlx::query_scalar(torn).fetch_all(&self.pool).await.unwrap();
        assert_eq!(torn, [""; 0], "events with half of their effects, or with effects twice");
        assert_eq!(count(&self.pool, "select count(*) from inbox_events where attempts > 0").await, 0, "nobody failed");
    }
}

/// Upgrades of many people, nine deliveries each in any order, sent side by side; and the memory of what was promised.
pub struct Load {
    sender: Sender,
    people: Mutex<Vec<Upgrade>>,
    to_send: Mutex<VecDeque<Event>>,
    /// How often each event was answered with 200.
    answers: Mutex<BTreeMap<String, i64>>,
    stopped: AtomicBool,
}

const SENDERS: usize = 16;

impl Load {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: Sender::new(),
            people: Mutex::default(),
            to_send: Mutex::default(),
            answers: Mutex::default(),
            stopped: AtomicBool::new(false),
        })
    }

    pub fn hammer(self: &Arc<Self>, to: SocketAddr) -> JoinSet<()> {
        self.stopped.store(false, Ordering::SeqCst);
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let load = Arc::clone(self);
            senders.spawn(async move {
                while !load.stopped.load(Ordering::SeqCst) && load.send_one(to, true).await {
                    std::hint::spin_loop();
                }
            });
        }
        senders
    }

    /// Until so many more were answered, and a moment longer: on a slow machine a span of time could be over before anything
    /// happened.
    pub async fn answered(&self, more: i64) {
        let all = || self.answers.lock().unwrap().values().sum::<i64>();
        let (before, began) = (all(), std::time::Instant::now());
        while all() < before + more {
            assert!(began.elapsed() < Duration::from_secs(30), "only {} of {more} deliveries were answered", all() - before);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..5_000))).await;
    }

    pub fn stop(&self) {
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

    pub fn acked(&self) -> BTreeSet<String> {
        self.answers.lock().unwrap().keys().cloned().collect()
    }

    /// Sends what was never answered, lets everything run to its end, and holds the end against what was sent and promised.
    pub async fn finish(&self, ground: &Ground) -> String {
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
