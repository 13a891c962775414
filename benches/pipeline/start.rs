//! (d) Starting with nothing configured, and what the idle process holds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::Effort;
use super::bottle::{Bottle, Settings};
use super::cpu;
use super::stand::Stand;
use super::table::{Table, middle, percentile};

const STARTS: usize = 5;
const IDLE_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    rss: f64,
    pss: f64,
}

pub async fn run(stand: &Stand, effort: Effort) -> anyhow::Result<()> {
    let starts = if effort.quick { 3 } else { STARTS };
    let (mut first, mut later, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..starts {
        eprintln!("(d) start {} of {starts}", n + 1);
        let folder = stand.folder.join("start");
        remove(&folder)?;
        let settings = Settings { command: "serve", database: Err(&folder), log: None };
        let bottle = Bottle::start(stand, &settings)?;
        first.push(bottle.ready_after.as_secs_f64() * 1e3);
        bottle.stop()?;
        let bottle = Bottle::start(stand, &settings)?;
        later.push(bottle.ready_after.as_secs_f64() * 1e3);
        if n == 0 {
            tokio::time::sleep(IDLE_AFTER).await;
        }
        held.push((memory(bottle.pid()), server(&folder)));
        bottle.stop()?;
        remove(&folder)?;
    }
    let mut table = Table::new(&["start with nothing configured", "median ms", "fastest", "slowest"]);
    for (what, mut times) in [("first: initdb, migrations, a signing key", first), ("later", later)] {
        times.sort_by(f64::total_cmp);
        table.row([
            what.to_owned(),
            format!("{:.0}", percentile(&times, 50)),
            format!("{:.0}", percentile(&times, 0)),
            format!("{:.0}", percentile(&times, 100)),
        ]);
    }
    table.print("(d) From the command to “Bottle is ready”");

    // The first look is at a process that has been idle for a while.
    held.truncate(1);
    let mut table = Table::new(&["idle `bottle serve`", "RSS MB", "PSS MB"]);
    if let Some((bottle, server)) = middle(held, |(bottle, _)| bottle.map_or(0.0, |m| m.pss)) {
        let mut row = |what: &str, memory: Option<Memory>| {
            let text = |value: fn(Memory) -> f64| memory.map_or_else(|| "–".to_owned(), |m| format!("{:.1}", value(m)));
            table.row([what.to_owned(), text(|m| m.rss), text(|m| m.pss)]);
        };
        row("Bottle, with its local Kinde", bottle);
        row("its private PostgreSQL, all processes", server);
        let both = bottle.zip(server).map(|(a, b)| Memory { rss: a.rss + b.rss, pss: a.pss + b.pss });
        row("together", both);
    }
    table.print("(d) Memory");
    println!("\nGoal: the idle process below 60 MB. RSS counts PostgreSQL's shared pages once for each process, PSS once.");
    Ok(())
}

fn remove(folder: &Path) -> std::io::Result<()> {
    fs::remove_dir_all(folder).or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

fn memory(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let megabytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
    };
    Some(Memory { rss: megabytes("Rss:")?, pss: megabytes("Pss:")? })
}

fn server(folder: &Path) -> Option<Memory> {
    let text = fs::read_to_string(folder.join("postgres/data/postmaster.pid")).ok()?;
    let postmaster: u32 = text.lines().next()?.trim().parse().ok()?;
    let mut all = cpu::members(postmaster);
    all.push(postmaster);
    all.into_iter().map(memory).try_fold(Memory::default(), |sum, one| {
        let one = one?;
        Some(Memory { rss: sum.rss + one.rss, pss: sum.pss + one.pss })
    })
}
