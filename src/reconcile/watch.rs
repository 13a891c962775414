//! What the alerts ask: is there a difference that is not repaired, and does the nightly run succeed?

use sqlx::PgConnection;

use super::findings::Class;
use crate::domain::ids::EventId;

/// Ids that are named; there may be more.
const NAMED: usize = 20;

/// The differences that the latest runs left open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    pub classes: Vec<(Class, i64)>,
    pub events: Vec<EventId>,
}

/// What is open of the latest finished run about each provider. A run that somebody asked to look at a few days only clears
/// nothing that is older.
///
/// # Errors
/// The database's.
pub async fn drift(conn: &mut PgConnection) -> sqlx::Result<Drift> {
    let rows = sqlx::query!(
        r#"with latest as (
               select distinct on (s.source) s.source, r.id as run
               from reconcile_runs r, unnest(r.sources) as s (source)
               where r.state = 'finished' and (r.given_since is null or r.given_since <= r.begun_at - interval '28 days')
               order by s.source, r.finished_at desc)
           select f.class, count(*) as "n!", array_agg(f.event_id) filter (where f.event_id is not null) as "events: Vec<EventId>"
           from latest l join reconcile_findings f on f.run_id = l.run and f.source = l.source
           where f.state = 'open' group by f.class"#
    )
    .fetch_all(conn)
    .await?;
    let mut drift = Drift::default();
    for row in rows {
        let class = row.class.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        drift.classes.push((class, row.n));
        drift.events.extend(row.events.unwrap_or_default());
    }
    drift.classes.sort();
    drift.events.sort_by(|a, b| b.cmp(a));
    drift.events.dedup();
    drift.events.truncate(NAMED);
    Ok(drift)
}

/// Whether no nightly run has succeeded for `hours`, since the first of them was begun.
///
/// # Errors
/// The database's.
pub async fn is_late(conn: &mut PgConnection, hours: f64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select coalesce(coalesce(max(finished_at), min(begun_at)) < now() - make_interval(secs => 3600 * $1::float8), false) as "is!"
           from reconcile_runs where night is not null"#,
        hours
    )
    .fetch_one(conn)
    .await
}
