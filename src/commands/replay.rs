//! `bottle replay`: puts stored events back in the queue and waits until each has run again.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoints;
use crate::config::Config;
use crate::db;
use crate::domain::event::Status;
use crate::domain::ids::EventId;
use crate::domain::instant::Instant;
use crate::inbox::history::{self, Event, Filter};
use crate::replay::{self, Rehearsal};
use crate::wake::Wake;
use crate::worker;
use crate::worker::process::Engine;

use super::database::Database;
use super::parts::{self, Keys};

/// A dry run reads this many events in one transaction: a longer one would keep dead rows from being cleaned up.
const REHEARSED_AT_ONCE: usize = 100;
/// More than this at once is somebody's mistake.
const EVENTS_MAX: i64 = 100_000;

/// How often a command that waits looks whether it is done.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Events, by the provider's event id or by ours
    #[arg(value_name = "EVENT")]
    events: Vec<String>,
    /// Events received since this time; alone it means those that are neither applied nor ignored
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only events in these states
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<Status>,
    /// Only events of these types, e.g. customer.plan_changed
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before replaying many
    #[arg(long)]
    yes: bool,
}

pub async fn run(config: Config, args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let filter = match args.filter() {
        Ok(filter) => filter,
        Err(wrong) => {
            eprintln!("bottle replay: {wrong:#}");
            return Ok(ExitCode::from(2));
        }
    };
    let database = Database::attach(&config).await?;
    let pool = db::pool(&database.options, db::Use::Cli);
    let kinde = super::serve::tenant(&config);
    let jwks = kinde.as_ref().map(|kinde| parts::keys(kinde, Keys::WhenNeeded)).transpose()?;
    let providers = Arc::new(parts::providers(&config, kinde.as_ref().zip(jwks.as_ref()))?);
    let rules = parts::rules(&config);
    parts::check_tenant(&pool, &rules).await?;
    // Its own limits: a handler's transaction may not last as long as a command's look around.
    let engine = parts::engine(db::pool(&database.options, db::Use::Worker), providers, rules, Checkpoints::default());

    let done = replay(&pool, engine, &filter, &args).await;
    pool.close().await;
    database.stop().await?;
    done
}

async fn replay(pool: &PgPool, engine: Engine, filter: &Filter, args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let found = history::find(pool, filter, EVENTS_MAX + 1).await?;
    if i64::try_from(found.len())? > EVENTS_MAX {
        bail!("more than {EVENTS_MAX} events match; narrow it with --status, --type or a later --since");
    }
    let is_found = |wanted: &String| found.iter().any(|e| e.key.0 == *wanted || e.id.to_string() == *wanted);
    let missing: Vec<&String> = filter.keys.iter().filter(|wanted| !is_found(wanted)).collect();
    for wanted in &missing {
        eprintln!("No stored event {wanted}.");
    }
    if !missing.is_empty() && (!args.status.is_empty() || !args.kinds.is_empty() || args.since.is_some()) {
        eprintln!("(None, that is, which --since, --status and --type let through.)");
    }
    // Somebody who mistyped one id of several should find that out before the others run.
    if !missing.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if found.is_empty() {
        say!("No stored event matches.");
        if args.since.is_some() && args.status.is_empty() {
            say!("(--since alone leaves out what is applied or ignored; choose those with --status.)");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        return rehearse(pool, &engine, &found).await;
    }
    if found.len() > 1 && !args.yes && !confirmed(found.len())? {
        say!("Nothing was replayed.");
        return Ok(ExitCode::SUCCESS);
    }

    let ids: Vec<EventId> = found.iter().map(|e| e.id).collect();
    let requeued = replay::request_many(pool, &ids, &asked_by(), engine.clock).await?;
    for event in found.iter().filter(|e| !requeued.contains(&e.id)) {
        say!("{}  left alone: it is {} already", event.key, event.status);
    }
    follow(pool, engine, &requeued).await
}

async fn rehearse(pool: &PgPool, engine: &Engine, found: &[Event]) -> anyhow::Result<ExitCode> {
    for chunk in found.chunks(REHEARSED_AT_ONCE) {
        let ids: Vec<EventId> = chunk.iter().map(|e| e.id).collect();
        let mut tx = pool.begin_with(db::READ_ONLY).await?;
        let now = engine.clock.now(&mut *tx).await?;
        let rehearsed = replay::rehearse(&mut tx, &ids, &engine.rules, now).await?;
        tx.rollback().await?;
        for event in chunk {
            match rehearsed.get(&event.id) {
                None => {}
                Some(Rehearsal::WouldFail(why)) => say!("{}  would fail: {why}", event.key),
                Some(Rehearsal::Would(would)) if would.changes_nothing() => {
                    say!("{}  nothing would change ({})", event.key, would.verdict.reason);
                }
                Some(Rehearsal::Would(would)) => {
                    let effects = &would.verdict.effects;
                    let plan = effects.plan.iter().filter(|p| p.before != p.after);
                    let plan = plan.map(|p| format!("plan {} → {}", p.before, p.after));
                    let entries = effects.entries.iter().map(|e| format!("{:+} for {}", e.delta, e.period));
                    let changes = plan.chain(entries).collect::<Vec<_>>().join(", ");
                    say!("{}  {} [{changes}]", event.key, would.verdict.reason);
                }
            }
        }
    }
    say!("Nothing was changed: this was a dry run of {}.", super::counted(found.len(), "event"));
    Ok(ExitCode::SUCCESS)
}

/// Waits until every requeued event has its verdict. If no worker is at work on this database, it works itself meanwhile.
async fn follow(pool: &PgPool, engine: Engine, requeued: &[EventId]) -> anyhow::Result<ExitCode> {
    let stop = CancellationToken::new();
    let alone = !db::has_worker(pool).await?;
    let worker = alone.then(|| tokio::spawn(worker::run(engine, 1, Wake::default(), stop.clone())));
    let bar = ProgressBar::new(requeued.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} events, {eta} left")?);
    loop {
        let open = history::waiting(pool, requeued).await?;
        bar.set_position((requeued.len() as u64).saturating_sub(u64::try_from(open)?));
        if open == 0 {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => {
                say!("Not ended yet: {}; a running worker goes on with what waits.", super::counted(usize::try_from(open)?, "event"));
                break;
            }
        }
    }
    bar.finish_and_clear();
    stop.cancel();
    if let Some(worker) = worker {
        worker.await?;
    }
    let events = history::of_ids(pool, requeued).await?;
    let mut bad = 0;
    for event in &events {
        say!("{}  {:<8} {}", event.key, event.status, event.reason.as_deref().unwrap_or("no reason stored"));
        bad += usize::from(!matches!(event.status, Status::Applied | Status::Ignored | Status::Parked));
    }
    say!("{} replayed.", super::counted(events.len(), "event"));
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl ReplayArgs {
    fn filter(&self) -> anyhow::Result<Filter> {
        if self.events.is_empty() && self.since.is_none() && self.status.is_empty() && self.kinds.is_empty() {
            bail!("name events, or choose them with --since, --status or --type");
        }
        let since = match &self.since {
            Some(text) => Some(moment(text)?.datetime()),
            None => None,
        };
        let unfinished = || vec![Status::Received, Status::Failed, Status::Parked, Status::Dead];
        let only_since = self.events.is_empty() && self.status.is_empty();
        let statuses = if only_since && since.is_some() { unfinished() } else { self.status.clone() };
        Ok(Filter { keys: self.events.clone(), since, statuses, kinds: self.kinds.clone() })
    }
}

fn confirmed(events: usize) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{events} events match; say --yes to replay them without being asked");
    }
    let mut out = std::io::stdout().lock();
    write!(out, "Replay {events} events? [y/N] ").and_then(|()| out.flush())?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn asked_by() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned());
    format!("{user} (command line)")
}

/// A time, or a day, which means its beginning.
pub(super) fn moment(text: &str) -> anyhow::Result<Instant> {
    let day = text.len() == "2026-10-21".len();
    let read = if day { Instant::parse(&format!("{text}T00:00:00Z")) } else { Instant::parse(text) };
    read.map_err(|_| anyhow::anyhow!("--since: `{text}` is no time; write it like 2026-10-21 or 2026-10-21T10:00:00Z"))
}
