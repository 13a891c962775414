//! What a period has left, who may take it, and what the first use of a period writes.

use std::sync::Arc;

use bottle::domain::ids::{AccountId, EventId};
use bottle::reminders::Error;
use bottle::reminders::change;
use bottle::reminders::draft::Draft;
use bottle::reminders::schedule::schedule;
use bottle::replay;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::cases;
use crate::support::claims::says;
use crate::support::desk::{Desk, person};

#[tokio::test]
async fn what_is_shown_is_what_can_be_spent_and_looking_writes_nothing() {
    let mut desk = Desk::new().await;
    let shown = desk.bottles().await;
    assert_eq!((shown.allowance, shown.used, shown.left), (10, 0, 10));
    assert_eq!(desk.ledger().await, "", "looking wrote something");
    for n in 0..10 {
        desk.plan(&format!("number {n}"), "2026-10-22T09:00").await.unwrap();
    }
    let Err(Error::NoBottles(none)) = desk.plan("one too many", "2026-10-22T09:00").await else { panic!("an eleventh") };
    assert_eq!((none.allowance, none.used, none.left), (10, 10, 0));
    assert_eq!(none.renews_at.to_string(), "2026-11-01 0:00:00.0 +00:00:00");
    desk.p.at("11-01 00:00:00");
    assert_eq!(desk.bottles().await.left, 10, "a new month has its own");
}

#[tokio::test]
async fn a_pro_account_that_signs_in_or_spends_opens_its_period_once_and_the_log_shows_it() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    desk.p.at("11-03 08:00:00");
    assert_eq!(desk.bottles().await.left, 500, "the month's event is still to be stored, and counted");
    assert_eq!(desk.sign_in().await.left, 500);
    let key = format!("period_opened:{}:2026-11", desk.me);
    let row = desk.p.event(&key).await;
    assert_eq!((row.said().as_str(), row.runs), ("applied: plan is already pro; Pro allowance of 2026-11 granted", 1));
    let before = desk.ledger().await;
    assert!(before.ends_with("free:2026-11 +10, pro:2026-11 +490"), "{before}");

    desk.sign_in().await;
    desk.plan("milk", "2026-11-04T09:00").await.unwrap();
    assert!(desk.p.drain().await.is_empty(), "it was left for the worker");
    assert_eq!(desk.p.value::<i64>("select count(*) from inbox_events where source = 'bottle'").await, 1);
    assert_eq!(desk.bottles().await.left, 499);
    desk.p.check_invariants().await;

    // Run again by an operator, like any event.
    let mut tx = desk.p.pool.begin().await.unwrap();
    replay::request(&mut tx, &[EventId(row.id)], "a test", desk.p.now.datetime()).await.unwrap();
    tx.commit().await.unwrap();
    desk.p.drain().await;
    let again = desk.p.event(&key).await;
    assert_eq!((again.said().as_str(), again.runs), ("applied: plan is already pro", 2));
    assert_eq!(desk.bottles().await.left, 499);
}

#[tokio::test]
async fn a_spend_opens_the_period_too() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    desk.p.at("12-01 00:00:01");
    desk.plan("milk", "2026-12-04T09:00").await.unwrap();
    assert!(
        desk.ledger().await.contains("free:2026-12 +10, pro:2026-12 +490, spend:1:1 of 2026-12 -1"),
        "{}",
        desk.ledger().await
    );
    desk.p.check_invariants().await;
}

#[tokio::test]
async fn who_is_past_due_opens_nothing_until_the_payment_comes() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    desk.p.at("11-02 08:00:00");
    desk.p.run(&says("ada", "failed", "11-02 07:00:00 failed -")).await;
    assert_eq!(desk.bottles().await.left, 10);
    assert_eq!(desk.sign_in().await.left, 10);
    desk.p.run(&says("ada", "paid", "11-02 07:30:00 paid -")).await;
    assert_eq!(desk.bottles().await.left, 500, "granted by the payment itself");
    desk.p.check_invariants().await;
}

/// The period is used, the payment lands, the cancellation is heard: in every order the month has its entries once.
#[tokio::test]
async fn a_period_that_was_opened_stays_open_whatever_is_heard_later_in_every_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut desk = Desk::new().await;
        desk.pro_since("10-21 10:00:00").await;
        desk.p.at("11-03 08:00:00");
        let mut was_free = false;
        for step in order {
            match step {
                0 => {
                    was_free = desk.p.account("ada").await.starts_with("free");
                    desk.sign_in().await;
                }
                1 => drop(desk.p.run(&says("ada", "paid", "11-03 07:00:00 paid -")).await),
                _ => drop(desk.p.run(&says("ada", "end", "11-03 07:30:00 cancelled -")).await),
            }
        }
        let ledger = desk.ledger().await;
        assert_eq!(ledger.matches("pro:2026-11 +490").count(), 1, "{order:?}: {ledger}");
        assert_eq!(ledger.matches("free:2026-11 +10").count(), 1, "{order:?}: {ledger}");
        let opened: i64 = desk.p.value("select count(*) from inbox_events where source = 'bottle'").await;
        // Only who is Pro at that moment and has nothing yet opens anything.
        let expected = i64::from(order[0] == 0);
        assert_eq!(opened, expected, "{order:?}, free when it was used: {was_free}");
        assert_eq!(desk.bottles().await.left, 500, "{order:?}");
        desk.p.check_invariants().await;
    }
}

#[tokio::test]
async fn two_uses_of_a_period_at_once_open_it_once() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    desk.p.at("11-03 08:00:00");
    let all = (0..8).map(|n| {
        let desk = &desk;
        async move {
            if n % 2 == 0 {
                let _ = desk.sign_in().await;
            } else {
                let _ = desk.plan("milk", "2026-11-04T09:00").await.unwrap();
            }
        }
    });
    futures_util::future::join_all(all).await;
    assert_eq!(desk.bottles().await.left, 496);
    assert_eq!(desk.p.value::<i64>("select count(*) from inbox_events where source = 'bottle'").await, 1);
    desk.p.check_invariants().await;
}

#[tokio::test]
async fn a_bottle_goes_back_to_the_month_that_it_came_from() {
    let mut desk = Desk::new().await;
    let milk = desk.plan("milk", "2026-11-20T09:00").await.unwrap();
    desk.p.at("11-02 08:00:00");
    desk.plan("bread", "2026-11-21T09:00").await.unwrap();
    assert_eq!(desk.delete(&milk).await.unwrap().returned_to.unwrap().to_string(), "2026-10");
    assert_eq!(desk.delete(&milk).await.unwrap().returned_to.unwrap().to_string(), "2026-10", "asked twice");
    assert_eq!(
        desk.ledger().await,
        "free:2026-10 +10, spend:1:1 of 2026-10 -1, free:2026-11 +10, spend:2:1 of 2026-11 -1, return:1:1 of 2026-10 +1"
    );
    assert_eq!(desk.bottles().await.left, 9, "not a bottle of November");
}

#[tokio::test]
async fn whoever_waited_for_the_lock_takes_from_the_month_in_which_it_was_got() {
    let desk = Desk::new().await;
    let mut holder = desk.p.pool.begin().await.unwrap();
    bottle::accounts::lock(&mut holder, &[desk.me].into()).await.unwrap();
    // The database's own clock: the transaction begins now and gets its lock later.
    let draft = Draft::new("milk", "2030-01-01T09:00", "UTC", "never").unwrap();
    let waiting = desk.commit(async |conn| {
        schedule(conn, desk.me, &draft, Uuid::new_v4(), &desk.p.rules, bottle::clock::Clock::Database).await
    });
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let before: time::OffsetDateTime = desk.p.value("select clock_timestamp()").await;
        holder.commit().await.unwrap();
        before
    };
    let (done, released) = tokio::join!(waiting, release);
    assert!(done.unwrap().reminder.created_at >= released, "dated before it had the lock");
    let entries: i64 =
        desk.p.value("select count(*) from ledger where created_at >= (select max(created_at) from reminders)").await;
    assert_eq!(entries, 2, "so are its period's entries");
}

/// Eight at once, again and again: the sums agree and no balance was ever below zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_of_eight_spends_what_there_is_and_no_more() {
    let desk = Desk::new().await;
    let desk = Arc::new(desk);
    let rounds = cases(20);
    for round in 0..rounds {
        let me = person(&desk.p, &format!("racer{round}")).await;
        let first = burst(&desk, me, &[]).await;
        let second = burst(&desk, me, &[]).await;
        assert_eq!((first, second), (8, 2), "of ten bottles");
        // Four are deleted while eight more are asked for: what comes back can be taken at once, and nothing twice.
        let some: Vec<i64> = sqlx::query_scalar("select id from reminders where account_id = $1 order by id limit 4")
            .bind(me.0)
            .fetch_all(&desk.p.pool)
            .await
            .unwrap();
        let third = burst(&desk, me, &some).await;
        assert!(third <= 4, "{third} of four");
        let (granted, spent, returned, sum, lowest): (i64, i64, i64, i64, i64) = sqlx::query_as(
            "select sum(delta) filter (where reason = 'free')::bigint, -sum(delta) filter (where reason = 'spend')::bigint,
                    coalesce(sum(delta) filter (where reason = 'return'), 0)::bigint, sum(delta)::bigint, min(running)::bigint
             from (select delta, reason, sum(delta) over (partition by period order by id) as running from ledger where account_id = $1) l",
        )
        .bind(me.0)
        .fetch_one(&desk.p.pool)
        .await
        .unwrap();
        assert!(lowest >= 0, "a balance of {lowest}");
        assert_eq!((granted, returned, sum), (10, 4, granted - spent + returned));
        let kept: i64 = sqlx::query_scalar("select count(*) from reminders where account_id = $1 and status = 'scheduled'")
            .bind(me.0)
            .fetch_one(&desk.p.pool)
            .await
            .unwrap();
        assert_eq!(kept, spent - returned, "a bottle a reminder");
        assert_eq!(kept, 6 + i64::try_from(third).unwrap());
    }
    eprintln!("{rounds} rounds of eight at once");
}

/// Eight ask at the same moment, while these are deleted. Returns how many got one.
async fn burst(desk: &Arc<Desk>, me: AccountId, deleted: &[i64]) -> usize {
    let start = Arc::new(Barrier::new(8 + deleted.len()));
    let mut asking = JoinSet::new();
    for id in deleted {
        let (desk, start, id) = (Arc::clone(desk), Arc::clone(&start), bottle::domain::ids::ReminderId(*id));
        asking.spawn(async move {
            start.wait().await;
            desk.commit(async |conn| change::delete(conn, me, id, 1, desk.clock()).await).await.unwrap();
            false
        });
    }
    for _ in 0..8 {
        let (desk, start) = (Arc::clone(desk), Arc::clone(&start));
        asking.spawn(async move {
            let draft = Draft::new("milk", "2026-10-22T09:00", "UTC", "never").unwrap();
            start.wait().await;
            let asked = desk.commit(async |conn| schedule(conn, me, &draft, Uuid::new_v4(), &desk.p.rules, desk.clock()).await);
            match asked.await {
                Ok(_) => true,
                Err(Error::NoBottles(_)) => false,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    asking.join_all().await.into_iter().filter(|got| *got).count()
}
