//! Pools: none of them starves intake, and everything that holds something of the database lets go of it before a lease ends (T17, T29).

use std::time::Duration;

use bottle::db::{self, Use};
use bottle::inbox::queue::LEASE_SECS;
use futures_util::future::join_all;
use sqlx::PgPool;
use tokio::time::Instant;

use crate::support::app::{App, Event};
use crate::support::db::fresh_db;

/// Deliveries one after another by several senders at once, for so long: the times of the answers, sorted. Every one is a 200.
async fn deliver_for(app: &App, span: Duration) -> Vec<Duration> {
    let began = Instant::now();
    let sender = async || {
        let mut times = Vec::new();
        while began.elapsed() < span {
            let event = Event::new();
            let answer = app.deliver(event.token.clone()).await;
            answer.says_stored(&event.id, false);
            times.push(answer.took);
        }
        times
    };
    let mut times: Vec<Duration> = join_all((0..4).map(|_| sender())).await.into_iter().flatten().collect();
    times.sort_unstable();
    times
}

fn share(times: &[Duration], hundredths: usize) -> Duration {
    times[(times.len() * hundredths / 100).min(times.len() - 1)]
}

/// All connections of a pool, until it is dropped. How many that is, is for the pool to say.
async fn hold(pool: &PgPool) -> Vec<sqlx::pool::PoolConnection<sqlx::Postgres>> {
    let held = join_all((0..pool.options().get_max_connections()).map(|_| pool.acquire())).await;
    let held = held.into_iter().collect::<sqlx::Result<Vec<_>>>().unwrap();
    assert!(pool.try_acquire().is_none(), "it is not wholly held");
    held
}

/// With the pools of pages, worker and reminders wholly held. What is told is the figures.
async fn others_held(span: Duration) -> String {
    let app = App::start().await;
    let reminders = db::pool(&app.db.options(), Use::Reminders);
    deliver_for(&app, Duration::from_millis(300)).await;
    let held = [hold(&app.web_pool).await, hold(&app.worker_pool).await, hold(&reminders).await];
    let times = deliver_for(&app, span).await;
    drop(held);
    format!(
        "{} deliveries, p50 {:?}, p99 {:?}, longest {:?}",
        times.len(),
        share(&times, 50),
        share(&times, 99),
        times[times.len() - 1]
    )
}

/// With intake's own wholly held: told to come again in time, and well again soon after.
async fn own_held(span: Duration) -> String {
    let app = App::start().await;
    deliver_for(&app, Duration::from_millis(300)).await;
    let held = hold(&app.intake_pool).await;
    let (began, mut longest, mut refused) = (Instant::now(), Duration::ZERO, 0);
    while began.elapsed() < span {
        let answer = app.deliver(Event::new().token).await;
        answer.says_come_again();
        longest = longest.max(answer.took);
        refused += 1;
    }
    drop(held);
    let released = Instant::now();
    let event = Event::new();
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    let recovered = released.elapsed();
    assert!(recovered < Duration::from_secs(1), "{recovered:?}");
    format!("{refused} refused, the longest after {longest:?}; well again after {recovered:?}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_all_other_connections_are_held_every_delivery_is_stored() {
    eprintln!("{}", others_held(Duration::from_secs(3)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_its_own_connections_are_held_senders_are_told_in_time_and_soon_after_all_is_well() {
    eprintln!("{}", own_held(Duration::from_secs(3)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a drill of two minutes, which measures: its figures are for an idle machine"]
async fn a_drill_of_a_minute_each_with_all_connections_held() {
    eprintln!("all others held for 60 s: {}", others_held(Duration::from_secs(60)).await);
    eprintln!("its own held for 60 s: {}", own_held(Duration::from_secs(60)).await);
}

#[tokio::test]
async fn what_holds_something_of_the_database_lets_go_of_it_before_a_lease_ends() {
    let db = fresh_db().await;
    let lease = Duration::from_secs_f64(LEASE_SECS);
    for purpose in Use::ALL {
        let pool = db::pool(&db.options(), purpose);
        // As the server has them for this very connection.
        let limit = async |name: &str| -> Duration {
            let millis: i64 = sqlx::query_scalar("select setting::bigint from pg_settings where name = $1")
                .bind(name)
                .fetch_one(&pool)
                .await
                .unwrap();
            Duration::from_millis(millis.try_into().unwrap())
        };
        let (statement, lock, idle) =
            (limit("statement_timeout").await, limit("lock_timeout").await, limit("idle_in_transaction_session_timeout").await);
        assert!(
            [statement, lock, idle].iter().all(|limit| !limit.is_zero()),
            "{purpose:?} has no limit: {statement:?} {lock:?} {idle:?}"
        );
        assert!(lock < statement, "{purpose:?}: a lock is waited for no longer than a statement lasts");
        let acquire = pool.options().get_acquire_timeout();
        assert!(acquire <= Duration::from_secs(2), "{purpose:?} waits {acquire:?} for a connection");
        match purpose {
            // A person waits and can stop it; it holds no lease.
            // Neither does this: a page of a comparison is read or noted whole, whoever waits for it.
            Use::Cli | Use::Reconcile => assert!(statement <= Duration::from_secs(60) && idle <= Duration::from_secs(60)),
            Use::Intake => assert!(acquire.max(statement * 2) <= Duration::from_millis(2_500) && idle < lease),
            Use::Worker | Use::Reminders | Use::Web | Use::Scrape => assert!(statement + lock + idle < lease, "{purpose:?}"),
        }
        // A host that fell off the net is noticed before the lease ends too. Through a socket there is no net, and the server says 0.
        for (setting, over_the_net) in
            [("tcp_keepalives_idle", "10"), ("tcp_keepalives_interval", "5"), ("tcp_user_timeout", "15s")]
        {
            let told: String = sqlx::query_scalar("select current_setting($1)").bind(setting).fetch_one(&pool).await.unwrap();
            let by_socket: bool = sqlx::query_scalar("select inet_server_addr() is null").fetch_one(&pool).await.unwrap();
            assert_eq!(told, if by_socket { "0" } else { over_the_net }, "{purpose:?}: {setting}");
        }
        pool.close().await;
    }
}

#[tokio::test]
async fn a_statement_and_a_forgotten_transaction_are_really_ended() {
    let db = fresh_db().await;
    let pool = db::pool(&db.options(), Use::Intake);
    let began = Instant::now();
    let error = sqlx::query("select pg_sleep(20)").execute(&pool).await.unwrap_err();
    assert!(error.to_string().contains("statement timeout") && began.elapsed() < Duration::from_secs(3), "{error}");
    let mut forgotten = pool.begin().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    assert!(sqlx::query("select 1").execute(&mut *forgotten).await.is_err(), "it is still open");
}
