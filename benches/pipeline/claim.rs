//! (c) Claim: how long taking the next events takes, however many are finished and however many wait.

use std::time::Instant;

use anyhow::ensure;
use bottle::clock::Clock;
use bottle::db;
use bottle::inbox::queue;
use sqlx::Executor;

use super::Effort;
use super::stand::{Database, Stand};
use super::table::{Table, percentile, whole};
use super::tokens::{self, BLOCK, People};

const CLAIMS: usize = 1_000;
/// Enough for all claims and some more.
const DUE: i64 = 30_000;

pub async fn run(stand: &Stand, effort: Effort) -> anyhow::Result<()> {
    let body = tokens::signed(stand, People::One, BLOCK / 10)?.example()?;
    let cases: &[(i64, i64)] = match effort.quick {
        true => &[(1_000, DUE), (100_000, DUE), (0, 100_000)],
        false => &[(1_000, DUE), (100_000, DUE), (1_000_000, DUE), (0, 1_000_000)],
    };
    let mut table =
        Table::new(&["finished rows", "due rows", "claims of 25", "p50 ms", "p99 ms", "longest ms", "p50 to the first row's"]);
    let mut first = None;
    for (finished, due) in cases {
        eprintln!("(c) {finished} finished, {due} due");
        let database = stand.fresh("bench_claim").await?;
        fill(stand, &database, *finished, *due, &body).await?;
        let times = claims(&database).await?;
        let p50 = percentile(&times, 50);
        table.row([
            whole(*finished as f64),
            whole(*due as f64),
            whole(CLAIMS as f64),
            format!("{p50:.2}"),
            format!("{:.2}", percentile(&times, 99)),
            format!("{:.1}", percentile(&times, 100)),
            format!("{:.2}", p50 / *first.get_or_insert(p50)),
        ]);
        stand.drop(database).await?;
    }
    table.print("(c) Claim: latency of taking 25 events, committed");
    println!("\nGoal: flat in finished rows; p99 below 25 ms with the backlog. One connection, through the library's own claim.");
    Ok(())
}

async fn fill(stand: &Stand, database: &Database, finished: i64, due: i64, body: &str) -> anyhow::Result<()> {
    let pool = database.pool().await?;
    for (from, to, status, reason) in
        [(1, finished, "applied", Some("plan set to pro")), (finished + 1, finished + due, "received", None)]
    {
        sqlx::query(
            "insert into inbox_events (source, dedupe_key, webhook_id, type, digest, occurred_at, occurred_ns, body, received_at,
                                       due_at, status, reason, processed_at)
             select 'kinde', 'event_' || lpad(to_hex(g), 32, '0'), 'webhook_' || lpad(to_hex(g), 32, '0'), 'customer.plan_changed',
                    sha256(int8send(g)), now(), g, $3, now(), now() - interval '1 day' + g * interval '1 millisecond', $4, $5,
                    case when $5 is null then null else now() end
             from generate_series($1::bigint, $2::bigint) g",
        )
        .bind(from)
        .bind(to)
        .bind(body.as_bytes())
        .bind(status)
        .bind(reason)
        .execute(&pool)
        .await?;
    }
    pool.execute("vacuum analyze inbox_events").await?;
    pool.close().await;
    stand.admin.execute("checkpoint").await?;
    Ok(())
}

/// In milliseconds, sorted.
async fn claims(database: &Database) -> anyhow::Result<Vec<f64>> {
    let pool = db::pool(&database.options, db::Use::Worker);
    let mut times = Vec::new();
    // The first ones connect and prepare.
    for n in 0..CLAIMS + 10 {
        let began = Instant::now();
        let claimed = queue::claim(&pool, queue::CLAIM_LIMIT, queue::LEASE_SECS, Clock::Database).await?;
        if n >= 10 {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        ensure!(claimed.len() == 25, "a claim took {} events", claimed.len());
    }
    pool.close().await;
    times.sort_by(f64::total_cmp);
    Ok(times)
}
