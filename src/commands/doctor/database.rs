//! The database: can it be reached, is it durable, as new as this program, and may our role do what has to be done there? What
//! goes on in it is looked at in `upkeep`.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};
use time::OffsetDateTime;

use super::line::Line;
use super::{chain, upkeep};
use crate::config::Config;
use crate::db::{self, schema};
use crate::postgres::{Cluster, Durability, Settings};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The oldest major version that still gets fixes.
const OLDEST: i32 = 14;
/// What `bottle serve` opens at most: its pools, and the Engine Room's.
const CONNECTIONS_OF_A_PROCESS: i64 = 25;
/// Leases, retries and Stripe's signatures are counted in time.
const CLOCK_WARNING: f64 = 2.0;
const CLOCK_WRONG: f64 = 60.0;

pub async fn look(config: &Config) -> Vec<Line> {
    let options = match options(config).await {
        Ok(options) => options,
        Err(line) => return vec![line],
    };
    let mut conn = match connected(&options).await {
        Ok(conn) => conn,
        Err(words) => {
            let todo =
                "start it, or mend DATABASE_URL; until then every delivery is answered with 503, and its provider comes again";
            return vec![Line::wrong("database", words, todo)];
        }
    };
    let mut lines = Vec::new();
    let schema = schema::missing(&mut conn).await;
    match server(&mut conn).await {
        Ok(found) => lines.extend(found),
        Err(error) => lines.push(unanswered("database", &error)),
    }
    let _ = conn.close().await;
    let pool = db::pool(&options, db::Use::Cli);
    lines.push(durability(&pool, config).await);
    lines.push(standing(&schema));
    // Of another schema nothing is known.
    if matches!(&schema, Ok(missing) if missing.is_empty()) {
        lines.extend(rights(&pool).await.unwrap_or_else(|error| vec![unanswered("rights", &error)]));
        lines.extend(upkeep::look(&pool).await.unwrap_or_else(|error| vec![unanswered("upkeep", &error)]));
    }
    pool.close().await;
    lines
}

/// Nothing is started to be looked at.
async fn options(config: &Config) -> Result<PgConnectOptions, Line> {
    let database = &config.database;
    if let Some(url) = &database.url {
        let unreadable =
            || Line::wrong("database", "DATABASE_URL cannot be read", "write it like postgres://user:password@host/database");
        return url.reveal().parse().map_err(|_| unreadable());
    }
    let private = Settings { data: database.data.clone(), bin: database.bin.clone(), durability: Durability::Kept };
    Cluster::running(&private).await.ok_or_else(|| {
        let words = format!("no Bottle runs in {}, so its private PostgreSQL was not looked at", database.data.display());
        Line::warning("database", words, "start Bottle, and ask again; or set DATABASE_URL")
    })
}

async fn connected(options: &PgConnectOptions) -> Result<PgConnection, String> {
    let options =
        options.clone().application_name("bottle doctor").options([("statement_timeout", "5s"), ("lock_timeout", "2s")]);
    match tokio::time::timeout(CONNECT_WITHIN, options.connect()).await {
        Ok(Ok(conn)) => Ok(conn),
        Ok(Err(error)) => Err(format!("it cannot be reached: {}", chain(&error))),
        Err(_) => Err(format!("it does not answer within {} s", CONNECT_WITHIN.as_secs())),
    }
}

pub(super) fn unanswered(check: &'static str, error: &sqlx::Error) -> Line {
    Line::wrong(check, format!("the database did not say: {}", chain(error)), "ask again; if it stays so, look into its log")
}

async fn server(conn: &mut PgConnection) -> sqlx::Result<Vec<Line>> {
    let began = Instant::now();
    let told = sqlx::query!(
        r#"select current_setting('server_version') as "version!", current_setting('server_version_num')::int / 10000 as "major!",
                  clock_timestamp() as "now!", pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' as "read_only!",
                  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint as "most!",
                  (select count(*) from pg_stat_activity where backend_type = 'client backend') as "open!""#
    )
    .fetch_one(conn)
    .await?;
    let (took, ours) = (began.elapsed(), OffsetDateTime::now_utc());
    let words = format!("PostgreSQL {} answers in {:.1} ms", told.version, took.as_secs_f64() * 1000.0);
    let mut lines = vec![if told.read_only {
        Line::wrong("database", format!("{words}, but takes no writes"), "let DATABASE_URL lead to the primary")
    } else if told.major < OLDEST {
        Line::warning("database", format!("{words}, and gets no fixes any more"), "move to a newer PostgreSQL")
    } else {
        Line::ok("database", words)
    }];
    let left = told.most - told.open;
    lines.push(if left < CONNECTIONS_OF_A_PROCESS {
        Line::warning(
            "connections",
            format!("{left} of {} are free, and a process of Bottle opens up to {CONNECTIONS_OF_A_PROCESS}", told.most),
            "raise max_connections, or run fewer processes",
        )
    } else {
        Line::ok("connections", format!("{left} of {} are free", told.most))
    });
    // Half of the way is what the answer took to come back.
    let apart = (ours - told.now).as_seconds_f64() - took.as_secs_f64() / 2.0;
    lines.push(clock("the database's", apart, 0.0));
    Ok(lines)
}

/// `coarse`: that clock told its time in whole seconds.
pub(super) fn clock(whose: &str, apart: f64, coarse: f64) -> Line {
    let words = format!("this machine's is {apart:+.1} s from {whose}");
    let todo = "set the machine's clock by NTP: signatures that are older than five minutes are refused";
    match apart.abs() - coarse {
        off if off > CLOCK_WRONG => Line::wrong("clock", words, todo),
        off if off > CLOCK_WARNING => Line::warning("clock", words, todo),
        _ => Line::ok("clock", words),
    }
}

async fn durability(pool: &PgPool, config: &Config) -> Line {
    match db::lossy_setting(pool).await {
        Ok(None) => Line::ok("durability", "what is committed survives a power cut"),
        Ok(Some(setting)) => {
            let words = format!("{setting} is off: a power cut can lose events that were acknowledged");
            let todo = format!("turn {setting} on for this server and this role");
            if config.is_production() { Line::wrong("durability", words, todo) } else { Line::warning("durability", words, todo) }
        }
        Err(error) => unanswered("durability", &error),
    }
}

fn standing(schema: &Result<Vec<i64>, db::Error>) -> Line {
    match schema {
        Ok(missing) if missing.is_empty() => Line::ok("schema", format!("is current (migration {})", schema::newest())),
        Ok(missing) => Line::wrong(
            "schema",
            format!("{} migration(s) are missing, from {} on", missing.len(), missing[0]),
            "run `bottle migrate` as the role that owns the database, or start Bottle as that role",
        ),
        Err(error @ (db::Error::Newer(_) | db::Error::Changed(_))) => {
            Line::wrong("schema", error.to_string(), "run the release that this database belongs to")
        }
        Err(error) => Line::wrong("schema", chain(error), "ask again; if it stays so, look into the database's log"),
    }
}

/// What a run does to each table. docs/grants.sql gives just this, and a test holds the two together.
const NEEDS: &[(&str, &str)] = &[
    ("inbox_events", "select, insert, update"),
    ("receipts", "select, insert, delete"),
    ("conflicts", "select, insert"),
    ("replays", "select, insert"),
    ("accounts", "select, insert, update"),
    ("installation", "select, insert"),
    ("customer_map", "select, insert"),
    ("facts", "select, insert, delete"),
    ("event_runs", "select, insert"),
    ("ledger", "select, insert"),
    ("money_ledger", "select, insert"),
    ("purchases", "select, insert, update"),
    ("sessions", "select, insert, update, delete"),
    ("alerts", "select, insert, update"),
    ("alert_messages", "select, insert, update"),
    ("provider_seen", "select, insert, update"),
    ("worker_pauses", "select, insert, update, delete"),
    ("reminders", "select, insert, update"),
    ("reminders_id_seq", "usage"),
    ("calendar_feeds", "select, insert, update, delete"),
    ("outbox", "select, insert, update"),
    ("checkouts", "select, insert, update, delete"),
    ("event_notes", "select, insert"),
    ("operator_actions", "select, insert"),
    ("bulk_replays", "select, insert, update"),
    ("bulk_replay_results", "select, insert, update"),
    ("reconcile_runs", "select, insert, update"),
    ("reconcile_findings", "select, insert, update, delete"),
    ("reconcile_books", "select, insert, delete"),
];

async fn rights(pool: &PgPool) -> sqlx::Result<Vec<Line>> {
    let wanted: Vec<(&str, &str)> =
        NEEDS.iter().flat_map(|(table, rights)| rights.split(", ").map(move |right| (*table, right))).collect();
    let (tables, rights): (Vec<String>, Vec<String>) =
        wanted.iter().map(|(table, right)| ((*table).to_owned(), (*right).to_owned())).unzip();
    // A table that is not there in a schema that is current was made for another search path.
    let lacking = sqlx::query_scalar!(
        r#"select format('%s on %s', r, t) as "lacking!" from unnest($1::text[], $2::text[]) as w (t, r)
           where not coalesce(case r when 'usage' then has_sequence_privilege(current_user, to_regclass(t), r)
                              else has_table_privilege(current_user, to_regclass(t), r) end, false) order by 1"#,
        &tables,
        &rights
    )
    .fetch_all(pool)
    .await?;
    let who = sqlx::query!(
        r#"select current_user::text as "name!", rolsuper as "superuser!",
                  coalesce(has_schema_privilege(current_user, current_schema(), 'create'), false) as "makes!"
           from pg_roles where rolname = current_user"#
    )
    .fetch_one(pool)
    .await?;
    if !lacking.is_empty() {
        let words = format!("the role {} lacks {}", who.name, lacking.join(", "));
        return Ok(vec![Line::wrong("rights", words, "run docs/grants.sql as the role that owns the database")]);
    }
    Ok(vec![if who.superuser {
        let words = format!("the role {} is a superuser, to whom nothing is refused", who.name);
        Line::warning("rights", words, "make roles of their own for Bottle with docs/roles.sql")
    } else if who.makes {
        Line::ok("rights", format!("the role {} may do what it has to, and change the schema too", who.name))
    } else {
        Line::ok("rights", format!("the role {} may do what it has to and no more; another one runs `bottle migrate`", who.name))
    }])
}
