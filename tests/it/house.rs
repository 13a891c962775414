//! Reads the source and keeps the house in order: who may import whom, and which room writes which table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms each room may import, besides those of floor 0, which everybody may.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("config", &["domain"]),
    ("db", &["config", "telemetry"]),
    ("telemetry", &["domain"]),
    ("clock", &["domain"]),
    ("wake", &[]),
    ("checkpoint", &["domain"]),
    ("postgres", &[]),
    ("seal", &["config"]),
    ("outbound", &[]),
    ("jwks", &["outbound"]),
    ("oidc", &["jwks", "outbound"]),
    ("providers", &["jwks", "outbound"]),
    ("accounts", &[]),
    ("ledger", &[]),
    ("money", &[]),
    ("inbox", &[]),
    ("sessions", &[]),
    ("intake", &["providers", "inbox"]),
    ("mail", &[]),
    ("outbox", &[]),
    ("collector", &["outbound"]),
    ("billing", &["accounts", "ledger", "money", "inbox"]),
    ("reminders", &["accounts", "outbox", "billing"]),
    ("checkouts", &["providers"]),
    ("replay", &["providers", "inbox", "billing"]),
    ("operators", &[]),
    ("worker", &["providers", "inbox", "billing"]),
    ("alerts", &["inbox", "billing", "outbound", "mail", "worker", "reconcile", "operators"]),
    ("housekeeping", &["inbox", "checkouts"]),
    ("replayer", &["replay"]),
    ("reconcile", &["providers", "inbox", "intake", "accounts", "billing", "money"]),
    ("scrape", &["inbox", "outbox", "alerts", "worker", "reconcile"]),
    ("bell", &["billing", "reminders"]),
    ("courier", &["accounts", "outbox", "mail", "reminders"]),
    ("engine_room", &["jwks", "providers", "inbox", "intake", "billing", "worker", "ledger", "accounts"]),
    (
        "web",
        &[
            "engine_room",
            "intake",
            "replay",
            "billing",
            "inbox",
            "accounts",
            "ledger",
            "providers",
            "sessions",
            "oidc",
            "reminders",
            "outbox",
            "operators",
            "alerts", // read functions only
            "reconcile",
            "checkouts",
            "money",
        ],
    ),
    ("commands", &["*"]),
    ("local_kinde", &[]),
    ("local_stripe", &[]),
];

/// Stand-ins for providers: what they know of them they know by themselves, so not even floor 0 is theirs.
const OUTSIDE: &[&str] = &["local_kinde", "local_stripe"];

/// Words and pipes. Among themselves they keep to the table above.
const FLOOR_0: &[&str] = &["domain", "config", "db", "telemetry", "clock", "wake", "checkpoint", "postgres", "seal"];

pub const OWNER: &[(&str, &str)] = &[
    ("inbox_events", "inbox"),
    ("receipts", "inbox"),
    ("conflicts", "inbox"),
    ("replays", "replay"),
    ("accounts", "accounts"),
    ("installation", "accounts"),
    ("customer_map", "accounts"),
    ("facts", "billing"),
    ("event_runs", "billing"),
    ("ledger", "ledger"),
    ("money_ledger", "money"),
    ("purchases", "money"),
    ("checkouts", "checkouts"),
    ("sessions", "sessions"),
    ("alerts", "alerts"),
    ("alert_messages", "alerts"),
    ("provider_seen", "alerts"),
    ("worker_pauses", "worker"),
    ("event_notes", "operators"),
    ("operator_actions", "operators"),
    ("bulk_replays", "replay"),
    ("bulk_replay_results", "replay"),
    ("reminders", "reminders"),
    ("calendar_feeds", "reminders"),
    ("outbox", "outbox"),
    ("reconcile_runs", "reconcile"),
    ("reconcile_findings", "reconcile"),
    ("reconcile_books", "reconcile"),
];

const LONG_FILE: usize = 300;

#[test]
fn a_room_imports_only_what_the_table_allows() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    for (room, file, text) in sources() {
        if room == "main" || room == "lib" {
            continue;
        }
        let rooms = allowed.get(room.as_str()).unwrap_or_else(|| panic!("{room} stands on no floor: add it to the table"));
        for other in imported(&text).into_iter().filter(|other| *other != room) {
            let from_below =
                FLOOR_0.contains(&other.as_str()) && !FLOOR_0.contains(&room.as_str()) && !OUTSIDE.contains(&room.as_str());
            if !(rooms.contains(&"*") || rooms.contains(&other.as_str()) || from_below) {
                wrong.push(format!("{room} imports {other} in {}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that the table does not allow:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_room_named_after_a_table_writes_it() {
    let mut wrong = Vec::new();
    for (room, file, text) in sources() {
        for (table, owner) in OWNER {
            let writes = [format!("insert into {table} "), format!("update {table} "), format!("delete from {table} ")];
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if room != *owner && writes.iter().any(|w| flat.contains(w.as_str())) {
                wrong.push(format!("{room} writes {table} in {}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_face_and_the_local_providers_know_the_web_framework() {
    for (room, file, text) in sources() {
        if room != "web" && !OUTSIDE.contains(&room.as_str()) {
            assert!(!text.contains("axum::"), "{} speaks axum", file.display());
        }
    }
}

#[test]
fn the_naive_handler_stays_in_the_engine_room() {
    for (room, file, text) in sources() {
        let uses = text.contains("engine_room::naive") && !["engine_room", "web"].contains(&room.as_str());
        assert!(!uses, "{} uses the naive handler", file.display());
    }
}

#[test]
fn every_table_has_an_owner_in_the_table_above() {
    let migrations = std::fs::read_dir(root().join("migrations")).unwrap();
    let text: String = migrations.map(|m| std::fs::read_to_string(m.unwrap().path()).unwrap()).collect();
    let made: BTreeSet<&str> =
        text.lines().filter_map(|l| l.strip_prefix("create table ")).map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(made, OWNER.iter().map(|(table, _)| *table).collect());
    assert!(!text.contains("public."), "migrations never name a schema: the Engine Room makes them in its own");
}

/// `error` means that a person must act, so it says by which alert they hear of it. What the face logs is a bug of ours, and
/// the stand-ins for providers alert nobody.
#[test]
fn an_error_in_the_log_names_its_alert() {
    let mut silent = Vec::new();
    for (room, file, text) in sources() {
        let errors = text.split("tracing::error!(").skip(1).filter_map(|rest| rest.split(");").next());
        if !["web", "local_kinde", "local_stripe"].contains(&room.as_str())
            && errors.clone().any(|error| !error.contains("alert = "))
        {
            silent.push(file);
        }
    }
    assert!(silent.is_empty(), "an error that alerts nobody: {silent:?}");
}

#[test]
fn long_files_are_named() {
    for (_, file, text) in sources() {
        let lines = text.lines().count();
        if lines > LONG_FILE {
            println!("{lines} lines: {}", file.display());
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// (room, file, text without its unit tests) of every source file.
fn sources() -> Vec<(String, PathBuf, String)> {
    let src = root().join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 50, "the source was not found");
    files
        .into_iter()
        .map(|file| {
            let inner = file.strip_prefix(&src).unwrap().to_owned();
            let room = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
            (room, inner, text)
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The rooms named by `crate::…` paths, grouped imports included; comments do not count.
fn imported(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rooms = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        if let Some(group) = part.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut word = String::new();
            let mut fresh = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => fresh = true,
                    c if depth == 0 && fresh && (c.is_alphanumeric() || c == '_') => {
                        word.push(c);
                        continue;
                    }
                    _ => {}
                }
                if !word.is_empty() {
                    rooms.insert(std::mem::take(&mut word));
                    fresh = false;
                }
            }
            if !word.is_empty() {
                rooms.insert(word);
            }
        } else {
            rooms.insert(part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    rooms
}
