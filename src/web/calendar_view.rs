//! The page of the calendar link.

use askama::Template;

use super::assets;
use super::day_words::Words;
use super::page::Frame;
use super::person::Person;

#[derive(Debug)]
pub enum Link {
    None,
    /// Made just now: this once it can be shown.
    Fresh(String),
    /// There is one, made earlier.
    Made(Words),
    Revoked,
}

#[derive(Template)]
#[template(path = "calendar.html")]
struct CalendarPage {
    frame: Frame,
    script_js: String,
    fresh: Option<String>,
    made: Option<Words>,
    revoked: bool,
}

/// # Errors
/// Only if the template itself fails.
pub fn render(person: &Person, link: Link) -> Result<String, askama::Error> {
    let revoked = matches!(link, Link::Revoked);
    let (fresh, made) = match link {
        Link::Fresh(address) => (Some(address), None),
        Link::Made(made) => (None, Some(made)),
        Link::None | Link::Revoked => (None, None),
    };
    CalendarPage {
        frame: Frame::new("Reminders in your calendar · Bottle", "reminders").of(Some(person)),
        script_js: assets::url("reminders.js"),
        fresh,
        made,
        revoked,
    }
    .render()
}
