//! A database that is slow, full, busy or away: every sender is told to come again in time, and its neighbours are not harmed.

use std::sync::Arc;
use std::time::Duration;

use bottle::checkpoint::Checkpoints;
use bottle::domain::event::Delivery;
use bottle::intake::batch::Batcher;
use bottle::jwks::Jwks;
use bottle::providers::kinde::Kinde;
use bottle::wake::Wake;
use futures_util::future::join_all;
use rand::RngExt;
use sqlx::Connection;
use sqlx::postgres::PgConnectOptions;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::support::app::{App, DOMAIN, Event, Setup, eventually};
use crate::support::tokens::TENANT;

/// Twelve senders at once, each told in time to come again; then the trouble is over, and within a second all goes well.
async fn none_is_stored_while<T>(app: &App, trouble: T, end: impl AsyncFnOnce(T)) {
    let events: Vec<Event> = (0..12).map(|_| Event::new()).collect();
    for answer in join_all(events.iter().map(|event| app.deliver(event.token.clone()))).await {
        answer.says_come_again();
    }
    let late = Event::new();
    let waiting = app.deliver(late.token.clone());
    let ending = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        end(trouble).await;
    };
    // Whoever comes in time is stored as soon as it is over.
    let (_, late_answer) = tokio::join!(ending, waiting);
    if late_answer.status != 200 {
        late_answer.says_come_again();
    }
    let began = Instant::now();
    app.deliver(Event::new().token).await;
    let after = Event::new();
    app.deliver(after.token.clone()).await.says_stored(&after.id, false);
    assert!(began.elapsed() < Duration::from_secs(1), "recovered after {:?}", began.elapsed());
    // Rows that nobody was told of are allowed; a retry finds them or makes them.
    for event in events.iter().chain([&late]) {
        let again = app.deliver(event.token.clone()).await;
        let copy = again.text.contains("true");
        again.says_stored(&event.id, copy);
    }
    app.assert_receipts_agree().await;
}

#[tokio::test]
async fn a_locked_table_costs_a_503_and_nothing_else() {
    let app = App::start().await;
    app.deliver(Event::new().token).await;
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *lock).await.unwrap();
    none_is_stored_while(&app, lock, async |lock| lock.rollback().await.unwrap()).await;
}

#[tokio::test]
async fn a_store_that_takes_too_long_costs_a_503() {
    let app = App::start().await;
    let slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(3); return new; end'; \
                create trigger slow before insert on inbox_events for each statement execute function slow()";
    sqlx::raw_sql(slow).execute(&app.pool).await.unwrap();
    let event = Event::new();
    app.deliver(event.token.clone()).await.says_come_again();
    assert_eq!(app.counts().await, (0, 0, 0));
    sqlx::raw_sql("drop trigger slow on inbox_events").execute(&app.pool).await.unwrap();
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
}

// T17
#[tokio::test]
async fn while_intakes_own_connections_are_held_a_503_comes_in_time() {
    let app = App::start().await;
    let held = join_all((0..4).map(|_| app.intake_pool.acquire())).await;
    none_is_stored_while(&app, held, async |held| drop(held)).await;
}

// T17
#[tokio::test]
async fn neither_pages_nor_workers_can_starve_intake() {
    let app = App::start().await;
    let pages = join_all((0..8).map(|_| app.web_pool.acquire())).await;
    let workers = join_all((0..4).map(|_| app.worker_pool.acquire())).await;
    assert!(pages.iter().chain(&workers).all(Result::is_ok));
    let events: Vec<Event> = (0..40).map(|_| Event::new()).collect();
    for (event, answer) in events.iter().zip(join_all(events.iter().map(|event| app.deliver(event.token.clone()))).await) {
        answer.says_stored(&event.id, false);
    }
    assert_eq!(app.counts().await, (40, 40, 0));
}

#[tokio::test]
async fn a_database_that_is_away_or_not_there_costs_a_503() {
    let nobody = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let closed = nobody.local_addr().unwrap().port();
    drop(nobody);
    let deaf = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let tcp = |port| PgConnectOptions::new().host("127.0.0.1").port(port).username("bottle");
    let nowhere = PgConnectOptions::new().socket("/nonexistent").username("bottle");
    for options in [tcp(closed), tcp(deaf.local_addr().unwrap().port()), nowhere] {
        let app = Setup { intake_options: Some(options), ..Setup::default() }.start().await;
        for answer in join_all((0..8).map(|_| app.deliver(Event::new().token))).await {
            answer.says_come_again();
        }
        assert_eq!(app.deliver("not genuine").await.status, 401, "what needs no database needs none");
        assert_eq!(app.counts().await, (0, 0, 0));
    }
}

#[tokio::test]
async fn a_database_that_takes_no_writes_costs_a_503() {
    let app = App::start().await;
    let name = &app.db.name;
    let read_only = format!("alter database {name} set default_transaction_read_only = on");
    sqlx::raw_sql(sqlx::AssertSqlSafe(read_only)).execute(&app.pool).await.unwrap();
    app.deliver(Event::new().token).await.says_come_again();
    assert_eq!(app.get("/health/ready").await.status, 503);
    assert_eq!(app.get("/health/live").await.status, 200);
    assert_eq!(app.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn the_limits_of_each_pool_reach_its_sessions() {
    let app = App::start().await;
    let sql = "select current_setting('statement_timeout'), current_setting('lock_timeout'), \
               current_setting('idle_in_transaction_session_timeout'), current_setting('application_name')";
    type Limits = (String, String, String, String);
    let of = async |pool: &sqlx::PgPool| sqlx::query_as::<_, Limits>(sql).fetch_one(pool).await.unwrap();
    let limits = |a: &str, b: &str, c: &str, d: &str| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned());
    assert_eq!(of(&app.intake_pool).await, limits("1s", "800ms", "5s", "bottle intake"));
    assert_eq!(of(&app.worker_pool).await, limits("5s", "4s", "10s", "bottle worker"));
    assert_eq!(of(&app.web_pool).await, limits("5s", "2s", "10s", "bottle web"));
}

async fn verified(event: &Event) -> Delivery {
    let kinde = Kinde::new(Arc::new(Jwks::held([TENANT.held()])), [DOMAIN.to_owned()], None);
    kinde.verify(event.token.as_bytes(), Some("msg")).await.unwrap()
}

/// One batch: all of it is queued before the batcher gets its first turn. Each answer with the time it took.
async fn in_one_batch(app: &App, events: &[Event]) -> Vec<(Result<bool, String>, Duration)> {
    let batcher = Batcher::start(app.intake_pool.clone(), Wake::default(), Checkpoints::default());
    let deliveries = join_all(events.iter().map(verified)).await;
    let began = Instant::now();
    let store = async |delivery| {
        let stored = batcher.store(delivery, began + bottle::intake::ANSWER_WITHIN).await;
        (stored.map(|stored| stored.copy), began.elapsed())
    };
    join_all(deliveries.into_iter().map(store)).await
}

#[tokio::test]
async fn neighbours_of_events_that_cannot_be_stored_are_stored() {
    let app = App::start().await;
    let events: Vec<Event> = (0..60).map(|_| Event::new()).collect();
    let bad = [&events[0].id, &events[17].id, &events[40].id];
    let refuse = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin \
             if new.dedupe_key in ('{}', '{}', '{}') then raise exception 'no room' using errcode = 'disk_full'; end if; \
             return new; \
         end $$; create trigger refuse before insert on inbox_events for each row execute function refuse()",
        bad[0], bad[1], bad[2]
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    for (event, (stored, _)) in events.iter().zip(in_one_batch(&app, &events).await) {
        assert_eq!(stored.is_err(), bad.contains(&&event.id), "{stored:?}");
        assert!(stored != Ok(true), "the attempt that failed as a whole left nothing");
    }
    assert_eq!(app.counts().await, (57, 57, 0));
}

#[tokio::test]
async fn neighbours_of_events_that_somebody_has_locked_are_stored_in_time() {
    let app = App::start().await;
    let events: Vec<Event> = (0..40).map(|_| Event::new()).collect();
    let held = [&events[0], &events[1], &events[2], &events[20]];
    for event in held {
        app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    }
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("select 1 from inbox_events for update").execute(&mut *lock).await.unwrap();
    for (n, (stored, took)) in in_one_batch(&app, &events).await.into_iter().enumerate() {
        if held.iter().any(|held| held.id == events[n].id) {
            assert!(stored.is_err(), "{n}");
        } else {
            assert_eq!(stored, Ok(false), "{n}");
            assert!(took < Duration::from_millis(2400), "{n}: {took:?}");
        }
    }
    lock.rollback().await.unwrap();
    assert_eq!(app.counts().await, (40, 40, 0));
    app.assert_receipts_agree().await;
}

// T10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_who_hang_up_leave_nothing_open_behind_them() {
    let app = App::start().await;
    let events: Vec<Event> = (0..300).map(|_| Event::new()).collect();
    let hang_up = async |event: &Event| {
        let head = format!("POST /webhooks/kinde HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", event.token.len());
        let whole = [head.as_bytes(), event.token.as_bytes()].concat();
        let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
        // A third never sends all of it; the others leave somewhere between the last byte and the answer.
        let (sent, micros) = {
            let mut rng = rand::rng();
            let part = rng.random_range(0..whole.len());
            (if rng.random_range(0..3) == 0 { part } else { whole.len() }, rng.random_range(0..4000))
        };
        socket.write_all(&whole[..sent]).await.unwrap();
        tokio::time::sleep(Duration::from_micros(micros)).await;
        socket.set_zero_linger().unwrap();
        drop(socket);
        sent == whole.len()
    };
    let mut whole = 0;
    for some in events.chunks(20) {
        whole += join_all(some.iter().map(hang_up)).await.into_iter().filter(|sent| *sent).count();
    }
    let good: Vec<Event> = (0..300).map(|_| Event::new()).collect();
    for some in good.chunks(20) {
        for (event, answer) in some.iter().zip(join_all(some.iter().map(|event| app.deliver(event.token.clone()))).await) {
            answer.says_stored(&event.id, false);
        }
    }
    let (stored, receipts, conflicts) = app.counts().await;
    assert!(stored <= i64::try_from(300 + whole).unwrap() && receipts == stored && conflicts == 0, "{stored} of 300 + {whole}");
    assert!(stored > 300, "some of them sent all of it");
    app.assert_receipts_agree().await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&app.pool).await.unwrap(), 0);
    // And whoever tries again is answered, stored before or not.
    for event in events.iter().step_by(10) {
        assert_eq!(app.deliver(event.token.clone()).await.status, 200);
    }
    app.assert_receipts_agree().await;
}

// T9
#[tokio::test]
async fn a_session_that_is_ended_in_the_middle_of_storing_costs_a_503_and_the_retry_is_stored() {
    let app = App::start().await;
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *lock).await.unwrap();
    let event = Event::new();
    let end = async {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and application_name = 'bottle intake' and state = 'active'";
        eventually("it waits for the table", async || sqlx::query_scalar::<_, i64>(end).fetch_one(&app.pool).await.unwrap() > 0)
            .await;
    };
    let (answer, ()) = tokio::join!(app.deliver(event.token.clone()), end);
    answer.says_come_again();
    lock.rollback().await.unwrap();
    assert_eq!(app.counts().await, (0, 0, 0));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    // Every idle session ended at once, as by a restart: the pool finds that out by itself.
    let all = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'bottle intake' \
               and datname = current_database()";
    let mut own = sqlx::PgConnection::connect_with(&app.db.options()).await.unwrap();
    assert!(sqlx::query_scalar::<_, i64>(all).fetch_one(&mut own).await.unwrap() > 0);
    app.deliver(event.token.clone()).await.says_stored(&event.id, true);
}
