//! The private PostgreSQL: found, made, run, stopped, and what a crash may leave of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bottle::postgres::{Cluster, Durability, Error, Settings};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor as _, Row as _};

use crate::support::db::fresh_db;
use crate::support::{Scratch, chain, this_program, unique_name};

const NOBODY: u32 = 65534;

fn settings(data: &Path, durability: Durability) -> Settings {
    Settings { data: data.to_owned(), bin: std::env::var_os("BOTTLE_PG_BIN").map(PathBuf::from), durability }
}

async fn start(data: &Path) -> Cluster {
    Cluster::start(&settings(data, Durability::Kept)).await.unwrap_or_else(|e| panic!("{}", chain(&e)))
}

async fn refusal(settings: &Settings) -> Error {
    match Cluster::start(settings).await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

async fn connect(options: &PgConnectOptions) -> PgConnection {
    PgConnection::connect_with(options).await.unwrap()
}

async fn text(connection: &mut PgConnection, query: &'static str) -> String {
    connection.fetch_one(query).await.unwrap().get(0)
}

#[tokio::test]
async fn the_first_start_makes_a_cluster_and_the_second_finds_it_again() {
    let scratch = Scratch::new();
    let data = scratch.path().join("not/there/yet");
    let cluster = start(&data).await;
    let mut bottle = connect(&cluster.options()).await;
    bottle.execute("create table kept (n int); insert into kept values (7)").await.unwrap();
    for (setting, value) in [
        ("show fsync", "on"),
        ("show synchronous_commit", "on"),
        ("show full_page_writes", "on"),
        ("show listen_addresses", ""),
        ("show server_encoding", "UTF8"),
        ("show timezone", "UTC"),
        ("show max_connections", "100"),
        ("show shared_buffers", "64MB"),
    ] {
        assert_eq!(text(&mut bottle, setting).await, value, "{setting}");
    }
    let socket = cluster.options().get_socket().unwrap().clone();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o700);
    cluster.stop().await.unwrap();
    assert!(PgConnection::connect_with(&PgConnectOptions::new().socket(&socket)).await.is_err());

    let cluster = start(&data).await;
    let mut bottle = connect(&cluster.options()).await;
    assert_eq!(text(&mut bottle, "select n::text from kept").await, "7");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn bottle_works_as_the_owner_of_its_database_and_not_as_a_superuser() {
    let scratch = Scratch::new();
    let cluster = start(scratch.path()).await;
    let mut bottle = connect(&cluster.options()).await;
    for (query, value) in [
        ("select current_user || ' in ' || current_database()", "bottle in bottle"),
        ("select (rolsuper or rolcreaterole or rolcreatedb)::text from pg_roles where rolname = current_user", "false"),
        ("select pg_get_userbyid(datdba)::text from pg_database where datname = current_database()", "bottle"),
    ] {
        assert_eq!(text(&mut bottle, query).await, value, "{query}");
    }
    assert!(bottle.execute("copy (select 1) to program 'true'").await.is_err());
    let mut admin = connect(&cluster.admin_options()).await;
    assert_eq!(text(&mut admin, "select current_user || ' in ' || current_database()").await, "postgres in postgres");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn the_url_leads_sqlx_and_psql_to_the_same_database() {
    let scratch = Scratch::new();
    let cluster = start(&scratch.path().join("a b%c'd\"e")).await;
    let mut bottle = PgConnection::connect(&cluster.url()).await.unwrap();
    assert_eq!(text(&mut bottle, "select current_user::text").await, "bottle");
    let psql = tokio::process::Command::new("psql").args([&cluster.url(), "-Atc", "select current_user"]).output().await;
    match psql {
        Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout), "bottle\n", "{said:?}"),
        Err(e) => eprintln!("SKIPPED: psql was not tried: {e}"),
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn dropping_it_stops_the_server() {
    let scratch = Scratch::new();
    let cluster = start(scratch.path()).await;
    let server = postmaster(scratch.path());
    drop(cluster);
    assert_gone(server).await;
}

#[tokio::test]
async fn kill_9_of_bottle_leaves_no_server_and_keeps_what_was_committed() {
    let scratch = Scratch::new();
    let mut owner = Owner::start(scratch.path(), Durability::Kept, None);
    let mut bottle = PgConnection::connect(&owner.url).await.unwrap();
    bottle.execute("create table kept (n int); insert into kept values (7)").await.unwrap();
    let server = postmaster(scratch.path());
    owner.kill();
    // Not waiting for the old server is the point: the next start has to.
    let cluster = start(scratch.path()).await;
    assert!(!is_alive(server));
    let mut bottle = connect(&cluster.options()).await;
    assert_eq!(text(&mut bottle, "select n::text from kept").await, "7");
    cluster.stop().await.unwrap();

    let mut owner = Owner::start(scratch.path(), Durability::Kept, None);
    let server = postmaster(scratch.path());
    owner.kill();
    assert_gone(server).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn kill_9_of_bottle_watchdog_and_server_loses_nothing_either() {
    let scratch = Scratch::new();
    let mut owner = Owner::start(scratch.path(), Durability::Kept, None);
    let mut bottle = PgConnection::connect(&owner.url).await.unwrap();
    bottle.execute("create table kept (n int); insert into kept values (7)").await.unwrap();
    let server = postmaster(scratch.path());
    for pid in watchdogs_of(server).into_iter().chain([server]) {
        kill(pid);
    }
    owner.kill();
    assert!(scratch.path().join("postgres/data/postmaster.pid").exists());
    let cluster = start(scratch.path()).await;
    let mut bottle = connect(&cluster.options()).await;
    assert_eq!(text(&mut bottle, "select n::text from kept").await, "7");
    cluster.stop().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_without_bottle_and_watchdog_is_stopped_by_the_next_start() {
    let scratch = Scratch::new();
    let mut owner = Owner::start(scratch.path(), Durability::Kept, None);
    let server = postmaster(scratch.path());
    for pid in watchdogs_of(server) {
        kill(pid);
    }
    owner.kill();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(is_alive(server), "the test is about a server that is left");
    let cluster = start(scratch.path()).await;
    assert!(!is_alive(server));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_pid_file_that_names_a_stranger_does_not_stop_the_start() {
    let scratch = Scratch::new();
    start(scratch.path()).await.stop().await.unwrap();
    let data = scratch.path().join("postgres/data");
    let mut stranger = Command::new("sleep");
    let owner = fs::metadata(&data).unwrap();
    if geteuid().is_root() {
        stranger.uid(owner.uid()).gid(owner.gid());
    }
    let mut stranger = stranger.arg("60").spawn().unwrap();
    let left = format!("{}\n{}\n1700000000\n5432\n/nowhere\n\n  1 1\nready\n", stranger.id(), data.display());
    fs::write(data.join("postmaster.pid"), left).unwrap();

    let cluster = start(scratch.path()).await;
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was hurt");
    cluster.stop().await.unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_second_bottle_on_the_folder_is_refused() {
    let scratch = Scratch::new();
    let cluster = start(scratch.path()).await;
    let error = refusal(&settings(scratch.path(), Durability::Kept)).await;
    assert!(matches!(error, Error::InUse { process: Some(_), .. }), "{error:?}");
    let said = error.to_string();
    let expected = format!("is in use by another Bottle (process {})", std::process::id());
    assert!(said.ends_with(&expected), "{said}");
    connect(&cluster.options()).await;
    cluster.stop().await.unwrap();
    start(scratch.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_socket_path_too_long_for_the_system_moves_to_the_temp_folder_and_goes_with_the_server() {
    let scratch = Scratch::new();
    for name in ["deep/".repeat(20), "a,b".to_owned()] {
        let data = scratch.path().join(name);
        let cluster = start(&data).await;
        let socket = cluster.options().get_socket().unwrap().clone();
        assert!(!socket.starts_with(scratch.path()), "{}", socket.display());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o700);
        PgConnection::connect(&cluster.url()).await.unwrap();
        cluster.stop().await.unwrap();
        assert!(!socket.exists(), "{}", socket.display());
    }
}

#[tokio::test]
async fn a_folder_of_another_major_version_is_refused_and_not_touched() {
    let scratch = Scratch::new();
    let data = scratch.path().join("postgres/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("PG_VERSION"), "99\n").unwrap();
    let before = everything_in(scratch.path());

    let error = refusal(&settings(scratch.path(), Durability::Kept)).await;
    assert!(matches!(error, Error::OtherVersion(_)), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("was made by PostgreSQL 99, but this machine has PostgreSQL "), "{said}");
    assert_eq!(everything_in(scratch.path()), before);
}

#[tokio::test]
async fn a_folder_with_something_else_in_it_is_refused() {
    let scratch = Scratch::new();
    let data = scratch.path().join("postgres/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("holiday.jpg"), "").unwrap();
    let error = refusal(&settings(scratch.path(), Durability::Kept)).await;
    assert!(matches!(error, Error::NotACluster { .. }), "{error:?}");
    assert!(data.join("holiday.jpg").exists());
}

#[tokio::test]
async fn a_first_start_that_was_cut_short_does_not_trip_the_next() {
    let scratch = Scratch::new();
    let root = scratch.path().join("postgres");
    let unfinished = || {
        let names = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("data.new")).count()
    };
    // Killed in the middle of initdb, and before that a machine that lost power there.
    fs::create_dir_all(root.join("data.new-0/base")).unwrap();
    fs::write(root.join("data.new-0/PG_VERSION"), "15\n").unwrap();
    let mut owner = Owner::spawn(scratch.path(), Durability::Kept, None);
    let began = Instant::now();
    while root.join("data.new-0").exists() || unfinished() == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "initdb did not begin");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(!root.join("data").exists());

    let cluster = start(scratch.path()).await;
    connect(&cluster.options()).await;
    cluster.stop().await.unwrap();
    assert_eq!(unfinished(), 0);
}

#[tokio::test]
async fn no_postgresql_is_one_message_that_says_where_we_looked_and_what_to_do() {
    let scratch = Scratch::new();
    let bin = scratch.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let data = scratch.path().join("data");
    let error = refusal(&Settings { data: data.clone(), bin: Some(bin.clone()), durability: Durability::Kept }).await;
    assert!(matches!(error, Error::NotFound(_)), "{error:?}");
    let said = error.to_string();
    let looked = format!("{} (no initdb)", bin.display());
    for part in ["no PostgreSQL found", &looked, "Debian", "Fedora", "macOS", "DATABASE_URL", "BOTTLE_PG_BIN"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!data.exists());
}

#[tokio::test]
async fn a_throw_away_folder_goes_when_it_is_stopped_dropped_or_killed() {
    let scratch = Scratch::new();
    let data = scratch.path().join(unique_name());
    let throw_away = settings(&data, Durability::ThrowAway);

    let cluster = Cluster::start(&throw_away).await.unwrap();
    assert_eq!(text(&mut connect(&cluster.options()).await, "show fsync").await, "off");
    cluster.stop().await.unwrap();
    assert!(!data.exists());

    drop(Cluster::start(&throw_away).await.unwrap());
    assert_removed(&data).await;

    let mut owner = Owner::start(&data, Durability::ThrowAway, None);
    let server = postmaster(&data);
    owner.kill();
    assert_gone(server).await;
    assert_removed(&data).await;

    let mut owner = Owner::spawn(&data, Durability::ThrowAway, None);
    while !data.join("postgres/log").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_removed(&data).await;
}

#[tokio::test]
async fn a_folder_that_is_kept_cannot_be_thrown_away() {
    let scratch = Scratch::new();
    start(scratch.path()).await.stop().await.unwrap();
    let error = refusal(&settings(scratch.path(), Durability::ThrowAway)).await;
    assert!(matches!(error, Error::NotThrowAway { .. }), "{error:?}");
    start(scratch.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn as_root_the_server_runs_as_somebody_else_who_keeps_the_folder() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can see how PostgreSQL runs under root");
        return;
    }
    let scratch = Scratch::new();
    let data = scratch.path().join("postgres/data");
    let cluster = start(scratch.path()).await;
    let owner = fs::metadata(&data).unwrap().uid();
    assert_eq!(fs::metadata(format!("/proc/{}", postmaster(scratch.path()))).map_or(owner, |p| p.uid()), owner);
    cluster.stop().await.unwrap();
    assert_eq!(fs::metadata(scratch.path().join("postgres")).unwrap().uid(), 0);

    // Given to somebody else, the cluster is theirs to run from then on.
    give_all(&data, NOBODY);
    let cluster = start(scratch.path()).await;
    assert_eq!(fs::metadata(data.join("postmaster.pid")).unwrap().uid(), NOBODY);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn as_root_under_a_folder_that_nobody_else_may_enter_it_still_runs() {
    let unshare = Command::new("unshare").args(["--user", "--map-user=1", "true"]).status();
    if !geteuid().is_root() || !unshare.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: needs root and leave to make user namespaces");
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let data = scratch.path().join("data");
    for _ in 0..2 {
        let cluster = start(&data).await;
        assert_eq!(fs::metadata(data.join("postgres/data/postmaster.pid")).unwrap().uid(), 0);
        connect(&cluster.options()).await;
        cluster.stop().await.unwrap();
    }
    let mut owner = Owner::start(&data, Durability::Kept, None);
    let server = postmaster(&data);
    owner.kill();
    assert_gone(server).await;
}

#[tokio::test]
async fn an_ordinary_user_needs_nothing_special() {
    // Where we are an ordinary user ourselves, every other test shows it.
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut owner = Owner::start(scratch.path(), Durability::Kept, Some(NOBODY));
    assert_eq!(fs::metadata(scratch.path().join("postgres/data")).unwrap().uid(), NOBODY);
    let server = postmaster(scratch.path());
    owner.kill();
    assert_gone(server).await;
    drop(Owner::start(scratch.path(), Durability::Kept, Some(NOBODY)));
}

#[tokio::test]
async fn each_test_database_is_migrated_and_apart_from_the_others() {
    let (one, two) = (fresh_db().await, fresh_db().await);
    assert_ne!(one.name, two.name);
    let (first, second) = (one.pool().await, PgConnection::connect(&two.url()).await);
    sqlx::raw_sql("create table mine (n int)").execute(&first).await.unwrap();
    let mut second = second.unwrap();
    assert_eq!(text(&mut second, "select (to_regclass('inbox_events') is not null)::text").await, "true");
    assert_eq!(text(&mut second, "select (to_regclass('mine') is null)::text").await, "true");
}

/// Run by [`Owner`] as a process of its own, to be killed.
#[tokio::test]
#[ignore = "a process that other tests start and kill"]
async fn owner() {
    let Some(data) = std::env::var_os("BOTTLE_TEST_OWNER") else { return };
    let throw_away = std::env::var_os("BOTTLE_TEST_THROW_AWAY").is_some();
    let durability = if throw_away { Durability::ThrowAway } else { Durability::Kept };
    let cluster = match Cluster::start(&settings(Path::new(&data), durability)).await {
        Ok(cluster) => cluster,
        Err(e) => return println!("\nrefused {}", chain(&e)),
    };
    println!("\nready {}", cluster.url());
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
    cluster.stop().await.unwrap();
}

/// Another process that has a cluster. Dropped, it stops in good order.
struct Owner {
    process: Child,
    url: String,
    /// Open, because it goes on talking.
    _rest: BufReader<ChildStdout>,
}

impl Owner {
    fn start(data: &Path, durability: Durability, user: Option<u32>) -> Self {
        let mut process = Self::spawn(data, durability, user);
        let mut said = Vec::new();
        let mut rest = BufReader::new(process.stdout.take().unwrap());
        for line in rest.by_ref().lines() {
            let line = line.unwrap();
            if let Some(url) = line.strip_prefix("ready ") {
                return Self { url: url.to_owned(), _rest: rest, process };
            }
            said.push(line);
        }
        let _ = process.kill();
        let _ = process.wait();
        panic!("the other process did not start its cluster:\n{}", said.join("\n"))
    }

    fn spawn(data: &Path, durability: Durability, user: Option<u32>) -> Child {
        let spawn = |mut command: Command| {
            command.env("BOTTLE_TEST_OWNER", data).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
            if durability == Durability::ThrowAway {
                command.env("BOTTLE_TEST_THROW_AWAY", "1");
            }
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            command.spawn()
        };
        let command = this_program("postgres::owner");
        match spawn(command) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                // Built under a folder that user may not enter, such as /root: lend them a copy. Not in the scratch
                // folder, which may be /dev/shm, where containers often let no program run.
                let copy = std::env::temp_dir().join(unique_name());
                fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
                let mut command = Command::new(&copy);
                command.args(this_program("postgres::owner").get_args());
                let spawned = spawn(command);
                fs::remove_file(copy).unwrap();
                spawned.unwrap()
            }
            spawned => spawned.unwrap(),
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn postmaster(data: &Path) -> i32 {
    let text = fs::read_to_string(data.join("postgres/data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

fn is_alive(pid: i32) -> bool {
    // Where nobody reaps them, the dead keep their number.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let zombie = state.is_some_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
    !zombie && rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The shell above the server, and the one beside it that reads our pipe. The first comes first, or it would kill the other.
#[cfg(target_os = "linux")]
fn watchdogs_of(server: i32) -> Vec<i32> {
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
    };
    let shell = parent_of(server).unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(shell).chain(all.filter(|&pid| pid != server && parent_of(pid) == Some(shell))).collect()
}

async fn assert_gone(server: i32) {
    assert_within("the server is gone", || !is_alive(server)).await;
}

async fn assert_removed(folder: &Path) {
    assert_within("the folder is removed", || !folder.exists()).await;
}

async fn assert_within(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(20), "not true after 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn everything_in(folder: &Path) -> BTreeMap<PathBuf, (u64, u32, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let meta = entry.metadata().unwrap();
        found.insert(entry.path(), (meta.len(), meta.uid(), meta.mtime_nsec()));
        if meta.is_dir() {
            found.extend(everything_in(&entry.path()));
        }
    }
    found
}

fn give_all(folder: &Path, user: u32) {
    std::os::unix::fs::chown(folder, Some(user), Some(user)).unwrap();
    for path in everything_in(folder).into_keys() {
        std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    }
}
