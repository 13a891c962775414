//! Processes that stop when we are gone, even by `kill -9`.
//!
//! A shell is the parent of `initdb` or `postgres` and reads from a pipe whose other end only we hold. The system closes our
//! end however we end, and then the shell stops its child and waits for it.
//!
//! The shell's standard output is a handle that says "alive", inherited by every process of the server as well, so that
//! others can tell when the last one is gone: the lock file `server.lock`, or for a throw-away folder a pipe that a second
//! shell reads from before it removes the folder.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, ChildStdin, Command};

use super::folder::Folder;
use super::runner::Runner;

/// Called with the socket folder to remove at the end (or nothing), then the program and its arguments.
///
/// A shell starts its background jobs deaf to INT, and PostgreSQL takes a moment to listen; in that moment TERM ends it.
/// Later INT is what counts: TERM alone would wait for clients to leave. So TERM may be ignored only once the child runs.
/// The reader inherits that deafness, so only KILL ends it. It holds no "alive" handle.
const WATCH: &str = r#"
socket=$1
shift
exec 3<&0 </dev/null 4>&1 >&2
"$@" 3<&- &
child=$!
trap '' HUP INT TERM
(
    read -r _
    kill -TERM "$child"
    kill -INT "$child"
) <&3 3<&- 4>&- >/dev/null 2>&1 &
reader=$!
exec 3<&-
wait "$child"
status=$?
kill -KILL "$reader" 2>/dev/null
wait "$reader" 2>/dev/null
if [ -n "$socket" ]; then rm -rf -- "$socket"; fi
exit "$status"
"#;

/// Called with the folder to remove, and the folder to remove if that leaves it empty.
const REMOVE: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
rm -rf -- "$1"
rmdir -- "$2"
"#;

pub struct Watched {
    shell: Child,
    /// Apart from `shell`, which would close it whenever it is waited for.
    life: Option<ChildStdin>,
}

impl Watched {
    pub fn spawn(
        runner: &Runner,
        socket_to_remove: Option<&Path>,
        program: &Path,
        arguments: &[OsString],
        alive: &OwnedFd,
        log: &File,
    ) -> io::Result<Self> {
        let mut command = runner.command("/bin/sh");
        command
            .args(["-c", WATCH, "bottle-watchdog"])
            .arg(socket_to_remove.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments);
        command.stdin(Stdio::piped()).stdout(alive.try_clone()?).stderr(log.try_clone()?);
        let mut shell = command.spawn()?;
        let life = shell.stdin.take();
        Ok(Self { shell, life })
    }

    /// Lets it end by itself.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.shell.wait().await
    }

    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.shell.try_wait()
    }

    pub async fn stop(mut self) -> io::Result<ExitStatus> {
        drop(self.life.take());
        self.shell.wait().await
    }
}

pub struct Remover(Child);

impl Remover {
    /// Removes the folder once every copy of the returned handle is closed.
    pub fn arm(folder: &Folder) -> io::Result<(OwnedFd, Self)> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", REMOVE, "bottle-remover"]).arg(&folder.root).arg(&folder.parent);
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
        Ok((writer.into(), Self(command.spawn()?)))
    }

    /// Its own exit status says only whether the parent folder was empty.
    pub async fn wait(mut self) -> io::Result<()> {
        self.0.wait().await.map(|_| ())
    }
}
