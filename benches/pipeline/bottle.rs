//! The real program, as a process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::stand::{Database, Stand};

pub struct Bottle {
    child: Child,
    pub port: u16,
    /// From its start until it said that it is ready.
    pub ready_after: Duration,
}

/// Its settings, apart from what every run has in common.
pub struct Settings<'a> {
    /// `serve`, `web` or `worker`.
    pub command: &'a str,
    /// None: it runs a PostgreSQL of its own under this folder.
    pub database: Result<&'a Database, &'a std::path::Path>,
    /// None: the default.
    pub log: Option<&'a str>,
}

impl Bottle {
    /// Returns when it is ready. It logs to a file in `target/bench`, as much as it does by default.
    pub fn start(stand: &Stand, settings: &Settings<'_>) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_bottle"));
        command
            .arg(settings.command)
            .current_dir(&stand.folder)
            .env("BOTTLE_ADDR", format!("127.0.0.1:{port}"))
            .env("BOTTLE_URL", "http://localhost:3000")
            .env_remove("BOTTLE_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(log_of(stand))?);
        match settings.database {
            Ok(database) => command.env("DATABASE_URL", database.url()?).env("KINDE_DOMAIN", stand.kinde.url()),
            Err(folder) => command
                .env("DATABASE_URL", "")
                .env("KINDE_DOMAIN", "")
                .env("BOTTLE_DATA", folder)
                .env("BOTTLE_LOCAL_KINDE_ADDR", format!("127.0.0.1:{}", free_port()?)),
        };
        if let Some(log) = settings.log {
            command.env("BOTTLE_LOG", log);
        }
        let began = Instant::now();
        let mut child = command.spawn().context("the program under test")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let ready_after = began.elapsed();
        let said = if settings.command == "worker" { "The worker runs." } else { "Bottle is ready" };
        let bottle = Self { child, port, ready_after };
        ensure!(line.starts_with(said), "bottle {} did not start: {line}{}", settings.command, log_end(stand));
        // Read on, so that it never writes into a closed pipe.
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(drop));
        Ok(bottle)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop and waits until it has: whatever was under way is finished then.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("its process id")?;
        kill_process(pid, Signal::TERM)?;
        for _ in 0..3_000 {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "bottle ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("bottle did not stop within 30 s")
    }
}

impl Drop for Bottle {
    /// Only after a failure: [`stop`](Self::stop) has waited for it otherwise.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Where a user's service manager would keep it.
fn log_of(stand: &Stand) -> PathBuf {
    stand.folder.join("bottle.log")
}

fn log_end(stand: &Stand) -> String {
    let text = std::fs::read_to_string(log_of(stand)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
