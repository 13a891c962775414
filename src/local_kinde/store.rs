//! The state file: read at the start, written after each change, beside the old one and then put in its place, so that a stop at
//! any moment leaves a whole file. Changes made while one is being written go together into the next.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::key::private_file;
use super::moment::At;
use super::state::{FORM, State};

pub struct Store {
    path: PathBuf,
    state: Mutex<Versioned>,
    changed: Notify,
    written: watch::Sender<Written>,
    /// Held while the state is ours to write: two processes on one folder would undo each other.
    lock: Mutex<Option<File>>,
}

struct Versioned {
    state: State,
    version: u64,
}

/// The latest version that writing was tried for.
#[derive(Debug, Clone, Default)]
struct Written {
    version: u64,
    trouble: Option<String>,
}

impl Store {
    /// Takes the folder and reads what it holds; a fresh state if it holds none.
    ///
    /// # Errors
    /// Another process has the folder, or its state cannot be read or understood.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("state.json");
        let at = |source| Error::StateFile { path: path.clone(), source };
        fs::create_dir_all(folder).map_err(at)?;
        let lock = File::create(folder.join("lock")).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::FolderTaken { folder: folder.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(at(source)),
        }
        let state = match fs::read(&path) {
            Ok(bytes) => read(&bytes).map_err(|why| Error::StateRejected { path: path.clone(), why })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::new(At::now()),
            Err(source) => return Err(at(source)),
        };
        let store = Self {
            path,
            state: Mutex::new(Versioned { state, version: 0 }),
            changed: Notify::new(),
            written: watch::Sender::new(Written::default()),
            lock: Mutex::new(Some(lock)),
        };
        Ok(store)
    }

    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// In memory at once, in the file soon; see [`Store::settle`].
    pub fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        held.version += 1;
        let done = act(&mut held.state);
        drop(held);
        self.changed.notify_one();
        done
    }

    /// Waits until everything changed so far is in the file.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn settle(&self) -> Result<(), Error> {
        let version = self.version();
        let mut written = self.written.subscribe();
        let seen = written.wait_for(|written| written.version >= version).await.map(|written| written.trouble.clone());
        match seen {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Error::NotWritten { path: self.path.clone(), why }),
            Err(_) => Err(Error::NotWritten { path: self.path.clone(), why: "the program is stopping".into() }),
        }
    }

    /// Writes whenever something changed, until told to stop; then once more.
    pub async fn keep_writing(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let last = tokio::select! {
                () = self.changed.notified() => false,
                () = stop.cancelled() => true,
            };
            self.write().await;
            if last {
                return;
            }
        }
    }

    /// Gives the folder back. What changes after this stays in memory.
    pub async fn close(&self) {
        self.write().await;
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    async fn write(&self) {
        let (bytes, version) = {
            let mut held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let unchanged = |written: &Written| written.version == held.version && written.trouble.is_none();
            if unchanged(&self.written.borrow()) && self.path.exists() {
                return;
            }
            held.state.tidy(At::now());
            (serde_json::to_vec_pretty(&held.state), held.version)
        };
        if self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return;
        }
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || replace(&path, &bytes.map_err(io::Error::other)?)).await;
        let trouble = match done {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = &trouble {
            tracing::error!(path = %self.path.display(), why, "the local Kinde cannot write its state");
        }
        self.written.send_replace(Written { version, trouble });
    }

    fn version(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).version
    }
}

fn read(bytes: &[u8]) -> Result<State, String> {
    let state: State = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match state.form {
        FORM => Ok(state),
        other => Err(format!("it has the form {other}, and this program knows {FORM}")),
    }
}

/// Beside, flushed, then renamed over: never half a file.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(format!("{:016x}", rand::random::<u64>()));
    let placed = private_file(&draft)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, path));
    if placed.is_err() {
        // The trouble to be told of is the first one.
        let _ = fs::remove_file(&draft);
        return placed;
    }
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
