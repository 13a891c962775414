//! What a run notes of itself and of what it finds: every statement that writes `reconcile_runs` and `reconcile_findings`.

use serde_json::Value;
use sqlx::PgConnection;
use time::{Date, OffsetDateTime};

use crate::clock::Clock;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, EventId};

use super::findings::{self, Class, Finding, FindingId, State};
use super::runs::{self, Run, RunId, Total};
use super::suspect::{Question, Suspect};
use super::{Error, Wish, books};

/// A run that was left for longer than this is not taken up: too much has happened since.
const TAKEN_UP_WITHIN_HOURS: f64 = 24.0;
/// What older runs found nobody looks up any more.
const FINDINGS_KEPT_DAYS: f64 = 400.0;

/// The run that was begun for this wish and has not ended, running from now on.
pub async fn take_up(conn: &mut PgConnection, wish: &Wish, now: OffsetDateTime) -> sqlx::Result<Option<Run>> {
    let sources: Vec<&str> = wish.sources.iter().map(|s| s.as_str()).collect();
    let row = sqlx::query_as!(
        runs::Row,
        r#"update reconcile_runs set state = 'running', error = null, touched_at = $5
           where id = (select max(id) from reconcile_runs
                       where state <> 'finished' and night is not distinct from $1
                         and ($1::date is not null
                              or sources = $2 and mode = $3 and given_since is not distinct from $4
                                 and begun_at > $5::timestamptz - make_interval(secs => 3600 * $6::float8)))
           returning id as "id: RunId", night, sources, since, until, mode, state, step, cursor, tallies, totals, error, begun_at,
                     touched_at, finished_at"#,
        wish.night,
        &sources as &[&str],
        wish.mode.as_str(),
        wish.since,
        now,
        TAKEN_UP_WITHIN_HOURS
    )
    .fetch_optional(conn)
    .await?;
    row.map(runs::Row::run).transpose()
}

/// Begins a run. The lock is held, so what another one has left by then is nobody's any more.
pub async fn begin(
    conn: &mut PgConnection,
    wish: &Wish,
    since: OffsetDateTime,
    until: OffsetDateTime,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Run>> {
    tidy(&mut *conn, now).await?;
    let sources: Vec<&str> = wish.sources.iter().map(|s| s.as_str()).collect();
    let row = sqlx::query_as!(
        runs::Row,
        r#"insert into reconcile_runs (night, sources, since, given_since, until, mode, begun_at, touched_at)
           values ($1, $2, $3, $4, $5, $6, $7, $7)
           on conflict (night) do nothing
           returning id as "id: RunId", night, sources, since, until, mode, state, step, cursor, tallies, totals, error, begun_at,
                     touched_at, finished_at"#,
        wish.night,
        &sources as &[&str],
        since,
        wish.since,
        until,
        wish.mode.as_str(),
        now
    )
    .fetch_optional(conn)
    .await?;
    row.map(runs::Row::run).transpose()
}

/// Gives up runs that nobody takes up any more, and deletes what is left of them and of old ones. One that may still be taken up
/// keeps its copy of the books: without it everything of ours would be missing in theirs.
async fn tidy(conn: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!(
        "update reconcile_runs
         set state = 'failed', error = 'given up: it was left unfinished, and later runs have begun' || coalesce('; ' || error, '')
         where begun_at <= $1::timestamptz - make_interval(secs => 3600 * $2::float8)
           and (state = 'running' or state = 'failed' and coalesce(error, '') not like 'given up: %')",
        now,
        TAKEN_UP_WITHIN_HOURS
    )
    .execute(&mut *conn)
    .await?;
    let over = sqlx::query_scalar!(
        r#"select id as "id: RunId" from reconcile_runs r
           where (state = 'finished' or begun_at <= $1::timestamptz - make_interval(secs => 3600 * $2::float8))
             and exists (select 1 from reconcile_books b where b.run_id = r.id)"#,
        now,
        TAKEN_UP_WITHIN_HOURS
    )
    .fetch_all(&mut *conn)
    .await?;
    for run in over {
        books::forget(&mut *conn, run).await?;
    }
    let old = sqlx::query_scalar!(
        r#"select id as "id: RunId" from reconcile_runs r
           where begun_at < $1::timestamptz - make_interval(secs => 86400 * $2::float8)
             and exists (select 1 from reconcile_findings f where f.run_id = r.id)"#,
        now,
        FINDINGS_KEPT_DAYS
    )
    .fetch_all(&mut *conn)
    .await?;
    for run in old {
        forget_findings(&mut *conn, run).await?;
    }
    Ok(())
}

async fn forget_findings(conn: &mut PgConnection, run: RunId) -> sqlx::Result<()> {
    loop {
        let gone = sqlx::query!(
            "delete from reconcile_findings
             where ctid = any (array(select ctid from reconcile_findings where run_id = $1 limit $2))",
            run.0,
            books::BATCH
        )
        .execute(&mut *conn)
        .await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
    }
}

/// Whether a night still has to be done: not begun, left by a process that died, or failed a while ago.
pub async fn is_due(conn: &mut PgConnection, night: Date, now: OffsetDateTime, again_minutes: f64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select not exists (
               select 1 from reconcile_runs
               where night = $1
                 and (state = 'finished' or state = 'failed' and touched_at > $2::timestamptz - make_interval(secs => 60 * $3::float8)))
               as "is!""#,
        night,
        now,
        again_minutes
    )
    .fetch_one(conn)
    .await
}

/// Where the run is, and what it counted on the way: together, so that a page counts once.
pub async fn note(conn: &mut PgConnection, run: &Run, clock: Clock) -> Result<(), Error> {
    let tallies = serde_json::to_value(&run.tallies).map_err(|error| Error::Note(error.to_string()))?;
    sqlx::query!(
        "update reconcile_runs set step = $2, cursor = $3, tallies = $4, touched_at = coalesce($5, now()) where id = $1",
        run.id.0,
        run.step,
        run.cursor,
        tallies,
        clock.param()
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn fail(conn: &mut PgConnection, run: RunId, why: &str, clock: Clock) -> sqlx::Result<()> {
    sqlx::query!(
        "update reconcile_runs set state = 'failed', error = $2, touched_at = coalesce($3, now()) where id = $1",
        run.0,
        why,
        clock.param()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The end of a run: its copy of the provider's books goes.
pub async fn finish(conn: &mut PgConnection, run: RunId, totals: &[Total], clock: Clock) -> Result<(), Error> {
    let totals = serde_json::to_value(totals).map_err(|error| Error::Note(error.to_string()))?;
    sqlx::query!(
        "update reconcile_runs
         set state = 'finished', cursor = null, totals = $2, touched_at = coalesce($3, now()), finished_at = coalesce($3, now())
         where id = $1",
        run.0,
        totals,
        clock.param()
    )
    .execute(&mut *conn)
    .await?;
    // The run is done all the same; the next one deletes what is left.
    if let Err(error) = books::forget(&mut *conn, run).await {
        tracing::warn!(%run, %error, "the copy of the provider's books could not be deleted");
    }
    Ok(())
}

/// Notes differences. One that the run has noted already stays as it is.
pub async fn found(conn: &mut PgConnection, run: RunId, all: &[Suspect], clock: Clock) -> Result<(), Error> {
    for one in all {
        let question = one.question.as_ref().map(serde_json::to_value).transpose();
        let question = question.map_err(|error| Error::Note(error.to_string()))?;
        sqlx::query!(
            "insert into reconcile_findings (run_id, class, source, subject, account_id, customer, ours, theirs, done, state,
                                             question, found_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, coalesce($12, now()))
             on conflict (run_id, class, source, subject) do nothing",
            run.0,
            one.class.as_str(),
            one.source.as_str(),
            one.subject,
            one.account.map(|account| account.0),
            one.customer.as_ref().map(CustomerId::as_str),
            one.ours,
            one.theirs,
            one.done,
            one.state.as_str(),
            question,
            clock.param()
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// It turned out to be none.
pub async fn drop_finding(conn: &mut PgConnection, id: FindingId) -> sqlx::Result<()> {
    sqlx::query!("delete from reconcile_findings where id = $1", id.0).execute(conn).await?;
    Ok(())
}

/// It turned out to be none: the event came by itself.
pub async fn drop_event(conn: &mut PgConnection, run: RunId, source: Source, key: &str) -> sqlx::Result<()> {
    let class = Class::EventMissing.as_str();
    sqlx::query!(
        "delete from reconcile_findings where run_id = $1 and class = $2 and source = $3 and subject = $4",
        run.0,
        class,
        source.as_str(),
        key
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The event of theirs that was stored.
pub async fn stored(conn: &mut PgConnection, run: RunId, source: Source, key: &str, event: EventId) -> sqlx::Result<()> {
    let class = Class::EventMissing.as_str();
    sqlx::query!(
        "update reconcile_findings set event_id = $5 where run_id = $1 and class = $2 and source = $3 and subject = $4",
        run.0,
        class,
        source.as_str(),
        key,
        event.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What is known of a difference by now.
#[derive(Debug, Clone)]
pub struct News {
    pub state: State,
    pub ours: String,
    pub theirs: String,
    pub done: String,
    pub event: Option<EventId>,
}

pub async fn settle(conn: &mut PgConnection, id: FindingId, news: &News) -> sqlx::Result<()> {
    sqlx::query!(
        "update reconcile_findings set state = $2, ours = $3, theirs = $4, done = $5, event_id = $6 where id = $1",
        id.0,
        news.state.as_str(),
        news.ours,
        news.theirs,
        news.done,
        news.event.map(|event| event.0)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A difference that is to be looked at again.
pub struct Pending {
    pub finding: Finding,
    pub question: Option<Question>,
}

/// The findings of a run in one state, `limit` of them after `after`.
pub async fn in_state(
    conn: &mut PgConnection,
    run: RunId,
    state: State,
    after: FindingId,
    limit: i64,
) -> Result<Vec<Pending>, Error> {
    let rows = sqlx::query!(
        r#"select id as "id: FindingId", run_id as "run: RunId", class, source, subject, account_id as "account: AccountId", customer,
                  ours, theirs, done, state, event_id as "event: EventId", found_at, question
           from reconcile_findings where run_id = $1 and state = $2 and id > $3 order by id limit $4"#,
        run.0,
        state.as_str(),
        after.0,
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|r| {
            let question: Option<Value> = r.question;
            let question = question.map(serde_json::from_value).transpose().map_err(|error| Error::Note(error.to_string()))?;
            let row = findings::Row {
                id: r.id,
                run: r.run,
                class: r.class,
                source: r.source,
                subject: r.subject,
                account: r.account,
                customer: r.customer,
                ours: r.ours,
                theirs: r.theirs,
                done: r.done,
                state: r.state,
                event: r.event,
                found_at: r.found_at,
            };
            Ok(Pending { finding: row.finding()?, question })
        })
        .collect()
}
