//! Starting and stopping the real program: what a newcomer, a service manager and somebody with a wrong setting see.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bottle::postgres::{Cluster, Durability, Settings};
use rustix::process::Signal;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::binary::{Bottle, Home, Said};
use crate::support::db::fresh_db;
use crate::support::deliveries::{Sender, TENANT_URL, Upgrade, count};

/// Far more than it takes; a stop that waits for a time-out of ours would take longer.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn with_no_settings_a_fresh_folder_is_all_it_takes() {
    let home = Home::new();
    let mut first = home.start(&[], &[]).await;
    eprintln!("the first start took {:?}", first.ready_in);
    assert_eq!(first.get("/health/live").await, (200, "alive\n".to_owned()));
    assert_eq!(first.get("/health/ready").await, (200, "ready\n".to_owned()));
    for path in ["/", "/engine-room"] {
        // Pages are checked as soon as the router has them.
        let routed = include_str!("../../src/web/routes.rs").contains(&format!("route(\"{path}\""));
        let status = first.get(path).await.0;
        assert_eq!(status, if routed { 200 } else { 404 }, "{path}");
        if !routed {
            eprintln!("NOT CHECKED: the router has no {path} yet");
        }
    }
    assert!(first.said().contains("a local one runs at http://127.0.0.1:"), "{}", first.said());
    #[cfg(target_os = "linux")]
    assert!(home.processes().len() > 3, "the private server is not found: {:?}", home.processes());

    let (status, took) = first.ctrl_c().await;
    assert!(status.code() == Some(0) && took < SOON, "{status} after {took:?}\n{}", first.log());
    home.is_deserted().await;

    let mut second = home.start(&[], &[]).await;
    eprintln!("the second start took {:?}; Ctrl-C had taken {took:?}", second.ready_in);
    assert!(second.ready_in < Duration::from_secs(2), "{:?}", second.ready_in);
    let (status, took) = second.told(Signal::TERM).await;
    assert!(status.code() == Some(0) && took < SOON, "{status} after {took:?}\n{}", second.log());
    home.is_deserted().await;
}

#[tokio::test]
async fn a_stop_during_the_first_start_ends_it_in_good_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut bottle = Bottle::spawn(home.command(&["serve"], &[]));
        while !home.path().join(".bottle/postgres").exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (status, took) = bottle.told(signal).await;
        assert!(status.code() == Some(0) && took < SOON, "{status} after {took:?}\n{}", bottle.log());
        home.is_deserted().await;
    }
}

#[tokio::test]
async fn a_sender_that_never_finishes_does_not_hold_up_a_stop_for_long() {
    let (home, db) = (Home::new(), fresh_db().await);
    let mut bottle = home.start(&[], &[("DATABASE_URL", &db.url()), ("KINDE_DOMAIN", &TENANT_URL)]).await;
    let half = |text: &str| {
        let mut stream = TcpStream::connect(bottle.addr()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let open = [
        half(""),
        half("POST /webhooks/kinde HTTP/1.1\r\nHost: a\r\nContent-Le"),
        half("POST /webhooks/kinde HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nhalf"),
    ];
    let (status, took) = bottle.told(Signal::TERM).await;
    assert!(status.code() == Some(0) && took < Duration::from_secs(15), "{status} after {took:?}\n{}", bottle.log());
    drop(open);
}

/// What could make a live process die at a wish is not in a release.
#[cfg(not(debug_assertions))]
#[test]
fn a_release_cannot_be_told_to_die() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_bottle")).unwrap();
    assert!(!program.windows(13).any(|text| text == b"BOTTLE_DIE_AT"));
}

#[tokio::test]
async fn a_second_bottle_on_the_same_folder_or_port_says_so_in_one_line() {
    let home = Home::new();
    let first = home.start(&[], &[]).await;
    let addr = first.addr().to_string();
    for (settings, words) in [
        (vec![], vec!["in use by another Bottle", "process"]),
        (
            vec![("BOTTLE_ADDR", addr.as_str()), ("BOTTLE_DATA", "elsewhere")],
            vec!["BOTTLE_ADDR", addr.as_str(), "choose another"],
        ),
    ] {
        assert_one_line(&home.run(&["serve"], &settings).await, &words);
    }
    assert!(!home.path().join("elsewhere").exists(), "a port in use costs no database");
    assert_eq!(first.get("/health/ready").await.0, 200, "the first one goes on");

    let taken = first.said().split("runs at http://").nth(1).unwrap().split('.').take(4).collect::<Vec<_>>().join(".");
    let settings = [("BOTTLE_LOCAL_KINDE_ADDR", taken.trim_end_matches(|c: char| !c.is_ascii_digit())), ("BOTTLE_DATA", "other")];
    assert_one_line(&home.run(&[], &settings).await, &["BOTTLE_LOCAL_KINDE_ADDR", "in use"]);
}

#[tokio::test]
async fn a_wrong_setting_is_named_in_one_line_and_no_secret_repeated() {
    let home = Home::new();
    let db = fresh_db().await;
    let database = db.url();
    for (settings, words) in [
        (vec![("BOTTLE_ADDR", "here")], vec!["BOTTLE_ADDR", "`here`", "127.0.0.1:3000"]),
        (vec![("BOTTLE_URL", "ftp://x")], vec!["BOTTLE_URL", "http"]),
        (vec![("BOTTLE_URL", "https://me:hunter2@x")], vec!["BOTTLE_URL", "leave"]),
        (vec![("KINDE_DOMAIN", "http://x.kinde.com")], vec!["KINDE_DOMAIN", "https"]),
        (vec![("KINDE_DOMAIN", "https://:hunter2@x.kinde.com")], vec!["KINDE_DOMAIN", "leave"]),
        (vec![("KINDE_ISSUER", "https://id.x.com")], vec!["KINDE_ISSUER", "KINDE_DOMAIN"]),
        (vec![("DATABASE_URL", "mysql://me:hunter2@h/d")], vec!["DATABASE_URL", "postgres://"]),
        (vec![("DATABASE_URL", "postgres://me:hunter2@[h/d")], vec!["DATABASE_URL", "postgres://"]),
        (vec![("BOTTLE_PRO_PLAN_KEYS", ",")], vec!["BOTTLE_PRO_PLAN_KEYS"]),
        (vec![("BOTTLE_FREE_PLAN_KEYS", "customer_pro_plan")], vec!["BOTTLE_FREE_PLAN_KEYS", "`customer_pro_plan`"]),
        (vec![("BOTTLE_LOG", "bottle=loud")], vec!["BOTTLE_LOG", "`bottle=loud`", "debug"]),
        (vec![("BOTTLE_LOCAL_KINDE_ADDR", "hunter"), ("DATABASE_URL", &database)], vec!["BOTTLE_LOCAL_KINDE_ADDR", "host:port"]),
        (
            vec![("BOTTLE_LOCAL_KINDE_ADDR", "0.0.0.0:0"), ("DATABASE_URL", &database)],
            vec!["BOTTLE_LOCAL_KINDE_ADDR", "loopback"],
        ),
    ] {
        assert_one_line(&home.run(&["serve"], &settings).await, &words);
    }
    assert!(!home.path().join(".bottle/postgres").exists(), "a wrong setting costs no database");
    let said = home.run(&["serve", "--no-such-flag"], &[]).await;
    assert!(said.code == Some(2) && said.err.contains("--no-such-flag"), "{said:?}");
}

#[tokio::test]
async fn a_database_newer_than_the_program_is_left_alone() {
    let (home, db) = (Home::new(), fresh_db().await);
    let later = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
                 values (99991231000000, 'later', true, ''::bytea, 0)";
    PgConnection::connect_with(&db.options()).await.unwrap().execute(later).await.unwrap();
    for command in ["serve", "web", "worker", "replay", "engine-room"] {
        let args: &[&str] = if command == "replay" { &["replay", "1"] } else { &[command] };
        let said = home.run(args, &[("DATABASE_URL", &db.url())]).await;
        assert_one_line(&said, &["newer", "99991231000000"]);
    }
}

#[tokio::test]
async fn a_database_that_may_lose_what_was_acknowledged_is_refused_in_production_and_warned_of_elsewhere() {
    let home = Home::new();
    let data = home.path().join("postgres-of-ours");
    let bin = std::env::var_os("BOTTLE_PG_BIN").map(Into::into);
    let cluster = Cluster::start(&Settings { data, bin, durability: Durability::Kept }).await.unwrap();
    let url = cluster.url();
    let production = [("DATABASE_URL", url.as_str()), ("BOTTLE_URL", "https://bottle.example")];
    drop(home.start(&[], &production).await);

    // A superuser works, and is warned of.
    let as_superuser = url.replace("postgres://bottle@", "postgres://postgres@");
    let bottle = home.start(&["web"], &[("DATABASE_URL", as_superuser.as_str()), production[1]]).await;
    let warned = bottle.log().lines().any(|line| line.contains("WARN") && line.contains("superuser"));
    assert!(warned, "{}", bottle.log());
    drop(bottle);
    let mut admin = PgConnection::connect_with(&cluster.admin_options()).await.unwrap();
    admin.execute("alter role bottle set synchronous_commit = off").await.unwrap();
    for command in ["serve", "web", "worker"] {
        assert_one_line(&home.run(&[command], &production).await, &["synchronous_commit", "turn it on"]);
    }
    let elsewhere = home.start(&["web"], &[production[0], ("KINDE_DOMAIN", TENANT_URL.as_str())]).await;
    let warned = elsewhere.log().lines().any(|line| line.contains("WARN") && line.contains("synchronous_commit"));
    assert!(warned, "{}", elsewhere.log());
    drop(elsewhere);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn settings_are_read_from_a_file_and_what_the_environment_says_goes_before() {
    let (home, db) = (Home::new(), fresh_db().await);
    std::fs::write(home.path().join(".env"), format!("DATABASE_URL={}\nBOTTLE_URL=ftp://file\n", db.url())).unwrap();
    assert_one_line(&home.run(&[], &[]).await, &["BOTTLE_URL", "ftp://file"]);
    assert_one_line(&home.run(&[], &[("BOTTLE_URL", "ftp://environment")]).await, &["ftp://environment"]);
    assert_one_line(&home.run(&["--url", "ftp://flag"], &[("BOTTLE_URL", "ftp://environment")]).await, &["ftp://flag"]);
    let bottle = home.start(&[], &[("BOTTLE_URL", "http://localhost:1")]).await;
    assert!(!home.path().join(".bottle/postgres").exists(), "DATABASE_URL is in the file");
    drop(bottle);

    std::fs::write(home.path().join(".env"), "BOTTLE_URL=x\nKINDE_CLIENT_SECRET=hunter2 and more\n").unwrap();
    let said = home.run(&[], &[]).await;
    assert!(said.code == Some(2) && said.err.lines().count() == 1 && said.err.contains("after BOTTLE_URL"), "{said:?}");
    assert!(!said.err.contains("hunter2"), "{said:?}");
}

#[tokio::test]
async fn an_empty_variable_counts_as_unset() {
    let (home, db) = (Home::new(), fresh_db().await);
    let empty = [
        "BOTTLE_URL",
        "BOTTLE_DATA",
        "BOTTLE_PG_BIN",
        "KINDE_DOMAIN",
        "KINDE_ISSUER",
        "BOTTLE_LOG",
        "BOTTLE_PRO_PLAN_KEYS",
        "BOTTLE_FREE_PLAN_KEYS",
    ];
    let mut settings: Vec<(&str, &str)> = empty.iter().map(|name| (*name, "")).collect();
    let url = db.url();
    settings.push(("DATABASE_URL", &url));
    let bottle = home.start(&[], &settings).await;
    assert!(bottle.said().contains(&format!("ready at http://localhost:{}", bottle.addr().port())), "{}", bottle.said());
    assert!(home.path().join(".bottle/local-kinde").exists());
}

#[tokio::test]
async fn nobody_who_reads_what_it_says_has_to_stay() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let addr = format!("127.0.0.1:{}", free_port());
    let settings = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str()), ("BOTTLE_ADDR", addr.as_str())];
    let mut command = home.command(&[], &settings);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));

    let (sender, upgrade, began) = (Sender::new(), Upgrade::new(), Instant::now());
    let addr = addr.parse().unwrap();
    while sender.post(addr, &upgrade.up).await != Some(200) {
        assert!(began.elapsed() < Duration::from_secs(20) && child.try_wait().unwrap().is_none(), "it does not work unheard");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pool = db.pool().await;
    assert_eq!(sender.post(addr, &upgrade.up).await, Some(200));
    crate::support::deliveries::settled(&pool).await;
    assert_eq!(count(&pool, "select count(*) from inbox_events where status = 'applied'").await, 1);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn the_help_names_every_setting_and_the_exit_codes_of_every_command() {
    let home = Home::new();
    let said = home.run(&["--help"], &[]).await;
    assert_eq!(said.code, Some(0));
    let sources = [include_str!("../../src/config/given.rs"), include_str!("../../src/config/stripe.rs")];
    let named = |source: &'static str| source.split("env = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let settings: Vec<&str> = sources.into_iter().flat_map(named).collect();
    assert!(settings.len() >= 25 && ["DATABASE_URL", "STRIPE_SECRET_KEY"].iter().all(|s| settings.contains(s)), "{settings:?}");
    for setting in settings {
        assert!(said.out.contains(&format!("[env: {setting}")), "{setting} is not in\n{}", said.out);
    }
    let codes = said.out.split_once("Exit codes: 2 for wrong usage").unwrap().1;
    for command in [
        "serve",
        "web",
        "worker",
        "migrate",
        "doctor",
        "check",
        "replay",
        "engine-room",
        "local-kinde",
        "local-kinde send",
        "local-stripe",
    ] {
        assert!(codes.lines().any(|line| line.contains(command) && line.contains(" 0 ") && line.contains(", 1 ")), "{command}");
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let said = home.run(&args, &[]).await;
        assert!(said.code == Some(0) && said.out.contains("Exit codes: 0"), "{command}: {}", said.out);
    }
}

#[track_caller]
fn assert_one_line(said: &Said, words: &[&str]) {
    let complaints = said.complaints();
    assert_eq!((said.code, complaints.len()), (Some(1), 1), "{said:?}");
    assert!(
        complaints[0].starts_with("bottle: ") && words.iter().all(|word| complaints[0].contains(word)),
        "{words:?}: {said:?}"
    );
    assert!(!said.err.contains("hunter2") && !said.out.contains("ready"), "{said:?}");
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
