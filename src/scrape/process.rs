//! What Linux knows of this process. Elsewhere nothing is told.

use std::fs;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::telemetry::metrics::Process;

static STARTED: LazyLock<Option<f64>> =
    LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64()));

/// From now on this process counts as started.
pub(super) fn begin() {
    LazyLock::force(&STARTED);
}

pub(super) fn read() -> Process {
    Process { started_secs: *STARTED, memory_bytes: memory(), open_files: open_files() }
}

/// From the line `VmRSS:     12345 kB`.
fn memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u32 = line.split_whitespace().next()?.parse().ok()?;
    Some(f64::from(kib) * 1024.0)
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // The folder that is being read is open too.
    u32::try_from(count).ok().map(|count| f64::from(count.saturating_sub(1)))
}
