//! The form of a reminder: what stands in its fields, and which one is wrong.

use std::sync::LazyLock;

use time::Duration;
use uuid::Uuid;

use super::day_words::Days;
use super::fields::Fields;
use crate::domain::zone::Zone;
use crate::reminders::draft::{Draft, Field, Invalid};
use crate::reminders::repeat::Repeat;
use crate::reminders::row::Reminder;

/// What a person typed, right or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    pub text: String,
    pub date: String,
    pub time: String,
    pub zone: String,
    pub repeat: String,
}

/// How the form is told from others when it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A new reminder: sent again with this key it is the same one.
    Key(Uuid),
    /// An edit of what this version shows.
    Version(i32),
}

#[derive(Debug)]
pub struct Form {
    pub action: String,
    pub submit: &'static str,
    pub mark_name: &'static str,
    pub mark: String,
    pub typed: Typed,
    pub zones: Vec<Choice>,
    /// The zone is still to be chosen.
    pub zone_open: bool,
    pub repeats: Vec<Choice>,
    pub first_date: String,
    pub last_date: String,
    pub problem: Option<Problem>,
    /// Nobody has typed anything yet: the browser may offer its own zone.
    pub fresh: bool,
}

#[derive(Debug)]
pub struct Choice {
    pub value: String,
    pub words: &'static str,
    pub chosen: bool,
}

#[derive(Debug, Clone)]
pub struct Problem {
    /// `text`, `when`, `zone`, `repeat`.
    pub field: &'static str,
    pub sentence: String,
}

static ZONES: LazyLock<Vec<String>> = LazyLock::new(Zone::names);

impl Typed {
    pub fn of(fields: &Fields) -> Self {
        let field = |name| fields.get(name).to_owned();
        Self { text: field("text"), date: field("date"), time: field("time"), zone: field("zone"), repeat: field("repeat") }
    }

    /// A new form: the next full hour that is not just now, in the zone last used. Who never chose a zone chooses it first.
    pub fn fresh(days: &Days, zone: Option<&str>) -> Self {
        let (date, time) = match zone {
            Some(_) => {
                let at = days.here().saturating_add(jiff::Span::new().minutes(90));
                (at.strftime("%Y-%m-%d").to_string(), at.strftime("%H:00").to_string())
            }
            None => (String::new(), String::new()),
        };
        let zone = zone.unwrap_or_default().to_owned();
        Self { text: String::new(), date, time, zone, repeat: Repeat::Never.as_str().to_owned() }
    }

    pub fn stored(reminder: &Reminder) -> Self {
        Self {
            text: reminder.text.clone(),
            date: reminder.local.strftime("%Y-%m-%d").to_string(),
            time: reminder.local.strftime("%H:%M").to_string(),
            zone: reminder.zone.clone(),
            repeat: reminder.repeat.as_str().to_owned(),
        }
    }

    /// # Errors
    /// The first thing that is wrong with it.
    pub fn draft(&self) -> Result<Draft, Invalid> {
        Draft::new(&self.text, &format!("{}T{}", self.date.trim(), self.time.trim()), &self.zone, &self.repeat)
    }
}

impl Form {
    pub fn new(action: String, submit: &'static str, mark: Mark, typed: Typed, days: &Days) -> Self {
        let (mark_name, mark) = match mark {
            Mark::Key(key) => ("key", key.to_string()),
            Mark::Version(version) => ("version", version.to_string()),
        };
        // Somewhere it is still yesterday; the check is the server's.
        let today = days.here().date();
        let date = |date: jiff::civil::Date| date.strftime("%Y-%m-%d").to_string();
        Self {
            action,
            submit,
            mark_name,
            mark,
            zones: zones(&typed.zone),
            zone_open: typed.zone.is_empty(),
            repeats: Repeat::ALL.map(|r| choice(r, &typed.repeat)).into(),
            first_date: date(today.yesterday().unwrap_or(today)),
            last_date: date(today.saturating_add(jiff::SignedDuration::from_hours(Duration::days(3661).whole_hours()))),
            typed,
            problem: None,
            fresh: false,
        }
    }

    #[must_use]
    pub fn with_problem(self, problem: Option<Problem>) -> Self {
        Self { problem, ..self }
    }

    pub fn is_wrong(&self, field: &str) -> bool {
        self.problem.as_ref().is_some_and(|p| p.field == field)
    }

    pub fn sentence(&self) -> &str {
        self.problem.as_ref().map_or("", |p| p.sentence.as_str())
    }
}

impl From<&Invalid> for Problem {
    fn from(invalid: &Invalid) -> Self {
        let field = match invalid.field() {
            Field::Text => "text",
            Field::When => "when",
            Field::Zone => "zone",
            Field::Repeat => "repeat",
        };
        let sentence = match invalid {
            // The form has two fields for it.
            Invalid::NoTime => "Give a date and a time of day, such as 2026-12-24 and 18:30.".to_owned(),
            Invalid::Zone(_) => "Choose a time zone from the list; names look like Europe/Berlin.".to_owned(),
            other => other.to_string(),
        };
        Self { field, sentence }
    }
}

/// All zones by name, and the one given even if it is none.
fn zones(chosen: &str) -> Vec<Choice> {
    let option = |value: &String| Choice { value: value.clone(), words: "", chosen: value == chosen };
    let mut zones: Vec<Choice> = ZONES.iter().map(option).collect();
    if !chosen.is_empty() && !zones.iter().any(|z| z.chosen) {
        zones.insert(0, Choice { value: chosen.to_owned(), words: "", chosen: true });
    }
    zones
}

fn choice(repeat: Repeat, chosen: &str) -> Choice {
    let words = match repeat {
        Repeat::Never => "Once",
        Repeat::Daily => "Every day",
        Repeat::Weekdays => "Monday to Friday",
        Repeat::Weekly => "Every week",
        Repeat::Monthly => "Every month",
    };
    Choice { value: repeat.as_str().to_owned(), words, chosen: repeat.as_str() == chosen }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn days() -> Days {
        Days::new(datetime!(2026-10-21 21:40 UTC), Zone::parse("Europe/Berlin").unwrap())
    }

    #[test]
    fn a_new_form_offers_a_full_hour_that_is_still_to_come() {
        let typed = Typed::fresh(&days(), Some("Europe/Berlin"));
        assert_eq!((typed.date.as_str(), typed.time.as_str()), ("2026-10-22", "01:00"));
        assert!(typed.draft().is_err(), "it has no text yet");
        let unknown = Typed::fresh(&days(), None);
        assert_eq!((unknown.date.as_str(), unknown.zone.as_str()), ("", ""), "a time of no zone would be a guess");
    }

    #[test]
    fn a_zone_that_is_none_stays_in_the_list_as_it_was_typed() {
        let typed = Typed { zone: "Mars/Olympus".to_owned(), ..Typed::fresh(&days(), None) };
        let form = Form::new("/reminders".to_owned(), "Remind me", Mark::Version(3), typed, &days());
        let chosen: Vec<_> = form.zones.iter().filter(|z| z.chosen).map(|z| z.value.as_str()).collect();
        assert_eq!(chosen, ["Mars/Olympus"]);
        assert_eq!((form.first_date.as_str(), form.last_date.as_str()), ("2026-10-20", "2036-10-29"));
    }
}
