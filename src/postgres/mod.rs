//! A private PostgreSQL, so that Bottle starts on a fresh machine with nothing to set up.
//!
//! Its programs come from the machine (`find`). The cluster lives in `<data>/postgres` (`folder`), is reached through a Unix
//! socket only, and runs as somebody other than root (`runner`) under a shell that stops it when we are gone, however we
//! went (`watchdog`). Not here: migrations, pools, and any server that `DATABASE_URL` names.

mod find;
mod folder;
mod runner;
mod setup;
mod watchdog;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use folder::{Folder, Lock};
use runner::Runner;
use watchdog::{Remover, Watched};

/// The role Bottle works as: it owns its database and is no superuser.
const OWNER: &str = "bottle";
const DATABASE: &str = "bottle";
const SUPERUSER: &str = "postgres";
const PORT: u16 = 5432;
/// A fast shutdown ends with a checkpoint, which a slow disk may draw out.
const STOP_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Bottle's data folder, such as `.bottle`; made if it is missing.
    pub data: PathBuf,
    /// The one folder to take `initdb` and `postgres` from (`BOTTLE_PG_BIN`). None: look in the usual places.
    pub bin: Option<PathBuf>,
    pub durability: Durability,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// What was committed survives a power cut.
    Kept,
    /// For tests: nothing is synced, and the folder, which must not exist yet, goes when the server does.
    ThrowAway,
}

/// A running server. Dropping it stops the server too, without waiting for the end.
pub struct Cluster {
    socket: PathBuf,
    log: PathBuf,
    server: Watched,
    remover: Option<Remover>,
    /// Shared with every process of the server; see `watchdog`.
    alive: OwnedFd,
    lock: Lock,
}

impl Cluster {
    /// Makes the cluster if there is none, starts its server and returns once it takes connections. About a second the
    /// first time (a slow disk takes three), a tenth later; after a crash PostgreSQL first works through its log.
    ///
    /// # Errors
    /// Each is one message for the person who started Bottle; see [`Error`].
    pub async fn start(settings: &Settings) -> Result<Self, Error> {
        let folder = Folder::of(&settings.data)?;
        // Nothing is written before it is certain that these programs fit this folder.
        let programs = find::programs(settings.bin.as_deref(), &folder).await?;

        let lock = folder.claim(settings.durability)?;
        let (alive, remover) = match settings.durability {
            Durability::Kept => (folder.wait_for_the_last_server().await?, None),
            Durability::ThrowAway => {
                let (alive, remover) = Remover::arm(&folder).map_err(Error::command(Path::new("/bin/sh")))?;
                (alive, Some(remover))
            }
        };
        folder.clear_what_a_crash_left()?;

        let runner = Runner::choose(&folder, &programs).await?;
        let log = folder.open_log()?;
        if folder.version()?.is_none() {
            setup::make_cluster(&folder, &programs, &runner, settings.durability, &alive, &log).await?;
        }

        let socket = folder.make_socket_folder(&runner).await?;
        let program = programs.bin.join("postgres");
        let arguments = setup::server_arguments(&folder, &socket, settings.durability);
        let elsewhere = (!socket.starts_with(&folder.root)).then_some(socket.as_path());
        let mut server =
            Watched::spawn(&runner, elsewhere, &program, &arguments, &alive, &log).map_err(Error::command(&program))?;
        let mut admin = setup::connect(&options_in(&socket, SUPERUSER, "postgres"), &mut server, &folder.log).await?;
        setup::make_owner_and_database(&mut admin).await?;

        tracing::info!(folder = %folder.root.display(), major = programs.major, "PostgreSQL is running");
        Ok(Self { socket, log: folder.log, server, remover, alive, lock })
    }

    /// How to reach the cluster of a Bottle that runs in this folder now, for another command beside it; none if none does.
    pub async fn running(settings: &Settings) -> Option<PgConnectOptions> {
        let folder = Folder::of(&settings.data).ok()?;
        let options = options_in(&folder.socket_of_running()?, OWNER, DATABASE);
        let connection = sqlx::ConnectOptions::connect(&options).await.ok()?;
        sqlx::Connection::close(connection).await.ok()?;
        Some(options)
    }

    /// As the role `bottle`, which owns the database `bottle`.
    pub fn options(&self) -> PgConnectOptions {
        options_in(&self.socket, OWNER, DATABASE)
    }

    /// As the superuser, in the database `postgres`. Only tests need it: they make databases.
    pub fn admin_options(&self) -> PgConnectOptions {
        options_in(&self.socket, SUPERUSER, "postgres")
    }

    /// The same as [`options`](Self::options), as a URL that sqlx, psql and pgbench read.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@{}:{PORT}/{DATABASE}", percent_encoded(&self.socket))
    }

    /// Ends all connections, writes everything out and returns once the last process is gone; a throw-away folder too.
    ///
    /// # Errors
    /// The server took longer than a minute (it goes on stopping), or ended with an error.
    pub async fn stop(self) -> Result<(), Error> {
        let Self { log, server, remover, alive, lock, .. } = self;
        let stopped = tokio::time::timeout(STOP_WITHIN, server.stop()).await;
        let status =
            stopped.map_err(|_| Error::StillStopping { log: log.clone() })?.map_err(Error::command(Path::new("/bin/sh")))?;
        if !status.success() {
            return Err(Error::ended(status, &log));
        }
        drop(alive);
        if let Some(remover) = remover {
            remover.wait().await.map_err(Error::command(Path::new("/bin/sh")))?;
        }
        drop(lock);
        Ok(())
    }
}

fn options_in(socket: &Path, role: &str, database: &str) -> PgConnectOptions {
    // No TLS through a Unix socket, whatever PGSSLMODE says; nor is there a password to look for.
    PgConnectOptions::new_without_pgpass()
        .socket(socket)
        .port(PORT)
        .username(role)
        .database(database)
        .ssl_mode(PgSslMode::Disable)
}

fn percent_encoded(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    NotFound(find::NotFound),
    #[error("{0}")]
    OtherVersion(find::OtherVersion),
    #[error("{} is in use by another Bottle{}", folder.display(), process.map(|p| format!(" (process {p})")).unwrap_or_default())]
    InUse { folder: PathBuf, process: Option<i32> },
    #[error("{} exists already, so it cannot be a throw-away folder", folder.display())]
    NotThrowAway { folder: PathBuf },
    #[error("{} is not empty and no PostgreSQL cluster either; move it away", folder.display())]
    NotACluster { folder: PathBuf },
    #[error(
        "{} belongs to another user: start Bottle as the user who made it, or choose another folder with BOTTLE_DATA",
        folder.display()
    )]
    NotOurs {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "PostgreSQL does not run as {who}, and nobody else we may run it as can use {}: {tried}. Start Bottle as an ordinary \
         user, or choose a folder that user can enter with BOTTLE_DATA, or set DATABASE_URL",
        folder.display()
    )]
    NobodyToRunAs { who: &'static str, folder: PathBuf, tried: String },
    #[error("a PostgreSQL that an earlier Bottle left in {} does not stop{}", folder.display(), process.map(|p| format!(" (process {p})")).unwrap_or_default())]
    LastServerStays { folder: PathBuf, process: Option<i32> },
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run {}", program.display())]
    Command {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("PostgreSQL ended ({status}); the end of {} says:\n{tail}", log.display())]
    Ended { status: ExitStatus, log: PathBuf, tail: String },
    #[error("PostgreSQL takes no connections after {waited_secs} s; see {}", log.display())]
    NotReady {
        waited_secs: u64,
        log: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    #[error("PostgreSQL is still stopping after {} s; see {}", STOP_WITHIN.as_secs(), log.display())]
    StillStopping { log: PathBuf },
    #[error("the private PostgreSQL refused to {what}")]
    Refused {
        what: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    fn command(program: &Path) -> impl FnOnce(io::Error) -> Self {
        let program = program.to_owned();
        move |source| Self::Command { program, source }
    }

    fn ended(status: ExitStatus, log: &Path) -> Self {
        Self::Ended { status, log: log.to_owned(), tail: folder::tail(log) }
    }
}
