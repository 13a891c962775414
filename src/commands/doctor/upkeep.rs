//! What goes on in the database: is somebody at work, does something wait for a person, and will it still run in years?

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use super::line::Line;
use crate::db;
use crate::domain::ids::EventId;
use crate::inbox::watch;
use crate::worker::pause;

const OVERDUE: Duration = Duration::from_secs(5 * 60);
const PARKED_LONG: Duration = Duration::from_secs(24 * 3600);
/// An open transaction keeps every dead row there is: the head of the queue grows long, and each claim walks through it.
const OLD_WARNING: f64 = 300.0;
const OLD_WRONG: f64 = 3600.0;
/// PostgreSQL begins to freeze by itself long before, and stops at two thousand millions.
const XIDS_WRONG: i64 = 1_000_000_000;
/// A queue's rows die as fast as events come; more of them than this is vacuum not keeping up.
const DEAD_ROWS: i64 = 100_000;

pub async fn look(pool: &PgPool) -> sqlx::Result<Vec<Line>> {
    let mut lines = vec![worker(pool).await?];
    let mut conn = pool.acquire().await?;
    lines.extend(paused(&mut conn).await?);
    lines.extend(events(&mut conn).await?);
    lines.push(old_transactions(&mut conn).await?);
    lines.push(vacuum(&mut conn).await?);
    Ok(lines)
}

async fn worker(pool: &PgPool) -> sqlx::Result<Line> {
    Ok(if db::has_worker(pool).await? {
        Line::ok("worker", "one is connected")
    } else {
        Line::wrong(
            "worker",
            "none is connected: what is delivered is stored and not applied",
            "start `bottle serve` or `bottle worker`",
        )
    })
}

async fn paused(conn: &mut PgConnection) -> sqlx::Result<Option<Line>> {
    Ok(pause::paused(conn).await?.into_iter().next().map(|fingerprint| {
        let words = format!("a worker is paused, as every event fails alike: {fingerprint}");
        Line::wrong("worker", words, "read the error; go back to the last release, or mend this one; nothing is lost meanwhile")
    }))
}

async fn events(conn: &mut PgConnection) -> sqlx::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let dead = watch::dead(conn).await?;
    if !dead.is_empty() {
        let words = format!("{} did not go through: {}", counted(&dead), named(&dead));
        lines.push(Line::wrong("events", words, "read why with `bottle events`, mend it, and run `bottle replay --status dead`"));
    }
    let overdue = watch::overdue(conn, OVERDUE).await?;
    if !overdue.is_empty() {
        let words = format!("{} fell due more than five minutes ago: {}", counted(&overdue), named(&overdue));
        lines.push(Line::wrong("events", words, "look whether a worker runs, and what its log says"));
    }
    let parked = watch::parked(conn, PARKED_LONG).await?;
    if !parked.is_empty() {
        let words = format!(
            "{} wait for more than a day for what tells whose they are or what their plan is: {}",
            counted(&parked),
            named(&parked)
        );
        lines.push(Line::warning(
            "events",
            words,
            "read what each waits for; a plan key is named in BOTTLE_PRO_PLAN_KEYS or BOTTLE_FREE_PLAN_KEYS",
        ));
    }
    if lines.is_empty() {
        lines.push(Line::ok("events", "none is dead, overdue, or parked for more than a day"));
    }
    Ok(lines)
}

fn counted(events: &[EventId]) -> String {
    match i64::try_from(events.len()) {
        Ok(1) => "one event".to_owned(),
        Ok(n) if n < watch::NAMED => format!("{n} events"),
        _ => format!("{} events or more", watch::NAMED),
    }
}

fn named(events: &[EventId]) -> String {
    let mut text = events.iter().take(5).map(|id| id.0.to_string()).collect::<Vec<_>>().join(", ");
    if events.len() > 5 {
        text += ", …";
    }
    text
}

/// Whatever keeps rows from being cleared away: transactions, prepared ones, and replicas that stay behind.
async fn old_transactions(conn: &mut PgConnection) -> sqlx::Result<Line> {
    let told = sqlx::query!(
        r#"select (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
                   where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()) as "open!",
                  (select coalesce(max(extract(epoch from clock_timestamp() - prepared)), 0)::float8 from pg_prepared_xacts) as "prepared!",
                  (select count(*) from pg_replication_slots where not active and (xmin is not null or catalog_xmin is not null)) as "slots!",
                  pg_has_role(current_user, 'pg_read_all_stats', 'member') as "sees_all!""#
    )
    .fetch_one(conn)
    .await?;
    Ok(transactions(told.open.max(told.prepared), told.slots, told.sees_all))
}

fn transactions(secs: f64, slots: i64, sees_all: bool) -> Line {
    let todo = "end it (pg_terminate_backend, rollback prepared); while it is open no dead row can be cleared away";
    let words = format!("the oldest has been open for {secs:.0} s");
    if secs > OLD_WRONG {
        Line::wrong("transactions", words, todo)
    } else if secs > OLD_WARNING {
        Line::warning("transactions", words, todo)
    } else if slots > 0 {
        let words = format!("{slots} replication slot(s) that nobody reads keep dead rows alive");
        Line::warning("transactions", words, "bring the replica back, or drop its slot")
    } else if sees_all {
        Line::ok("transactions", words)
    } else {
        Line::ok("transactions", format!("{words}; those of other roles cannot be seen (grant pg_read_all_stats)"))
    }
}

async fn vacuum(conn: &mut PgConnection) -> sqlx::Result<Line> {
    let told = sqlx::query!(
        r#"select n_live_tup as "live!", n_dead_tup as "dead!", current_setting('autovacuum') = 'on' as "on!",
                  (select age(datfrozenxid)::bigint from pg_database where datname = current_database()) as "xids!"
           from pg_stat_user_tables where relid = 'inbox_events'::regclass"#
    )
    .fetch_one(conn)
    .await?;
    let words = format!("{} dead rows in the inbox beside {} live ones", told.dead, told.live);
    Ok(if !told.on {
        Line::wrong("vacuum", "autovacuum is off: tables only grow, and in the end the database stops", "turn autovacuum on")
    } else if told.xids > XIDS_WRONG {
        let words = format!("{} transactions since the oldest row was frozen", told.xids);
        Line::wrong("vacuum", words, "run `vacuum (freeze)`, and find what keeps autovacuum from it")
    } else if told.dead > DEAD_ROWS.max(told.live / 5) {
        Line::warning("vacuum", words, "look for long transactions, and whether autovacuum comes round")
    } else {
        Line::ok("vacuum", words)
    })
}

#[cfg(test)]
mod tests {
    use super::super::line::State;
    use super::*;

    #[test]
    fn what_keeps_dead_rows_alive_is_warned_of_after_minutes_and_wrong_after_an_hour() {
        let of = |secs, slots| transactions(secs, slots, true).state;
        assert_eq!(
            [of(0.0, 0), of(301.0, 0), of(3601.0, 0), of(0.0, 1), of(3601.0, 1)],
            [State::Ok, State::Warning, State::Wrong, State::Warning, State::Wrong]
        );
        assert!(transactions(0.0, 0, false).words.contains("pg_read_all_stats"));
    }

    #[test]
    fn many_are_counted_up_to_what_was_asked_for_and_few_are_named() {
        let ids = |n: i64| (1..=n).map(EventId).collect::<Vec<_>>();
        assert_eq!(
            (counted(&ids(1)), counted(&ids(2)), counted(&ids(20))),
            ("one event".into(), "2 events".into(), "20 events or more".into())
        );
        assert_eq!(named(&ids(6)), "1, 2, 3, 4, 5, …");
    }
}
