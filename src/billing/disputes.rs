//! The disputes that somebody has to answer, over all accounts.

use std::time::Duration;

use sqlx::PgConnection;

use crate::db::interval;
use crate::domain::ids::EventId;

/// The newest event about each dispute that is open, or was first heard of within `fresh`; the newest dispute first, and no more
/// than `limit`. What a provider has no other word for counts as open: nobody may miss it.
pub async fn to_answer(conn: &mut PgConnection, fresh: Duration, limit: i64) -> sqlx::Result<Vec<EventId>> {
    let fresh = interval(fresh);
    sqlx::query_scalar!(
        r#"select (array_agg(event_id order by occurred_ns desc, event_id desc))[1] as "id!: EventId"
           from facts where kind = 'dispute' group by object
           having (array_agg(word order by occurred_ns desc, event_id desc))[1]
                      not in ('won', 'lost', 'warning_closed', 'prevented')
               or min(occurred_ns) > extract(epoch from now() - $1::interval) * 1000000000
           order by min(occurred_ns) desc limit $2"#,
        fresh,
        limit
    )
    .fetch_all(conn)
    .await
}
