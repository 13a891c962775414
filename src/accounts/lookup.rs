//! Whose an account is, as operators ask and are told.

use std::collections::HashMap;

use sqlx::PgConnection;

use crate::domain::ids::AccountId;

/// More accounts than this of one address are not told apart.
const NAMED_MAX: i64 = 10;

/// The accounts that somebody means by our number, a Kinde user id of this tenant, or an address.
///
/// # Errors
/// The database's.
pub async fn named(conn: &mut PgConnection, tenant: &str, text: &str) -> sqlx::Result<Vec<AccountId>> {
    if text.contains('@') {
        return sqlx::query_scalar!(
            r#"/* operators */ select id as "id: AccountId" from accounts where lower(email) = lower($1) order by id limit $2"#,
            text,
            NAMED_MAX
        )
        .fetch_all(conn)
        .await;
    }
    sqlx::query_scalar!(
        r#"/* operators */ select id as "id!: AccountId" from accounts where id = $1
           union select id from accounts where tenant = $2 and kinde_user_id = $3"#,
        text.parse::<i64>().ok(),
        tenant,
        text
    )
    .fetch_all(conn)
    .await
}

/// What to call each of these: an address where one is known, else the Kinde user id.
///
/// # Errors
/// The database's.
pub async fn labels(conn: &mut PgConnection, ids: &[AccountId]) -> sqlx::Result<HashMap<AccountId, String>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"/* operators */ select id as "id: AccountId", coalesce(email, kinde_user_id) as "label!" from accounts where id = any($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.label)).collect())
}
