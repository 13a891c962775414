//! `bottle check`: folds every account afresh and compares what is stored. Reads only; live workers go on meanwhile.

use std::collections::BTreeSet;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use sqlx::PgPool;

use crate::accounts;
use crate::billing::apply::Rules;
use crate::billing::check::{self, Difference};
use crate::clock::Clock;
use crate::config::Config;
use crate::db;
use crate::domain::ids::AccountId;
use crate::domain::instant::Instant;

use super::database::Database;
use super::parts;

/// Accounts that are looked at in one moment of the database.
const PAGE: i64 = 500;

pub async fn run(config: Config) -> anyhow::Result<ExitCode> {
    let database = Database::attach(&config).await?;
    let pool = db::pool(&database.options, db::Use::Cli);
    let rules = parts::rules(&config);
    parts::check_tenant(&pool, &rules).await?;
    let done = all(&pool, &rules).await;
    pool.close().await;
    database.stop().await?;
    done
}

async fn all(pool: &PgPool, rules: &Rules) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new(accounts::count(pool).await?.unsigned_abs());
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} accounts, {eta} left")?);
    let (mut checked, mut wrong, mut first) = (0_usize, 0_usize, None);
    let mut after = AccountId(0);
    loop {
        let (ids, differences) = page(pool, rules, after).await?;
        let Some(last) = ids.last() else { break };
        after = *last;
        checked += ids.len();
        wrong += differences.len();
        first = first.or_else(|| differences.into_iter().next());
        bar.inc(ids.len() as u64);
    }
    bar.finish_and_clear();
    say!("{} checked.", super::counted(checked, "account"));
    let Some(first) = first else {
        say!("Plans, bottles and money are what the facts give.");
        return Ok(ExitCode::SUCCESS);
    };
    say!("{} found. The first: {first}", super::counted(wrong, "difference"));
    Ok(ExitCode::FAILURE)
}

async fn page(pool: &PgPool, rules: &Rules, after: AccountId) -> anyhow::Result<(BTreeSet<AccountId>, Vec<Difference>)> {
    // Facts and what came of them, as of one moment.
    let mut tx = pool.begin_with("begin transaction isolation level repeatable read, read only").await?;
    let now = Instant::from_datetime(Clock::Database.now(&mut *tx).await?);
    let ids: BTreeSet<AccountId> = accounts::page_of_ids(&mut tx, after, PAGE).await?.into_iter().collect();
    let differences = check::accounts(&mut tx, &ids, rules, now).await?;
    tx.rollback().await?;
    Ok((ids, differences))
}
