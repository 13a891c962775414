//! What the figures were taken on.

use std::fs;
use std::process::Command;

use sqlx::AssertSqlSafe;

use super::stand::Stand;
use super::{Options, Part};

pub async fn print(stand: &Stand, options: &Options) -> anyhow::Result<()> {
    let mut settings = Vec::new();
    for name in ["fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_connections"] {
        let value: String = sqlx::query_scalar(AssertSqlSafe(format!("show {name}"))).fetch_one(&stand.admin).await?;
        settings.push(format!("{name} {value}"));
    }
    let version: String = sqlx::query_scalar("select current_setting('server_version')").fetch_one(&stand.admin).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<String> = options.parts.iter().map(|part| format!(" {}", letter(*part))).collect();
    println!("# Bottle's pipeline against its database\n");
    println!("- Command: `cargo bench --bench pipeline --{}{}`", parts.concat(), if options.quick { " --quick" } else { "" });
    println!("- Machine: {cores} cores, {}, {}, {}", cpu_model(), memory(), kernel());
    println!("- PostgreSQL {version}: {}", settings.join(", "));
    println!("- Load: {}, and pgbench of this PostgreSQL, on the same machine", wrk_version());
    println!("- Program: commit {}, {}", commit(), if cfg!(debug_assertions) { "debug build" } else { "release build" });
    println!("- Begun: {}", jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC"));
    println!(
        "- CPU: share of all cores together that the load client / Bottle / PostgreSQL / others used. “Others” above a few per cent \
              means a busy machine and figures to take again"
    );
    println!("- µs each: CPU time of Bottle + PostgreSQL for one delivery or event, which a busy machine changes least");
    Ok(())
}

fn letter(part: Part) -> &'static str {
    match part {
        Part::A => "a",
        Part::B => "b",
        Part::C => "c",
        Part::D => "d",
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()));
    model.unwrap_or(std::env::consts::ARCH).to_owned()
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or_else(|| "memory not known".to_owned(), |kib| format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

fn kernel() -> String {
    output("uname", &["-sr"]).unwrap_or_else(|| std::env::consts::OS.to_owned())
}

/// wrk prints its version together with a complaint that it was given no URL.
fn wrk_version() -> String {
    let said = Command::new("wrk").arg("-v").output().ok();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.split('[').next().map(str::trim).filter(|text| text.starts_with("wrk")).unwrap_or("no wrk").to_owned()
}

fn commit() -> String {
    let Some(commit) = output("git", &["rev-parse", "--short=10", "HEAD"]) else { return "not known".to_owned() };
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { format!("{commit} and changes") } else { commit }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
