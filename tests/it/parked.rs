//! Events that wait for something other than their turn: each is parked with its reason, uncharged, and comes back by itself.

use std::sync::Arc;
use std::time::Duration;

use bottle::billing::apply::Rules;
use bottle::domain::plan::PlanKeys;
use bottle::inbox::queue::CLAIM_LIMIT;
use bottle::providers::script::Truth;
use serde_json::json;

use crate::support::claims::{customer_id, customer_only, says};
use crate::support::histories::{GOLD, STARTER};
use crate::support::pipeline::Pipeline;

#[tokio::test]
async fn an_event_far_ahead_of_its_arrival_waits_until_it_happens() {
    let mut p = Pipeline::new().await;
    let within = says("ada", "within", "10-21 13:00:00 failed -");
    assert_eq!(p.run(&within).await.said(), "applied: payment failure recorded", "an hour ahead is a clock's fault");

    let ahead = says("ben", "ahead", "10-21 13:00:00.000000001 changed - pro");
    let parked = "parked: it says it happens at 2026-10-21T13:00:00.000000001Z, more than an hour ahead";
    let row = p.run(&ahead).await;
    assert_eq!((row.said().as_str(), row.attempts), (parked, 0));
    // Heard of at 12:00, so it stays too early, however late it is looked at.
    p.at("10-21 12:30:00").replay(&ahead).await;
    p.drain().await;
    assert_eq!(p.event_of(&ahead).await.said(), parked);
    let early = p.at("10-21 13:00:00").engine().claim(CLAIM_LIMIT).await.unwrap();
    assert!(early.is_empty(), "the column's microsecond has come, the event's nanosecond has not");
    p.at("10-21 13:00:00.000001").drain().await;
    assert_eq!(p.event_of(&ahead).await.said(), "applied: plan set to pro, Pro allowance granted");
    let asked_by: Vec<_> = p.runs(&ahead).await.into_iter().map(|run| run.2).collect();
    assert_eq!(asked_by.last().unwrap().as_deref(), Some("a test"), "put off is not done");
    p.check_invariants().await;
}

#[tokio::test]
async fn an_event_that_names_only_a_customer_waits_until_the_customer_is_known() {
    let p = Pipeline::new().await;
    let first = customer_only(says("ada", "first", "10-21 10:00:00 changed - pro"));
    let row = p.run(&first).await;
    assert_eq!((row.said().as_str(), row.attempts), ("parked: nobody with customer id customer_ada has signed in yet", 0));
    assert_eq!(p.account("ada").await, "no account");

    // An event with both ids is applied: what waited is applied in the same drain.
    p.run(&says("ada", "both", "10-21 10:03:00 paid -")).await;
    assert_eq!(p.event_of(&first).await.said(), "applied: plan set to pro, Pro allowance granted");
    let next = customer_only(says("ada", "next", "10-21 10:05:00 failed -"));
    assert_eq!(p.run(&next).await.said(), "applied: payment failure recorded");
    p.check_invariants().await;
}

#[tokio::test]
async fn the_sweep_finds_what_another_program_made_known() {
    let p = Pipeline::new().await;
    let waits = customer_only(says("ada", "waits", "10-21 10:00:00 changed - pro"));
    p.run(&waits).await;
    p.run(&says("ben", "ben", "10-21 10:00:00 paid -")).await;
    sqlx::query("insert into customer_map select 'kinde', $1, id, now() from accounts")
        .bind(customer_id("ada"))
        .execute(&p.pool)
        .await
        .unwrap();
    p.work_until_committed(&waits).await;
    assert_eq!(p.event_of(&waits).await.said(), "applied: plan set to pro, Pro allowance granted");
    p.check_invariants().await;
}

#[tokio::test]
async fn a_customer_claimed_by_two_is_nobodys() {
    let p = Pipeline::new().await;
    p.run(&says("ada", "ada", "10-21 10:00:00 changed - pro")).await;
    let mut claims = says("ben", "ben", "10-21 10:00:00 changed - pro");
    claims["data"]["customer_id"] = json!(customer_id("ada"));
    let row = p.run(&claims).await;
    assert_eq!((row.said().as_str(), row.attempts), ("parked: customer id customer_ada is claimed by two people", 0));
    assert_eq!(p.account("ben").await, "free; free:2026-10 +10", "an account that was made has its first bottles");
    p.check_invariants().await;
}

#[tokio::test]
async fn a_plan_key_configured_later_is_applied_when_a_worker_starts_with_it() {
    let mut p = Pipeline::new().await;
    let claims = says("ada", "gold", &format!("10-21 10:00:00 created a {GOLD}"));
    assert_eq!(p.run(&claims).await.attempts, 0);
    assert_eq!(p.account("ada").await, "free; free:2026-10 +10", "the account keeps its plan (T44)");
    assert!(p.drain().await.is_empty(), "it waits for the key, not for a time");

    let mut keys = PlanKeys::default();
    keys.pro.insert(GOLD.to_owned());
    p.rules = Arc::new(Rules { keys, ..(*p.rules).clone() });
    p.later(Duration::from_secs(3_600)).work_until_committed(&claims).await;
    assert_eq!(p.event_of(&claims).await.said(), "applied: plan set to pro, Pro allowance granted");
    assert_eq!(p.account("ada").await, "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490");
    p.check_invariants().await;
}

#[tokio::test]
async fn the_month_of_a_plan_key_configured_later_is_granted_in_whatever_order_its_events_came() {
    let gold = says("ada", "gold", &format!("10-05 10:00:00 created a {GOLD}"));
    let starter = says("ada", "starter", &format!("10-20 10:00:00 changed - {STARTER}"));
    for order in [[&gold, &starter], [&starter, &gold]] {
        let mut p = Pipeline::new().await;
        for claims in order {
            p.run(claims).await;
        }
        let mut keys = PlanKeys::default();
        keys.pro.insert(GOLD.to_owned());
        p.rules = Arc::new(Rules { keys, ..(*p.rules).clone() });
        p.later(Duration::from_secs(3_600)).work_until_committed(&gold).await;
        let account = p.account("ada").await;
        assert!(account.starts_with("free since 10-20 10:00:00") && account.contains("pro:2026-10 +490"), "{account}");
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn a_provider_that_is_away_keeps_no_event_waiting_that_says_nothing() {
    let p = Pipeline::new().await;
    p.provider_says(Truth::Away);
    let said = p.run(&says("ada", "register", "10-21 10:00:00 registered")).await.said();
    assert_eq!(said, "ignored: this event type carries no billing change (user.created)");
}
