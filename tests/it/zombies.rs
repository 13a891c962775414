//! Workers that sleep past their lease, and databases that give trouble: nobody is charged, nothing happens twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bottle::checkpoint::{Break, Observer, Pause, Step};
use bottle::clock::Clock;
use bottle::domain::ids::EventKey;
use bottle::inbox::queue::CLAIM_LIMIT;
use bottle::providers::script::Truth;
use bottle::worker::process::{Charge, Engine, Outcome};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool};

use crate::support::claims::says;
use crate::support::pipeline::{Pipeline, fault, panic};

const STEPS: [Step; 8] =
    [Step::Claimed, Step::Resolved, Step::Held, Step::Locked, Step::HalfWay, Step::BeforeMark, Step::Marked, Step::Committed];

/// At its step this worker sleeps past its lease, and another one does what it can meanwhile.
struct Sleeps {
    at: Step,
    other: Engine,
    then: fn() -> Result<(), Break>,
    slept: AtomicBool,
}

impl Observer for Sleeps {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(async move {
            if step != self.at || self.slept.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            self.other.drain().await.unwrap();
            (self.then)()
        })
    }
}

impl Sleeps {
    fn new(p: &Pipeline, at: Step, then: fn() -> Result<(), Break>) -> Arc<Self> {
        let later = p.now.plus(Duration::from_secs(31));
        Arc::new(Self { at, other: Engine { clock: Clock::At(later), ..p.engine() }, then, slept: AtomicBool::new(false) })
    }
}

#[tokio::test]
async fn whoever_sleeps_past_the_lease_has_no_say_any_more() {
    for then in [|| Ok(()), || Err(fault()), || Err(panic())] as [fn() -> Result<(), Break>; 3] {
        for step in STEPS {
            let mut p = Pipeline::new().await;
            let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
            p.deliver(&claims).await;
            let claimed = p.engine().claim(CLAIM_LIMIT).await.unwrap();
            let sleeper = p.watched(Sleeps::new(&p, step, then));
            let outcomes = tokio::spawn(async move { sleeper.process(claimed, Charge::Charged).await }).await;
            // Until the transaction is open the other one runs the event; after that the open transaction holds it.
            if step < Step::Held
                && let Ok(outcomes) = outcomes
            {
                let lost = [vec![Outcome::LeaseLost], vec![Outcome::Stopped]];
                assert!(lost.contains(&outcomes), "{step}: {outcomes:?}");
            }
            let row = p.event_of(&claims).await;
            assert!(["applied", "failed"].contains(&row.status.as_str()), "{step}: {}", row.said());
            if row.status == "applied" {
                assert_eq!((row.attempts, row.runs), (0, 1), "{step}: {:?}", p.runs(&claims).await);
            }
            p.later(Duration::from_secs(60)).drain().await;
            assert_eq!(p.account("ada").await, "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490", "{step}");
            p.check_invariants().await;
        }
    }
}

#[tokio::test]
async fn a_claim_that_was_lost_is_not_given_back() {
    let p = Pipeline::new().await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.deliver(&claims).await;
    let claimed = p.engine().claim(CLAIM_LIMIT).await.unwrap();
    let other = Engine { clock: Clock::At(p.now.plus(Duration::from_secs(31))), ..p.engine() };
    let theirs = other.claim(CLAIM_LIMIT).await.unwrap();
    p.provider_says(Truth::Away);
    p.engine().process(claimed, Charge::Charged).await;
    let row = p.event_of(&claims).await;
    assert_eq!((row.status.as_str(), row.claims, row.leased), ("processing", 2, true));
    p.provider_says(Truth::NotAsked);
    other.process(theirs, Charge::Charged).await;
    assert_eq!(p.event_of(&claims).await.status, "applied");
    p.check_invariants().await;
}

/// The account's row, locked by somebody else until it is dropped.
async fn locked(pool: &PgPool) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut tx = pool.begin().await.unwrap();
    tx.execute("select 1 from accounts where kinde_user_id = 'kp_ada' for update").await.unwrap();
    tx
}

async fn pool_with(p: &Pipeline, options: &[(&str, &str)]) -> PgPool {
    PgPoolOptions::new().max_connections(2).connect_with(p.db.options().options(options.iter().copied())).await.unwrap()
}

/// An account that exists, and an event of it that is due.
async fn due() -> (Pipeline, serde_json::Value) {
    let p = Pipeline::new().await;
    p.run(&says("ada", "before", "10-20 10:00:00 paid -")).await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.deliver(&claims).await;
    (p, claims)
}

async fn assert_released_then_applied(mut p: Pipeline, claims: serde_json::Value, outcomes: &[Outcome], trouble: &str) {
    assert!(matches!(outcomes, [Outcome::Troubled { key, .. }] if *key.0 == claims["event_id"]), "{trouble}: {outcomes:?}");
    let row = p.event_of(&claims).await;
    assert_eq!((row.status.as_str(), row.attempts, row.claims, row.leased), ("received", 0, 0, false), "{trouble}");
    assert_eq!(row.due.unwrap(), p.now.plus(Duration::from_secs(5)).datetime(), "{trouble}");
    p.check_invariants().await;
    p.later(Duration::from_secs(5)).drain().await;
    assert_eq!(p.event_of(&claims).await.said(), "applied: plan set to pro, Pro allowance granted", "{trouble}");
    p.check_invariants().await;
}

#[tokio::test]
async fn waiting_for_a_row_in_vain_is_nobodys_fault() {
    for (trouble, limit) in [("55P03", ("lock_timeout", "50ms")), ("57014", ("statement_timeout", "50ms"))] {
        let (p, claims) = due().await;
        let theirs = locked(&p.pool).await;
        let engine = Engine { pool: pool_with(&p, &[limit]).await, ..p.engine() };
        let outcomes = engine.drain().await.unwrap();
        theirs.rollback().await.unwrap();
        assert_released_then_applied(p, claims, &outcomes, trouble).await;
    }
}

#[tokio::test]
async fn a_locked_account_holds_up_no_other() {
    let (mut p, claims) = due().await;
    for n in 0..5 {
        p.deliver(&says(&format!("ben{n}"), &format!("ben{n}"), "10-21 10:00:00 changed - pro")).await;
    }
    let theirs = locked(&p.pool).await;
    let engine = Engine { pool: pool_with(&p, &[("lock_timeout", "50ms")]).await, ..p.engine() };
    engine.drain().await.unwrap();
    assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'applied'").await, 6);
    assert_eq!(p.event_of(&claims).await.attempts, 0);
    theirs.rollback().await.unwrap();
    p.later(Duration::from_secs(5)).drain().await;
    assert_eq!(p.event_of(&claims).await.status, "applied");
    p.check_invariants().await;
}

/// What somebody else does to the account while the handler holds its event.
struct Meanwhile {
    pool: PgPool,
    sql: &'static str,
}

impl Observer for Meanwhile {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(async move {
            if step == Step::Held {
                self.pool.execute(self.sql).await.unwrap();
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_serialization_failure_is_nobodys_fault() {
    let (p, claims) = due().await;
    let meanwhile = Meanwhile { pool: p.pool.clone(), sql: "update accounts set created_at = now()" };
    let mut engine = p.watched(Arc::new(meanwhile));
    engine.pool = pool_with(&p, &[("default_transaction_isolation", "repeatable read")]).await;
    let outcomes = engine.drain().await.unwrap();
    assert_released_then_applied(p, claims, &outcomes, "40001").await;
}

/// Of two that wait for one another the server ends whichever looks first. It has to be ours, so the other one may have to wait
/// for it again.
#[tokio::test]
async fn a_deadlock_is_nobodys_fault() {
    for _ in 0..10 {
        let (p, claims) = due().await;
        let mut theirs = locked(&p.pool).await;
        let engine = p.engine();
        let draining = tokio::spawn(async move { engine.drain().await.unwrap() });
        // The handler holds its event and waits for the account; we hold the account and now wait for the event.
        let waits =
            "select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
        while !p.value::<bool>(waits).await {
            tokio::task::yield_now().await;
        }
        let ended = theirs.execute("select 1 from inbox_events for update").await;
        theirs.rollback().await.unwrap();
        let outcomes = draining.await.unwrap();
        if ended.is_ok() {
            return assert_released_then_applied(p, claims, &outcomes, "40P01").await;
        }
    }
    panic!("the other one was ended ten times");
}

#[tokio::test]
async fn a_database_that_is_away_charges_nobody() {
    for step in [Step::Claimed, Step::Resolved, Step::Held, Step::BeforeMark] {
        let (mut p, claims) = due().await;
        let pool = pool_with(&p, &[("application_name", "the worker")]).await;
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'the worker'";
        let engine = Engine { pool: pool.clone(), ..p.watched(Arc::new(Away { step, pool, admin: p.pool.clone(), sql })) };
        let claimed = engine.claim(CLAIM_LIMIT).await.unwrap();
        let outcomes = engine.process(claimed, Charge::Charged).await;
        assert_eq!(outcomes, [Outcome::Released], "at {step}");
        let row = p.event_of(&claims).await;
        assert_eq!((row.status.as_str(), row.attempts, row.runs), ("processing", 0, 0), "at {step}");
        p.later(Duration::from_secs(31)).drain().await;
        assert_eq!(p.event_of(&claims).await.said(), "applied: plan set to pro, Pro allowance granted", "at {step}");
        p.check_invariants().await;
    }
}

/// From this step on no connection works, old or new.
struct Away {
    step: Step,
    pool: PgPool,
    admin: PgPool,
    sql: &'static str,
}

impl Observer for Away {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(async move {
            if step == self.step {
                self.admin.execute(self.sql).await.unwrap();
                // Not awaited to its end: that waits for the connection which the handler has in its hands.
                drop(self.pool.close());
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn an_event_that_is_being_processed_cannot_be_replayed() {
    let mut p = Pipeline::new().await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.deliver(&claims).await;
    let claimed = p.engine().claim(CLAIM_LIMIT).await.unwrap();
    assert!(p.replay(&claims).await.is_empty(), "T47");
    p.engine().process(claimed.clone(), Charge::Charged).await;
    assert_eq!(p.replay(&claims).await.len(), 1);
    // T48: whoever held it in its former life has no say in this one.
    assert_eq!(p.engine().process(claimed, Charge::Charged).await, [Outcome::LeaseLost]);
    assert_eq!(p.event_of(&claims).await.status, "received");
    p.later(Duration::from_secs(1)).drain().await;
    assert_eq!(p.event_of(&claims).await.runs, 2);
    p.check_invariants().await;
}
