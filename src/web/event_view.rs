//! How the page of one event looks: the sentence first, then each step it took, then what it said.

use askama::Template;

use super::assets;
use super::event_steps::{EntryView, FactView, Reader, Step, steps};
use super::event_words::{EventView, provider_name};
use super::money_view::LineView;
use super::page::Frame;
use super::person::Person;
use super::when::Zone;
use crate::billing::log::Card;
use crate::billing::record::Record;
use crate::domain::event::{Source, Status};
use crate::domain::ids::EventId;
use crate::replay::Rehearsal;

/// More of a payload than this is to be had as a file only.
pub(super) const PAYLOAD_SHOWN: usize = 32 * 1024;

pub struct Read {
    pub zone: Zone,
    pub card: Card,
    pub record: Record,
    pub rehearsal: Option<Rehearsal>,
    pub version: String,
}

/// How much of what a message says is used.
pub(super) const fn payload_use(source: Source) -> &'static str {
    match source {
        Source::Kinde => "Kinde’s messages carry no amounts of money.",
        Source::Stripe => "Of it only the ids were used: what is true, Stripe was asked for.",
        Source::Bottle => "",
    }
}

/// What became of the form that was just sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A replay was asked for while one was due, running, or only just done.
    InProgress,
}

impl Notice {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in-progress",
        }
    }

    /// The event's page, saying it.
    pub fn address(self, event: EventId) -> String {
        format!("/account/events/{event}?said={}#replay", self.as_str())
    }
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage<'a> {
    frame: Frame,
    js: String,
    version: &'a str,
    here: String,
    zone: &'a str,
    event: EventView,
    under_way: bool,
    in_progress: bool,
    source: &'static str,
    steps: Vec<Step>,
    steps_cut: bool,
    facts: Vec<FactView>,
    entries: Vec<EntryView<'a>>,
    money: Vec<LineView>,
    /// How much of what it said is used.
    payload_use: &'static str,
    conflicts: usize,
    payload: Option<&'a str>,
    payload_cut: bool,
    payload_at: String,
    pruned: bool,
}

pub(super) fn render(
    person: &Person,
    read: &Read,
    payload: Option<&str>,
    notice: Option<Notice>,
) -> Result<String, askama::Error> {
    let (zone, card, record) = (&read.zone, &read.card, &read.record);
    let event = EventView::new(card, zone, read.rehearsal.as_ref());
    let shown_payload = payload.map(|text| &text[..text.floor_char_boundary(PAYLOAD_SHOWN)]);
    let steps = steps(Reader::Owner(person), card, record, zone, Vec::new());
    EventPage {
        frame: Frame::new(format!("{} · Bottle", event.title), "account").of(Some(person)),
        js: assets::url("live.js"),
        version: &read.version,
        here: format!("/account/events/{}", card.id),
        zone: &zone.name,
        under_way: matches!(card.status, Status::Received | Status::Processing),
        in_progress: notice == Some(Notice::InProgress),
        event,
        source: provider_name(card.source),
        payload_at: format!("/account/events/{}/payload", card.id),
        steps_cut: i64::from(card.seen_count) > i64::try_from(record.deliveries.len()).unwrap_or(i64::MAX),
        steps,
        facts: record.facts.iter().map(|fact| FactView::new(fact, zone)).collect(),
        entries: record.entries.iter().map(|entry| EntryView::new(entry, zone)).collect(),
        money: record.money.iter().map(|line| LineView::new(line, zone)).collect(),
        payload_use: payload_use(card.source),
        conflicts: record.conflicts.len(),
        payload: shown_payload,
        payload_cut: payload.is_some_and(|text| text.len() > PAYLOAD_SHOWN),
        pruned: record.body.is_none(),
    }
    .render()
}
