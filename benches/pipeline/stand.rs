//! What every part stands on: one cluster that is kept between runs, a fresh database for each run, and an issuer of keys.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bottle::local_kinde::app::App;
use bottle::local_kinde::key::SigningKey;
use bottle::local_kinde::server;
use bottle::postgres::{Cluster, Durability, Settings};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

pub struct Stand {
    pub folder: PathBuf,
    /// Of PostgreSQL's programs, pgbench among them.
    pub programs: PathBuf,
    pub admin: PgPool,
    pub key: SigningKey,
    /// The tenant: its key set is served there, and its name is the issuer.
    pub kinde: server::Running,
    cluster: Cluster,
}

/// A database of the cluster. The names are ours, so they need no quotes.
#[derive(Debug, Clone)]
pub struct Database {
    pub name: String,
    pub socket: PathBuf,
    pub options: PgConnectOptions,
}

const TEMPLATE: &str = "bench_empty";

impl Stand {
    pub async fn build() -> anyhow::Result<Self> {
        // Never /dev/shm: whether a commit reaches the disk is half of what is measured.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let settings = Settings { data: folder.clone(), bin: None, durability: Durability::Kept };
        let cluster = Cluster::start(&settings).await.context("the benchmark's own PostgreSQL")?;
        let admin = PgPoolOptions::new().max_connections(2).connect_with(cluster.admin_options()).await?;
        let programs: String =
            sqlx::query_scalar("select setting from pg_config where name = 'BINDIR'").fetch_one(&admin).await?;

        let state = folder.join("kinde");
        let kinde =
            server::Settings { addr: "127.0.0.1:0".to_owned(), state: state.clone(), webhook_url: None, app: App::default() };
        let stand = Self {
            programs: PathBuf::from(programs),
            admin,
            key: SigningKey::load_or_make(&state)?,
            kinde: server::start(kinde).await?,
            cluster,
            folder,
        };
        stand.clear().await?;
        std::fs::write(stand.folder.join("bottle.log"), "")?;
        let empty = stand.create(TEMPLATE, None).await?;
        bottle::db::migrate(&empty.options).await?;
        Ok(stand)
    }

    /// A fresh database with Bottle's tables, and nothing in them.
    pub async fn fresh(&self, name: &str) -> anyhow::Result<Database> {
        self.copy(TEMPLATE, name).await
    }

    /// A copy of a database nobody is connected to. What making it left to be written is written before this returns.
    pub async fn copy(&self, from: &str, name: &str) -> anyhow::Result<Database> {
        let database = self.create(name, Some(from)).await?;
        self.admin.execute("checkpoint").await?;
        Ok(database)
    }

    pub async fn drop(&self, database: Database) -> anyhow::Result<()> {
        self.admin.execute(AssertSqlSafe(format!("drop database if exists {} with (force)", database.name))).await?;
        Ok(())
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.kinde.stop().await;
        self.admin.close().await;
        self.cluster.stop().await.context("the benchmark's own PostgreSQL")
    }

    async fn create(&self, name: &str, from: Option<&str>) -> anyhow::Result<Database> {
        let from = from.map_or_else(String::new, |from| format!(" template {from}"));
        let statement = format!("create database {name} owner bottle{from}");
        self.admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
        self.admin.execute(AssertSqlSafe(statement)).await?;
        let options = self.cluster.options().database(name);
        let socket = options.get_socket().cloned().context("the private cluster has a socket")?;
        Ok(Database { name: name.to_owned(), socket, options })
    }

    /// What an earlier run left behind.
    async fn clear(&self) -> anyhow::Result<()> {
        let left: Vec<String> =
            sqlx::query_scalar("select datname from pg_database where datname like 'bench\\_%'").fetch_all(&self.admin).await?;
        for name in left {
            self.admin.execute(AssertSqlSafe(format!("drop database {name} with (force)"))).await?;
        }
        Ok(())
    }
}

impl Database {
    /// For `DATABASE_URL`.
    pub fn url(&self) -> anyhow::Result<String> {
        let socket = self.socket.to_str().context("the socket's path is text")?;
        ensure!(!socket.contains(['%', '?', '#', '@', ' ']), "the path {socket} cannot stand in a URL");
        Ok(format!("postgres://bottle@{}:5432/{}", socket.replace('/', "%2F"), self.name))
    }

    pub async fn pool(&self) -> anyhow::Result<PgPool> {
        Ok(PgPoolOptions::new().max_connections(4).connect_with(self.options.clone()).await?)
    }

    pub async fn count(&self, query: &'static str) -> anyhow::Result<i64> {
        let pool = self.pool().await?;
        let count = sqlx::query_scalar(query).fetch_one(&pool).await?;
        pool.close().await;
        Ok(count)
    }
}
