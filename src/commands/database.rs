//! The database a command works on: the one that is configured, or the private cluster.

use anyhow::Context;
use sqlx::postgres::PgConnectOptions;

use crate::config::{self, Config};
use crate::db;
use crate::postgres::{Cluster, Durability, Settings};

/// A database that is up and up to date. Stop it when done; dropping it stops it too.
pub struct Database {
    pub options: PgConnectOptions,
    cluster: Option<Cluster>,
}

impl Database {
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        let (database, _) = Self::migrated(config).await?;
        database.check_safety(config).await?;
        Ok(database)
    }

    /// Brought up to date, whatever its settings, and how many migrations that took.
    pub async fn migrated(config: &Config) -> anyhow::Result<(Self, usize)> {
        let database = match &config.database.url {
            Some(url) => Self { options: configured(url)?, cluster: None },
            None => {
                let cluster = Cluster::start(&private(&config.database)).await?;
                Self { options: cluster.options(), cluster: Some(cluster) }
            }
        };
        let made = db::migrate(&database.options).await?;
        Ok((database, made))
    }

    /// The database of a Bottle that may be running now; if none is, the private cluster is started for this command.
    pub async fn attach(config: &Config) -> anyhow::Result<Self> {
        if config.database.url.is_none()
            && let Some(options) = Cluster::running(&private(&config.database)).await
        {
            return Ok(Self { options, cluster: None });
        }
        Self::start(config).await
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        match self.cluster {
            Some(cluster) => cluster.stop().await.context("the private PostgreSQL did not stop cleanly"),
            None => Ok(()),
        }
    }

    async fn check_safety(&self, config: &Config) -> anyhow::Result<()> {
        let pool = db::pool(&self.options, db::Use::Cli);
        let lossy = db::lossy_setting(&pool).await;
        let superuser = db::is_superuser(&pool).await;
        pool.close().await;
        if superuser? && config.is_production() {
            tracing::warn!(
                setting = "DATABASE_URL",
                "its role is a superuser, to whom nothing is refused; docs/roles.sql makes one that may do what Bottle does and no more"
            );
        }
        match lossy? {
            Some(setting) if config.is_production() => Err(db::Error::NotDurable(setting).into()),
            Some(setting) => {
                tracing::warn!(setting, "this setting is off: a power cut could lose events that were acknowledged");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn configured(url: &config::Secret) -> anyhow::Result<PgConnectOptions> {
    url.reveal().parse().map_err(|_| anyhow::anyhow!("DATABASE_URL cannot be read"))
}

fn private(database: &config::Database) -> Settings {
    Settings { data: database.data.clone(), bin: database.bin.clone(), durability: Durability::Kept }
}
