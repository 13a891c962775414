//! `bottle engine-room`: the nine deliveries, or every order of them, for a terminal or another program.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::config::Config;
use crate::engine_room::scenario::Script;
use crate::engine_room::stand::Stand;
use crate::engine_room::stop::Stop;
use crate::engine_room::{EveryOrderResult, every_order, run};

use super::database::Database;

#[derive(Debug, Args)]
pub struct EngineRoomArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Run all 504 orders with each of 25 stops
    #[arg(long, conflicts_with_all = ["script", "stop"])]
    every_order: bool,
    /// Deliveries in order of arrival, e.g. UP.PAY.UP.OLD
    #[arg(long, value_name = "DELIVERIES")]
    script: Option<String>,
    /// Where the process stops, e.g. 2-halfway, 1-before-store, 3-after-store, 2-before-mark, or none
    #[arg(long, value_name = "STOP")]
    stop: Option<String>,
}

pub async fn run(config: Config, args: EngineRoomArgs) -> anyhow::Result<ExitCode> {
    let script = match script(&args) {
        Ok(script) => script,
        Err(wrong) => {
            eprintln!("bottle engine-room: {wrong}");
            return Ok(ExitCode::from(2));
        }
    };
    let database = Database::attach(&config).await?;
    let stand = Stand::build(&database.options).await?;
    // What happens in the room is no live event: the log does not speak of it.
    let quiet = NoSubscriber::new();
    let done = match args.every_order {
        true => every(&stand, args.json).with_subscriber(quiet).await,
        false => one(&stand, &script, args.json).with_subscriber(quiet).await,
    };
    stand.pool.close().await;
    database.stop().await?;
    done
}

fn script(args: &EngineRoomArgs) -> anyhow::Result<Script> {
    let article = Script::article();
    let deliveries = match &args.script {
        Some(text) => Script::parse_deliveries(text)?,
        None => article.deliveries().to_vec(),
    };
    let stop: Option<Stop> = match args.stop.as_deref() {
        Some("none") => None,
        Some(text) => Some(text.parse()?),
        None if args.script.is_some() => None,
        None => article.stop(),
    };
    Ok(Script::new(deliveries, stop)?)
}

async fn one(stand: &Stand, script: &Script, json: bool) -> anyhow::Result<ExitCode> {
    let run = run::run(stand, script).await?;
    if json {
        say!("{}", serde_json::to_string_pretty(&run.json())?);
    } else {
        say!("{}", run.table().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

async fn every(stand: &Stand, json: bool) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} schedules, {eta} left")?);
    let result = every_order::run(stand, |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })
    .await?;
    bar.finish_and_clear();
    print(&result, json)?;
    if result.ended_right != result.schedules || result.one_grant != result.schedules {
        bail!("not every schedule ended as it should");
    }
    Ok(ExitCode::SUCCESS)
}

fn print(result: &EveryOrderResult, json: bool) -> anyhow::Result<()> {
    let spread: Vec<_> = result
        .naive_spread
        .iter()
        .map(|(end, schedules)| json!({ "plan": end.plan.as_str(), "balance": end.balance, "schedules": schedules }))
        .collect();
    if json {
        let all = json!({
            "schedules": result.schedules, "ended_right": result.ended_right, "one_grant": result.one_grant,
            "took_ms": result.took.as_millis(), "naive": spread,
        });
        say!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    say!(
        "{} schedules in {:.1} s: {} ended at pro and 500, {} with exactly one grant.\nThe naive handler ended in {} different states:",
        result.schedules,
        result.took.as_secs_f64(),
        result.ended_right,
        result.one_grant,
        result.naive_spread.len()
    );
    for (end, schedules) in &result.naive_spread {
        say!("  {schedules:>6} × {} {}", end.plan, end.balance);
    }
    Ok(())
}
