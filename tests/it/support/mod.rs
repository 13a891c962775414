//! What the subjects share: databases, tokens, histories, scratch folders, and copies of this program that may be killed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

pub mod app;
pub mod axe;
pub mod billing;
pub mod binary;
pub mod browser;
pub mod claims;
pub mod collector;
pub mod comparing;
pub mod db;
pub mod deliveries;
pub mod desk;
pub mod exposition;
pub mod fake_kinde;
pub mod histories;
pub mod kinde_api;
pub mod load;
pub mod local_kinde;
pub mod newcomer;
pub mod ops;
pub mod pipeline;
pub mod sample_run;
pub mod sealed;
pub mod smtp;
pub mod till;
pub mod tokens;
pub mod visitor;
pub mod wire;
pub mod writer;

/// Cases of a random test: a share of them in everyday runs, all with `BOTTLE_TEST_SCALE` (a factor).
pub fn cases(everyday: u32) -> u32 {
    let scale = std::env::var("BOTTLE_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1_u32);
    everyday.saturating_mul(scale)
}

/// A folder of its own for a test, in memory if there is room; removed when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let folder = roomy_folder().join(unique_name());
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Memory makes a run several times as fast, but in a container /dev/shm is often 64 MB.
pub fn roomy_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail.saturating_mul(room.f_frsize) >= 2 << 30 => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

pub fn unique_name() -> String {
    format!("bottle-test-{}", &uuid::Uuid::new_v4().simple().to_string()[..12])
}

/// This test program once more, to run the one ignored test of that name: a process that a test can kill.
pub fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command
}

/// The error with its causes, as a person would see it.
pub fn chain(error: &dyn Error) -> String {
    std::iter::successors(Some(error), |&e| e.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
