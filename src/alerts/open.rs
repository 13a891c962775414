//! The alerts that are open now, for whoever shows or counts them.

use sqlx::PgConnection;

/// The condition of each.
///
/// # Errors
/// The database's.
pub async fn conditions(conn: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!("select condition from alerts where cleared_at is null order by condition").fetch_all(conn).await
}
