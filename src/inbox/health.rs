//! How the inbox does, in numbers that cost the same however large it is: counted to a limit, or taken from the database's own
//! statistics and then said to be about so many.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::ids::{EventId, EventKey};

/// Nothing is counted further than this.
pub const COUNTED_TO: i64 = 10_000;
/// The runs whose failures are shown as a rate.
pub const RUNS_LOOKED_AT: i64 = 1_000;

/// All but `about` and `dead_tuples` counted up to [`COUNTED_TO`].
#[derive(Debug, Clone)]
pub struct Health {
    pub now: OffsetDateTime,
    /// The event that has been due longest and that no worker has.
    pub oldest: Option<Waiting>,
    /// Due now and not taken.
    pub due: i64,
    /// Taken by a worker whose lease still runs.
    pub in_hand: i64,
    /// Taken by a worker whose lease ended: it died, or hangs.
    pub leases_ended: i64,
    /// Open events that were claimed before and came back without a verdict.
    pub claimed_again: i64,
    pub failed: i64,
    pub parked: i64,
    pub dead: i64,
    /// Of the last [`RUNS_LOOKED_AT`] runs.
    pub runs: Runs,
    /// Events stored, by the database's statistics; none before it has any.
    pub about: Option<i64>,
    /// Row versions nobody needs and that are not cleaned up yet, by the database's statistics.
    pub dead_tuples: i64,
    /// The age of the oldest transaction we can see: it keeps dead rows from being cleaned up.
    pub oldest_transaction_secs: i64,
}

#[derive(Debug, Clone)]
pub struct Waiting {
    pub id: EventId,
    pub key: EventKey,
    pub kind: String,
    pub due_at: OffsetDateTime,
}

#[derive(Debug, Clone, Copy)]
pub struct Runs {
    pub all: i64,
    pub failed: i64,
    pub since: Option<OffsetDateTime>,
}

/// # Errors
/// The database's.
pub async fn health(conn: &mut PgConnection) -> sqlx::Result<Health> {
    // The states are literals so that a generic plan still matches the partial indexes.
    let open = sqlx::query!(
        r#"/* operators */ select now() as "now!",
                  count(*) filter (where due_at <= now() and status <> 'processing') as "due!",
                  count(*) filter (where due_at > now() and status = 'processing') as "in_hand!",
                  count(*) filter (where due_at <= now() and status = 'processing') as "leases_ended!",
                  count(*) filter (where claims > case status when 'processing' then 1 else 0 end) as "claimed_again!"
           from (select status, due_at, claims from inbox_events
                 where status in ('received', 'processing', 'failed', 'parked') and due_at <= now() + interval '1 minute'
                 order by due_at, id limit $1) e"#,
        COUNTED_TO
    )
    .fetch_one(&mut *conn)
    .await?;
    let held = sqlx::query!(
        r#"/* operators */ select
               (select count(*) from (select 1 from inbox_events where status = 'failed' limit $1) f) as "failed!",
               (select count(*) from (select 1 from inbox_events where status = 'parked' limit $1) p) as "parked!",
               (select count(*) from (select 1 from inbox_events where status = 'dead' limit $1) d) as "dead!""#,
        COUNTED_TO
    )
    .fetch_one(&mut *conn)
    .await?;
    let runs = sqlx::query_as!(
        Runs,
        r#"/* operators */ select count(*) as "all!", count(*) filter (where status in ('failed', 'dead')) as "failed!", min(ran_at) as since
           from (select status, ran_at from event_runs order by id desc limit $1) r"#,
        RUNS_LOOKED_AT
    )
    .fetch_one(&mut *conn)
    .await?;
    let server = sqlx::query!(
        r#"select (select nullif(reltuples, -1)::bigint from pg_class where oid = 'inbox_events'::regclass) as about,
                  coalesce((select n_dead_tup from pg_stat_user_tables where relid = 'inbox_events'::regclass), 0) as "dead_tuples!",
                  coalesce((select extract(epoch from now() - min(xact_start))::bigint from pg_stat_activity
                            where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null), 0) as "oldest!""#
    )
    .fetch_one(&mut *conn)
    .await?;
    Ok(Health {
        now: open.now,
        oldest: longest(conn, 1).await?.pop(),
        due: open.due,
        in_hand: open.in_hand,
        leases_ended: open.leases_ended,
        claimed_again: open.claimed_again,
        failed: held.failed,
        parked: held.parked,
        dead: held.dead,
        runs,
        about: server.about,
        dead_tuples: server.dead_tuples,
        oldest_transaction_secs: server.oldest,
    })
}

/// What has been due longest.
///
/// # Errors
/// The database's.
pub async fn longest(conn: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<Waiting>> {
    sqlx::query_as!(
        Waiting,
        r#"/* operators */ select id as "id: EventId", dedupe_key as "key: EventKey", type as kind, due_at from inbox_events
           where status in ('received', 'processing', 'failed', 'parked') and due_at <= now()
           order by due_at, id limit $1"#,
        limit
    )
    .fetch_all(conn)
    .await
}

/// A number that differs when what the overview shows has changed: cheap, for open pages.
///
/// # Errors
/// The database's.
pub async fn version(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"/* operators */ select hashtextextended(concat_ws(' ',
               (select count(*) from (select 1 from inbox_events where status = 'failed' limit $1) f),
               (select count(*) from (select 1 from inbox_events where status = 'parked' limit $1) p),
               (select string_agg(id || ' ' || coalesce(processed_at::text, ''), ',') from
                   (select id, processed_at from inbox_events where status = 'dead' order by id desc limit 100) d),
               (select count(*) > 0 from inbox_events where status in ('received', 'processing', 'failed', 'parked')
                   and due_at < now() - interval '1 minute' limit 1)), 0) as "version!""#,
        COUNTED_TO
    )
    .fetch_one(conn)
    .await
}
