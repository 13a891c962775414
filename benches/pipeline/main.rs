//! The pipeline against the database's own limit.
//!
//! `cargo bench --bench pipeline` runs all of it, `cargo bench --bench pipeline -- a b` some parts, `--quick` shorter ones.
//! Everything runs against one private PostgreSQL with its real durability, under `target/bench`, in one run; what counts are
//! the ratios. The load comes from programs that are not ours: wrk sends deliveries signed beforehand, pgbench runs the same
//! statements without Bottle. A run that lost a row fails.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

mod bottle;
mod claim;
mod cpu;
mod drain;
mod intake;
mod machine;
mod pgbench;
mod stand;
mod start;
mod table;
mod tokens;
mod wrk;

use stand::Stand;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Intake: signed deliveries over HTTP, durably stored
    A,
    /// Drain: stored events applied by the worker
    B,
    /// Claim: its latency with many finished and many waiting events
    C,
    /// Starting, and the idle process
    D,
}

#[derive(Debug, Parser)]
#[command(name = "pipeline")]
struct Options {
    /// Parts to run; none means all
    parts: Vec<Part>,
    /// Shorter runs, fewer sizes: for a look while working
    #[arg(long)]
    quick: bool,
    /// Cargo gives it
    #[arg(long, hide = true)]
    bench: bool,
}

/// How long and how often things are measured.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
    /// A run of load, in seconds.
    secs: u64,
    /// Rounds of a figure that has a goal; the middle one is shown.
    rounds: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipeline: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let effort = match options.quick {
        true => Effort { quick: true, secs: 2, rounds: 1 },
        false => Effort { quick: false, secs: 5, rounds: 3 },
    };
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let stand = Stand::build().await?;
    let done = async {
        machine::print(&stand, options).await?;
        if wanted(Part::A) {
            intake::run(&stand, effort).await?;
        }
        if wanted(Part::B) {
            drain::run(&stand, effort).await?;
        }
        if wanted(Part::C) {
            claim::run(&stand, effort).await?;
        }
        if wanted(Part::D) {
            start::run(&stand, effort).await?;
        }
        anyhow::Ok(())
    }
    .await;
    // Also after a failure: the cluster is kept, and its next start should not have to recover.
    let stopped = stand.stop().await;
    done.and(stopped)
}
