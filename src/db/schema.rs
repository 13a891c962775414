//! How the schema of a database stands to this program. Only read here: a role that may not change a schema can ask too.

use sqlx::{Executor as _, PgConnection, Row as _};

use super::{Error, MIGRATIONS};

/// Migrations of this program that the database has not had yet, in their order. None: it is current.
///
/// # Errors
/// It had one that this program does not know, or another under the same number.
pub async fn missing(conn: &mut PgConnection) -> Result<Vec<i64>, Error> {
    let applied = applied(conn).await.map_err(Error::Unreachable)?;
    if let Some((newer, _)) = applied.iter().find(|(version, _)| !MIGRATIONS.version_exists(*version)) {
        return Err(Error::Newer(*newer));
    }
    let mut missing = Vec::new();
    for migration in MIGRATIONS.iter() {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            Some((_, checksum)) if checksum[..] != migration.checksum[..] => return Err(Error::Changed(migration.version)),
            Some(_) => {}
            None => missing.push(migration.version),
        }
    }
    Ok(missing)
}

/// The newest migration of this program.
pub fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Number and checksum of each that ran to its end. The table is the migrator's; it is in no schema of ours to describe, so what
/// is asked of it is not checked when this is compiled.
async fn applied(conn: &mut PgConnection) -> sqlx::Result<Vec<(i64, Vec<u8>)>> {
    let there: bool = conn.fetch_one("select to_regclass('_sqlx_migrations') is not null").await?.try_get(0)?;
    if !there {
        return Ok(Vec::new());
    }
    sqlx::query_as("select version, checksum from _sqlx_migrations where success order by version").fetch_all(conn).await
}
