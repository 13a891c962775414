//! Who used the processor during a run, from `/proc`. Where there is none, nothing is said.

use std::fs;
use std::path::Path;
use std::time::Instant;

/// Linux counts in these, on every machine Rust runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Processor time used so far, in ticks, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    at: Instant,
    /// wrk or pgbench: children of ours that have ended.
    client: Option<f64>,
    bottle: f64,
    postgres: Option<f64>,
    /// Everybody together.
    all: Option<f64>,
}

/// What was used during a run, in seconds of one core.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    pub client: f64,
    pub bottle: f64,
    pub postgres: f64,
    /// The rest: the kernel's own threads, and whatever else runs on the machine.
    pub others: f64,
    /// What there was: time × cores.
    pub machine: f64,
}

/// The processes a run watches.
#[derive(Debug, Clone)]
pub struct Watch {
    postmaster: Option<u32>,
    bottles: Vec<u32>,
}

impl Watch {
    pub fn new(cluster: &Path, bottles: Vec<u32>) -> Self {
        let pid_file = fs::read_to_string(cluster.join("postgres/data/postmaster.pid")).ok();
        let postmaster = pid_file.and_then(|text| text.lines().next()?.trim().parse().ok());
        Self { postmaster, bottles }
    }

    pub fn look(&self) -> Snapshot {
        Snapshot {
            at: Instant::now(),
            client: Stat::of(std::process::id()).map(|s| s.of_ended_children),
            bottle: self.bottles.iter().filter_map(|pid| Stat::of(*pid)).map(|s| s.own).sum(),
            postgres: self.postmaster.and_then(family),
            all: busy(),
        }
    }

    /// Since `before`. The client must have ended, and been waited for.
    pub fn since(&self, before: Snapshot) -> Option<Used> {
        let after = self.look();
        let seconds = |before: f64, after: f64| (after - before) / TICKS_A_SECOND;
        let client = seconds(before.client?, after.client?);
        let bottle = seconds(before.bottle, after.bottle);
        let postgres = seconds(before.postgres?, after.postgres?);
        let cores = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from)).ok()?;
        Some(Used {
            client,
            bottle,
            postgres,
            others: (seconds(before.all?, after.all?) - client - bottle - postgres).max(0.0),
            machine: (after.at - before.at).as_secs_f64() * f64::from(cores),
        })
    }
}

/// Ticks of all cores that were not idle and did not wait for a disk.
fn busy() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> = text.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are counted in user.
    Some([0, 1, 2, 5, 6, 7].into_iter().filter_map(|n| ticks.get(n)).sum())
}

/// The postmaster, its children, and those that have ended.
fn family(postmaster: u32) -> Option<f64> {
    let own = Stat::of(postmaster)?;
    let children: f64 = members(postmaster).into_iter().filter_map(Stat::of).map(|s| s.own).sum();
    Some(own.own + own.of_ended_children + children)
}

/// The server's processes apart from the postmaster.
pub fn members(postmaster: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| Stat::of(*pid).is_some_and(|s| s.parent == postmaster)).collect()
}

struct Stat {
    parent: u32,
    own: f64,
    of_ended_children: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: number(11)? + number(12)?,
            of_ended_children: number(13)? + number(14)?,
        })
    }
}
