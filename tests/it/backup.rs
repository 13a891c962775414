//! A dump that is older than what has happened since, restored into a new database: what was delivered after it comes again, by
//! the providers' own retries or because somebody asks for it, and the end is the same as if nothing had been lost.

use std::path::PathBuf;
use std::process::Command;

use bottle::domain::event::Source;
use bottle::providers::Ware;
use bottle::reconcile::runs::Mode;
use sqlx::{ConnectOptions as _, Executor as _, PgPool};

use crate::reconcile_stripe;
use crate::support::binary::Home;
use crate::support::comparing::Comparing;
use crate::support::db::{TestDb, fresh_db};
use crate::support::deliveries::{Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, settled};

/// PostgreSQL's own program, beside the server's.
fn program(name: &str) -> PathBuf {
    let mut folders: Vec<PathBuf> = std::env::var_os("BOTTLE_PG_BIN").map(Into::into).into_iter().collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.sort();
    folders.extend(found.into_iter().rev());
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.extend(["/opt/homebrew/opt/postgresql@17/bin", "/usr/local/opt/postgresql@17/bin"].map(PathBuf::from));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is needed (it comes with PostgreSQL's client programs) and is in none of {folders:?}"))
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// As documented: one file, of one moment, without stopping anything.
fn dump(db: &TestDb, file: &std::path::Path) {
    run(Command::new(program("pg_dump")).args(["--format=custom", "--file"]).arg(file).arg(db.url()));
}

async fn restore(file: &std::path::Path) -> TestDb {
    // A fresh one has our tables already; a restore begins with nothing.
    let db = fresh_db().await;
    let mut conn = db.options().connect().await.unwrap();
    conn.execute("drop schema public cascade; create schema public").await.unwrap();
    run(Command::new(program("pg_restore")).args(["--exit-on-error", "--no-owner", "--dbname"]).arg(db.url()).arg(file));
    db
}

/// All that an account comes to, whatever its number and however it came about.
async fn ends(pool: &PgPool) -> Vec<(String, String, Option<i64>, i64)> {
    sqlx::query_as(
        "select kinde_user_id, plan, plan_changed_ns, (select coalesce(sum(delta), 0)::bigint from ledger where account_id = a.id)
         from accounts a order by 1",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_after_a_backup_comes_again_and_the_end_is_the_same() {
    let (home, db, sender) = (Home::new(), fresh_db().await, Sender::new());
    let file = home.path().join("bottle.dump");
    let settings = |url: &str| [("DATABASE_URL", url.to_owned()), ("KINDE_DOMAIN", TENANT_URL.clone())];
    let start = async |db: &TestDb, command: &str| {
        let settings = settings(&db.url());
        home.start(&[command], &settings.each_ref().map(|(name, value)| (*name, value.as_str()))).await
    };
    let people: Vec<Upgrade> = (0..12).map(|_| Upgrade::new()).collect();
    let lost: Upgrade = Upgrade::new();
    let pool = db.pool().await;
    {
        let bottle = start(&db, "serve").await;
        for event in people[..4].iter().flat_map(Upgrade::nine) {
            assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
        }
        settled(&pool).await;
    }
    // Some are stored and not applied when the backup is made, and one is in a worker's hands.
    let bottle = start(&db, "web").await;
    for event in people[4..6].iter().flat_map(Upgrade::events) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    sqlx::query(
        "update inbox_events set status = 'processing', claims = 1, lease_token = gen_random_uuid(), due_at = now() + interval '1 second'
         where id = (select max(id) from inbox_events)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let before = count(&pool, "select count(*) from inbox_events").await;
    dump(&db, &file);

    // Life goes on: half of a person's events were there, others are new altogether, and one is run again by hand.
    let worker = start(&db, "worker").await;
    for event in people[6..].iter().chain([&lost]).flat_map(Upgrade::nine).chain(people[..2].iter().flat_map(Upgrade::nine)) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    settled(&pool).await;
    let url = db.url();
    let known = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    assert_eq!(home.run(&["replay", &people[0].up.key], &known).await.code, Some(0));
    drop((bottle, worker));
    let wanted = ends(&pool).await;

    let restored = restore(&file).await;
    let pool = restored.pool().await;
    assert_eq!(count(&pool, "select count(*) from inbox_events").await, before, "the dump is of its moment");
    let url = restored.url();
    let known = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    let bottle = start(&restored, "serve").await;
    // What was stored then runs to its end by itself.
    settled(&pool).await;
    assert_eq!(home.run(&["check"], &known).await.code, Some(0));
    assert!(ends(&pool).await.len() < wanted.len(), "something is missing");
    // Everything that is not known to have been stored is delivered again, some of it for the second time.
    for event in people.iter().chain([&lost]).flat_map(Upgrade::nine) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    settled(&pool).await;
    assert_eq!(ends(&pool).await, wanted);
    for person in people.iter().chain([&lost]) {
        assert_as_the_oracle_says(&pool, &person.user, &person.events()).await;
    }
    let said = home.run(&["check"], &known).await;
    assert!(said.code == Some(0) && said.out.contains("Plans, bottles and money are what the facts give."), "{said:?}");
    assert_eq!(count(&pool, "select count(*) from inbox_events where status not in ('applied', 'ignored')").await, 0);
    let twice = "select count(*) from (select entry_key from ledger group by 1 having count(*) > 1) t";
    assert_eq!(count(&pool, twice).await, 0);
    // The ledger is guarded after a restore as before it.
    assert!(sqlx::query("delete from ledger").execute(&pool).await.unwrap_err().to_string().contains("append-only"));
}

/// Each movement of money, whichever event told of it first.
async fn money(pool: &PgPool) -> Vec<(String, i64, String)> {
    let sql = "select movement_key, amount_minor, currency from money_ledger order by 1";
    sqlx::query_as(sql).fetch_all(pool).await.unwrap()
}

/// Nobody sends these again: they were answered with 200.
#[tokio::test]
async fn what_stripe_told_after_a_backup_is_fetched_by_reconcile_and_nothing_is_missing() {
    let mut till = reconcile_stripe::till().await;
    let file = Home::new();
    let file = file.path().join("bottle.dump");
    let comparing = reconcile_stripe::comparing(&till);
    let bought = async |till: &mut crate::support::till::Till, users: std::ops::Range<u32>| {
        for n in users {
            let session = till.buy(&format!("user{n}"), if n % 2 == 0 { Ware::Pro } else { Ware::Pack }, "card").await;
            if n % 4 == 1 {
                let charge = till.charge(&session).await;
                till.stripe.turn(&format!("charges/{charge}/refund"), serde_json::json!({ "amount": 120 })).await;
            }
        }
        for event in till.news().await {
            till.deliver(&event).await;
        }
        comparing.engine().drain().await.unwrap();
    };
    bought(&mut till, 0..6).await;
    dump(&till.pipeline.db, &file);
    let then = money(&comparing.pool).await;
    // Some of the first buy again, and others come.
    bought(&mut till, 4..14).await;
    let (ended, moved) = (ends(&comparing.pool).await, money(&comparing.pool).await);

    let db = restore(&file).await;
    let restored = Comparing { pool: db.pool().await, ..comparing.clone() };
    assert!(moved.len() > then.len() && money(&restored.pool).await == then, "the dump is of its moment");
    let run = restored.run(&[Source::Stripe], Mode::Apply).await;
    assert!(restored.findings(&run).await.len() > 10, "much was missing: {:?}", restored.counts(&run).await);
    assert_eq!((ends(&restored.pool).await, money(&restored.pool).await), (ended, moved));
    let again = restored.run(&[Source::Stripe], Mode::Look).await;
    assert_eq!(restored.told(&again).await, Vec::<String>::new(), "nothing differs any more");
}
