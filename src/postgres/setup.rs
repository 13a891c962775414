//! What a cluster is made with: its first files, its settings, its owner.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor as _};

use super::find::Programs;
use super::folder::{Folder, tail};
use super::runner::Runner;
use super::watchdog::Watched;
use super::{Durability, Error, PORT, SUPERUSER};

/// After a crash under load, PostgreSQL may work for minutes before it takes connections.
const READY_WITHIN: Duration = Duration::from_secs(600);

/// initdb works under another name and the finished folder is renamed, so a start that was cut short leaves no half cluster.
pub async fn make_cluster(
    folder: &Folder,
    programs: &Programs,
    runner: &Runner,
    durability: Durability,
    alive: &OwnedFd,
    log: &File,
) -> Result<(), Error> {
    let program = programs.bin.join("initdb");
    // C.UTF-8 sorts by code point and knows letters beyond ASCII; old macOS and musl have only C.
    for locale in ["C.UTF-8", "C"] {
        let new = folder.make_new(runner)?;
        let arguments = initdb_arguments(&new, locale, durability);
        let mut initdb = Watched::spawn(runner, None, &program, &arguments, alive, log).map_err(Error::command(&program))?;
        let status = initdb.wait().await.map_err(Error::command(&program))?;
        if status.success() {
            return folder.finish_new(&new);
        }
        let _ = std::fs::remove_dir_all(&new);
        if locale == "C" || !tail(&folder.log).contains("locale") {
            return Err(Error::ended(status, &folder.log));
        }
    }
    unreachable!("the last locale returns")
}

/// On the command line, where they overrule `postgresql.conf` and `ALTER SYSTEM`.
pub fn server_arguments(folder: &Folder, socket: &Path, durability: Durability) -> Vec<OsString> {
    let (durable, shared_buffers, max_connections) = match durability {
        Durability::Kept => ("on", "64MB", 100),
        // One pool a test, and as many tests at once as there are cores.
        Durability::ThrowAway => ("off", "128MB", 400),
    };
    // The setting is a list, in which double quotes protect a name.
    let mut socket_folders = OsString::from("unix_socket_directories=\"");
    socket_folders.push(socket.to_string_lossy().replace('"', "\"\""));
    socket_folders.push("\"");

    let mut arguments: Vec<OsString> = vec!["-D".into(), folder.data.clone().into()];
    let mut set = |setting: OsString| arguments.extend(["-c".into(), setting]);
    set(socket_folders);
    for setting in [
        "listen_addresses=".to_owned(),
        "unix_socket_permissions=0700".to_owned(),
        format!("port={PORT}"),
        format!("max_connections={max_connections}"),
        format!("shared_buffers={shared_buffers}"),
        format!("fsync={durable}"),
        format!("synchronous_commit={durable}"),
        format!("full_page_writes={durable}"),
        "timezone=UTC".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        "cluster_name=bottle".to_owned(),
    ] {
        set(setting.into());
    }
    arguments
}

/// Asks until the server answers; its files say "ready" too early, or still do after a crash.
pub async fn connect(options: &PgConnectOptions, server: &mut Watched, log: &Path) -> Result<PgConnection, Error> {
    let began = Instant::now();
    let mut told = false;
    loop {
        let refusal = match PgConnection::connect_with(options).await {
            Ok(connection) => return Ok(connection),
            Err(refusal) => refusal,
        };
        if let Some(status) = server.ended().map_err(Error::command(Path::new("/bin/sh")))? {
            return Err(Error::ended(status, log));
        }
        if !is_starting(&refusal) {
            return Err(Error::Refused { what: "let us in", source: refusal });
        }
        if began.elapsed() > READY_WITHIN {
            return Err(Error::NotReady { waited_secs: READY_WITHIN.as_secs(), log: PathBuf::from(log), source: refusal });
        }
        if !told && began.elapsed() > Duration::from_secs(5) {
            told = true;
            tracing::warn!(log = %log.display(), "PostgreSQL takes its time to start, as it does after a crash");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// At each start, because the very first one may have been cut short before this.
pub async fn make_owner_and_database(admin: &mut PgConnection) -> Result<(), Error> {
    for (found, make, what) in [
        (
            "select exists (select from pg_roles where rolname = 'bottle')",
            "create role bottle login nosuperuser nocreatedb nocreaterole noreplication nobypassrls",
            "make its owner role",
        ),
        (
            "select exists (select from pg_database where datname = 'bottle')",
            "create database bottle owner bottle",
            "make the database",
        ),
    ] {
        let refused = |source| Error::Refused { what, source };
        if !sqlx::query_scalar::<_, bool>(found).fetch_one(&mut *admin).await.map_err(refused)? {
            admin.execute(make).await.map_err(refused)?;
        }
    }
    Ok(())
}

fn initdb_arguments(new: &Path, locale: &str, durability: Durability) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-D".into(), new.into(), "-U".into(), SUPERUSER.into()];
    // Whoever can enter the socket folder may connect: it is 0700, which a password in a file beside it would not improve.
    arguments.extend(["-A", "trust", "-E", "UTF8"].map(OsString::from));
    arguments.push(format!("--locale={locale}").into());
    if durability == Durability::ThrowAway {
        arguments.push("--no-sync".into());
    }
    arguments
}

/// Not listening yet, or listening and still at work on its log (57P03, cannot_connect_now).
fn is_starting(refusal: &sqlx::Error) -> bool {
    match refusal {
        sqlx::Error::Io(e) => e.kind() != std::io::ErrorKind::PermissionDenied,
        sqlx::Error::Database(e) => e.code().as_deref() == Some("57P03"),
        _ => false,
    }
}
