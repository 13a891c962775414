//! This machine: room for the private cluster's files.

use super::line::Line;
use crate::config::Config;

const WRONG_BELOW: u64 = 256 << 20;
const WARNING_BELOW: u64 = 2 << 30;

/// Nothing of a database elsewhere lies here.
pub fn look(config: &Config) -> Vec<Line> {
    if config.database.url.is_some() {
        return Vec::new();
    }
    let folder = &config.database.data;
    // Before the first start there is no folder; its file system is that of the nearest one above it.
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    let there = absolute.ancestors().find(|path| path.is_dir());
    let Some(room) = there.and_then(|path| rustix::fs::statvfs(path).ok()) else {
        return vec![Line::warning(
            "disk",
            format!("{} cannot be looked at", folder.display()),
            "look whether BOTTLE_DATA is right",
        )];
    };
    vec![judged(room.f_bavail.saturating_mul(room.f_frsize), &folder.display().to_string())]
}

fn judged(free: u64, folder: &str) -> Line {
    let words = format!("{} MB are free for {folder}", free >> 20);
    let todo = "make room: a full disk stops PostgreSQL, and every delivery is answered with 503 until there is some";
    match free {
        0..WRONG_BELOW => Line::wrong("disk", words, todo),
        WRONG_BELOW..WARNING_BELOW => Line::warning("disk", words, todo),
        _ => Line::ok("disk", words),
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::State;
    use super::*;

    #[test]
    fn little_room_is_told_of_before_there_is_none() {
        let of = |free| judged(free, ".bottle").state;
        assert_eq!((of(0), of(WRONG_BELOW), of(WARNING_BELOW)), (State::Wrong, State::Warning, State::Ok));
    }
}
