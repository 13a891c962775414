//! The real pipeline on a database of its own: signed deliveries, the intake's inner step and the worker, at a time that the
//! test chooses. The provider is a script whose keys and truth are held in memory.

use std::sync::Arc;
use std::time::Duration;

use bottle::accounts;
use bottle::billing::apply::Rules;
use bottle::checkpoint::{Break, Checkpoints, Observer, Pause, Step};
use bottle::clock::Clock;
use bottle::domain::event::{Delivery, Source};
use bottle::domain::ids::{AccountId, EventId, EventKey};
use bottle::domain::instant::Instant;
use bottle::domain::plan::PlanKeys;
use bottle::inbox::queue::LEASE_SECS;
use bottle::inbox::store::Stored;
use bottle::intake;
use bottle::jwks::Jwks;
use bottle::providers::kinde::Kinde;
use bottle::providers::script::{Script, Truth};
use bottle::providers::{Provider, Providers};
use bottle::replay;
use bottle::wake::Wake;
use bottle::worker;
use bottle::worker::process::{Engine, Outcome};
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::claims::{user_id, verified};
use super::db::{TestDb, fresh_db};
use super::histories::moment;
use super::tokens::TENANT;

pub struct Pipeline {
    pub pool: PgPool,
    pub now: Instant,
    pub rules: Arc<Rules>,
    pub providers: Arc<Providers>,
    pub db: TestDb,
}

/// A stored event, as an operator would look at it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Row {
    pub id: i64,
    pub status: String,
    pub reason: Option<String>,
    pub attempts: i32,
    pub claims: i32,
    /// None: never, unless it is re-armed.
    pub due: Option<OffsetDateTime>,
    pub leased: bool,
    pub runs: i64,
}

impl Row {
    /// `applied: plan set to pro`; the sentence alone where it begins with the state.
    pub fn said(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or("nothing yet");
        if reason.starts_with(&self.status) { reason.to_owned() } else { format!("{}: {reason}", self.status) }
    }
}

impl Pipeline {
    /// At noon of 2026-10-21.
    pub async fn new() -> Self {
        let db = fresh_db().await;
        let kinde = Kinde::new(Arc::new(Jwks::held([TENANT.held()])), ["https://bottle.kinde.test".to_owned()], None);
        let providers = Providers { kinde: Some(Provider::Script(Script::new(kinde))), stripe: None };
        Self {
            pool: db.pool().await,
            now: moment("10-21 12:00:00"),
            rules: Arc::new(Rules { keys: PlanKeys::default(), tenant: "test".to_owned() }),
            providers: Arc::new(providers),
            db,
        }
    }

    /// `10-21 10:00:00`, of 2026, UTC.
    pub fn at(&mut self, time: &str) -> &Self {
        self.now = moment(time);
        self
    }

    pub fn later(&mut self, span: Duration) -> &Self {
        self.now = self.now.plus(span);
        self
    }

    pub fn provider_says(&self, truth: Truth) {
        match &self.providers.kinde {
            Some(Provider::Script(script)) => script.set_truth(truth),
            _ => unreachable!("the provider is a script"),
        }
    }

    /// Genuine, and stored.
    pub async fn deliver(&self, claims: &Value) -> Stored {
        self.deliver_under(claims, claims["event_id"].as_str().unwrap()).await
    }

    pub async fn deliver_at(&mut self, time: &str, claims: &Value) -> Stored {
        self.at(time).deliver(claims).await
    }

    /// Under this `webhook-id` header.
    pub async fn deliver_under(&self, claims: &Value, header: &str) -> Stored {
        let body = TENANT.sign_event(claims.to_string()).into_bytes();
        let verified = self.providers.verify(Source::Kinde, &named(header), &body).await.unwrap();
        let delivery = verified.unwrap();
        self.store(&[&delivery], &Checkpoints::default()).await.remove(0)
    }

    /// Many, stored as if they had been verified: signing thousands is not what a test of the worker should wait for.
    pub async fn deliver_unsigned(&self, all: &[Value]) {
        let deliveries: Vec<Delivery> = all.iter().map(verified).collect();
        for batch in deliveries.chunks(500) {
            self.store(&batch.iter().collect::<Vec<_>>(), &Checkpoints::default()).await;
        }
    }

    async fn store(&self, batch: &[&Delivery], checkpoints: &Checkpoints) -> Vec<Stored> {
        intake::accept(&self.pool, batch, Clock::At(self.now), checkpoints).await.unwrap()
    }

    pub fn engine(&self) -> Engine {
        Engine {
            pool: self.pool.clone(),
            providers: Arc::clone(&self.providers),
            rules: Arc::clone(&self.rules),
            checkpoints: Checkpoints::default(),
            clock: Clock::At(self.now),
            lease_secs: LEASE_SECS,
        }
    }

    pub fn watched(&self, observer: Arc<dyn Observer>) -> Engine {
        Engine { checkpoints: Checkpoints::observed_by(observer), ..self.engine() }
    }

    /// Runs whatever is due now.
    pub async fn drain(&self) -> Vec<Outcome> {
        self.engine().drain().await.unwrap()
    }

    /// Delivers, drains, and reads what became of it.
    pub async fn run(&self, claims: &Value) -> Row {
        self.deliver(claims).await;
        self.drain().await;
        self.event_of(claims).await
    }

    /// The whole worker, from its start until this event's run has been committed.
    pub async fn work_until_committed(&self, claims: &Value) {
        let (commits, mut committed) = mpsc::unbounded_channel();
        let key = EventKey(claims["event_id"].as_str().unwrap().to_owned());
        let stop = CancellationToken::new();
        let engine = self.watched(Arc::new(At(move |step, events: &[&EventKey]| {
            if step == Step::Committed {
                let _ = commits.send(events.iter().map(|key| (*key).clone()).collect::<Vec<_>>());
            }
            Ok(())
        })));
        let working = tokio::spawn(worker::run(engine, 2, Wake::default(), stop.clone()));
        let seen = async { while !committed.recv().await.unwrap().contains(&key) {} };
        timeout(Duration::from_secs(30), seen).await.expect("the worker runs the event");
        stop.cancel();
        working.await.unwrap();
    }

    pub async fn replay(&self, claims: &Value) -> Vec<EventId> {
        let id = EventId(self.event_of(claims).await.id);
        let mut tx = self.pool.begin().await.unwrap();
        let requeued = replay::request(&mut tx, &[id], "a test", self.now.datetime()).await.unwrap();
        tx.commit().await.unwrap();
        requeued
    }

    pub async fn event_of(&self, claims: &Value) -> Row {
        self.event(claims["event_id"].as_str().unwrap()).await
    }

    pub async fn event(&self, key: &str) -> Row {
        sqlx::query_as(
            "select id, status, reason, attempts, claims, nullif(due_at, 'infinity') as due, lease_token is not null as leased,
                    (select count(*) from event_runs r where r.event_id = e.id) as runs
             from inbox_events e where dedupe_key = $1",
        )
        .bind(key)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// The sentences and effects of an event's runs, oldest first.
    pub async fn runs(&self, claims: &Value) -> Vec<(String, Value, Option<String>)> {
        sqlx::query_as("select sentence, effects, requested_by from event_runs where event_id = $1 order by id")
            .bind(self.event_of(claims).await.id)
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }

    pub async fn account_id(&self, user: &str) -> Option<AccountId> {
        let id: Option<i64> =
            self.value(&format!("select max(id) from accounts where kinde_user_id = '{}'", user_id(user))).await;
        id.map(AccountId)
    }

    /// `pro since 10-21 10:00:00, past due since …; free:2026-10 +10, pro:2026-10 +490`, read now.
    pub async fn account(&self, user: &str) -> String {
        let Some(id) = self.account_id(user).await else { return "no account".to_owned() };
        let mut conn = self.pool.acquire().await.unwrap();
        let standing = accounts::standing_of(&mut conn, id).await.unwrap().unwrap().at(self.now);
        let mut text = standing.plan.to_string();
        if let Some(at) = standing.plan_changed {
            text += &format!(" since {}", short(at));
        }
        if let Some(at) = standing.past_due_since {
            text += &format!(", past due since {}", short(Instant::from_datetime(at)));
        }
        let entries: Vec<(String, i64)> =
            sqlx::query_as("select entry_key, delta from ledger where account_id = $1 order by period, reason")
                .bind(id.0)
                .fetch_all(&self.pool)
                .await
                .unwrap();
        let entries: Vec<String> =
            entries.iter().map(|(key, delta)| format!("{} {delta:+}", key.replace(&format!(":{id}:"), ":"))).collect();
        format!("{text}; {}", entries.join(", "))
    }

    /// One value of any query.
    pub async fn value<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap()
    }

    /// What must hold of every inbox at any time while nobody is at work.
    pub async fn check_invariants(&self) {
        let none = [
            (
                "open without a due time that will come, or something to wait for",
                "status in ('received', 'processing', 'failed', 'parked') \
              and due_at = 'infinity' and not (status = 'parked' and (waits_for is not null or reason like '%claimed by two%'))",
            ),
            ("a lease left behind", "(status = 'processing') <> (lease_token is not null)"),
            (
                "a final state without its reason",
                "status in ('applied', 'ignored', 'parked', 'failed', 'dead') and reason is null",
            ),
            (
                "a final state without its run",
                "status in ('applied', 'ignored', 'dead') \
              and not exists (select 1 from event_runs r where r.event_id = e.id and r.status = e.status and r.sentence = e.reason)",
            ),
            (
                "applied without its facts, or facts without a verdict",
                "(status = 'applied') and not exists (select 1 from facts f where f.event_id = e.id)",
            ),
            ("a final state that counts claims", "status in ('applied', 'ignored', 'failed', 'parked', 'dead') and claims <> 0"),
        ];
        for (wrong, condition) in none {
            let keys: Option<String> = self
                .value(&format!("select string_agg(dedupe_key || ' ' || status, ', ') from inbox_events e where {condition}"))
                .await;
            assert_eq!(keys, None, "{wrong}");
        }
        let doubled: i64 = self
            .value("select count(*) - count(distinct (account_id, period, reason)) from ledger where reason in ('free', 'pro')")
            .await;
        assert_eq!(doubled, 0, "a period has an allowance twice");
        let bare: i64 = self
            .value("select count(*) from accounts a where not exists (select 1 from ledger l where l.account_id = a.id and l.reason = 'free')")
            .await;
        assert_eq!(bare, 0, "an account without the bottles of the month it was made in");
    }
}

/// The headers of a delivery under this `webhook-id`.
fn named(webhook_id: &str) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("webhook-id"), webhook_id.parse().unwrap())])
}

/// An observer from what it decides at each step.
pub struct At<F>(pub F);

impl<F: Fn(Step, &[&EventKey]) -> Result<(), Break> + Send + Sync> Observer for At<F> {
    fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(std::future::ready(self.0(step, events)))
    }
}

/// The handler of each event whose key begins so fails, or panics, at a step.
pub fn breaks(step: Step, key: &str, breaks: impl Fn() -> Break + Send + Sync + 'static) -> Arc<dyn Observer> {
    let key = format!("event_{key}");
    Arc::new(At(
        move |at, events: &[&EventKey]| {
            if at == step && events.iter().any(|event| event.0.starts_with(&key)) { Err(breaks()) } else { Ok(()) }
        },
    ))
}

pub fn fault() -> Break {
    Break::Fault("the handler broke".to_owned())
}

/// As a panic does, without the report of one.
pub fn panic() -> Break {
    std::panic::resume_unwind(Box::new("the handler broke"))
}

pub fn stop() -> Break {
    Break::Stop
}

fn short(at: Instant) -> String {
    at.to_string().trim_start_matches("2026-").trim_end_matches('Z').replace('T', " ")
}
