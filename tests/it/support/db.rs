//! A fresh, migrated database for each test.
//!
//! One throw-away cluster a test process, on a thread with a runtime of its own, since each test's runtime ends with its
//! test. The migrations run once, into a template that is then copied. With `DATABASE_URL` that server is used instead.
//!
//! Nothing is left behind, not even after `kill -9`: the cluster's watchdog removes its folder, and on a server that is not
//! ours a second process of this program waits for our end and drops what we made.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Stdio};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bottle::postgres::{Cluster, Durability, Settings};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::sync::{mpsc, oneshot};

use super::{chain, roomy_folder, this_program, unique_name};

/// # Panics
/// There is no server to make it on; the message says why.
pub async fn fresh_db() -> TestDb {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let server = match SERVER.get_or_init(Server::start) {
        Ok(server) => server,
        Err(why) => panic!("no database for the tests: {why}"),
    };
    let name = format!("{}_{}", server.prefix, NUMBER.fetch_add(1, Ordering::Relaxed));
    let (done, made) = oneshot::channel();
    server.creates.send((name.clone(), done)).expect("the server's thread lives as long as the process");
    made.await.expect("the server's thread answers").unwrap_or_else(|why| panic!("no database for this test: {why}"));
    TestDb { name, server, shared: Arc::default() }
}

/// Dropped in the background when the test is done with it.
pub struct TestDb {
    pub name: String,
    server: &'static Server,
    shared: Arc<()>,
}

impl TestDb {
    pub fn options(&self) -> PgConnectOptions {
        self.server.options.clone().database(&self.name)
    }

    pub fn url(&self) -> String {
        let (before, after) = &self.server.url_around_name;
        format!("{before}{}{after}", self.name)
    }

    /// The same database, for a second program on it. Whoever is dropped last drops it.
    pub fn second(&self) -> Self {
        Self { name: self.name.clone(), server: self.server, shared: Arc::clone(&self.shared) }
    }

    pub async fn pool(&self) -> PgPool {
        PgPoolOptions::new().max_connections(8).connect_with(self.options()).await.unwrap()
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if Arc::strong_count(&self.shared) == 1 {
            let _ = self.server.drops.send(self.name.clone());
        }
    }
}

static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();

type Create = (String, oneshot::Sender<Result<(), String>>);

struct Server {
    prefix: String,
    options: PgConnectOptions,
    url_around_name: (String, String),
    creates: mpsc::UnboundedSender<Create>,
    drops: mpsc::UnboundedSender<String>,
    /// Closed by our end, which is what the cleaner waits for.
    _cleaner: Option<ChildStdin>,
}

/// A server to make databases on: options of whoever makes them, and of their owner.
struct Source {
    admin: PgConnectOptions,
    owner: PgConnectOptions,
    url_around_name: (String, String),
    cluster: Option<Cluster>,
    cleaner: Option<ChildStdin>,
}

impl Server {
    fn start() -> Result<Self, String> {
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("test-databases".into());
        thread.spawn(move || serve(&ready)).map_err(|e| e.to_string())?;
        started.recv().map_err(|_| "the thread that serves the databases panicked".to_owned())?
    }
}

#[tokio::main(flavor = "current_thread")]
async fn serve(ready: &std::sync::mpsc::Sender<Result<Server, String>>) {
    // Letters and digits only: a name that needs no quotes.
    let prefix = unique_name().replace('-', "_");
    let prepared = match std::env::var("DATABASE_URL") {
        Ok(url) => theirs(&url, &prefix),
        Err(_) => ours().await,
    };
    let prepared = match prepared {
        Ok(source) => template(&source, &prefix).await.map(|maker| (source, maker)),
        Err(why) => Err(why),
    };
    let (source, mut maker) = match prepared {
        Ok(both) => both,
        Err(why) => return ready.send(Err(why)).expect("the first caller waits"),
    };

    let (creates, mut to_create) = mpsc::unbounded_channel::<Create>();
    let (drops, to_drop) = mpsc::unbounded_channel();
    let (admin, cluster) = (source.admin, source.cluster);
    ready
        .send(Ok(Server {
            prefix: prefix.clone(),
            options: source.owner,
            url_around_name: source.url_around_name,
            creates,
            drops,
            _cleaner: source.cleaner,
        }))
        .expect("the first caller waits");

    // A connection of its own: a drop forces a checkpoint, and no test should wait for that.
    tokio::spawn(drop_one_by_one(admin, to_drop));
    // One at a time: a template can be copied by one session only.
    while let Some((name, done)) = to_create.recv().await {
        let _ = done.send(maker.create(&name).await);
    }
    drop(cluster);
}

async fn ours() -> Result<Source, String> {
    let settings = Settings {
        data: roomy_folder().join(unique_name()),
        bin: std::env::var_os("BOTTLE_PG_BIN").map(Into::into),
        durability: Durability::ThrowAway,
    };
    let cluster = Cluster::start(&settings).await.map_err(|e| chain(&e))?;
    let url = cluster.url();
    let before = &url[..=url.rfind('/').expect("a URL has slashes")];
    Ok(Source {
        admin: cluster.admin_options(),
        owner: cluster.options(),
        url_around_name: (before.to_owned(), String::new()),
        cluster: Some(cluster),
        cleaner: None,
    })
}

fn theirs(url: &str, prefix: &str) -> Result<Source, String> {
    let options = PgConnectOptions::from_str(url).map_err(|e| format!("DATABASE_URL: {}", chain(&e)))?;
    // So that the cleaner can tell our sessions.
    let options = options.application_name(prefix);
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let authority = path.find("://").map_or(0, |at| at + 3);
    let before = &path[..path[authority..].find('/').map_or(path.len(), |at| authority + at)];

    let mut cleaner = this_program("support::db::cleaner");
    cleaner.env("BOTTLE_TEST_CLEANER", prefix).process_group(0);
    cleaner.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut cleaner = cleaner.spawn().map_err(|e| format!("cannot start the process that cleans up: {e}"))?;
    Ok(Source {
        admin: options.clone(),
        owner: options,
        url_around_name: (format!("{before}/"), query.to_owned()),
        cluster: None,
        cleaner: cleaner.stdin.take(),
    })
}

struct Maker {
    admin: PgConnection,
    clauses: String,
}

impl Maker {
    async fn create(&mut self, name: &str) -> Result<(), String> {
        let create = format!("create database {name} {}", self.clauses);
        self.admin.execute(AssertSqlSafe(create)).await.map(|_| ()).map_err(|e| refusal(&e))
    }
}

/// The migrated database that all others are copies of.
async fn template(source: &Source, prefix: &str) -> Result<Maker, String> {
    let mut admin = quietly(&source.admin).await.map_err(|e| format!("cannot connect: {}", chain(&e)))?;
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
        .fetch_one(&mut admin)
        .await
        .map_err(|e| chain(&e))?;
    let owner = source.cluster.as_ref().map_or("", |_| "owner bottle");
    let name = format!("{prefix}_template");
    let mut maker = Maker { admin, clauses: owner.to_owned() };
    maker.create(&name).await?;

    let mut connection = quietly(&source.owner.clone().database(&name)).await.map_err(|e| chain(&e))?;
    sqlx::migrate!().run(&mut connection).await.map_err(|e| format!("the migrations fail: {}", chain(&e)))?;
    // Nobody may be connected to a template that is copied.
    connection.close().await.map_err(|e| chain(&e))?;

    // Copying files takes half the time of writing all pages to the log, but forces a checkpoint: fine on our own server.
    let strategy = if source.cluster.is_some() && version >= 150_000 { "strategy file_copy" } else { "" };
    maker.clauses = format!("{owner} template {name} {strategy}");
    Ok(maker)
}

async fn quietly(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    options.clone().disable_statement_logging().connect().await
}

fn refusal(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(|e| e.code().map(String::from));
    match code.as_deref() {
        Some("42501") => format!(
            "the role in DATABASE_URL may not make databases ({error}). Allow it with `alter role … createdb`, or unset \
             DATABASE_URL: then the tests start a PostgreSQL of their own"
        ),
        _ => chain(error),
    }
}

async fn drop_one_by_one(admin: PgConnectOptions, mut names: mpsc::UnboundedReceiver<String>) {
    let mut connection = None;
    while let Some(name) = names.recv().await {
        if connection.is_none() {
            connection = quietly(&admin).await.ok();
        }
        let Some(admin) = &mut connection else { continue };
        let drop = format!("drop database if exists {name} with (force)");
        if admin.execute(AssertSqlSafe(drop)).await.is_err() {
            connection = None;
        }
    }
}

/// Outlives the test process on purpose, to drop what it made on a server that is not ours.
#[test]
#[ignore = "a process that a run with DATABASE_URL starts for itself"]
fn cleaner() {
    let (Ok(prefix), Ok(url)) = (std::env::var("BOTTLE_TEST_CLEANER"), std::env::var("DATABASE_URL")) else { return };
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        // A session whose client was killed first finishes its statement, which may be one that makes a database.
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1";
        while sqlx::query_scalar::<_, i64>(end).bind(&prefix).fetch_one(&mut admin).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let names: Vec<String> = sqlx::query_scalar("select datname from pg_database where starts_with(datname, $1)")
            .bind(format!("{prefix}_"))
            .fetch_all(&mut admin)
            .await
            .unwrap();
        for name in names {
            admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await.unwrap();
        }
    });
}
