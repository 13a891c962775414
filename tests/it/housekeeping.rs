//! What is forgotten after years, and what never is.

use std::time::Duration;

use bottle::housekeeping::{self, round};
use bottle::inbox::prune::{self, Pruned};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::support::app::App;
use super::support::claims::says;
use super::support::pipeline::Pipeline;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

async fn age(pool: &PgPool, condition: &str, days: i32) {
    for (table, column) in [("inbox_events", "id"), ("receipts", "event_id")] {
        let sql = format!(
            "update {table} set received_at = now() - make_interval(days => $1) \
             where {column} in (select id from inbox_events where {condition})"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).bind(days).execute(pool).await.unwrap();
    }
}

/// Per event, in order of arrival: its status, whether it has its body, and its receipts.
async fn kept(pool: &PgPool) -> Vec<(String, bool, i64)> {
    let sql = "select status, body is not null, (select count(*) from receipts r where r.event_id = e.id) \
               from inbox_events e order by id";
    sqlx::query_as(sql).fetch_all(pool).await.unwrap()
}

fn stop_at_once() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn what_was_settled_long_ago_loses_body_and_receipts_and_nothing_else() {
    let p = Pipeline::new().await;
    let old = says("ada", "old", "10-20 10:00:00 changed - pro");
    let young = says("ada", "young", "10-21 10:00:00 paid -");
    let nothing = says("ada", "nothing", "10-21 10:00:00 registered");
    for claims in [&old, &young, &nothing] {
        p.run(claims).await;
    }
    let before = p.account("ada").await;
    age(&p.pool, "true", 366).await;
    age(&p.pool, "type = 'customer.payment_succeeded'", 364).await;
    let stop = stop_at_once();
    assert_eq!(round(&p.pool, YEAR, &stop).await.unwrap(), Pruned { bodies: 2, receipts: 2 });
    let word = |status: &str, body, receipts| (status.to_owned(), body, receipts);
    assert_eq!(kept(&p.pool).await, [word("applied", false, 0), word("applied", true, 1), word("ignored", false, 0)]);
    assert_eq!(round(&p.pool, YEAR, &stop).await.unwrap(), Pruned::default(), "once is enough");
    // A copy of next year is still a copy, and the event can still run again.
    assert!(p.deliver(&old).await.copy);
    p.replay(&old).await;
    p.drain().await;
    assert_eq!(p.event_of(&old).await.said(), "applied: plan is already pro");
    assert_eq!(p.account("ada").await, before);
    p.check_invariants().await;
}

#[tokio::test]
async fn an_event_somebody_may_still_have_to_read_keeps_everything() {
    let app = App::start().await;
    let statuses = ["received", "processing", "failed", "parked", "dead", "applied", "ignored"];
    for status in statuses {
        let event = super::support::app::Event::new();
        app.deliver(event.token.clone()).await.says_stored(&event.id, false);
        let sql = "update inbox_events set status = $2 where dedupe_key = $1";
        sqlx::query(sql).bind(&event.id).bind(status).execute(&app.pool).await.unwrap();
    }
    age(&app.pool, "true", 4000).await;
    let gone = round(&app.pool, YEAR, &stop_at_once()).await.unwrap();
    assert_eq!(gone, Pruned { bodies: 2, receipts: 2 });
    for (status, body, receipts) in kept(&app.pool).await {
        let settled = ["applied", "ignored"].contains(&status.as_str());
        assert_eq!((body, receipts), (!settled, i64::from(!settled)), "{status}");
    }
}

#[tokio::test]
async fn it_goes_on_until_nothing_is_left_and_only_one_does_it() {
    let app = App::start().await;
    let many = prune::BATCH * 2 + 7;
    let sql = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at, body) \
               select 'kinde', 'old' || n, 't', '\\x00', now() - interval '2000 days', 'applied', now(), '\\x01' \
               from generate_series(1, $1) n";
    sqlx::query(sql).bind(many).execute(&app.pool).await.unwrap();
    let stop = stop_at_once();
    let mut other = app.pool.begin().await.unwrap();
    let lock = "select pg_advisory_xact_lock($1)";
    sqlx::query(lock).bind(housekeeping::LOCK).execute(&mut *other).await.unwrap();
    assert_eq!(round(&app.pool, YEAR, &stop).await.unwrap(), Pruned::default(), "another process is at it");
    other.rollback().await.unwrap();
    assert_eq!(round(&app.pool, YEAR, &stop).await.unwrap().bodies, many.unsigned_abs());
}

#[tokio::test]
async fn pruning_looks_at_what_is_to_go_and_at_nothing_else() {
    let app = App::start().await;
    let sql = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at, body) \
               select 'kinde', 'e' || n, 't', '\\x00', now() - make_interval(days => n % 300), 'applied', now(), '\\x01' \
               from generate_series(1, 20000) n";
    sqlx::query(sql).execute(&app.pool).await.unwrap();
    sqlx::query("analyze inbox_events").execute(&app.pool).await.unwrap();
    let sql = "explain select id from inbox_events where body is not null and status in ('applied', 'ignored') \
               and received_at < now() - interval '299 days' order by received_at limit 500 for update skip locked";
    let plan: Vec<String> = sqlx::query_scalar(sql).fetch_all(&app.pool).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("inbox_events_prunable") && !plan.contains("Sort"), "{plan}");
    sqlx::query("insert into receipts (event_id, received_at, copy) select id, received_at, false from inbox_events")
        .execute(&app.pool)
        .await
        .unwrap();
    sqlx::query("analyze receipts").execute(&app.pool).await.unwrap();
    let sql = "explain select r.id from receipts r join inbox_events e on e.id = r.event_id \
               where r.received_at < now() - interval '299 days' and e.status in ('applied', 'ignored') \
               order by r.received_at limit 500 for update of r skip locked";
    let plan: Vec<String> = sqlx::query_scalar(sql).fetch_all(&app.pool).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("receipts_received") && !plan.contains("Seq Scan"), "{plan}");
}
