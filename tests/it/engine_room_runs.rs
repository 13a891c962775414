//! The Engine Room's runs, held to what a reader was promised. No number here comes from the program.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use bottle::domain::plan::Plan;
use bottle::engine_room::scenario::{Script, every_order};
use bottle::engine_room::stand::Stand;
use bottle::engine_room::stop::every_stop;
use bottle::engine_room::{every_order, run};

use crate::support::cases;
use crate::support::db::fresh_db;

#[tokio::test(flavor = "multi_thread")]
async fn the_nine_deliveries_end_as_the_article_says() {
    let db = fresh_db().await;
    let stand = Stand::build(&db.options()).await.unwrap();
    let run = run::run(&stand, &Script::article()).await.unwrap();
    let rows: Vec<String> = run
        .steps
        .iter()
        .map(|s| format!("{} {} {} | {} {}", s.event.name(), s.naive.plan, s.naive.balance, s.pipeline.plan, s.pipeline.balance))
        .collect();
    assert_eq!(
        rows,
        [
            "PAY free 10 | free 10",
            "UP pro 10 | free 10",
            "UP pro 500 | pro 500",
            "PAY pro 990 | pro 500",
            "PAY pro 1480 | pro 500",
            "PAY pro 1970 | pro 500",
            "OLD free 1970 | pro 500",
            "UP pro 2460 | pro 500",
            "PAY pro 2950 | pro 500",
        ]
    );
    let said: Vec<&str> = run.steps.iter().map(|s| s.outcome.as_str()).collect();
    assert_eq!(said[0], "stored; payment recorded; no Pro plan it belongs to");
    assert!(said[1].starts_with("stored; stopped half-way") && said[1].ends_with("its lease ends at 10:13:05"), "{}", said[1]);
    assert_eq!(said[2], "copy counted; the stored event runs to the end: plan set to pro, Pro allowance granted");
    assert_eq!(said[6], "stored; ignored: a newer plan change is already stored");
    for n in [3, 4, 5, 7, 8] {
        assert_eq!(said[n], "copy counted, nothing runs");
    }
    let left: i64 = sqlx::query_scalar("select count(*) from engine_room.inbox_events").fetch_one(&stand.pool).await.unwrap();
    assert_eq!(left, 0, "the rows of a run are removed after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_order_with_every_stop_ends_at_pro_and_500_with_one_grant() {
    let db = fresh_db().await;
    let stand = Stand::build(&db.options()).await.unwrap();
    let heard = OnceLock::new();
    let result = every_order::run(&stand, |_, total| {
        let _ = heard.set(total);
    })
    .await
    .unwrap();
    assert_eq!(heard.get(), Some(&12_600));
    assert_eq!(
        (result.schedules, result.ended_right, result.one_grant),
        (12_600, 12_600, 12_600),
        "all schedules, ended at pro 500, with exactly one grant"
    );
    assert_eq!(result.naive_spread.values().sum::<usize>(), 12_600);
}

/// The waves above share statements between schedules; here a sample of them runs as a visitor would run it, alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_run_alone_ends_as_it_does_among_the_others() {
    let db = fresh_db().await;
    let stand = Stand::build(&db.options()).await.unwrap();
    let all: Vec<Script> = every_order()
        .flat_map(|order| every_stop(&order).into_iter().map(move |stop| Script::new(order.to_vec(), stop).unwrap()))
        .collect();
    assert_eq!(all.iter().map(|s| format!("{s} {:?}", s.stop())).collect::<BTreeSet<_>>().len(), 12_600);
    let sample = cases(60) as usize;
    for script in all.iter().step_by((all.len() / sample).max(1)) {
        let run = run::run(&stand, script).await.unwrap();
        let end = run.pipeline();
        assert_eq!((end.plan, end.balance, run.summary().pipeline.grants), (Plan::Pro, 500, 1), "{script} {:?}", script.stop());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_live_row_is_seen_or_touched_by_a_run() {
    let db = fresh_db().await;
    let pool = db.pool().await;
    sqlx::query(
        "insert into inbox_events (source, dedupe_key, type, digest, received_at, due_at, body) \
         values ('kinde', 'event_live0001', 'customer.plan_changed', '', now() - interval '1 day', now() - interval '1 day', '')",
    )
    .execute(&pool)
    .await
    .unwrap();
    let stand = Stand::build(&db.options()).await.unwrap();
    run::run(&stand, &Script::article()).await.unwrap();
    let live: (String, i32) = sqlx::query_as("select status, claims from public.inbox_events").fetch_one(&pool).await.unwrap();
    assert_eq!(live, ("received".to_owned(), 0));
}
