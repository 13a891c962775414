//! That the operators' pages are quick and harmless whatever the size of the inbox: their queries' plans, what their pages read,
//! and two measurements that are run by hand.

use std::time::{Duration, Instant};

use bottle::clock::Clock;
use bottle::replayer::{self, Replayer};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::support::app::{Event, Setup, eventually};
use crate::support::ops::{Ops, large_inbox, number, pages};

/// Tables that grow with use; none of them may be read from end to end.
const LARGE: [&str; 11] = [
    "inbox_events",
    "event_runs",
    "receipts",
    "replays",
    "facts",
    "ledger",
    "conflicts",
    "event_notes",
    "operator_actions",
    "accounts",
    "alerts",
];

/// The queries that operators' pages alone have, as they are checked at build time.
fn queries() -> Vec<(String, usize)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let mut queries = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let query: Value = serde_json::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        let text = query["query"].as_str().unwrap();
        if text.starts_with("/* operators */") {
            queries.push((text.to_owned(), query["describe"]["parameters"]["Left"].as_array().unwrap().len()));
        }
    }
    assert!(queries.len() >= 40, "only {} queries of operators' pages were found", queries.len());
    queries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_reads_a_large_table_from_end_to_end() {
    let ops = Ops::new().await;
    large_inbox(&ops, 200_000, 40).await;

    // By their plans: each query, whatever its arguments.
    let mut conn = PgConnection::connect_with(&ops.app.db.options()).await.unwrap();
    conn.execute("set plan_cache_mode = force_generic_plan").await.unwrap();
    for (n, (query, parameters)) in queries().into_iter().enumerate() {
        conn.execute(AssertSqlSafe(format!("prepare q{n} as {query}"))).await.unwrap();
        let nulls = vec!["null"; parameters].join(", ");
        let explain = if parameters == 0 { format!("explain execute q{n}") } else { format!("explain execute q{n} ({nulls})") };
        let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut conn).await.unwrap();
        let plan = plan.join("\n");
        for table in LARGE {
            assert!(!plan.contains(&format!("Seq Scan on {table} ")), "{query}\n{plan}");
        }
    }

    // By what is counted of them: each page, with plans made for its arguments and with plans made for any.
    let pages = pages(&ops).await;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        ops.sql(&format!("alter database {} set plan_cache_mode = '{mode}'", ops.app.db.name)).await;
        let before = scans(&ops).await;
        for page in &pages {
            let answer = ops.app.get_as(&ops.olive, page).await;
            assert_eq!(answer.status, 200, "{page}: {}", answer.text);
        }
        let after = scans(&ops).await;
        assert_eq!(after, before, "{mode}: a table was read from end to end");
    }
}

/// How often each large table was read from end to end. Connections that serve pages are ended first: only then is all that they
/// did counted.
async fn scans(ops: &Ops) -> Vec<(String, i64)> {
    ops.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'bottle web'").await;
    eventually("they are gone", async || {
        ops.count("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'bottle web'")
            .await
            == 0
    })
    .await;
    let mut conn = PgConnection::connect_with(&ops.app.db.options()).await.unwrap();
    let sql = "select relname::text, coalesce(seq_scan, 0) from pg_stat_user_tables where relname::text = any($1) order by 1";
    sqlx::query_as(sql).bind(LARGE.map(str::to_owned).to_vec()).fetch_all(&mut conn).await.unwrap()
}

/// `cargo test --test it ops_speed::five_million -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: minutes to fill, and several gigabytes"]
async fn five_million_events_and_each_page_below_a_tenth_of_a_second() {
    let ops = Ops::new().await;
    let began = Instant::now();
    large_inbox(&ops, 5_000_000, 400).await;
    let size: String =
        sqlx::query_scalar("select pg_size_pretty(pg_database_size(current_database()))").fetch_one(&ops.app.pool).await.unwrap();
    println!("5,000,000 events, {size}, made in {:?}", began.elapsed());
    let mut slow = Vec::new();
    for page in pages(&ops).await {
        let first = ops.app.get_as(&ops.olive, &page).await;
        assert_eq!(first.status, 200, "{page}: {}", first.text);
        let mut took = Vec::new();
        for _ in 0..9 {
            took.push(ops.app.get_as(&ops.olive, &page).await.took);
        }
        took.sort();
        println!("{:>8.1?} median {:>8.1?} worst {:>8.1?} first  {page}", took[4], took[8], first.took);
        if took[4] > Duration::from_millis(100) {
            slow.push(page);
        }
    }
    assert!(slow.is_empty(), "slower than 100 ms: {slow:?}");
}

/// `cargo test --test it ops_speed::ten_thousand -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: minutes on a calm machine"]
async fn ten_thousand_replays_leave_live_deliveries_within_twice_their_quiet_p99() {
    // As `bottle serve` has it.
    let ops = Ops::with(Setup { worker: true, lanes: 2, ..Setup::default() }).await;
    ops.dead(10_000).await;
    live(&ops, 100).await; // Warm.
    let quiet = live(&ops, 600).await;
    let form = ops.bulk_form("?status=dead").await;
    let id = number(&ops.ask(&form, "10000", "replay").await);
    let stop = CancellationToken::new();
    let replayer = Replayer { pool: ops.app.worker_pool.clone(), wake: ops.app.state.wake.clone(), clock: Clock::Database };
    let began = Instant::now();
    let running = tokio::spawn(replayer::run(replayer, stop.clone()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let busy = live(&ops, 600).await;
    let meanwhile = ops.count("select requeued::bigint from bulk_replays").await;
    while ops.count("select count(*) from bulk_replays where status = 'done'").await == 0 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("bulk replay {id}: 10,000 in {:?}; {meanwhile} of them while the deliveries were measured", began.elapsed());
    stop.cancel();
    running.await.unwrap();
    for (what, quiet, busy) in [("answered", quiet.0, busy.0), ("applied", quiet.1, busy.1)] {
        println!(
            "{what}: p99 {quiet:?} quiet, {busy:?} beside the replay, ratio {:.2}",
            busy.as_secs_f64() / quiet.as_secs_f64()
        );
    }
    assert!(busy.0 <= quiet.0 * 2 && busy.1 <= quiet.1 * 2);
}

/// The p99 of the answer and of the time from arrival to applied, of so many deliveries, thirty a second.
async fn live(ops: &Ops, deliveries: usize) -> (Duration, Duration) {
    let events: Vec<Event> = (0..deliveries).map(|_| Event::new()).collect();
    let mut tick = tokio::time::interval(Duration::from_millis(33));
    let mut answers = Vec::new();
    let mut keys = Vec::new();
    for event in events {
        tick.tick().await;
        let answer = ops.app.deliver(event.token).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answers.push(answer.took);
        keys.push(event.id);
    }
    let open = "select count(*) from inbox_events where dedupe_key = any($1) and status <> 'applied'";
    eventually("they are applied", async || {
        sqlx::query_scalar::<_, i64>(open).bind(&keys).fetch_one(&ops.app.pool).await.unwrap() == 0
    })
    .await;
    let sql = "select percentile_cont(0.99) within group (order by extract(epoch from processed_at - received_at)::float8)
               from inbox_events where dedupe_key = any($1)";
    let applied: f64 = sqlx::query_scalar(sql).bind(&keys).fetch_one(&ops.app.pool).await.unwrap();
    answers.sort();
    (answers[answers.len() * 99 / 100], Duration::from_secs_f64(applied))
}
