//! As whom PostgreSQL runs.
//!
//! It refuses to run as root. So as root we choose, in this order, the account `postgres`; root under another number (a user
//! namespace made by `unshare`), for folders that no account may enter; and the account `nobody`, last because whatever else
//! runs as `nobody` could reach the data. Whoever owns an existing cluster keeps it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{getegid, geteuid};
use tokio::process::Command;

use super::Error;
use super::find::Programs;
use super::folder::Folder;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    Ourselves,
    Account {
        uid: u32,
        gid: u32,
    },
    /// Ourselves to the kernel and to files; to PostgreSQL, the number given.
    Namespace {
        uid: u32,
        gid: u32,
    },
}

/// What of our environment PostgreSQL gets. The rest holds secrets, and another user could read them from its process.
const PASSED_ON: [&str; 7] = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LOCPATH", "LOCALE_ARCHIVE", "TZDIR", "TMPDIR"];

impl Runner {
    pub async fn choose(folder: &Folder, programs: &Programs) -> Result<Self, Error> {
        let root = geteuid().is_root();
        let mut tried = Vec::new();
        for (name, runner) in candidates(folder, root).await? {
            if runner == Self::Ourselves || runner.can_use(folder, programs).await {
                if name == "nobody" {
                    tracing::warn!("PostgreSQL runs as `nobody`, which other programs may share; an account `postgres` is safer");
                }
                return Ok(runner);
            }
            tried.push(name);
        }
        let who = if root { "root" } else { "a user without a name" };
        let tried = if tried.is_empty() { "there was nobody to try".to_owned() } else { format!("tried {}", tried.join(", ")) };
        Err(Error::NobodyToRunAs { who, folder: folder.root.clone(), tried })
    }

    /// The program as that user, with a bare environment, apart from the terminal's process group so that Ctrl-C is for us.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Self::Ourselves => Command::new(program),
            Self::Account { uid, gid } => {
                let mut command = Command::new(program);
                command.uid(*uid).gid(*gid);
                command
            }
            Self::Namespace { uid, gid } => {
                let mut command = Command::new("unshare");
                command.args(["--user", &format!("--map-user={uid}"), &format!("--map-group={gid}"), "--"]).arg(program);
                command
            }
        };
        command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // English messages in the log; and macOS's PostgreSQL does not start without a locale.
        command.env("LC_ALL", "C").current_dir("/").process_group(0);
        command
    }

    /// Makes the file theirs.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Account { uid, gid } => lchown(path, Some(*uid), Some(*gid)),
            Self::Ourselves | Self::Namespace { .. } => Ok(()),
        }
    }

    pub async fn can_enter(&self, folder: &Path) -> bool {
        self.can("cd -- \"$1\"", &[folder]).await
    }

    /// Tried, not worked out from the mode bits: there are access lists, read-only mounts and forbidden namespaces too.
    async fn can_use(&self, folder: &Folder, programs: &Programs) -> bool {
        let postgres = programs.bin.join("postgres");
        self.can("cd -- \"$1\" && exec \"$2\" -V", &[&folder.root, &postgres]).await
    }

    async fn can(&self, script: &str, arguments: &[&Path]) -> bool {
        let mut command = self.command("/bin/sh");
        command.args(["-c", script, "sh"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    }
}

async fn candidates(folder: &Folder, root: bool) -> Result<Vec<(&'static str, Runner)>, Error> {
    let owner = match fs::metadata(&folder.data) {
        Ok(meta) => Some((meta.uid(), meta.gid())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(Error::File { path: folder.data.clone(), source }),
    };
    if !root {
        // initdb wants its user to have a name, which a container's `--user 12345` has not.
        let named = numbers_of(&geteuid().as_raw().to_string()).await.is_some();
        return Ok(if named { vec![("ourselves", Runner::Ourselves)] } else { namespace().await.into_iter().collect() });
    }
    if let Some((uid, gid)) = owner {
        return Ok(match uid {
            0 => namespace().await.into_iter().collect(),
            _ => vec![("the owner of the folder", Runner::Account { uid, gid })],
        });
    }
    let account = async |names: &[&'static str]| {
        for &name in names {
            if let Some((uid, gid)) = numbers_of(name).await {
                return Some((name, Runner::Account { uid, gid }));
            }
        }
        None
    };
    let postgres = account(&["postgres", "_postgres"]).await;
    Ok([postgres, namespace().await, account(&["nobody"]).await].into_iter().flatten().collect())
}

/// The number inside must have a name as well, so it is borrowed from an account; nothing of that account is touched.
async fn namespace() -> Option<(&'static str, Runner)> {
    for name in ["postgres", "daemon", "nobody"] {
        if let Some((uid, gid)) = numbers_of(name).await {
            return Some(("a user namespace", Runner::Namespace { uid, gid }));
        }
    }
    None
}

/// Asked of `id`, because not all accounts are in /etc/passwd.
async fn numbers_of(name: &str) -> Option<(u32, u32)> {
    let id = async |which: &str| -> Option<u32> {
        let said = Command::new("id").args([which, name]).stderr(Stdio::null()).output().await.ok()?;
        String::from_utf8(said.stdout).ok()?.trim().parse().ok()
    };
    Some((id("-u").await?, id("-g").await.unwrap_or(getegid().as_raw())))
}
