//! Reconcile as a test runs it: against providers over HTTP, with a worker beside it, and what it noted read back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bottle::billing::apply::Rules;
use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::domain::event::Source;
use bottle::inbox::queue::LEASE_SECS;
use bottle::providers::Providers;
use bottle::reconcile::findings::{self, Finding};
use bottle::reconcile::runs::{Mode, Run};
use bottle::reconcile::{Error, Progress, Reconciler, Wish};
use bottle::wake::Wake;
use bottle::worker;
use bottle::worker::process::Engine;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub struct Comparing {
    pub pool: PgPool,
    pub providers: Arc<Providers>,
    pub rules: Arc<Rules>,
}

impl Comparing {
    pub fn reconciler(&self) -> Reconciler {
        Reconciler {
            pool: self.pool.clone(),
            providers: Arc::clone(&self.providers),
            rules: Arc::clone(&self.rules),
            clock: Clock::Database,
            wake: Wake::default(),
            settle: Duration::ZERO,
            wait: Duration::from_secs(20),
            patience: Duration::from_secs(60),
            progress: tokio::sync::watch::Sender::new(Progress::default()),
            stop: CancellationToken::new(),
        }
    }

    pub fn engine(&self) -> Engine {
        Engine {
            pool: self.pool.clone(),
            providers: Arc::clone(&self.providers),
            rules: Arc::clone(&self.rules),
            checkpoints: Checkpoints::default(),
            clock: Clock::Database,
            lease_secs: LEASE_SECS,
        }
    }

    /// A whole run, with a worker at work as long as it lasts.
    pub async fn run(&self, sources: &[Source], mode: Mode) -> Run {
        self.try_run(sources, mode).await.unwrap()
    }

    pub async fn try_run(&self, sources: &[Source], mode: Mode) -> Result<Run, Error> {
        let reconciler = self.reconciler();
        let stop = CancellationToken::new();
        let working = tokio::spawn(worker::run(self.engine(), 1, reconciler.wake.clone(), stop.clone()));
        let wish = Wish { sources: sources.to_vec(), since: None, mode, night: None };
        let run = reconciler.run(&wish).await;
        stop.cancel();
        working.await.unwrap();
        run
    }

    pub async fn findings(&self, run: &Run) -> Vec<Finding> {
        let mut conn = self.pool.acquire().await.unwrap();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = findings::page(&mut conn, run.id, after, 7).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = Some(last.id);
            all.extend(page);
        }
    }

    /// `plan_stale kinde account 1: free | pro | asked again through the inbox…`, in their order.
    pub async fn told(&self, run: &Run) -> Vec<String> {
        let line = |f: &Finding| {
            format!("{} {} {}: {} | {} | {} | {}", f.class, f.source, f.subject, f.ours, f.theirs, f.state.as_str(), f.done)
        };
        self.findings(run).await.iter().map(line).collect()
    }

    /// `plan_stale: 2/1` is two found and one of them repaired.
    pub async fn counts(&self, run: &Run) -> Vec<String> {
        let mut conn = self.pool.acquire().await.unwrap();
        let counts = findings::counts(&mut conn, run.id).await.unwrap();
        counts.into_iter().map(|(class, all, repaired)| format!("{class}: {all}/{repaired}")).collect()
    }

    /// How many rows each table has and what its rows hold, reconcile's own tables aside.
    pub async fn everything(&self) -> BTreeMap<String, (i64, Option<String>)> {
        let tables: Vec<String> = sqlx::query_scalar(
            "select table_name::text from information_schema.tables
             where table_schema = 'public' and table_type = 'BASE TABLE' and table_name not like 'reconcile%'",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        assert!(tables.len() > 15, "{tables:?}");
        let mut all = BTreeMap::new();
        for table in tables {
            let sql = format!("select count(*), md5(string_agg(t::text, '|' order by t::text)) from {table} t");
            all.insert(table, sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap());
        }
        all
    }

    pub async fn value<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap()
    }
}
