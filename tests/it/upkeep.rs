//! Healthy for years: how the tables that change are kept, measured.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::PgPool;

use crate::support::claims::says;
use crate::support::pipeline::Pipeline;

/// Updates of a table since the database was made, and how many of them touched no index.
async fn updates(pool: &PgPool, table: &str) -> (i64, i64) {
    // Counted by each session and told when it rests; asked for on all of them, so that none is left out.
    for _ in 0..8 {
        sqlx::query("select pg_stat_force_next_flush()").execute(pool).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    sqlx::query_as("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = $1")
        .bind(table)
        .fetch_one(pool)
        .await
        .unwrap()
}

async fn version(pool: &PgPool) -> i32 {
    sqlx::query_scalar("select current_setting('server_version_num')::int / 10000").fetch_one(pool).await.unwrap()
}

/// A pool of one: what its session counted is told when it is asked to.
async fn one(p: &Pipeline) -> PgPool {
    sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_with(p.db.options()).await.unwrap()
}

#[tokio::test]
async fn copies_are_counted_where_they_lie_and_a_new_state_costs_index_entries() {
    let mut p = Pipeline::new().await;
    p.pool = one(&p).await;
    if version(&p.pool).await < 15 {
        eprintln!("not measured: PostgreSQL before 15 tells its figures when it likes");
        return;
    }
    let events: Vec<Value> =
        (0..200).map(|n| says(&format!("u{n}"), &format!("e{n:03}"), "10-21 10:00:00 changed - pro")).collect();
    p.deliver_unsigned(&events).await;
    let (before, _) = updates(&p.pool, "inbox_events").await;
    // As they come: one here, one there, each in a statement of its own.
    for n in 0..1000 {
        p.deliver_unsigned(std::slice::from_ref(&events[n * 7 % 200])).await;
    }
    let (copies, hot) = updates(&p.pool, "inbox_events").await;
    assert_eq!(copies - before, 1000);
    // A page that is full has no room for the newer row until it is cleaned, which its next reader does.
    assert!(hot * 2 > copies - before, "{hot} of {} copies were counted in place", copies - before);

    p.drain().await;
    let (all, hot_now) = updates(&p.pool, "inbox_events").await;
    // The claim and the verdict move a row in and out of the index of what is due: that is what the index is for. None of it
    // can be had in place, so the inbox is vacuumed early instead (its storage parameters).
    let (moves, in_place) = (all - copies, hot_now - hot);
    assert_eq!(moves, 400, "one claim and one verdict an event");
    assert_eq!(in_place, 0, "the indexes by state were changed: then the text in the README about them too");
    let (accounts, hot_accounts) = updates(&p.pool, "accounts").await;
    assert!(accounts > 0 && hot_accounts * 100 >= accounts * 80, "{hot_accounts} of {accounts} updates of accounts in place");
    eprintln!(
        "copies {hot} of {} in place; claims and verdicts {in_place} of {moves}; accounts {hot_accounts} of {accounts}",
        copies - before
    );
}

/// As a table grows, PostgreSQL's own rule visits it ever more rarely; each of ours that changes or grows for good has its own.
#[tokio::test]
async fn each_table_that_changes_or_grows_for_good_is_visited_early() {
    let p = Pipeline::new().await;
    let rows: Vec<(String, Vec<String>)> =
        sqlx::query_as("select relname::text, coalesce(reloptions, '{}') from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace")
            .fetch_all(&p.pool)
            .await
            .unwrap();
    let options: BTreeMap<String, BTreeMap<String, f64>> = rows
        .into_iter()
        .map(|(table, options)| {
            let pairs = options
                .iter()
                .filter_map(|option| option.split_once('='))
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            (table, pairs.collect())
        })
        .collect();
    for table in ["inbox_events", "accounts", "outbox", "sessions", "reminders", "facts", "receipts"] {
        let share = options[table].get("autovacuum_vacuum_scale_factor");
        assert!(share.is_some_and(|share| *share <= 0.05), "{table} is cleaned at a share of {share:?}");
    }
    for table in ["receipts", "event_runs", "ledger", "reminders"] {
        let share = options[table].get("autovacuum_vacuum_insert_scale_factor");
        assert!(share.is_some_and(|share| *share <= 0.05), "{table} is frozen at a share of {share:?}");
    }
    for table in ["inbox_events", "accounts", "outbox", "reminders"] {
        assert_eq!(options[table].get("fillfactor"), Some(&80.0), "{table} has no room for newer rows in its pages");
    }
}
