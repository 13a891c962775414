//! The same statements without Bottle: pgbench, prepared, on the same server and the same tables.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::stand::{Database, Stand};
use super::table::percentile;

#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: f64,
    /// Transactions.
    pub count: f64,
    pub p99_ms: f64,
}

pub enum Until {
    Secs(u64),
    /// Transactions of all clients together.
    Transactions(usize),
}

/// Runs a script with `clients` connections. `values` are set as its variables.
pub fn run(
    stand: &Stand,
    database: &Database,
    script: &str,
    values: &[(&str, &str)],
    clients: usize,
    until: &Until,
) -> anyhow::Result<Rate> {
    let file = stand.folder.join("pgbench.sql");
    std::fs::write(&file, script)?;
    let logs = stand.folder.join("pgbench-log");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new(stand.programs.join("pgbench"));
    command
        .args(["-n", "-M", "prepared", "-U", "bottle", "-p", "5432", "-h"])
        .arg(&database.socket)
        .args([format!("-c{clients}"), format!("-j{}", clients.min(cores))])
        .arg("-f")
        .arg(&file)
        .arg("-l")
        .arg(format!("--log-prefix={}", logs.display()));
    match until {
        Until::Secs(secs) => command.arg(format!("-T{secs}")),
        Until::Transactions(all) => {
            ensure!(all.is_multiple_of(clients), "{all} transactions cannot be dealt out to {clients} clients");
            command.arg(format!("-t{}", all / clients))
        }
    };
    for (name, value) in values {
        command.arg("-D").arg(format!("{name}={value}"));
    }
    remove_logs(&logs)?;
    let output = command.arg(&database.name).output().context("pgbench, which comes with PostgreSQL's server")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench failed:\n{errors}");
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    let latencies = latencies(&logs)?;
    remove_logs(&logs)?;
    Ok(Rate {
        per_second: tps.with_context(|| format!("pgbench said no rate:\n{text}"))?,
        count: latencies.len() as f64,
        p99_ms: percentile(&latencies, 99),
    })
}

fn logs(prefix: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = prefix.parent().context("a folder")?;
    let name = prefix.file_name().and_then(|name| name.to_str()).context("a name")?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|file| file.starts_with(name)) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_logs(prefix: &Path) -> anyhow::Result<()> {
    for log in logs(prefix)? {
        std::fs::remove_file(log)?;
    }
    Ok(())
}

/// In milliseconds, sorted. A line is: client, transaction, microseconds, …
fn latencies(prefix: &Path) -> anyhow::Result<Vec<f64>> {
    let mut all = Vec::new();
    for log in logs(prefix)? {
        let text = std::fs::read_to_string(log)?;
        all.extend(text.lines().filter_map(|line| Some(line.split(' ').nth(2)?.parse::<f64>().ok()? / 1e3)));
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}
