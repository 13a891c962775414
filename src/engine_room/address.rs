//! What an address of the Engine Room asks for, and back: the whole view is in the address, so it can be shared.
//!
//! `?script=PAY.UP.UP&stop=2-halfway&step=3&repair=dedupe.guard`. Whatever equals the article's run is left out. The editor's
//! form sends its own fields (`d` once a delivery, `stop_at`, `stop_place`, `do`), which are read here too; the address they
//! amount to is its `to_string`, and the page sends the visitor there.

use std::fmt;

use super::naive::{Repairs, UnknownRepair};
use super::scenario::{BadScript, Event, Script, shortened};
use super::stop::{Place, Stop};

/// Where the page lives.
pub const PATH: &str = "/engine-room";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub script: Script,
    /// After how many deliveries to look; none: after all of them.
    pub step: Option<usize>,
    pub repairs: Repairs,
    /// Move on by itself.
    pub play: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error(transparent)]
    Script(#[from] BadScript),
    #[error(transparent)]
    Repair(#[from] UnknownRepair),
    #[error("the step “{text}” is not a number")]
    Step { text: String },
    #[error("the editor knows no action “{text}”")]
    Edit { text: String },
}

impl Default for Address {
    fn default() -> Self {
        Self { script: Script::article(), step: None, repairs: Repairs::default(), play: false }
    }
}

impl Address {
    /// Reads a query string. No word of ours needs percent-encoding; parameters of other people are passed over.
    ///
    /// # Errors
    /// A script that cannot run, an unknown repair, a step that is no number.
    pub fn parse(query: &str) -> Result<Self, BadAddress> {
        Self::from_pairs(query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))))
    }

    /// As [`Address::parse`], from decoded pairs.
    ///
    /// # Errors
    /// As there.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Self, BadAddress> {
        let mut asked = Asked::default();
        for (key, value) in pairs {
            asked.take(key.as_ref(), value.as_ref())?;
        }
        asked.address()
    }

    /// The last step there is to look at.
    pub fn last_step(&self) -> usize {
        self.script.sends().len()
    }

    /// The step looked at; one past the end is the end.
    pub fn at_step(&self) -> usize {
        let last = self.last_step();
        self.step.map_or(last, |step| step.min(last))
    }

    /// The link from one view of the room to another.
    pub fn query(&self) -> String {
        let whole = self.to_string();
        let query = whole.strip_prefix(PATH).unwrap_or_default();
        if query.is_empty() { "?".into() } else { query.into() }
    }

    #[must_use]
    pub fn with_step(&self, step: usize) -> Self {
        let step = (step < self.last_step()).then_some(step);
        Self { step, play: false, ..self.clone() }
    }
}

/// The address as a link.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut query: Vec<String> = Vec::new();
        if !self.script.has_article_order() {
            query.push(format!("script={}", self.script));
        }
        match self.script.stop() {
            _ if self.script.is_article() => {}
            Some(stop) => query.push(format!("stop={stop}")),
            None if self.script.has_article_order() => query.push("stop=none".into()),
            None => {}
        }
        if let Some(step) = self.step {
            query.push(format!("step={step}"));
        }
        if !self.repairs.none() {
            query.push(format!("repair={}", self.repairs));
        }
        if self.play {
            query.push("play=1".into());
        }
        f.write_str(PATH)?;
        if query.is_empty() { Ok(()) } else { write!(f, "?{}", query.join("&")) }
    }
}

/// The parameters as they come.
#[derive(Default)]
struct Asked {
    script: Option<Vec<Event>>,
    stop: Option<Option<Stop>>,
    step: Option<usize>,
    repairs: Repairs,
    play: bool,
    editor: Vec<Option<Event>>,
    stop_at: Option<usize>,
    stop_place: Option<Place>,
    edit: Option<Edit>,
}

impl Asked {
    fn take(&mut self, key: &str, value: &str) -> Result<(), BadAddress> {
        match key {
            "script" => self.script = Some(Script::parse_deliveries(value)?),
            "stop" if value == "none" => self.stop = Some(None),
            "stop" => self.stop = Some(Some(value.parse()?)),
            "step" => self.step = Some(value.parse().map_err(|_| BadAddress::Step { text: shortened(value) })?),
            "repair" => {
                let more: Repairs = value.parse()?;
                super::naive::Repair::ALL
                    .into_iter()
                    .filter(|&repair| more.has(repair))
                    .for_each(|repair| self.repairs.set(repair));
            }
            "play" => self.play = value == "1",
            "d" if value.is_empty() => self.editor.push(None),
            "d" => self.editor.push(Some(value.parse()?)),
            "stop_at" if value == "none" => self.stop_at = None,
            "stop_at" => {
                let unreadable = |_| BadScript::UnreadableStop { text: shortened(value) };
                self.stop_at = Some(value.parse().map_err(unreadable)?);
            }
            "stop_place" => self.stop_place = Some(value.parse()?),
            "do" => self.edit = Some(Edit::parse(value)?),
            _ => {}
        }
        // Two over the most: enough to say so, and no more is ever held.
        self.editor.truncate(Script::MOST + 2);
        Ok(())
    }

    fn address(self) -> Result<Address, BadAddress> {
        let script = if self.editor.is_empty() { self.link_script()? } else { self.editor_script()? };
        Ok(Address { script, step: self.step, repairs: self.repairs, play: self.play })
    }

    fn link_script(&self) -> Result<Script, BadScript> {
        match (self.script.clone(), self.stop) {
            (None, None) => Ok(Script::article()),
            (None, Some(stop)) => Script::new(Script::article().deliveries().to_vec(), stop),
            (Some(deliveries), stop) => Script::new(deliveries, stop.flatten()),
        }
    }

    /// The stop stays with its delivery while others move around it.
    fn editor_script(&self) -> Result<Script, BadScript> {
        if let Some(delivery) = self.stop_at.filter(|&at| at == 0 || at > self.editor.len()) {
            return Err(BadScript::StopOutOfRange { delivery, count: self.editor.len() });
        }
        let place = self.stop_place.unwrap_or(Place::HalfWay);
        let stops_at = |n: usize| self.stop_at == Some(n);
        let mut rows: Vec<(Event, Option<Place>)> = Vec::new();
        let mut row_of: Vec<Option<usize>> = Vec::new();
        for (n, event) in (1..).zip(&self.editor) {
            row_of.push(event.map(|_| rows.len()));
            rows.extend(event.map(|event| (event, stops_at(n).then_some(place))));
        }
        if let Some(edit) = self.edit {
            edit.apply(&mut rows, |n| row_of.get(n.wrapping_sub(1)).copied().flatten());
        }
        let stop = (1..).zip(&rows).find_map(|(delivery, &(_, place))| place.map(|place| Stop { delivery, place }));
        Script::new(rows.into_iter().map(|(event, _)| event).collect(), stop)
    }
}

/// A button of the editor, at a row counted from 1.
#[derive(Clone, Copy)]
enum Edit {
    Earlier(usize),
    Later(usize),
    Copy(usize),
    Remove(usize),
    Add(Event),
}

impl Edit {
    fn parse(text: &str) -> Result<Self, BadAddress> {
        let unknown = || BadAddress::Edit { text: shortened(text) };
        let (action, at) = text.split_once('-').ok_or_else(unknown)?;
        if action == "add" {
            return Ok(Self::Add(at.parse()?));
        }
        let row = at.parse().map_err(|_| unknown())?;
        match action {
            "earlier" => Ok(Self::Earlier(row)),
            "later" => Ok(Self::Later(row)),
            "copy" => Ok(Self::Copy(row)),
            "remove" => Ok(Self::Remove(row)),
            _ => Err(unknown()),
        }
    }

    /// `place_of` finds where a row of the form stands now: a row set to "remove" stands nowhere, and the edit is moot.
    fn apply(self, rows: &mut Vec<(Event, Option<Place>)>, place_of: impl Fn(usize) -> Option<usize>) {
        match self {
            Self::Add(event) => rows.push((event, None)),
            Self::Earlier(n) => {
                if let Some(at) = place_of(n).filter(|&at| at > 0) {
                    rows.swap(at, at - 1);
                }
            }
            Self::Later(n) => {
                if let Some(at) = place_of(n).filter(|&at| at + 1 < rows.len()) {
                    rows.swap(at, at + 1);
                }
            }
            Self::Copy(n) => {
                if let Some(at) = place_of(n) {
                    rows.insert(at + 1, (rows[at].0, None));
                }
            }
            Self::Remove(n) => {
                if let Some(at) = place_of(n) {
                    rows.remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn stays(query: &str) {
        let address = Address::parse(query).unwrap();
        let shown = address.to_string();
        assert_eq!(shown, if query.is_empty() { PATH.into() } else { format!("{PATH}?{query}") });
        assert_eq!(Address::parse(shown.trim_start_matches(PATH).trim_start_matches('?')).unwrap(), address);
    }

    #[track_caller]
    fn becomes(query: &str, shown: &str) {
        assert_eq!(Address::parse(query).map(|a| a.to_string()).map_err(|e| e.to_string()).as_deref(), Ok(shown));
    }

    #[track_caller]
    fn refused(query: &str, says: &str) {
        let said = Address::parse(query).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }

    #[test]
    fn an_address_is_read_and_written_alike() {
        stays("");
        stays("step=0");
        stays("stop=none");
        stays("stop=5-before-mark&step=3");
        stays("script=UP.PAY.OLD");
        stays("script=PAY.UP.UP.PAY.OLD&stop=2-after-store&step=4&repair=dedupe.guard&play=1");
        stays("repair=dedupe.transaction.guard.key");
    }

    #[test]
    fn what_equals_the_article_is_left_out() {
        becomes("script=PAY.UP.UP.PAY.PAY.PAY.OLD.UP.PAY&stop=2-halfway", "/engine-room");
        becomes("script=PAY.UP.UP.PAY.PAY.PAY.OLD.UP.PAY", "/engine-room?stop=none");
        becomes(
            "script=pay.up&utm_source=elsewhere&repair=guard&repair=dedupe",
            "/engine-room?script=PAY.UP&repair=dedupe.guard",
        );
    }

    #[test]
    fn an_address_that_cannot_be_shown_says_why() {
        refused("script=", "at least one");
        refused("script=UP.DOWN", "no event called “DOWN”");
        refused(&format!("script={}", ["UP"; 21].join(".")), "at most 20 deliveries, and this one has 21");
        refused("stop=10-halfway", "at delivery 10, but the script has 9");
        refused("stop=0-halfway", "at delivery 0");
        refused("stop=2-somewhere", "cannot stop at “somewhere”");
        refused("stop=halfway", "write it like 2-halfway");
        refused("step=one", "not a number");
        refused("repair=prayer", "no repair called “prayer”");
        refused("d=UP&do=explode-1", "no action");
        refused(&"d=UP&".repeat(30), "at most 20");
    }

    #[test]
    fn the_editor_moves_copies_and_removes_and_the_stop_follows_its_delivery() {
        let form = "d=PAY&d=UP&d=OLD&d=&stop_at=2&stop_place=halfway";
        becomes(form, "/engine-room?script=PAY.UP.OLD&stop=2-halfway");
        becomes(&format!("{form}&do=earlier-2"), "/engine-room?script=UP.PAY.OLD&stop=1-halfway");
        becomes(&format!("{form}&do=later-2"), "/engine-room?script=PAY.OLD.UP&stop=3-halfway");
        becomes(&format!("{form}&do=copy-1"), "/engine-room?script=PAY.PAY.UP.OLD&stop=3-halfway");
        becomes(&format!("{form}&do=remove-2"), "/engine-room?script=PAY.OLD");
        becomes(&format!("{form}&do=add-PAY"), "/engine-room?script=PAY.UP.OLD.PAY&stop=2-halfway");
        becomes("d=&d=UP&d=PAY&stop_at=3&stop_place=before-store", "/engine-room?script=UP.PAY&stop=2-before-store");
        becomes("d=UP&d=PAY&stop_at=none&stop_place=halfway&do=earlier-1", "/engine-room?script=UP.PAY");
        refused("d=&d=", "at least one");
        refused("d=UP&stop_at=7", "at delivery 7");
    }

    #[test]
    fn a_step_past_the_end_is_the_end() {
        let at = |query| Address::parse(query).unwrap().at_step();
        assert_eq!((at("step=0"), at("step=99"), at("")), (0, 9, 9));
        assert_eq!(at("script=UP&stop=1-before-store"), 2);
    }
}
