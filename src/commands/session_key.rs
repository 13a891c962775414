//! The key that seals sign-ins: the one in the settings, or on a developer's machine one that is made once and kept.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;

use crate::config::{Config, Secret};

/// Whether [`get`] will have one, as far as the settings go: a wrong setting should not cost a database start.
///
/// # Errors
/// As [`get`], in production.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let signs_in = config.kinde.as_ref().is_some_and(|kinde| kinde.client.is_some());
    if signs_in && config.is_production() { get(config).map(drop) } else { Ok(()) }
}

/// # Errors
/// In production there is none in the settings: every process of a Bottle needs the same, and no file is shared by all.
pub fn get(config: &Config) -> anyhow::Result<Secret> {
    match &config.people.session_key {
        Some(key) => Ok(key.clone()),
        None if config.is_production() => bail!(
            "BOTTLE_SESSION_KEY: is missing, and in production every process needs the same one; make it with `openssl rand -base64 48`"
        ),
        None => kept(&config.database.data),
    }
}

fn kept(folder: &Path) -> anyhow::Result<Secret> {
    let path = folder.join("session-key");
    let read = || fs::read_to_string(&path);
    let text = match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => place(folder, &path).and_then(|()| read()),
        other => other,
    };
    let text = text.with_context(|| format!("the session key in {} (or set BOTTLE_SESSION_KEY)", path.display()))?;
    if text.len() < 32 {
        bail!("the session key in {} is cut short; delete that file, and another is made", path.display());
    }
    Ok(Secret::new(text))
}

/// Written beside `path`, then linked there: never half a key, and of two processes that start at once both read the same.
fn place(folder: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!("session-key.{:016x}", rand::random::<u64>()));
    let linked = private_file(&draft)
        .and_then(|mut file| {
            file.write_all(BASE64_STANDARD_NO_PAD.encode(rand::random::<[u8; 48]>()).as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::hard_link(&draft, path));
    let tidied = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => tidied,
    }
}

fn private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
