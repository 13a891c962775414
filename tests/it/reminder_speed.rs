//! Lists and searches of a person with 2,000 reminders, among many others: by the index, and fast.

use std::time::{Duration, Instant};

use bottle::reminders::list::{self, List};
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::desk::Desk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_2000_reminders_lists_searches_and_counts_go_by_the_index() {
    let desk = Desk::new().await;
    let pool = &desk.p.pool;
    // 2,000 of ours, in all three lists, and 98,000 of fifty others.
    sqlx::query(
        "insert into accounts (tenant, kinde_user_id, created_at) select 'test', 'kp_other' || n, now() from generate_series(1, 49) n",
    )
    .execute(pool)
    .await
    .unwrap();
    sqlx::query(
        "insert into reminders (id, series, n, account_id, text, search, zone, local, month_day, repeat, due_at, status, created_at, changed_at, done_at)
         select n, n, 1, a.id, 'number ' || n || ' of many', 'number ' || n || ' of many', 'UTC', '2026-12-01', 1, 'never',
                timestamptz '2026-12-01' + n * interval '1 minute', (array['scheduled', 'scheduled', 'due', 'done'])[n / 50 % 4 + 1], now(), now(), now()
         from generate_series(1, 100000) n join accounts a on a.id = (select min(id) from accounts) + n % 50",
    )
    .execute(pool)
    .await
    .unwrap();
    // As autovacuum leaves it in time: while anybody in this database still has an older view, rows are not yet visible to all.
    let mut visible = 0;
    for _ in 0..200 {
        sqlx::query("vacuum analyze reminders").execute(pool).await.unwrap();
        visible = desk.p.value::<i32>("select relallvisible from pg_class where oid = 'reminders'::regclass").await;
        if visible > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(visible > 0, "vacuum could mark no page");
    let mine: i64 = desk.p.value(&format!("select count(*) from reminders where account_id = {}", desk.me)).await;
    assert_eq!(mine, 2000);

    // What a page asks for: one list, from its beginning or from further on, searched or not, and the counts.
    let mut took = Vec::new();
    for n in 0..300 {
        let search = ["", "9", "of many", "no such words"][n % 4];
        let of = [List::Upcoming, List::Due, List::Done][n % 3];
        let first = list::page(pool, desk.me, of, search, None, 50).await.unwrap();
        assert!(!first.reminders.is_empty() || search == "no such words");
        let began = Instant::now();
        list::page(pool, desk.me, of, search, first.next.filter(|_| n % 2 == 0), 50).await.unwrap();
        list::counts(pool, desk.me).await.unwrap();
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let p = |share: usize| took[took.len() * share / 100];
    eprintln!("a list and the counts, as this build and machine have it: p50 {:?}, p99 {:?}", p(50), p(99));

    // What the server does for it: the same on every machine.
    let mut server_ms = 0.0;
    for order in ["listed_at, id", "listed_at desc, id desc"] {
        let found = explained(
            pool,
            &format!(
                "select * from reminders where account_id = {} and list = 'upcoming' and status <> 'deleted' order by {order} limit 51",
                desk.me
            ),
        )
        .await;
        assert!(found.text.contains("reminders_listed") && !found.text.contains("Sort"), "{}", found.text);
        assert!(found.blocks < 100, "{} blocks for a page", found.blocks);
        server_ms = found.ms;
    }
    let of_counts = format!(
        "select count(*) filter (where list = 'due'), count(*) filter (where list = 'done') from reminders
         where account_id = {} and status <> 'deleted'",
        desk.me
    );
    let mut counts = explained(pool, &of_counts).await;
    // An index alone answers where vacuum has been, and it passes over pages that somebody is just looking at.
    for _ in 0..20 {
        if counts.blocks < 100 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        sqlx::raw_sql("vacuum reminders").execute(pool).await.unwrap();
        counts = explained(pool, &of_counts).await;
    }
    assert!(counts.text.contains("Index Only Scan") && counts.text.contains("reminders_listed"), "{}", counts.text);
    assert!(counts.blocks < 100, "{} blocks for the counts", counts.blocks);
    let search = explained(
        pool,
        &format!(
            "select * from reminders where account_id = {} and list = 'upcoming' and status <> 'deleted'
             and search like '%no such words%' order by listed_at, id limit 51",
            desk.me
        ),
    )
    .await;
    // At worst every reminder of the list lies on a page of its own; never those of others.
    assert!(search.text.contains("reminders_listed") && search.blocks < 1100, "{} blocks: {}", search.blocks, search.text);
    let ringing = explained(
        pool,
        "select account_id from reminders where status = 'scheduled' and due_at <= '2026-12-01 00:10'
         group by account_id order by min(due_at) limit 100",
    )
    .await;
    assert!(ringing.text.contains("reminders_ringing"), "{}", ringing.text);
    eprintln!(
        "in the server: a page {server_ms:.2} ms, counts {:.2} ms, a search that finds nothing {:.2} ms, what rings {:.2} ms",
        counts.ms, search.ms, ringing.ms
    );
}

struct Explained {
    text: String,
    blocks: u64,
    ms: f64,
}

async fn explained(pool: &PgPool, sql: &str) -> Explained {
    let sql = format!("explain (analyze, buffers, format json) {sql}");
    let plan: serde_json::Value = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await.unwrap();
    let top = &plan[0]["Plan"];
    let blocks = top["Shared Hit Blocks"].as_u64().unwrap() + top["Shared Read Blocks"].as_u64().unwrap();
    Explained { text: plan.to_string(), blocks, ms: plan[0]["Execution Time"].as_f64().unwrap() }
}
