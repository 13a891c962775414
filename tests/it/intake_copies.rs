//! One event however often it comes, under whatever header, and in whatever company.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::domain::event::Delivery;
use bottle::inbox::store::{Stored, store};
use bottle::intake::batch::Batcher;
use bottle::jwks::Jwks;
use bottle::providers::kinde::Kinde;
use bottle::wake::Wake;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::support::app::{App, DOMAIN, Event, Setup};
use crate::support::tokens::TENANT;

fn named(id: &str) -> Option<String> {
    Some(id.to_owned())
}

// T1
#[tokio::test]
async fn a_token_posted_again_under_fresh_headers_is_one_event_and_one_effect() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let event = Event::new();
    app.deliver_as("msg_first", event.token.clone()).await.says_stored(&event.id, false);
    for n in 0..60 {
        // Half of them while it runs, half when it has run.
        if n == 30 {
            app.worked_off().await;
        }
        app.deliver_as(&format!("msg_{n}"), event.token.clone()).await.says_stored(&event.id, true);
    }
    app.deliver(event.token.clone()).await.says_stored(&event.id, true);
    app.worked_off().await;
    assert_eq!(app.counts().await, (1, 62, 0));
    let (status, seen, body) = app.row(&event.id).await.unwrap();
    assert_eq!((status.as_str(), seen, body), ("applied", 62, event.token.into_bytes()));
    let receipts = app.receipts(&event.id).await;
    assert_eq!(
        (&receipts[0], &receipts[1], &receipts[61]),
        (&(named("msg_first"), false), &(named("msg_0"), true), &(None, true))
    );
    let kept: Option<String> = sqlx::query_scalar("select webhook_id from inbox_events").fetch_one(&app.pool).await.unwrap();
    assert_eq!(kept, named("msg_first"));
    let runs = "select count(*), count(distinct event_id) from event_runs";
    assert_eq!(sqlx::query_as::<_, (i64, i64)>(runs).fetch_one(&app.pool).await.unwrap(), (1, 1));
    app.assert_receipts_agree().await;
}

// T2
#[tokio::test]
async fn a_header_that_another_event_wears_poisons_nothing() {
    let app = App::start().await;
    let (old, new) = (Event::new(), Event::new());
    app.deliver_as("msg_old", old.token.clone()).await.says_stored(&old.id, false);
    // The attacker is first, with the header of a delivery that is still on its way.
    app.deliver_as("msg_new", old.token.clone()).await.says_stored(&old.id, true);
    app.deliver_as("msg_new", new.token.clone()).await.says_stored(&new.id, false);
    assert_eq!(app.receipts(&new.id).await, [(named("msg_new"), false)]);
    assert_eq!(app.receipts(&old.id).await, [(named("msg_old"), false), (named("msg_new"), true)]);
    app.assert_receipts_agree().await;
}

// T3
#[tokio::test]
async fn the_first_of_two_contents_stands_and_the_other_is_kept_for_a_person() {
    let app = App::start().await;
    let first = Event::new();
    let resigned = first.but(json!({"timestamp": "2031-01-01T00:00:00Z", "iat": 1_900_000_000}));
    let other = first.but(json!({"data": {"user_id": "kp_other", "plan": {"key": "customer_free_plan"}}}));
    let third = first.but(json!({"type": "customer.plan_assigned"}));

    app.deliver_as("msg_1", first.token.clone()).await.says_stored(&first.id, false);
    app.deliver_as("msg_2", resigned.token.clone()).await.says_stored(&first.id, true);
    assert_ne!(resigned.token, first.token);
    assert_eq!(app.counts().await, (1, 2, 0), "a newer time of sending is no other content");

    // The same other content twice is one thing to judge.
    for (n, odd) in [&other, &other, &third].into_iter().enumerate() {
        app.deliver_as(&format!("msg_odd_{n}"), odd.token.clone()).await.says_stored(&first.id, true);
    }
    app.deliver_as("msg_3", first.token.clone()).await.says_stored(&first.id, true);
    assert_eq!(app.counts().await, (1, 6, 2));
    let (_, seen, body) = app.row(&first.id).await.unwrap();
    assert_eq!((seen, body), (6, first.token.into_bytes()));
    let conflicts = "select webhook_id, body from conflicts order by id";
    let conflicts: Vec<(Option<String>, Vec<u8>)> = sqlx::query_as(conflicts).fetch_all(&app.pool).await.unwrap();
    assert_eq!(conflicts, [(named("msg_odd_0"), other.token.into_bytes()), (named("msg_odd_2"), third.token.into_bytes())]);
    app.assert_receipts_agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_deliveries_of_eight_events_at_once_are_eight_events() {
    let app = App::start().await;
    let events: Vec<Event> = (0..8).map(|_| Event::new()).collect();
    let deliver = async |n: usize| {
        let event = &events[n % 8];
        (event.id.clone(), app.deliver_as(&format!("msg_{n}"), event.token.clone()).await)
    };
    let mut firsts = BTreeMap::new();
    for (id, answer) in join_all((0..64).map(&deliver)).await {
        let copy = !answer.text.contains("false");
        answer.says_stored(&id, copy);
        *firsts.entry(id).or_insert(0) += usize::from(!copy);
    }
    assert!(firsts.len() == 8 && firsts.values().all(|firsts| *firsts == 1), "{firsts:?}");
    assert_eq!(app.counts().await, (8, 64, 0));
    for event in &events {
        assert_eq!(app.row(&event.id).await.unwrap().1, 8);
    }
    app.assert_receipts_agree().await;
}

/// As intake has it after the signature was checked.
async fn verified(event: &Event, webhook_id: &str) -> Delivery {
    let kinde = Kinde::new(Arc::new(Jwks::held([TENANT.held()])), [DOMAIN.to_owned()], None);
    kinde.verify(event.token.as_bytes(), Some(webhook_id)).await.unwrap()
}

/// Stored in one batch: they are all queued before the batcher gets its first turn.
async fn together(app: &App, deliveries: Vec<Delivery>) -> Vec<Result<Stored, String>> {
    let batcher = Batcher::start(app.intake_pool.clone(), Wake::default(), Checkpoints::default());
    let deadline = Instant::now() + Duration::from_secs(2);
    join_all(deliveries.into_iter().map(|delivery| batcher.store(delivery, deadline))).await
}

#[tokio::test]
async fn copies_and_conflicts_inside_one_batch_are_merged_before_they_are_stored() {
    let app = App::start().await;
    let (a, b, known) = (Event::new(), Event::new(), Event::new());
    let odd = a.but(json!({"data": {"user_id": "kp_other"}}));
    let known_odd = known.but(json!({"data": {"user_id": "kp_other"}}));
    app.deliver_as("msg_0", known.token.clone()).await.says_stored(&known.id, false);

    let sent = [
        (&a, "1"),
        (&b, "1"),
        (&known, "1"),
        (&a, "2"),
        (&odd, "3"),
        (&odd, "4"),
        (&known_odd, "2"),
        (&a, "1"),
        (&known_odd, "3"),
    ];
    let deliveries = join_all(sent.map(|(event, header)| verified(event, header))).await;
    let stored: Vec<Stored> = together(&app, deliveries).await.into_iter().map(Result::unwrap).collect();
    let flags: Vec<(bool, bool, bool)> = stored.iter().map(|s| (s.copy, s.conflict, s.other_header)).collect();
    let expected = [
        (false, false, false),
        (false, false, false),
        (true, false, true),
        (true, false, true),
        (true, true, true),
        (true, true, true),
        (true, true, true),
        (true, false, false),
        (true, true, true),
    ];
    assert_eq!(flags, expected);
    // One transaction wrote all of it.
    let writers = "select count(distinct xmin::text) from inbox_events";
    assert_eq!(sqlx::query_scalar::<_, i64>(writers).fetch_one(&app.pool).await.unwrap(), 1);
    assert_eq!(app.counts().await, (3, 10, 2));
    assert_eq!(app.row(&a.id).await.unwrap().1, 5);
    assert_eq!(app.receipts(&b.id).await, [(named("1"), false)]);
    let copies: Vec<bool> = app.receipts(&a.id).await.into_iter().map(|(_, copy)| copy).collect();
    assert_eq!(copies, [false, true, true, true, true]);
    app.assert_receipts_agree().await;
}

// T7, T8
#[tokio::test]
async fn a_copy_is_not_acknowledged_before_somebody_has_committed_the_event() {
    let app = App::start().await;
    for commits in [false, true] {
        // Another process stores the event just now, and has not committed.
        let event = Event::new();
        let elsewhere = verified(&event, "msg_0").await;
        let mut holding = app.pool.begin().await.unwrap();
        store(&mut *holding, &[&elsewhere], Clock::Database).await.unwrap();

        let mut first = pin!(app.deliver_as("msg_1", event.token.clone()));
        let mut second = pin!(async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            app.deliver_as("msg_2", event.token.clone()).await
        });
        tokio::select! {
            early = &mut first => panic!("answered while nothing was committed: {early:?}"),
            early = &mut second => panic!("answered while nothing was committed: {early:?}"),
            () = tokio::time::sleep(Duration::from_millis(400)) => {}
        }
        assert_eq!(app.row(&event.id).await, None);
        if commits {
            holding.commit().await.unwrap();
        } else {
            holding.rollback().await.unwrap();
        }
        let (first, second) = tokio::join!(first, second);
        let copy = first.text.contains("true");
        first.says_stored(&event.id, copy);
        second.says_stored(&event.id, commits || !copy);
        assert!(copy || !commits);
        assert_eq!(app.row(&event.id).await.unwrap().1, 2 + i32::from(commits));
    }
    // Held for longer than a sender can be kept waiting: it is told to come again.
    let event = Event::new();
    let elsewhere = verified(&event, "msg_0").await;
    let mut holding = app.pool.begin().await.unwrap();
    store(&mut *holding, &[&elsewhere], Clock::Database).await.unwrap();
    app.deliver_as("msg_1", event.token.clone()).await.says_come_again();
    holding.rollback().await.unwrap();
    assert_eq!(app.row(&event.id).await, None);
    app.deliver_as("msg_1", event.token.clone()).await.says_stored(&event.id, false);
    app.assert_receipts_agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_share_events_in_opposite_orders_never_deadlock() {
    let app = App::start().await;
    let verify = async |events: &[Event]| join_all(events.iter().map(|event| verified(event, "msg"))).await;
    let known: Vec<Event> = (0..4).map(|_| Event::new()).collect();
    let old = verify(&known).await;
    for _ in 0..100 {
        // Some are new in each round: inserts wait for one another as updates do.
        let fresh: Vec<Event> = (0..2).map(|_| Event::new()).collect();
        let there: Vec<Delivery> = old.iter().cloned().chain(verify(&fresh).await).collect();
        let back: Vec<Delivery> = there.iter().rev().cloned().collect();
        let run = |deliveries: Vec<Delivery>| {
            let pool = app.pool.clone();
            tokio::spawn(async move {
                for _ in 0..2 {
                    store(&pool, &deliveries.iter().collect::<Vec<_>>(), Clock::Database).await.unwrap();
                }
            })
        };
        let (there, back) = tokio::join!(run(there), run(back));
        there.unwrap();
        back.unwrap();
    }
    assert_eq!(app.row(&known[0].id).await.unwrap().1, 400);
    assert_eq!(app.counts().await, (204, 2400, 0));
    app.assert_receipts_agree().await;
}
