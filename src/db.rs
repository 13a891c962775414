//! Pools and migrations. Each user of the database has a small pool of its own, so that neither pages nor workers can
//! starve intake. `schema` says how far the migrations are.

pub mod schema;

use std::time::{Duration, Instant};

use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Postgres};

use crate::telemetry::labels;
use crate::telemetry::metrics;

/// Begins a transaction that sees one moment and can write nothing: the database itself holds whoever only shows something to it.
pub const READ_ONLY: &str = "begin isolation level repeatable read read only";

static MIGRATIONS: Migrator = sqlx::migrate!();
/// Each migration is a transaction, so one that was ended has changed nothing and can be tried again.
const MIGRATE_AGAIN: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database cannot be reached; is it running, and is DATABASE_URL right?")]
    Unreachable(#[source] sqlx::Error),
    #[error("the database is newer than this program (it has migration {0}); start a newer bottle")]
    Newer(i64),
    #[error("migration {0} is not the one this database was made with; never edit a migration that has run")]
    Changed(i64),
    #[error(
        "the database lacks {0} migration(s), and this role may not make them; run `bottle migrate` as the role that owns it (docs/roles.sql)"
    )]
    NotOwner(usize),
    #[error("the database could not be brought up to date")]
    Migrate(#[source] MigrateError),
    #[error("{0} is off for this role: an acknowledged event could be lost in a power cut; turn it on")]
    NotDurable(&'static str),
}

/// What a pool is for: its size, and how long its statements may take. All limits lie below the worker's lease.
#[derive(Debug, Clone, Copy)]
pub enum Use {
    /// Storing deliveries: a sender waits for the answer.
    Intake,
    /// Handler transactions.
    Worker,
    /// What rings and what sends letters: an SMTP server's whims must not take connections from events.
    Reminders,
    Web,
    /// What is read for the metrics.
    Scrape,
    Cli,
    /// Comparing with the providers: pages of it, for as long as that takes.
    Reconcile,
}

impl Use {
    pub const ALL: [Self; 7] = [Self::Intake, Self::Worker, Self::Reminders, Self::Web, Self::Cli, Self::Reconcile, Self::Scrape];

    const fn name(self) -> &'static str {
        match self {
            Self::Intake => "bottle intake",
            Self::Worker => "bottle worker",
            Self::Reminders => "bottle reminders",
            Self::Web => "bottle web",
            Self::Scrape => "bottle metrics",
            Self::Cli => "bottle cli",
            Self::Reconcile => "bottle reconcile",
        }
    }

    pub const fn label(self) -> labels::Pool {
        match self {
            Self::Intake => labels::Pool::Intake,
            Self::Worker => labels::Pool::Worker,
            Self::Reminders => labels::Pool::Reminders,
            Self::Web => labels::Pool::Web,
            Self::Scrape => labels::Pool::Scrape,
            Self::Cli => labels::Pool::Cli,
            Self::Reconcile => labels::Pool::Reconcile,
        }
    }

    pub const fn connections(self) -> u32 {
        match self {
            Self::Intake | Self::Worker => 4,
            Self::Reminders => 3,
            Self::Web => 8,
            Self::Scrape => 1,
            Self::Cli | Self::Reconcile => 2,
        }
    }

    const fn limits(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // Twice this is still within the answer's time: a batch that fails is tried again, each delivery alone.
            Self::Intake => {
                &[("statement_timeout", "1s"), ("lock_timeout", "800ms"), ("idle_in_transaction_session_timeout", "5s")]
            }
            Self::Worker | Self::Reminders => {
                &[("statement_timeout", "5s"), ("lock_timeout", "4s"), ("idle_in_transaction_session_timeout", "10s")]
            }
            Self::Web => &[("statement_timeout", "5s"), ("lock_timeout", "2s"), ("idle_in_transaction_session_timeout", "10s")],
            Self::Scrape => {
                &[("statement_timeout", "1s"), ("lock_timeout", "200ms"), ("idle_in_transaction_session_timeout", "5s")]
            }
            Self::Cli | Self::Reconcile => {
                &[("statement_timeout", "60s"), ("lock_timeout", "10s"), ("idle_in_transaction_session_timeout", "60s")]
            }
        }
    }
}

/// A pool that connects when it is first used.
pub fn pool(options: &PgConnectOptions, purpose: Use) -> PgPool {
    let options = options.clone().application_name(purpose.name()).options(purpose.limits().iter().copied()).options([
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        // Of data that is on its way when the net goes, keep-alives know nothing.
        ("tcp_user_timeout", "15s"),
    ]);
    PgPoolOptions::new().max_connections(purpose.connections()).acquire_timeout(Duration::from_secs(2)).connect_lazy_with(options)
}

/// A connection, and how long it was waited for is told to whoever looks at the metrics.
pub async fn acquire(pool: &PgPool, purpose: Use) -> sqlx::Result<PoolConnection<Postgres>> {
    let began = Instant::now();
    let connection = pool.acquire().await;
    metrics::pool_wait(purpose.label(), began.elapsed(), connection.is_ok());
    connection
}

/// A span of time, as a statement takes it.
pub fn interval(of: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(of.as_micros()).unwrap_or(i64::MAX) }
}

/// Brings the database up to date, and says how many migrations that took. One process at a time does it; the others wait. A
/// database that is current is only read, so a role that may not change it is enough.
pub async fn migrate(options: &PgConnectOptions) -> Result<usize, Error> {
    let options = options.clone().application_name("bottle migrate");
    // A pool would only say that it timed out: what keeps a connection from being made is told as it is.
    let connected = tokio::time::timeout(Duration::from_secs(10), options.connect()).await;
    let mut connection = connected.map_err(|_| Error::Unreachable(sqlx::Error::PoolTimedOut))?.map_err(Error::Unreachable)?;
    let missing = schema::missing(&mut connection).await;
    let _ = connection.close().await;
    let missing = missing?.len();
    if missing == 0 {
        return Ok(0);
    }
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut done = MIGRATIONS.run(&pool).await;
    for _ in 0..MIGRATE_AGAIN {
        if !done.as_ref().is_err_and(is_in_the_way) {
            break;
        }
        // Whoever was in the way has gone on, or is ended by its own limits.
        tokio::time::sleep(Duration::from_secs(1)).await;
        done = MIGRATIONS.run(&pool).await;
    }
    pool.close().await;
    done.map(|()| missing).map_err(|error| match error {
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) if is_no_right(&cause) => {
            Error::NotOwner(missing)
        }
        MigrateError::VersionMissing(version) => Error::Newer(version),
        MigrateError::VersionMismatch(version) => Error::Changed(version),
        other => Error::Migrate(other),
    })
}

/// The role lacks the right, or is not the owner.
fn is_no_right(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42501")
}

/// A process that runs meanwhile held what the migration waited for: a deadlock, or a lock that did not come in time.
fn is_in_the_way(error: &MigrateError) -> bool {
    let (MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = error else { return false };
    cause.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "40P01" || code == "55P03")
}

/// Nothing that a program does by mistake is refused to such a role.
pub async fn is_superuser(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select rolsuper as "is!" from pg_roles where rolname = current_user"#).fetch_one(pool).await
}

/// Is a worker of any process connected to this database?
pub async fn has_worker(pool: &PgPool) -> sqlx::Result<bool> {
    let name = Use::Worker.name();
    sqlx::query_scalar!(
        r#"select exists (select 1 from pg_stat_activity where datname = current_database() and application_name = $1) as "is!""#,
        name
    )
    .fetch_one(pool)
    .await
}

/// The name of a setting that lets the server lose what it acknowledged; none is as it should be.
pub async fn lossy_setting(pool: &PgPool) -> sqlx::Result<Option<&'static str>> {
    let row = sqlx::query!(
        r#"select current_setting('fsync') as "fsync!", current_setting('synchronous_commit') as "synchronous_commit!",
                  current_setting('full_page_writes') as "full_page_writes!""#
    )
    .fetch_one(pool)
    .await?;
    let off = |value: &str| value == "off";
    Ok(if off(&row.fsync) {
        Some("fsync")
    } else if off(&row.synchronous_commit) {
        Some("synchronous_commit")
    } else if off(&row.full_page_writes) {
        Some("full_page_writes")
    } else {
        None
    })
}
