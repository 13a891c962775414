//! How fast events go through a provider that takes its time, and how often it is asked. Not run with the others:
//! `cargo test --test it stripe_pace -- --ignored --nocapture`

use std::time::Instant;

use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::wake::Wake;
use bottle::worker;
use bottle::worker::process::Engine;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::app::eventually;
use crate::support::till::{Till, event};

const EVENTS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures"]
async fn events_a_second_where_stripe_takes_a_tenth_of_one() {
    let mut till = Till::open().await;
    let (_, subscription) = till.subscriber("ada").await;
    for n in 0..EVENTS {
        till.deliver(&event(&format!("evt_{n:05}"), "customer.subscription.updated", &subscription)).await;
    }
    till.stripe.turn("faults", json!({"times": 1_000_000, "slow_ms": 100, "path": "/v1/subscriptions"})).await;
    till.calls().await;
    let engine = Engine { clock: Clock::Database, checkpoints: Checkpoints::default(), ..till.pipeline.engine() };
    let stop = CancellationToken::new();
    let began = Instant::now();
    let working = tokio::spawn(worker::run(engine, 2, Wake::default(), stop.clone()));
    let open = "select count(*) from inbox_events where status not in ('applied', 'ignored')";
    let pool = till.pipeline.pool.clone();
    eventually("all of them are applied", async || sqlx::query_scalar::<_, i64>(open).fetch_one(&pool).await.unwrap() == 0).await;
    let took = began.elapsed();
    stop.cancel();
    working.await.unwrap();
    let calls = till.calls().await;
    let asked = calls["GET /v1/subscriptions/{id}"].as_u64().unwrap();
    println!(
        "{EVENTS} events in {:.1} s: {:.0} a second with two lanes; {asked} calls, {:.2} an event",
        took.as_secs_f64(),
        EVENTS as f64 / took.as_secs_f64(),
        asked as f64 / EVENTS as f64
    );
    assert_eq!(asked, EVENTS as u64);
}
