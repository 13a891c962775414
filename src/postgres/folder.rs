//! The files of a cluster: `<data>/postgres` and what lies in it.
//!
//! ```text
//! lock           held by the Bottle that uses the folder; its text is that process's number
//! server.lock    held by each process of the server: free means that none is left
//! data/          PostgreSQL's own; complete whenever it exists
//! data.new-…     an initdb that has not finished
//! socket/        made anew at each start
//! log, log.old   what PostgreSQL says, this start and the one before
//! ```
//! The folder itself stays ours and only `data` and `socket` go to the user that runs PostgreSQL, so that user can plant
//! nothing where we, perhaps as root, write.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use uuid::Uuid;

use super::runner::Runner;
use super::{Durability, Error, PORT};

/// The system's limit for a socket's path: `sun_path` less its closing zero byte.
const LONGEST_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
const SOCKET_IN_TEMP: &str = "bottle-socket-";
const NEW: &str = "data.new-";

pub struct Folder {
    /// Bottle's data folder, which other rooms may use as well.
    pub parent: PathBuf,
    pub root: PathBuf,
    pub data: PathBuf,
    pub log: PathBuf,
}

/// Ours until it is dropped, or until we die.
pub struct Lock(#[expect(dead_code, reason = "held, never read")] File);

impl Folder {
    pub fn of(data: &Path) -> Result<Self, Error> {
        let parent = std::path::absolute(data).map_err(Error::file(data))?;
        let root = parent.join("postgres");
        Ok(Self { data: root.join("data"), log: root.join("log"), root, parent })
    }

    /// The major version that made the cluster, as its file has it; None if there is no cluster yet.
    pub fn version(&self) -> Result<Option<String>, Error> {
        match fs::read_to_string(self.data.join("PG_VERSION")) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(Error::NotOurs { folder: self.root.clone(), source })
            }
            Err(source) => Err(Error::File { path: self.data.clone(), source }),
        }
    }

    pub fn claim(&self, durability: Durability) -> Result<Lock, Error> {
        fs::create_dir_all(&self.parent).map_err(Error::file(&self.parent))?;
        match DirBuilder::new().mode(0o755).create(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && durability == Durability::Kept => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::NotThrowAway { folder: self.root.clone() });
            }
            made => made.map_err(Error::file(&self.root))?,
        }
        let mut file = self.open_lock("lock")?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(Error::InUse { folder: self.root.clone(), process: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(Error::File { path: self.root.join("lock"), source }),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(Error::file(&self.root))?;
        Ok(Lock(file))
    }

    /// Returns the lock to hand to the new server, once no process of an earlier one is left.
    ///
    /// There is one if the last Bottle was killed a moment ago, and its watchdog is at work; or if the watchdog was killed
    /// as well. Looking for the process in `postmaster.pid` would not do: a dead server's number may have gone to another
    /// process, a zombie still has it, and single backends outlive their postmaster.
    pub async fn wait_for_the_last_server(&self) -> Result<OwnedFd, Error> {
        let path = self.root.join("server.lock");
        let file = self.open_lock("server.lock")?;
        for tenths in 0..600 {
            match file.try_lock() {
                Ok(()) => return Ok(file.into()),
                Err(TryLockError::Error(source)) => return Err(Error::File { path, source }),
                Err(TryLockError::WouldBlock) if tenths % 10 == 1 => self.interrupt_the_last_server(),
                Err(TryLockError::WouldBlock) => {}
            }
            tokio::time::sleep(Duration::from_millis(if tenths == 0 { 20 } else { 100 })).await;
        }
        Err(Error::LastServerStays { folder: self.root.clone(), process: self.postmaster().map(Pid::as_raw_pid) })
    }

    /// To be called with both locks held: then whatever `postmaster.pid` says is about the dead.
    pub fn clear_what_a_crash_left(&self) -> Result<(), Error> {
        let pid_file = self.data.join("postmaster.pid");
        // Its fifth line is the socket folder. Under the temp folder nobody else would remove it.
        let socket = fs::read_to_string(&pid_file).ok().and_then(|text| text.lines().nth(4).map(PathBuf::from));
        if let Some(socket) = socket.filter(|socket| is_temporary_socket_folder(socket)) {
            let _ = fs::remove_dir_all(socket);
        }
        gone(fs::remove_file(&pid_file)).map_err(Error::file(&pid_file))?;
        for entry in fs::read_dir(&self.root).map_err(Error::file(&self.root))?.flatten() {
            if entry.file_name().as_bytes().starts_with(NEW.as_bytes()) {
                gone(fs::remove_dir_all(entry.path())).map_err(Error::file(&entry.path()))?;
            }
        }
        Ok(())
    }

    /// An empty folder for initdb, under a name that no start takes for a cluster. The name is new each time: an initdb
    /// whose Bottle was killed may still be tidying up under the old one.
    pub fn make_new(&self, runner: &Runner) -> Result<PathBuf, Error> {
        if fs::read_dir(&self.data).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::NotACluster { folder: self.data.clone() });
        }
        let new = self.root.join(format!("{NEW}{}", short_name()));
        make_private(&new, runner)?;
        Ok(new)
    }

    pub fn finish_new(&self, new: &Path) -> Result<(), Error> {
        fs::rename(new, &self.data).map_err(Error::file(&self.data))?;
        // The new name must survive a power cut, or the next start would throw the cluster away as unfinished.
        File::open(&self.root).and_then(|root| root.sync_all()).map_err(Error::file(&self.root))
    }

    /// Made anew each time: a killed server's `.s.PGSQL.5432.lock` would stop the next one.
    pub async fn make_socket_folder(&self, runner: &Runner) -> Result<PathBuf, Error> {
        let near = self.root.join("socket");
        gone(fs::remove_dir_all(&near)).map_err(Error::file(&near))?;
        if is_usable_by_clients(&near) {
            make_private(&near, runner)?;
            return Ok(near);
        }
        let mut why = io::Error::from(io::ErrorKind::InvalidFilename);
        for temp in [std::env::temp_dir(), PathBuf::from("/tmp")] {
            // A name nobody could foresee, and mkdir refuses one that exists: so it is ours and 0700 from the start.
            let socket = temp.join(format!("{SOCKET_IN_TEMP}{}", short_name()));
            if is_usable_by_clients(&socket) && runner.can_enter(&temp).await {
                match make_private(&socket, runner) {
                    Err(Error::File { source, .. }) => why = source,
                    made => return made.map(|()| socket),
                }
            }
        }
        Err(Error::File { path: near, source: why })
    }

    /// The log of this start; the one before stays as `log.old`.
    pub fn open_log(&self) -> Result<File, Error> {
        gone(fs::rename(&self.log, self.log.with_extension("old"))).map_err(Error::file(&self.log))?;
        // It may quote statements, with what people wrote in them.
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.log).map_err(Error::file(&self.log))
    }

    fn open_lock(&self, name: &str) -> Result<File, Error> {
        let path = self.root.join(name);
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(|source| {
            match source.kind() {
                io::ErrorKind::PermissionDenied => Error::NotOurs { folder: self.root.clone(), source },
                _ => Error::File { path, source },
            }
        })
    }

    fn postmaster(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        Pid::from_raw(text.lines().next()?.trim().parse().ok().filter(|&pid| pid > 1)?)
    }

    fn interrupt_the_last_server(&self) {
        if let Some(pid) = self.postmaster().filter(|&pid| is_postgres(pid)) {
            tracing::warn!(pid = pid.as_raw_pid(), "stopping the PostgreSQL that an earlier Bottle left behind");
            let _ = rustix::process::kill_process(pid, Signal::INT);
        }
    }
}

/// The last lines of a log, for a message.
pub fn tail(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(4096)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn is_postgres(pid: Pid) -> bool {
    let said = match fs::read(format!("/proc/{}/comm", pid.as_raw_pid())) {
        Ok(name) => name,
        Err(_) if Path::new("/proc/self/comm").exists() => return false,
        Err(_) => match std::process::Command::new("ps").args(["-o", "comm=", "-p", &pid.as_raw_pid().to_string()]).output() {
            Ok(output) => output.stdout,
            Err(_) => return false,
        },
    };
    String::from_utf8_lossy(&said).trim().ends_with("postgres")
}

/// Short enough for the system, and free of what clients would misread: they split a list of hosts at commas.
fn is_usable_by_clients(folder: &Path) -> bool {
    let socket = folder.join(format!(".s.PGSQL.{PORT}"));
    socket.as_os_str().len() <= LONGEST_SOCKET_PATH && folder.to_str().is_some_and(|text| !text.contains(','))
}

fn is_temporary_socket_folder(folder: &Path) -> bool {
    let named = folder.file_name().is_some_and(|name| name.as_bytes().starts_with(SOCKET_IN_TEMP.as_bytes()));
    named && [std::env::temp_dir().as_path(), Path::new("/tmp")].contains(&folder.parent().unwrap_or(folder))
}

fn make_private(folder: &Path, runner: &Runner) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(folder).and_then(|()| runner.give(folder)).map_err(Error::file(folder))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

fn short_name() -> String {
    Uuid::new_v4().simple().to_string()[..12].to_owned()
}
