//! The real process, killed at every step of the pipeline, killed at any moment under load, and stopped in good order.
//!
//! What a sender was told lives outside of it: a 200 counts once its whole answer was read. An independent fold over the facts
//! that were sent says how each account has to end.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use bottle::checkpoint::Step;
use bottle::engine_room::KILLS_A_CHECKPOINT;
use rustix::process::Signal;

use crate::support::cases;
use crate::support::deliveries::{Sender, Upgrade, assert_as_the_oracle_says, count, end_leases, settled};
use crate::support::load::{Ground, Load};

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "a release cannot be told to die")]
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
