//! `bottle reconcile`: asks the providers what is true now, and tells what differs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::PgPool;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoints;
use crate::config::{Config, Kinde, M2m, Secret};
use crate::db;
use crate::domain::event::Source;
use crate::domain::instant::Instant;
use crate::domain::money::Currency;
use crate::local_kinde::server::machine_credentials;
use crate::providers::Providers;
use crate::reconcile::findings::{self, Class, Finding};
use crate::reconcile::runs::{Mode, Run, State};
use crate::reconcile::{self, Error, Reconciler, Wish};
use crate::wake::Wake;
use crate::worker;

use super::database::Database;
use super::parts::{self, Keys};

/// Findings that are read at once.
const PAGE: i64 = 500;
/// Somebody looks on.
const WAITED_FOR: Duration = Duration::from_secs(60);
/// Somebody sits there, or a job that has to end: a provider that stays away for longer is told of.
const PATIENCE: Duration = Duration::from_secs(2 * 60);

#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Only this provider: kinde or stripe [default: all that can be asked]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<Source>,
    /// Events and money from this time, or this day, on; plans are always compared [default: 29 days ago]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Fetch events that never came, and have plans that are out of date asked about again
    #[arg(long)]
    apply: bool,
    /// Exit with 1 if anything differs
    #[arg(long)]
    check: bool,
    /// Print everything that was found as JSON
    #[arg(long)]
    json: bool,
    /// Differences shown of each class
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    /// A difference is looked at again after so many seconds, and told only if it is still there
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    settle: u64,
}

pub async fn run(config: Config, args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let since = match args.since.as_deref().map(super::replay::moment).transpose() {
        Ok(since) => since.map(Instant::datetime),
        Err(wrong) => {
            eprintln!("bottle reconcile: {wrong}");
            return Ok(ExitCode::from(2));
        }
    };
    if args.provider == Some(Source::Bottle) {
        eprintln!("bottle reconcile: --provider: kinde or stripe");
        return Ok(ExitCode::from(2));
    }
    let kinde = super::serve::tenant(&config).map(|tenant| with_local_credentials(&config, tenant));
    let jwks = kinde.as_ref().map(|kinde| parts::keys(kinde, Keys::WhenNeeded)).transpose()?;
    let providers = Arc::new(parts::providers(&config, kinde.as_ref().zip(jwks.as_ref()))?);
    let sources = match wanted(&providers, args.provider) {
        Ok(sources) => sources,
        Err(why) => {
            eprintln!("bottle reconcile: {why}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let mode = if args.apply { Mode::Apply } else { Mode::Look };
    let wish = Wish { sources, since, mode, night: None };

    let database = Database::attach(&config).await?;
    let pool = db::pool(&database.options, db::Use::Reconcile);
    let rules = parts::rules(&config);
    parts::check_tenant(&pool, &rules).await?;
    let (wake, stop) = (Wake::default(), CancellationToken::new());
    let reconciler = parts::reconciler(pool.clone(), Arc::clone(&providers), rules.clone(), wake.clone(), stop.clone());
    let settle = Duration::from_secs(args.settle);
    let reconciler = Reconciler { settle, wait: WAITED_FOR, patience: PATIENCE, ..reconciler };
    // What is stored has to run: where no worker is at work, one is for as long as this lasts.
    let alone = mode == Mode::Apply && !db::has_worker(&pool).await?;
    let worker = alone.then(|| {
        let engine = parts::engine(db::pool(&database.options, db::Use::Worker), providers, rules, Checkpoints::default());
        tokio::spawn(worker::run(engine, 1, wake, stop.clone()))
    });
    let done = compare(&reconciler, &wish).await;
    stop.cancel();
    if let Some(worker) = worker {
        worker.await?;
    }
    let code = match done {
        Ok(run) => tell(&pool, &run, &args).await,
        Err(Error::Stopped) => {
            eprintln!("Stopped. The same command goes on where this was.");
            Ok(ExitCode::FAILURE)
        }
        Err(Error::Busy) => {
            eprintln!("bottle reconcile: another run is under way on this database; let it end first");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(anyhow::Error::new(error).context("it stopped; the same command goes on where it was")),
    };
    pool.close().await;
    database.stop().await?;
    code
}

/// The local Kinde beside a running Bottle has credentials that nobody configured.
fn with_local_credentials(config: &Config, tenant: Kinde) -> Kinde {
    if !config.wants_local_kinde() {
        return tenant;
    }
    let kept = machine_credentials(&config.database.data.join("local-kinde"));
    let m2m = kept.map(|(client_id, secret)| M2m { client_id, client_secret: Secret::new(secret) });
    Kinde { m2m, ..tenant }
}

/// The providers to be asked, or why that cannot be.
fn wanted(providers: &Providers, only: Option<Source>) -> Result<Vec<Source>, String> {
    let askable = reconcile::askable(providers);
    match only {
        Some(source) if askable.contains(&source) => Ok(vec![source]),
        Some(source) => Err(how_to_ask(source).to_owned()),
        None if askable.is_empty() => {
            Err(format!("no provider can be asked: {}; {}", how_to_ask(Source::Kinde), how_to_ask(Source::Stripe)))
        }
        None => Ok(askable),
    }
}

const fn how_to_ask(source: Source) -> &'static str {
    match source {
        Source::Kinde => {
            "Kinde is asked through its Management API: set KINDE_DOMAIN, KINDE_M2M_CLIENT_ID and KINDE_M2M_CLIENT_SECRET"
        }
        Source::Stripe => "Stripe is asked through its API: set STRIPE_SECRET_KEY, STRIPE_WEBHOOK_SECRET and STRIPE_PRICE_PRO",
        Source::Bottle => "Bottle is no provider",
    }
}

async fn compare(reconciler: &Reconciler, wish: &Wish) -> Result<Run, Error> {
    // Drawn on a terminal only.
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut seen = reconciler.progress.subscribe();
    let shown = async {
        while seen.changed().await.is_ok() {
            let now = seen.borrow_and_update().clone();
            bar.set_message(now.waits.unwrap_or(now.doing));
        }
    };
    let done = tokio::select! {
        done = async {
            tokio::select! {
                done = reconciler.run(wish) => done,
                () = shown => Err(Error::Stopped),
            }
        } => done,
        _ = tokio::signal::ctrl_c() => {
            reconciler.stop.cancel();
            Err(Error::Stopped)
        }
    };
    bar.finish_and_clear();
    done
}

async fn tell(pool: &PgPool, run: &Run, args: &ReconcileArgs) -> anyhow::Result<ExitCode> {
    let mut conn = pool.acquire().await?;
    let counts = findings::counts(&mut conn, run.id).await?;
    if args.json {
        print_json(&mut conn, run, &counts).await?;
    } else {
        print(&mut conn, run, &counts, args.show).await?;
    }
    let differs = !counts.is_empty();
    Ok(if differs && args.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn print(conn: &mut sqlx::PgConnection, run: &Run, counts: &[(Class, i64, i64)], show: usize) -> anyhow::Result<()> {
    let sources: Vec<&str> = run.sources.iter().map(|source| source.as_str()).collect();
    say!("Run {}: {}; events and money since {}.", run.id, sources.join(" and "), Instant::from_datetime(run.since));
    let looked: Vec<String> = reconcile::counts(&run.tallies).iter().map(|(what, n)| format!("{n} {what}")).collect();
    say!("Looked at: {}.", if looked.is_empty() { "nothing there was".to_owned() } else { looked.join(", ") });
    for total in &run.totals {
        let amount = |minor: i64| total.currency.parse().map_or(minor.to_string(), |c: Currency| c.amount(minor.into()));
        let word = if total.ours_minor == total.theirs_minor { "the same" } else { "DIFFERENT" };
        say!(
            "{} in {}: we have {}, they say {}: {word}.",
            total.source,
            total.currency.to_ascii_uppercase(),
            amount(total.ours_minor),
            amount(total.theirs_minor)
        );
    }
    if counts.is_empty() {
        say!("Nothing differs.");
        return Ok(());
    }
    for (class, all, repaired) in counts {
        say!("\n{} ({class}): {all}, {repaired} of them repaired.", class.title());
        let mut shown = 0;
        each(&mut *conn, run, |finding| {
            if finding.class == *class && shown < show {
                shown += 1;
                say!("  {}", line(finding));
            }
        })
        .await?;
        if usize::try_from(*all).is_ok_and(|all| all > shown) {
            say!("  … and {} more (--show, --json)", *all - i64::try_from(shown)?);
        }
        if repaired < all {
            say!("  What to do: {}.", class.advice());
        }
    }
    Ok(())
}

fn line(finding: &Finding) -> String {
    let account = finding.account.map_or_else(String::new, |account| format!(", account {account}"));
    let customer = finding.customer.as_ref().filter(|customer| **customer != finding.subject);
    let customer = customer.map_or_else(String::new, |customer| format!(", {customer}"));
    format!(
        "{} {}{account}{customer}: we have {}, they say {}. Done: {}.",
        finding.source, finding.subject, finding.ours, finding.theirs, finding.done
    )
}

/// Every finding of the run, a page at a time.
async fn each(conn: &mut sqlx::PgConnection, run: &Run, mut see: impl FnMut(&Finding)) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = findings::page(&mut *conn, run.id, after, PAGE).await?;
        page.iter().for_each(&mut see);
        match page.last() {
            Some(last) if i64::try_from(page.len())? == PAGE => after = Some(last.id),
            _ => return Ok(()),
        }
    }
}

/// One object; its findings are printed as they are read, however many there are.
async fn print_json(conn: &mut sqlx::PgConnection, run: &Run, counts: &[(Class, i64, i64)]) -> anyhow::Result<()> {
    let time = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
    let found: serde_json::Map<String, serde_json::Value> = counts
        .iter()
        .map(|(class, all, repaired)| (class.to_string(), serde_json::json!({"all": all, "repaired": repaired})))
        .collect();
    let head = serde_json::json!({
        "run": run.id,
        "state": State::as_str(run.state),
        "mode": run.mode.as_str(),
        "sources": run.sources.iter().map(|source| source.as_str()).collect::<Vec<_>>(),
        "since": time(run.since),
        "until": time(run.until),
        "looked_at": reconcile::counts(&run.tallies),
        "totals": run.totals,
        "found": found,
    });
    let head = head.to_string();
    // Open, for the findings to follow.
    say!("{},\"findings\":[", head.strip_suffix('}').unwrap_or(&head));
    let mut first = true;
    each(conn, run, |finding| {
        let one = serde_json::json!({
            "class": finding.class.as_str(),
            "provider": finding.source.as_str(),
            "subject": finding.subject,
            "account": finding.account,
            "customer": finding.customer,
            "ours": finding.ours,
            "theirs": finding.theirs,
            "done": finding.done,
            "state": finding.state.as_str(),
            "event": finding.event,
        });
        say!("{}{one}", if first { "" } else { "," });
        first = false;
    })
    .await?;
    say!("]}}");
    Ok(())
}
