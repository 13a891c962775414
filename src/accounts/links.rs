//! Which accounts have to do with a provider, and what they are called there.

use sqlx::PgConnection;

use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, KindeUserId};

/// An account and its customers at one provider.
#[derive(Debug, Clone)]
pub struct Linked {
    pub account: AccountId,
    pub user: KindeUserId,
    pub customers: Vec<CustomerId>,
}

/// Accounts with a customer at this provider, lowest id first, `limit` of them after `after`. `and_planned`: also those without
/// one that any event ever gave a plan.
///
/// # Errors
/// The database's.
pub async fn page(
    conn: &mut PgConnection,
    source: Source,
    tenant: &str,
    and_planned: bool,
    after: AccountId,
    limit: i64,
) -> sqlx::Result<Vec<Linked>> {
    let rows = sqlx::query!(
        r#"select a.id as "account: AccountId", a.kinde_user_id as "user: KindeUserId",
                  array(select m.customer_id from customer_map m where m.account_id = a.id and m.source = $1 order by 1)
                      as "customers!: Vec<String>"
           from accounts a
           where a.tenant = $2 and a.id > $4
             and (exists (select 1 from customer_map m where m.account_id = a.id and m.source = $1)
                  or $3 and a.plan_changed_ns is not null)
           order by a.id limit $5"#,
        source.as_str(),
        tenant,
        and_planned,
        after.0,
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Linked {
            account: row.account,
            user: row.user,
            customers: row.customers.into_iter().map(CustomerId).collect(),
        })
        .collect())
}
