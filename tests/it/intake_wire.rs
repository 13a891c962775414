//! The wire to the database breaks at the worst moments: nothing is acknowledged that may not be there, and nothing is lost.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::support::app::{App, Event, Setup};
use crate::support::db::fresh_db;
use crate::support::wire::{Mood, Wire};

async fn app_on_a_wire() -> (App, Wire) {
    let db = fresh_db().await;
    let wire = Wire::to(&db);
    let app = Setup { intake_options: Some(wire.options(&db)), ..Setup::default() }.start_on(db).await;
    // Warm: connected and prepared.
    let event = Event::new();
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    (app, wire)
}

// T9
#[tokio::test]
async fn when_the_outcome_of_a_commit_is_unknown_nobody_is_told_that_it_is_stored() {
    let (app, wire) = app_on_a_wire().await;
    type Cut = fn(String) -> Mood;
    let cuts: [(Cut, bool); 3] = [(Mood::CutRequest, false), (Mood::CutAnswer, true), (Mood::CutLastWord, true)];
    for (cut, committed) in cuts {
        let event = Event::new();
        wire.now(cut(event.id.clone()));
        app.deliver(event.token.clone()).await.says_come_again();
        wire.cuts.notified().await;
        wire.now(Mood::Passing);
        assert_eq!(app.receipts(&event.id).await.len(), usize::from(committed));
        app.deliver(event.token.clone()).await.says_stored(&event.id, committed);
        assert_eq!(app.row(&event.id).await.unwrap().1, 1 + i32::from(committed), "as often as it was sent");
    }
    app.assert_receipts_agree().await;
}

// T9
#[tokio::test]
async fn a_batch_of_unknown_outcome_is_left_to_its_senders() {
    let (app, wire) = app_on_a_wire().await;
    let lock_and_wait = async |events: &[Event]| {
        // Two statements that wait for this row keep everybody else in the queue, so that they go together.
        let mut lock = app.pool.begin().await.unwrap();
        sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *lock).await.unwrap();
        let plugs = [Event::new(), Event::new()];
        let first = app.deliver(plugs[0].token.clone());
        let second = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            app.deliver(plugs[1].token.clone()).await
        };
        let rest = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            join_all(events.iter().map(|event| app.deliver(event.token.clone()))).await
        };
        let open = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            lock.rollback().await.unwrap();
        };
        tokio::join!(first, second, rest, open).2
    };
    let events: Vec<Event> = (0..6).map(|_| Event::new()).collect();
    wire.now(Mood::CutAnswer(events[3].id.clone()));
    let answers = lock_and_wait(&events).await;
    wire.cuts.notified().await;
    wire.now(Mood::Passing);
    let mut unknown = 0;
    for (event, answer) in events.iter().zip(&answers) {
        if answer.status == 200 {
            answer.says_stored(&event.id, false);
        } else {
            answer.says_come_again();
            unknown += 1;
        }
        // Counted once, whether or not its sender was told.
        assert_eq!(app.row(&event.id).await.unwrap().1, 1);
    }
    assert!(unknown > 1, "{answers:?}");
    for (event, answer) in events.iter().zip(&answers) {
        if answer.status != 200 {
            app.deliver(event.token.clone()).await.says_stored(&event.id, true);
        }
    }
    app.assert_receipts_agree().await;
}

#[tokio::test]
async fn a_database_that_falls_silent_is_left_for_a_new_connection() {
    let (app, wire) = app_on_a_wire().await;
    let some = async || {
        let events: Vec<Event> = (0..8).map(|_| Event::new()).collect();
        join_all(events.iter().map(|event| app.deliver(event.token.clone()))).await
    };
    assert!(some().await.iter().all(|answer| answer.status == 200));
    // It falls silent while it stores, and stays so for whoever comes next.
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *lock).await.unwrap();
    let fall = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.now(Mood::Silent);
        lock.rollback().await.unwrap();
    };
    let caught = async {
        let first = app.deliver(Event::new().token);
        let second = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            app.deliver(Event::new().token).await
        };
        tokio::join!(first, second)
    };
    let (caught, ()) = tokio::join!(caught, fall);
    caught.0.says_come_again();
    caught.1.says_come_again();
    for answer in some().await {
        answer.says_come_again();
    }
    // Connections of the old address stay silent for good, as after a failover; new ones come through.
    wire.now(Mood::Passing);
    let began = Instant::now();
    while app.deliver(Event::new().token).await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(10), "still nothing is stored");
    }
    for _ in 0..3 {
        assert!(some().await.iter().all(|answer| answer.status == 200));
    }
    app.assert_receipts_agree().await;
}
