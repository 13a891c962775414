//! Where PostgreSQL's programs are on this machine.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::Error;
use super::folder::Folder;

/// The oldest major version that still gets fixes.
const OLDEST: u32 = 14;

/// A folder that holds both `initdb` and `postgres`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub bin: PathBuf,
    pub major: u32,
}

/// The programs to use with this folder: those of its version if it has a cluster, else the first that are found.
pub async fn programs(asked_for: Option<&Path>, folder: &Folder) -> Result<Programs, Error> {
    let asked_for = asked_for.filter(|bin| !bin.as_os_str().is_empty());
    let theirs = folder.version()?;
    let places = match asked_for {
        Some(bin) => vec![bin.to_owned()],
        None => usual_places().await,
    };
    let search = search(places, theirs.as_deref().map(|text| leading_number(text).unwrap_or(0))).await;
    match (search.fit, theirs) {
        (Some(programs), _) => Ok(programs),
        (None, Some(theirs)) if !search.others.is_empty() => {
            Err(Error::OtherVersion(OtherVersion { folder: folder.data.clone(), theirs, found: search.others }))
        }
        (None, _) => Err(Error::NotFound(NotFound { looked: search.looked, asked_for: asked_for.is_some() })),
    }
}

/// No folder with both programs: says where we looked, and what to do about it.
#[derive(Debug)]
pub struct NotFound {
    looked: Vec<(PathBuf, String)>,
    asked_for: bool,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no PostgreSQL found\n\nlooked in{}:", if self.asked_for { " BOTTLE_PG_BIN only" } else { "" })?;
        for (place, why) in &self.looked {
            writeln!(f, "  {} ({why})", place.display())?;
        }
        write!(
            f,
            "\nBottle starts a PostgreSQL of its own (version {OLDEST} or newer) and needs just its programs. Either\n\
             \x20 Debian, Ubuntu:    sudo apt-get install -y postgresql\n\
             \x20 Fedora:            sudo dnf install -y postgresql-server\n\
             \x20 macOS:             brew install postgresql@17\n\
             or name a server that runs already:\n\
             \x20 DATABASE_URL=postgres://user:password@host/database\n\
             or a folder that has initdb and postgres in it:\n\
             \x20 BOTTLE_PG_BIN=/path/to/bin"
        )
    }
}

/// PostgreSQL opens no folder of another major version.
#[derive(Debug)]
pub struct OtherVersion {
    folder: PathBuf,
    theirs: String,
    found: Vec<Programs>,
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was made by PostgreSQL {}, but this machine has", self.folder.display(), self.theirs)?;
        for (n, Programs { bin, major }) in self.found.iter().enumerate() {
            write!(f, "{} PostgreSQL {major} in {}", if n == 0 { "" } else { "," }, bin.display())?;
        }
        write!(
            f,
            ". Nothing was changed. Install PostgreSQL {0}, or name its folder in BOTTLE_PG_BIN, or bring the folder to the \
             newer version with pg_upgrade, or start empty with another BOTTLE_DATA",
            self.theirs
        )
    }
}

/// The number that the text starts with: `15` of `15.13 (Debian 15.13-1)`.
fn leading_number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

#[derive(Default)]
struct Search {
    fit: Option<Programs>,
    others: Vec<Programs>,
    looked: Vec<(PathBuf, String)>,
}

async fn search(places: Vec<PathBuf>, wanted: Option<u32>) -> Search {
    let mut search = Search::default();
    let mut seen = BTreeSet::new();
    for place in places {
        let bin = match folder_of_both(&place) {
            Ok(bin) => bin,
            Err(why) => {
                search.looked.push((place, why.to_owned()));
                continue;
            }
        };
        if !seen.insert(bin.clone()) {
            continue;
        }
        match version_of(&bin).await {
            Some(major) if wanted.is_none_or(|wanted| wanted == major) && major >= OLDEST => {
                search.fit = Some(Programs { bin, major });
                return search;
            }
            Some(major) => {
                search.looked.push((place, format!("PostgreSQL {major}")));
                if wanted.is_some() {
                    search.others.push(Programs { bin, major });
                }
            }
            None => search.looked.push((place, "its postgres does not say its version".to_owned())),
        }
    }
    search
}

/// PostgreSQL finds its other files from where its programs really are, and links such as /usr/local/bin/initdb often come
/// without one for `postgres`: so the link is followed first, and the place itself counts only if that leads nowhere.
fn folder_of_both(place: &Path) -> Result<PathBuf, &'static str> {
    if !place.is_dir() {
        return Err("no such folder");
    }
    let initdb = place.join("initdb");
    if !is_program(&initdb) {
        return Err("no initdb");
    }
    let real = fs::canonicalize(&initdb).ok().and_then(|real| real.parent().map(Path::to_owned));
    let both = |folder: &PathBuf| is_program(&folder.join("initdb")) && is_program(&folder.join("postgres"));
    real.into_iter().chain(std::path::absolute(place)).find(both).ok_or("initdb without postgres")
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

async fn version_of(bin: &Path) -> Option<u32> {
    let said = Command::new(bin.join("postgres")).arg("-V").output().await.ok()?;
    leading_number(String::from_utf8_lossy(&said.stdout).split_once("(PostgreSQL)")?.1)
}

/// What the person put first comes first: their PATH, then what `pg_config` says, then where packages put it, newest first.
async fn usual_places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).filter(|place| place.is_absolute()).collect();
    if let Ok(said) = Command::new("pg_config").arg("--bindir").output().await
        && said.status.success()
    {
        places.push(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    }
    for (parent, prefix, rest) in [
        ("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
        ("/usr", "pgsql-", "bin"),                  // PostgreSQL's own RPMs
        ("/usr/lib", "postgresql", "bin"),          // openSUSE
        ("/usr/libexec", "postgresql", ""),         // Alpine
        ("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew: Apple, Intel, Linux
        ("/usr/local/opt", "postgresql", "bin"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
        ("/Library/PostgreSQL", "", "bin"), // EDB's installer
        ("/usr/local/pgsql", "", ""),       // built from source
    ] {
        places.extend(newest_first(Path::new(parent), prefix, rest));
    }
    let mut seen = BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

/// The folders `parent/prefix*/rest`; that pattern itself if there are none, so that the message can name it.
fn newest_first(parent: &Path, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.trim_start_matches(['@', '-']);
            let number = if version.is_empty() { 0 } else { leading_number(version)? };
            Some((number, entry.path().join(rest)))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    if found.is_empty() {
        return vec![parent.join(format!("{prefix}*")).join(rest)];
    }
    found.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with pretended programs of that version.
    fn pretend(bin: &Path, version: &str) {
        fs::create_dir_all(bin).unwrap();
        for name in ["initdb", "postgres"] {
            fs::write(bin.join(name), format!("#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bottle-find-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    #[test]
    fn a_version_is_the_number_in_front() {
        for (text, number) in
            [("15.13 (Debian 15.13-1)", Some(15)), ("18beta1", Some(18)), (" 9.6\n", Some(9)), ("", None), ("x", None)]
        {
            assert_eq!(leading_number(text), number, "{text}");
        }
    }

    #[tokio::test]
    async fn a_link_to_initdb_leads_to_the_folder_that_also_has_postgres() {
        let root = scratch("link");
        pretend(&root.join("real"), "16.2");
        fs::create_dir(root.join("links")).unwrap();
        symlink(root.join("real/initdb"), root.join("links/initdb")).unwrap();
        let found = search(vec![root.join("links"), root.join("real")], None).await;
        assert_eq!(found.fit, Some(Programs { bin: root.join("real"), major: 16 }));
        fs::remove_dir_all(root).unwrap();
    }

    #[tokio::test]
    async fn the_version_of_the_folder_is_chosen_among_several() {
        let root = scratch("several");
        for version in ["13.1", "15.1", "18.0"] {
            pretend(&root.join(version).join("bin"), version);
        }
        let places = newest_first(&root, "", "bin");
        assert_eq!(places, ["18.0/bin", "15.1/bin", "13.1/bin"].map(|place| root.join(place)));
        let major = async |wanted| search(places.clone(), wanted).await.fit.map(|programs| programs.major);
        assert_eq!(major(None).await, Some(18));
        assert_eq!(major(Some(15)).await, Some(15));
        assert_eq!(major(Some(17)).await, None);
        assert_eq!(major(Some(13)).await, None, "too old");
        fs::remove_dir_all(root).unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_lacks_one_of_the_two_does_not_count_and_is_named() {
        let root = scratch("lacks");
        pretend(&root.join("half"), "16.2");
        fs::remove_file(root.join("half/postgres")).unwrap();
        let found = search(vec![root.join("half"), root.join("gone")], None).await;
        assert_eq!(found.fit, None);
        let text = NotFound { looked: found.looked, asked_for: false }.to_string();
        for part in ["half (initdb without postgres)", "gone (no such folder)", "apt-get", "dnf", "brew", "DATABASE_URL"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
