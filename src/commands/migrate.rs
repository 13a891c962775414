//! `bottle migrate`: brings the database up to date and ends. For the role that owns it; the program itself runs as another then.

use std::process::ExitCode;

use crate::config::Config;
use crate::db;

use super::database::Database;

pub async fn run(config: Config) -> anyhow::Result<ExitCode> {
    let (database, made) = Database::migrated(&config).await?;
    database.stop().await?;
    match made {
        0 => say!("The database is current (migration {}).", db::schema::newest()),
        made => say!("{made} migration(s) made; the database is current (migration {}).", db::schema::newest()),
    }
    Ok(ExitCode::SUCCESS)
}
