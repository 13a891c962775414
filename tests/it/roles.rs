//! The role that Bottle runs as, made by the very files that are documented: it can do everything the program does every day,
//! and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bottle::postgres::{Cluster, Durability, Settings};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgPool};

use crate::sign_in_local::Browser;
use crate::support::binary::{Bottle, Home};
use crate::support::deliveries::{Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, settled};
use crate::support::local_kinde::ADA;
use crate::support::smtp::Smtp;
use crate::support::writer::Fields;

const ROLES: &str = include_str!("../../docs/roles.sql");
const GRANTS: &str = include_str!("../../docs/grants.sql");

/// A server of its own: roles belong to a whole server.
struct Ground {
    home: Home,
    cluster: Cluster,
}

impl Ground {
    async fn new() -> Self {
        let home = Home::new();
        let data = home.path().join("postgres-of-ours");
        let bin = std::env::var_os("BOTTLE_PG_BIN").map(Into::into);
        let cluster = Cluster::start(&Settings { data, bin, durability: Durability::Kept }).await.unwrap();
        let ground = Self { home, cluster };
        ground.as_superuser(ROLES).await;
        ground
    }

    fn options(&self, role: &str) -> PgConnectOptions {
        self.cluster.options().username(role)
    }

    fn url(&self, role: &str) -> String {
        self.cluster.url().replace("postgres://bottle@", &format!("postgres://{role}@"))
    }

    async fn as_superuser(&self, sql: &'static str) {
        let mut admin = self.cluster.admin_options().database("bottle").connect().await.unwrap();
        admin.execute(sqlx::raw_sql(sql)).await.unwrap();
        admin.close().await.unwrap();
    }

    async fn as_owner(&self, sql: &'static str) {
        let mut owner = self.options("bottle_owner").connect().await.unwrap();
        owner.execute(sqlx::raw_sql(sql)).await.unwrap();
        owner.close().await.unwrap();
    }

    /// What the documentation says to do with every release.
    async fn released(&self) {
        let said = self.home.run(&["migrate"], &[("DATABASE_URL", &self.url("bottle_owner"))]).await;
        assert!(said.code == Some(0) && said.out.contains("database is current"), "{said:?}");
        self.as_owner(GRANTS).await;
    }

    async fn pool(&self, role: &str) -> PgPool {
        PgPoolOptions::new().max_connections(4).connect_with(self.options(role)).await.unwrap()
    }

    async fn start(&self, command: &str, more: &[(&str, &str)]) -> Bottle {
        let url = self.url("bottle_run");
        self.home.start(&[command], &[&[("DATABASE_URL", url.as_str())], more].concat()).await
    }
}

#[tokio::test]
async fn a_role_that_cannot_migrate_says_who_has_to_and_starts_once_that_was_done() {
    let ground = Ground::new().await;
    let url = ground.url("bottle_run");
    let settings = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    for command in ["serve", "worker", "check", "migrate"] {
        let said = ground.home.run(&[command], &settings).await;
        let complaints = said.complaints();
        assert_eq!((said.code, complaints.len()), (Some(1), 1), "{command}: {said:?}");
        assert!(complaints[0].contains("bottle migrate") && complaints[0].contains("docs/roles.sql"), "{said:?}");
    }
    ground.released().await;
    let again = ground.home.run(&["migrate"], &[("DATABASE_URL", &ground.url("bottle_owner"))]).await;
    assert!(again.code == Some(0) && again.out.starts_with("The database is current"), "{again:?}");
    ground.as_superuser(ROLES).await;
    ground.as_owner(GRANTS).await;
    drop(ground.start("serve", &[("KINDE_DOMAIN", &TENANT_URL)]).await);
}

#[tokio::test]
async fn a_database_that_was_used_as_one_role_for_all_is_handed_over() {
    let ground = Ground::new().await;
    // As before there were two: what was made then is another role's.
    ground
        .as_superuser("reassign owned by bottle_owner to bottle; drop schema engine_room; grant all on schema public to bottle")
        .await;
    let url = ground.cluster.url();
    let before = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    for command in ["migrate", "engine-room"] {
        let said = ground.home.run(&[command], &before).await;
        assert_eq!(said.code, Some(0), "{command}: {said:?}");
    }
    ground.as_superuser(ROLES).await;
    ground.released().await;
    let bottle = ground.start("serve", &[("KINDE_DOMAIN", &TENANT_URL)]).await;
    let (sender, upgrade) = (Sender::new(), Upgrade::new());
    for event in upgrade.events() {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    settled(&ground.pool("bottle_owner").await).await;
    assert_eq!(bottle.get("/engine-room").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_a_bottle_does_every_day_is_done_by_a_role_that_may_do_nothing_else() {
    let (ground, smtp) = (Ground::new().await, Smtp::start().await);
    ground.released().await;
    let pool = ground.pool("bottle_owner").await;

    // Deliveries, copies and a conflict; the worker; a replay.
    let kinde = ground.start("serve", &[("KINDE_DOMAIN", &TENANT_URL)]).await;
    let (sender, upgrade) = (Sender::new(), Upgrade::new());
    for event in upgrade.nine() {
        assert_eq!(sender.post(kinde.addr(), event).await, Some(200));
    }
    let mut other = upgrade.up.clone();
    other.claims["data"]["plan"]["key"] = json!("customer_starter_plan");
    other.token = crate::support::tokens::TENANT.sign_event(other.claims.to_string());
    assert_eq!(sender.post(kinde.addr(), &other).await, Some(200));
    settled(&pool).await;
    assert_as_the_oracle_says(&pool, &upgrade.user, &upgrade.events()).await;
    assert_eq!(count(&pool, "select count(*) from conflicts").await, 1);
    let url = ground.url("bottle_run");
    let settings = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    let said = ground.home.run(&["replay", &upgrade.up.key], &settings).await;
    assert_eq!((said.code, count(&pool, "select count(*) from replays").await), (Some(0), 1), "{said:?}");
    for command in ["check", "events", "engine-room"] {
        let said = ground.home.run(&[command], &settings).await;
        assert_eq!(said.code, Some(0), "{command}: {said:?}");
    }
    assert_eq!(kinde.get("/engine-room").await.0, 200);
    let log = kinde.log();
    drop(kinde);
    assert!(!log.contains("permission denied") && !log.contains("must be owner"), "{log}");

    // People: a sign-in at the local Kinde, a reminder that rings and is written about, a calendar, a sign-out.
    ground.as_owner("truncate installation").await;
    let (url, from) = (smtp.url(), "Bottle <bottle@bottle.test>");
    let mut bottle = ground.start("serve", &[("SMTP_URL", url.as_str()), ("MAIL_FROM", from)]).await;
    let (base, browser) = (format!("http://localhost:{}", bottle.addr().port()), Browser::new());
    browser.sign_in(&base, ADA).await;
    let key = uuid::Uuid::new_v4().to_string();
    let asked = browser
        .post(&format!("{base}/reminders"), &Fields::about("milk").with("repeat", "daily").with("key", &key).pairs())
        .await;
    assert_eq!(asked.status, 303, "{}\n{}", asked.text, bottle.log());
    assert_eq!(count(&pool, "select count(*) from reminders").await, 1);
    ground.as_owner("update reminders set due_at = now() - interval '1 second'").await;
    for what in ["select count(*) from outbox where sent_at is not null", "select count(*) from reminders where status = 'due'"] {
        until(&pool, what, 1).await;
    }
    browser.post(&format!("{base}/reminders/calendar"), &[]).await;
    assert_eq!(count(&pool, "select count(*) from calendar_feeds").await, 1);
    browser.post(&format!("{base}/reminders/calendar/revoke"), &[]).await;
    assert_eq!(count(&pool, "select count(*) from calendar_feeds").await, 0);
    assert_eq!(count(&pool, "select count(*) from sessions").await, 1);
    browser.post(&format!("{base}/logout"), &[]).await;
    assert_eq!(count(&pool, "select count(*) from sessions").await, 0);

    // What runs by itself: alerts are raised, old bodies and receipts are pruned.
    ground.as_owner("update inbox_events set status = 'dead' where id = (select min(id) from inbox_events)").await;
    ground.as_owner("update inbox_events set received_at = now() - interval '2 years'").await;
    ground.as_owner("update receipts set received_at = now() - interval '2 years'").await;
    bottle.told(rustix::process::Signal::TERM).await;
    assert!(!bottle.log().contains("permission denied"), "{}", bottle.log());
    // Both look when they start.
    let bottle = ground.start("serve", &[]).await;
    until(&pool, "select count(*) from alerts where condition = 'dead'", 1).await;
    until(
        &pool,
        "select count(*) from inbox_events where body is null",
        count(&pool, "select count(*) from inbox_events where status in ('applied', 'ignored')").await,
    )
    .await;
    assert!(!bottle.log().contains("permission denied"), "{}", bottle.log());
}

async fn until(pool: &PgPool, what: &'static str, wanted: i64) {
    let began = std::time::Instant::now();
    while count(pool, what).await != wanted {
        assert!(began.elapsed() < Duration::from_secs(30), "{what} is {}, not {wanted}", count(pool, what).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_ledger_can_be_added_to_and_nothing_else_and_no_table_can_be_emptied_or_changed() {
    let ground = Ground::new().await;
    ground.released().await;
    let run = ground.pool("bottle_run").await;
    let tables: Vec<String> =
        sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'public' and tablename not like '\\_sqlx%'")
            .fetch_all(&run)
            .await
            .unwrap();
    assert!(tables.len() >= 20, "{tables:?}");
    let mut tried: Vec<String> = ["ledger", "money_ledger", "event_runs", "replays", "conflicts", "customer_map", "installation"]
        .into_iter()
        .flat_map(|table| [format!("delete from {table}"), format!("update {table} set {} = null", column_of(table))])
        .collect();
    for table in &tables {
        tried.push(format!("truncate {table}"));
        tried.push(format!("alter table {table} add column more int"));
        tried.push(format!("drop table {table}"));
    }
    for more in [
        "delete from inbox_events",
        "delete from accounts",
        "update facts set kind = 'paid'",
        "update receipts set received_at = now()",
        "update receipts set id = 1",
        "alter table ledger disable trigger user",
        "create table mine (n int)",
        "drop trigger ledger_append_only on ledger",
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (1, '', true, '', 0)",
        "create schema mine",
        "create role mine",
    ] {
        tried.push(more.to_owned());
    }
    for sql in tried {
        let error = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone())).execute(&run).await.expect_err(&sql);
        let code = error.as_database_error().and_then(|e| e.code().map(String::from)).unwrap_or_default();
        // An identity that is always generated refuses any value, whoever gives it.
        let wanted = if sql.contains("set id =") { "428C9" } else { "42501" };
        assert_eq!(code, wanted, "{sql}: {error}");
    }
}

fn column_of(table: &str) -> &'static str {
    match table {
        "ledger" | "money_ledger" => "account_id",
        "customer_map" => "learned_at",
        "installation" => "tenant",
        "event_runs" | "replays" | "conflicts" => "event_id",
        other => panic!("{other}"),
    }
}

/// The doctor looks for these rights, docs/grants.sql gives them, and the source needs them: all three say the same.
#[test]
fn the_rights_that_are_granted_are_just_those_that_the_source_needs() {
    let granted = granted();
    let needed = needed();
    assert!(needed.len() >= 20 && needed["ledger"] == BTreeSet::from(["insert"]), "{needed:?}");
    assert_eq!(granted, needed, "left: docs/grants.sql; right: the statements in src");
    let doctor = include_str!("../../src/commands/doctor/database.rs");
    for (table, rights) in &needed {
        let mut words: Vec<&str> =
            ["insert", "update", "delete", "usage"].into_iter().filter(|right| rights.contains(right)).collect();
        if !words.contains(&"usage") {
            words.insert(0, "select");
        }
        let line = format!("(\"{table}\", \"{}\")", words.join(", "));
        assert!(doctor.contains(&line), "the doctor does not look for {line}");
    }
}

type Rights = BTreeMap<String, BTreeSet<&'static str>>;

fn granted() -> Rights {
    let mut rights = Rights::new();
    let statements: String = GRANTS.lines().map(str::trim).filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join(" ");
    for statement in statements.split(';').map(str::trim).filter(|s| s.starts_with("grant ")) {
        let (what, tables) = statement["grant ".len()..].split_once(" on ").unwrap();
        if let Some(sequence) = tables.strip_prefix("sequence ") {
            rights.entry(sequence.strip_suffix(" to bottle_run").unwrap().to_owned()).or_default().insert("usage");
            continue;
        }
        if what == "select" || what.contains('(') {
            continue;
        }
        let tables = tables.strip_suffix(" to bottle_run").unwrap();
        for table in tables.split(", ") {
            let has = rights.entry(table.to_owned()).or_default();
            has.extend(["insert", "update", "delete"].into_iter().filter(|right| what.split(", ").any(|one| one == *right)));
        }
    }
    rights
}

fn needed() -> Rights {
    let mut rights = Rights::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // The Engine Room writes tables of its own, in its own schema.
                if !path.ends_with("engine_room") {
                    folders.push(path);
                }
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            read(&text, &mut rights);
            read_sequences(&text, &mut rights);
        }
    }
    rights
}

fn read(text: &str, rights: &mut Rights) {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let tables: BTreeSet<&str> = crate::house::OWNER.iter().map(|(table, _)| *table).collect();
    for (verb, right) in [("insert into ", "insert"), ("update ", "update"), ("delete from ", "delete")] {
        for (at, _) in text.match_indices(verb) {
            let rest = &text[at + verb.len()..];
            let table = name(rest);
            let after = &rest[table.len()..];
            // Else words of a comment, or of another clause.
            let is_statement = right != "update" || after.starts_with(" set ") || is_aliased(after);
            if !tables.contains(table.as_str()) || !is_statement {
                continue;
            }
            rights.entry(table.clone()).or_default().insert(right);
            if right == "insert" && rest[..rest.find('"').unwrap_or(rest.len())].contains("do update set") {
                rights.entry(table).or_default().insert("update");
            }
        }
    }
}

/// Numbers drawn before a row is written; others come with the row.
fn read_sequences(text: &str, rights: &mut Rights) {
    for rest in text.split("nextval('").skip(1) {
        let name: String = rest.chars().take_while(|c| *c != '\'').collect();
        rights.entry(name).or_default().insert("usage");
    }
}

/// `update inbox_events e set`
fn is_aliased(rest: &str) -> bool {
    rest.strip_prefix(' ').is_some_and(|rest| rest.split(' ').nth(1) == Some("set"))
}

#[tokio::test]
async fn without_a_schema_of_its_own_the_engine_room_says_that_it_is_closed() {
    let ground = Ground::new().await;
    ground.released().await;
    ground.as_superuser("drop schema engine_room cascade").await;
    let bottle = ground.start("serve", &[("KINDE_DOMAIN", &TENANT_URL)]).await;
    let (status, page) = bottle.get("/engine-room").await;
    assert!(status == 503 && page.contains("The Engine Room is closed here"), "{status}: {page}");
    assert_eq!(bottle.get("/").await.0, 200, "all else works");
    let url = ground.url("bottle_run");
    let said = ground.home.run(&["engine-room"], &[("DATABASE_URL", &url)]).await;
    assert!(said.code == Some(1) && said.complaints()[0].contains("docs/roles.sql"), "{said:?}");
}

#[tokio::test]
async fn the_doctor_names_a_right_that_is_lacking() {
    let ground = Ground::new().await;
    ground.released().await;
    let doctor = async || {
        let url = ground.url("bottle_run");
        let said = ground.home.run(&["doctor", "--json"], &[("DATABASE_URL", &url), ("KINDE_DOMAIN", &TENANT_URL)]).await;
        let all: Value = serde_json::from_str(&said.out).unwrap();
        all["lines"].as_array().unwrap().iter().find(|line| line["check"] == "rights").cloned().unwrap()
    };
    let well = doctor().await;
    assert_eq!(well["state"], "ok", "{well}");
    for (right, table) in [("insert", "ledger"), ("delete", "receipts"), ("update", "inbox_events")] {
        let revoke = format!("revoke {right} on {table} from bottle_run");
        let mut owner = ground.options("bottle_owner").connect().await.unwrap();
        owner.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(revoke))).await.unwrap();
        let ill = doctor().await;
        assert!(ill["state"] == "wrong" && ill["words"].as_str().unwrap().contains(&format!("{right} on {table}")), "{ill}");
        ground.as_owner(GRANTS).await;
    }
}
