//! The real program as processes in a folder of their own: started with an empty environment, listened to, signalled, killed,
//! and never left behind.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Scratch;

/// Longer than anything here may take, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a person's shell has as well: where programs are, and where files may lie. No setting of ours but one.
const PASSED_ON: [&str; 3] = ["PATH", "TMPDIR", "BOTTLE_PG_BIN"];

pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// A folder to run in. Dropped, it ends every process that still has to do with it.
pub struct Home(Scratch);

impl Home {
    pub fn new() -> Self {
        Self(Scratch::new())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Free ports are taken unless the settings name some.
    pub fn command(&self, args: &[&str], settings: Settings<'_>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bottle"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("BOTTLE_ADDR", "127.0.0.1:0").env("BOTTLE_LOCAL_KINDE_ADDR", "127.0.0.1:0");
        // What a test sees must not depend on the hour.
        command.env("BOTTLE_RECONCILE_AT", "off");
        // A group of its own, as a shell gives it: Ctrl-C reaches all of it.
        command.envs(settings.iter().copied()).process_group(0);
        command
    }

    /// Until it ends by itself.
    pub async fn run(&self, args: &[&str], settings: Settings<'_>) -> Said {
        let mut running = Bottle::spawn(self.command(args, settings));
        let code = running.ended().await.code();
        Said { code, out: running.said(), err: running.log() }
    }

    /// Until it says that it is ready.
    pub async fn start(&self, args: &[&str], settings: Settings<'_>) -> Bottle {
        Bottle::spawn_until_ready(self.command(args, settings)).await
    }

    /// The processes that run in this folder or were told about it, as `number command line`.
    #[cfg(target_os = "linux")]
    pub fn processes(&self) -> Vec<(i32, String)> {
        let here = self.path();
        let about = |pid: i32| -> Option<(i32, String)> {
            let line = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).ok()?).replace('\0', " ");
            let works_here = std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(here));
            (works_here || line.contains(&*here.to_string_lossy())).then_some((pid, line))
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter_map(about).collect()
    }

    #[cfg(not(target_os = "linux"))]
    pub fn processes(&self) -> Vec<(i32, String)> {
        Vec::new()
    }

    /// A stop may end a moment before the processes of the private server are all gone; none may stay.
    pub async fn is_deserted(&self) {
        let began = Instant::now();
        while !self.processes().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "left behind: {:?}", self.processes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for tenths in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            // The private server stops by itself once Bottle is gone; after three seconds it has to.
            if tenths > 30 {
                for pid in left.iter().filter_map(|(pid, _)| Pid::from_raw(*pid)) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// What it said to a person, apart from its log.
    pub fn complaints(&self) -> Vec<&str> {
        self.err.lines().filter(|line| !line.starts_with('{')).collect()
    }
}

/// A running program. Dropped, it is killed.
pub struct Bottle {
    child: Child,
    began: Instant,
    out: Heard,
    err: Heard,
    /// From the start of the program to the line that says so.
    pub ready_in: Duration,
    addr: Option<SocketAddr>,
}

impl Bottle {
    pub fn spawn(mut command: Command) -> Self {
        let began = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Heard::of(child.stdout.take().unwrap()), Heard::of(child.stderr.take().unwrap()));
        Self { child, began, out, err, ready_in: Duration::ZERO, addr: None }
    }

    /// Until it says that it is ready.
    pub async fn spawn_until_ready(command: Command) -> Self {
        let mut bottle = Self::spawn(command);
        bottle.ready().await;
        bottle
    }

    async fn ready(&mut self) {
        while !["Bottle is ready", "The worker runs"].iter().any(|ready| self.said().contains(ready)) {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended:\n{}\n{}", self.said(), self.log());
            assert!(self.began.elapsed() < PATIENCE, "not ready:\n{}\n{}", self.said(), self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.ready_in = self.began.elapsed();
        let said = self.said();
        let addr = said.split_once("(listening on ").and_then(|(_, rest)| rest.split_once(')'));
        self.addr = addr.map(|(addr, _)| addr.parse().unwrap());
    }

    pub fn said(&self) -> String {
        self.out.text.lock().unwrap().clone()
    }

    pub fn log(&self) -> String {
        self.err.text.lock().unwrap().clone()
    }

    /// Where its pages and its webhook endpoint are.
    pub fn addr(&self) -> SocketAddr {
        self.addr.expect("it has web pages")
    }

    pub fn webhooks(&self) -> String {
        format!("http://{}/webhooks/kinde", self.addr())
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = http.get(format!("http://{}{path}", self.addr())).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// As a service manager does it.
    pub async fn told(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let began = Instant::now();
        kill_process(self.pid(), signal).unwrap();
        (self.ended().await, began.elapsed())
    }

    /// As a terminal does it, to all processes of its group.
    pub async fn ctrl_c(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        kill_process_group(self.pid(), Signal::INT).unwrap();
        (self.ended().await, began.elapsed())
    }

    pub async fn killed(&mut self) {
        self.told(Signal::KILL).await;
    }

    fn heard_all(&self) -> bool {
        self.out.reader.is_finished() && self.err.reader.is_finished()
    }

    pub async fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // Its last words may still be on their way through the pipes.
                while !self.heard_all() && began.elapsed() < PATIENCE {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}\n{}", self.said(), self.log());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Bottle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Read as it comes, so that the other side never waits for us.
struct Heard {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Heard {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let hears = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut text = hears.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, reader }
    }
}
