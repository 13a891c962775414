//! `bottle events`: what arrived last, what became of it, and where that left the accounts.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;

use crate::accounts;
use crate::config::Config;
use crate::db;
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::inbox::history;
use crate::ledger;

use super::database::Database;

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// How many of the latest
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
}

pub async fn run(config: Config, args: EventsArgs) -> anyhow::Result<ExitCode> {
    let database = Database::attach(&config).await?;
    let pool = db::pool(&database.options, db::Use::Cli);
    let done = list(&pool, args.limit).await;
    pool.close().await;
    database.stop().await?;
    done
}

async fn list(pool: &sqlx::PgPool, limit: i64) -> anyhow::Result<ExitCode> {
    let events = history::latest(pool, limit).await?;
    if events.is_empty() {
        say!("No event has been stored yet.");
        return Ok(ExitCode::SUCCESS);
    }
    for event in &events {
        let received = Instant::from_datetime(event.received_at).to_string();
        let reason = event.reason.as_deref().unwrap_or("not run yet");
        say!("{:.19}  {}  {:<10}  seen {:<3} {}", received, event.key, event.status, event.seen_count, event.kind);
        say!("    {reason}");
    }
    let mut conn = pool.acquire().await?;
    let now = Instant::from_datetime(crate::clock::Clock::Database.now(&mut *conn).await?);
    let period = Period::of(now);
    for account in events.iter().filter_map(|e| e.account).collect::<BTreeSet<_>>() {
        let Some((user, standing)) = accounts::overview(&mut conn, account).await? else { continue };
        let bottles = ledger::balance(&mut conn, account, period).await?;
        say!("{user}: {}, {bottles} bottles left in {period}", standing.plan_at(now));
    }
    Ok(ExitCode::SUCCESS)
}
