//! An event that turns out to be somebody else's: its facts go with it, and both accounts say so.

use bottle::checkpoint::Step;
use bottle::domain::ids::EventKey;
use std::sync::{Arc, Mutex};

use crate::support::claims::{customer_id, customer_only, says};
use crate::support::pipeline::{At, Pipeline};

/// Ada and Ben have accounts; Ada's customer id is then Ben's.
async fn taken_over() -> (Pipeline, serde_json::Value) {
    let p = Pipeline::new().await;
    p.run(&says("ben", "ben", "10-01 10:00:00 paid -")).await;
    p.run(&says("ada", "ada", "10-01 10:00:00 paid -")).await;
    let up = customer_only(says("ada", "up", "10-21 10:00:00 created a pro"));
    p.run(&up).await;
    p.run(&says("ada", "failed", "10-21 11:00:00 failed a")).await;
    let ben = p.account_id("ben").await.unwrap();
    sqlx::query("update customer_map set account_id = $1 where customer_id = $2")
        .bind(ben.0)
        .bind(customer_id("ada"))
        .execute(&p.pool)
        .await
        .unwrap();
    (p, up)
}

async fn assert_moved(p: &Pipeline, up: &serde_json::Value) {
    assert_eq!(
        p.account("ben").await,
        "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        "its new owner has the plan and the allowance"
    );
    // What was granted may have been spent: the ledger is append-only.
    assert_eq!(
        p.account("ada").await,
        "free, past due since 10-21 11:00:00; free:2026-10 +10, pro:2026-10 +490",
        "whoever had it before is folded anew"
    );
    let id = p.event_of(up).await.id;
    let homes: String = p
        .value(&format!(
            "select string_agg(a.kinde_user_id, ',') from facts f join accounts a on a.id = f.account_id where f.event_id = {id}"
        ))
        .await;
    assert_eq!(homes, "kp_ben");
    p.check_invariants().await;
}

#[tokio::test]
async fn the_facts_of_an_event_follow_it_to_its_new_owner() {
    let (p, up) = taken_over().await;
    p.replay(&up).await;
    p.drain().await;
    assert_eq!(p.event_of(&up).await.said(), "applied: plan set to pro, Pro allowance granted");
    assert_moved(&p, &up).await;
    // And once more changes nothing.
    p.replay(&up).await;
    p.drain().await;
    assert_eq!(p.event_of(&up).await.said(), "applied: plan is already pro");
    assert_moved(&p, &up).await;
}

#[tokio::test]
async fn they_follow_it_in_one_claim_with_events_of_both() {
    let (p, up) = taken_over().await;
    let failed = says("ada", "failed", "10-21 11:00:00 failed a");
    for event in [&up, &failed, &says("ben", "ben", "10-01 10:00:00 paid -")] {
        p.replay(event).await;
    }
    let together = Arc::new(Mutex::new(0));
    let most = Arc::clone(&together);
    let watch = At(move |step, events: &[&EventKey]| {
        if step == Step::Held {
            let mut most = most.lock().unwrap();
            *most = events.len().max(*most);
        }
        Ok(())
    });
    p.watched(Arc::new(watch)).drain().await.unwrap();
    assert_eq!(*together.lock().unwrap(), 3);
    // Ada's customer id is Ben's now, and this event names Ada beside it.
    assert!(p.event_of(&failed).await.said().contains("is claimed by two people"));
    assert!(p.account("ben").await.starts_with("pro since 10-21 10:00:00"));
    assert!(p.account("ada").await.starts_with("free, past due"), "a disputed event's facts stay where they are");
}

#[tokio::test]
async fn a_pruned_event_stays_where_it_is() {
    let (p, up) = taken_over().await;
    sqlx::query("update inbox_events set body = null").execute(&p.pool).await.unwrap();
    p.replay(&up).await;
    p.drain().await;
    assert_eq!(p.event_of(&up).await.said(), "applied: plan is already pro", "it names nobody any more");
    assert!(p.account("ada").await.starts_with("pro since 10-21 10:00:00"));
    p.check_invariants().await;
}
