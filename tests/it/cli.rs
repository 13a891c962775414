//! The commands that end by themselves: `bottle engine-room` and `bottle replay`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::binary::{Home, Said};
use crate::support::db::{TestDb, fresh_db};
use crate::support::deliveries::{Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, settled};

#[tokio::test]
async fn the_engine_room_prints_the_nine_deliveries_for_programs() {
    let (home, db) = (Home::new(), fresh_db().await);
    let said = home.run(&["engine-room", "--json"], &[("DATABASE_URL", &db.url())]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut printed: Value = serde_json::from_str(&said.out).unwrap();
    let counted = "copy counted, nothing runs";
    // Of the wording only what matters is held to; the numbers are all there is.
    let rows = [
        ("PAY", "free", 10, "free", 10, "stored; payment recorded; no Pro plan it belongs to"),
        ("UP", "pro", 10, "free", 10, "rolled back whole, its lease ends at 10:13:05"),
        ("UP", "pro", 500, "pro", 500, "copy counted; the stored event runs to the end: plan set to pro, Pro allowance granted"),
        ("PAY", "pro", 990, "pro", 500, counted),
        ("PAY", "pro", 1480, "pro", 500, counted),
        ("PAY", "pro", 1970, "pro", 500, counted),
        ("OLD", "free", 1970, "pro", 500, "stored; ignored: a newer plan change is already stored"),
        ("UP", "pro", 2460, "pro", 500, counted),
        ("PAY", "pro", 2950, "pro", 500, counted),
    ];
    for (n, (.., outcome)) in rows.iter().enumerate() {
        let said = printed["deliveries"][n]["pipeline"].as_object_mut().unwrap().remove("outcome").unwrap();
        assert!(said.as_str().unwrap().ends_with(outcome), "{n}: {said}");
    }
    let rows = rows.iter().enumerate().map(|(n, (event, plan, balance, our_plan, our_balance, _))| {
        json!({
            "n": n + 1, "event": event,
            "naive": { "plan": plan, "balance": balance },
            "pipeline": { "plan": our_plan, "balance": our_balance },
        })
    });
    let want = json!({
        "deliveries": rows.collect::<Vec<_>>(),
        "summary": {
            "copies_arrived": 9, "events_stored": 3, "copies_dropped": 6, "interrupted": 1,
            "naive": { "plan": "pro", "balance": 2950 },
            "pipeline": { "plan": "pro", "balance": 500, "grants": 1 },
        },
    });
    assert_eq!(printed, want);
    let pool = db.pool().await;
    assert_eq!(
        count(&pool, "select (select count(*) from inbox_events) + (select count(*) from accounts)").await,
        0,
        "live tables"
    );

    let said = home.run(&["engine-room", "--script", "UP.DOWN"], &[("DATABASE_URL", &db.url())]).await;
    assert!(said.code == Some(2) && said.err.contains("DOWN"), "{said:?}");
}

#[tokio::test]
async fn replay_runs_what_is_chosen_again_and_keeps_the_history() {
    let (home, db, upgrade) = delivered().await;
    let pool = db.pool().await;
    let before = whole(&pool).await;
    let replay = async |args: &[&str]| replay(&home, &db, args).await;
    let untouched = async |said: &Said| assert!(whole(&pool).await == before, "{said:?}");

    // What chooses nothing, or nothing that exists, changes nothing.
    for (args, code, words) in [
        (&[][..], 2, "--since"),
        (&["--since", "yesterday"], 2, "--since"),
        (&["--status", "lost"], 2, "lost"),
        (&["event_0123456789abcdef"], 1, "No stored event event_0123456789abcdef."),
        (&["999999"], 1, "No stored event 999999."),
        (&["1", "999999"], 1, "No stored event 999999."),
        (&["--since", "2000-01-01T00:00:00Z"], 0, "No stored event matches."),
        (&["--type", "customer.meter_usage_updated"], 0, "No stored event matches."),
        (&["--status", "applied,ignored"], 1, "--yes"),
        (&["--dry-run", "--status", "applied,ignored"], 0, "dry run of 3 events"),
    ] {
        let said = replay(args).await;
        assert!(said.code == Some(code) && format!("{}{}", said.out, said.err).contains(words), "{args:?}: {said:?}");
        untouched(&said).await;
    }

    // One by the provider's id, one by ours, then all; without a `bottle serve` beside it.
    let said = replay(&[&upgrade.up.key]).await;
    assert!(said.code == Some(0) && said.out.contains(&upgrade.up.key) && said.out.contains("1 event replayed."), "{said:?}");
    assert!(said.out.contains("plan is already pro"), "{said:?}");
    assert_eq!(replay(&["3"]).await.code, Some(0));
    let said = replay(&["--status", "applied,ignored", "--yes"]).await;
    assert!(said.code == Some(0) && said.out.contains("3 events replayed."), "{said:?}");
    let said = replay(&["--type", "customer.payment_succeeded"]).await;
    assert!(said.code == Some(0) && said.out.contains("1 event replayed."), "{said:?}");

    assert_as_the_oracle_says(&pool, &upgrade.user, &upgrade.events()).await;
    let asked: Vec<(i64, i64)> =
        sqlx::query_as("select event_id, count(*) from replays where requested_by like '%(command line)' group by 1 order by 1")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(asked, [(1, 2), (2, 2), (3, 2)]);
    let runs: Vec<(i64, i64, i64)> =
        sqlx::query_as("select event_id, count(*), count(requested_by) from event_runs group by 1 order by 1")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(runs, [(1, 3, 2), (2, 3, 2), (3, 3, 2)], "the first run of each stays, and was asked for by nobody");
    assert_eq!(count(&pool, "select count(*) from receipts").await, 3, "a replay is no delivery");
}

#[tokio::test]
async fn since_alone_means_what_has_no_good_end_and_a_rehearsal_tells_what_would_change() {
    let (home, db, upgrade) = delivered().await;
    let pool = db.pool().await;
    // As if the handler had failed six times and nothing of it had been written.
    sqlx::raw_sql(
        "update inbox_events set status = 'dead', attempts = 6, reason = 'dead after 6 attempts: a bad release' where type like '%plan_changed';
         delete from facts where event_id = (select id from inbox_events where status = 'dead');
         update accounts set plan = 'free', plan_changed_at = null, plan_changed_ns = null;
         alter table ledger disable trigger ledger_append_only; delete from ledger where reason = 'pro';
         alter table ledger enable trigger ledger_append_only",
    )
    .execute(&pool)
    .await
    .unwrap();
    let before = whole(&pool).await;
    let said = replay(&home, &db, &["--since", "2000-01-01T00:00:00Z", "--dry-run"]).await;
    for words in
        [&upgrade.up.key, "plan set to pro, Pro allowance granted", "plan free → pro", "+490 for ", "dry run of 1 event."]
    {
        assert!(said.code == Some(0) && said.out.contains(words), "{words}: {said:?}");
    }
    assert!(whole(&pool).await == before, "{said:?}");

    let said = replay(&home, &db, &["--since", "2000-01-01T00:00:00Z"]).await;
    assert!(said.code == Some(0) && said.out.contains("plan set to pro, Pro allowance granted"), "{said:?}");
    assert_as_the_oracle_says(&pool, &upgrade.user, &upgrade.events()).await;
    assert_eq!(count(&pool, "select count(*) from event_runs").await, 4, "only the dead one ran again");
}

#[tokio::test]
async fn a_command_with_another_tenants_settings_touches_nothing() {
    let (home, db, upgrade) = delivered().await;
    let pool = db.pool().await;
    let before = whole(&pool).await;
    let settings = [("DATABASE_URL", db.url()), ("KINDE_DOMAIN", "https://somebody-else.kinde.com".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    for args in [&["replay", upgrade.up.key.as_str()][..], &["worker"]] {
        let said = home.run(args, &settings).await;
        assert!(said.code == Some(1) && said.err.contains("KINDE_DOMAIN: this database belongs to the tenant"), "{said:?}");
    }
    assert!(whole(&pool).await == before);
}

#[tokio::test]
async fn an_event_in_a_workers_hands_is_left_alone() {
    let (home, db, _) = delivered().await;
    let pool = db.pool().await;
    sqlx::query(
        "update inbox_events set status = 'processing', lease_token = gen_random_uuid(), due_at = now() + '1 hour' where id = 1",
    )
    .execute(&pool)
    .await
    .unwrap();
    let before = whole(&pool).await;
    let said = replay(&home, &db, &["1"]).await;
    assert!(said.out.contains("left alone: it is processing already"), "{said:?}");
    assert!(whole(&pool).await == before, "{said:?}");
}

#[tokio::test]
async fn replay_works_beside_a_running_bottle_and_without_one_on_the_private_server() {
    let home = Home::new();
    let mut bottle = home.start(&[], &[]).await;
    let sent =
        home.run(&["local-kinde", "send", "upgrade", "--at", "2026-10-21T10:00:00Z", "--to", &bottle.webhooks()], &[]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let pool = PgPool::connect_with(options(&home)).await.unwrap();
    settled(&pool).await;
    let ends = async |pool: &PgPool| -> Vec<(String, String)> {
        sqlx::query_as("select kinde_user_id || plan, entry_key from accounts a join ledger on account_id = a.id order by 2")
            .fetch_all(pool)
            .await
            .unwrap()
    };
    let before = ends(&pool).await;

    let all = ["replay", "--since", "2000-01-01T00:00:00Z", "--status", "applied,ignored", "--yes"];
    let beside = home.run(&all, &[]).await;
    assert!(beside.code == Some(0) && beside.out.contains("4 events replayed."), "{beside:?}");
    assert!(!beside.err.contains("WARN"), "{beside:?}");
    assert!(bottle.is_running() && bottle.get("/health/ready").await.0 == 200);
    assert_eq!(ends(&pool).await, before);
    pool.close().await;
    assert_eq!(bottle.ctrl_c().await.0.code(), Some(0));

    let alone = home.run(&all, &[]).await;
    assert!(alone.code == Some(0) && alone.out.contains("4 events replayed."), "{alone:?}");
    home.is_deserted().await;
    // On another port than before: the local Kinde's people are the same.
    drop(home.start(&[], &[]).await);
    let _bottle = home.start(&[], &[]).await;
    let pool = PgPool::connect_with(options(&home)).await.unwrap();
    assert_eq!(ends(&pool).await, before);
    assert_eq!(count(&pool, "select count(*) from replays").await, 8);
    assert_eq!(count(&pool, "select count(*) from event_runs").await, 12);
}

/// The three events of an upgrade, delivered to a `bottle serve` that has stopped since, stored in this order: PAY, UP, OLD.
async fn delivered() -> (Home, TestDb, Upgrade) {
    let (home, db, upgrade) = (Home::new(), fresh_db().await, Upgrade::new());
    let url = db.url();
    let mut bottle = home.start(&[], &[("DATABASE_URL", &url), ("KINDE_DOMAIN", &TENANT_URL)]).await;
    let pool = db.pool().await;
    for event in [&upgrade.pay, &upgrade.up, &upgrade.old] {
        assert_eq!(Sender::new().post(bottle.addr(), event).await, Some(200), "{}", bottle.log());
        settled(&pool).await;
    }
    assert_eq!(bottle.ctrl_c().await.0.code(), Some(0));
    (home, db, upgrade)
}

async fn replay(home: &Home, db: &TestDb, args: &[&str]) -> Said {
    let args: Vec<&str> = std::iter::once(&"replay").chain(args).copied().collect();
    home.run(&args, &[("DATABASE_URL", &db.url()), ("KINDE_DOMAIN", &TENANT_URL)]).await
}

/// Every row of every table.
async fn whole(pool: &PgPool) -> BTreeMap<String, String> {
    let tables: Vec<String> =
        sqlx::query_scalar("select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace")
            .fetch_all(pool)
            .await
            .unwrap();
    let mut rows = BTreeMap::new();
    for table in tables {
        let all = format!("select coalesce(string_agg(t::text, E'\\n' order by t::text), '') from {table} t");
        rows.insert(table, sqlx::query_scalar(AssertSqlSafe(all)).fetch_one(pool).await.unwrap());
    }
    rows
}

/// How to reach the private server of the Bottle that runs in this folder.
fn options(home: &Home) -> sqlx::postgres::PgConnectOptions {
    let pid = std::fs::read_to_string(home.path().join(".bottle/postgres/data/postmaster.pid")).unwrap();
    sqlx::postgres::PgConnectOptions::new_without_pgpass()
        .socket(pid.lines().nth(4).unwrap())
        .username("bottle")
        .database("bottle")
}
