//! How one event looks to operators: as to its owner, and with what its owner is not shown.

use std::fmt::Write as _;

use askama::Template;
use time::OffsetDateTime;
use uuid::Uuid;

use super::difference::{self, Difference, differences};
use super::guard::Operator;
use super::said::Notice;
use super::words::until;
use crate::billing::log::Card;
use crate::billing::record::Record;
use crate::domain::event::{Source, Status};
use crate::inbox::inspect::{Conflict, Inspected};
use crate::operators::notes::Note;
use crate::providers;
use crate::replay::Rehearsal;
use crate::web::assets;
use crate::web::event::masked_text;
use crate::web::event_steps::{EntryView, FactView, Reader, Step, steps};
use crate::web::event_view::{PAYLOAD_SHOWN, payload_use};
use crate::web::event_words::EventView;
use crate::web::event_words::provider_name;
use crate::web::mask;
use crate::web::money_view::LineView;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::when::{When, Zone};

pub(super) struct Read {
    pub zone: Zone,
    pub card: Card,
    pub record: Record,
    pub inspected: Inspected,
    pub rehearsal: Option<Rehearsal>,
    pub notes: Vec<Note>,
    /// What to call whoever owns it.
    pub owner: Option<String>,
    pub version: String,
}

#[derive(Template)]
#[template(path = "ops_event.html")]
struct EventPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    js: String,
    version: &'a str,
    here: String,
    zone: &'a str,
    event: EventView,
    under_way: bool,
    source: &'static str,
    owner: Option<(i64, String)>,
    /// Its owner is whoever looks.
    own: bool,
    next: Option<String>,
    attempts: i32,
    claims: i32,
    waits_for: Option<String>,
    last_error: Option<String>,
    webhook_id: Option<String>,
    digest: String,
    steps: Vec<Step>,
    steps_cut: bool,
    facts: Vec<FactView>,
    entries: Vec<EntryView<'a>>,
    money: Vec<LineView>,
    payload_use: &'static str,
    conflicts: Vec<ConflictView>,
    payload: Option<&'a str>,
    payload_cut: bool,
    payload_at: String,
    pruned: bool,
    notes: Vec<NoteView>,
    /// It may be taken out of its box, as it stood then.
    boxed: Option<String>,
    acknowledged: bool,
    note_key: Uuid,
    acknowledge_key: Uuid,
}

struct ConflictView {
    when: When,
    webhook_id: String,
    digest: String,
    differences: Vec<Difference>,
    cut: bool,
    /// One of the two cannot be read, or is no longer kept.
    unreadable: bool,
}

struct NoteView {
    when: When,
    by: String,
    note: String,
    /// It took the event out of its box.
    acknowledges: bool,
    /// What it spoke of is over.
    stale: bool,
}

pub(super) fn render(operator: &Operator, read: &Read, notice: Option<Notice>) -> Result<String, askama::Error> {
    let (zone, card, record, inspected) = (&read.zone, &read.card, &read.record, &read.inspected);
    let payload = record.body.as_deref().and_then(|body| masked_text(card.source, body));
    let event = EventView::new(card, zone, read.rehearsal.as_ref());
    let verdict = verdict(inspected);
    let in_a_box = matches!(card.status, Status::Dead | Status::Parked);
    let acknowledged = in_a_box && read.notes.iter().any(|note| note.acknowledges == Some(verdict));
    let noted = read.notes.iter().map(|note| noted(note, zone)).collect();
    EventPage {
        frame: Frame::new(format!("Event {} · Operators · Bottle", card.id), "ops").of(Some(operator.person())),
        tab: "events",
        notice,
        js: assets::url("live.js"),
        version: &read.version,
        here: format!("/ops/events/{}", card.id),
        zone: &zone.name,
        under_way: matches!(card.status, Status::Received | Status::Processing),
        source: provider_name(card.source),
        owner: inspected.account.map(|id| (id.0, shown(read.owner.as_deref().unwrap_or("somebody"), 80))),
        own: inspected.account == Some(operator.person().account),
        next: card.due_at.filter(|_| matches!(card.status, Status::Failed | Status::Parked)).map(|at| until(at, inspected.now)),
        attempts: inspected.attempts,
        claims: inspected.claims,
        waits_for: inspected.waits_for.as_deref().map(|what| shown(what, 120)),
        last_error: inspected.last_error.as_deref().map(|error| shown(error, 2_000)),
        webhook_id: inspected.webhook_id.as_deref().map(|id| shown(id, 100)),
        digest: hex(&inspected.digest),
        steps: steps(Reader::Operator, card, record, zone, noted),
        steps_cut: i64::from(card.seen_count) > i64::try_from(record.deliveries.len()).unwrap_or(i64::MAX),
        facts: record.facts.iter().map(|fact| FactView::new(fact, zone)).collect(),
        entries: record.entries.iter().map(|entry| EntryView::new(entry, zone)).collect(),
        money: record.money.iter().map(|line| LineView::new(line, zone)).collect(),
        payload_use: payload_use(card.source),
        conflicts: inspected.conflicts.iter().map(|other| ConflictView::new(card.source, record, other, zone)).collect(),
        payload: payload.as_deref().map(|text| &text[..text.floor_char_boundary(PAYLOAD_SHOWN)]),
        payload_cut: payload.as_deref().is_some_and(|text| text.len() > PAYLOAD_SHOWN),
        payload_at: format!("/ops/events/{}/payload", card.id),
        pruned: record.body.is_none(),
        notes: read.notes.iter().map(|note| NoteView::new(note, verdict, in_a_box, zone)).collect(),
        boxed: (in_a_box && !acknowledged).then(|| micros(verdict).to_string()),
        acknowledged,
        note_key: Uuid::new_v4(),
        acknowledge_key: Uuid::new_v4(),
        event,
    }
    .render()
}

/// When it came to stand as it does.
fn verdict(inspected: &Inspected) -> OffsetDateTime {
    inspected.processed_at.unwrap_or(inspected.received_at)
}

/// As a form carries it: the database keeps no finer times.
pub(super) fn micros(at: OffsetDateTime) -> i128 {
    at.unix_timestamp_nanos() / 1_000
}

fn noted(note: &Note, zone: &Zone) -> Step {
    let did = if note.acknowledges.is_some() { "acknowledged it" } else { "wrote a note" };
    Step {
        at: note.at,
        when: zone.when(note.at),
        what: format!("{} {did}.", shown(&note.by, 100)),
        sentence: Some(shown(&note.note, 400)),
        change: None,
    }
}

impl NoteView {
    fn new(note: &Note, verdict: OffsetDateTime, in_a_box: bool, zone: &Zone) -> Self {
        Self {
            when: zone.when(note.at),
            by: shown(&note.by, 100),
            note: shown(&note.note, 2_000),
            acknowledges: note.acknowledges.is_some(),
            stale: note.acknowledges.is_some_and(|of| of != verdict || !in_a_box),
        }
    }
}

impl ConflictView {
    fn new(source: Source, record: &Record, other: &Conflict, zone: &Zone) -> Self {
        let said = |body: &[u8]| providers::payload(source, body).map(mask::masked);
        let both = record.body.as_deref().and_then(said).zip(said(&other.body));
        let mut found = both.as_ref().map(|(first, other)| differences(first, other)).unwrap_or_default();
        let cut = found.len() > difference::SHOWN;
        found.truncate(difference::SHOWN);
        Self {
            when: zone.when(other.received_at),
            webhook_id: other.webhook_id.as_deref().map_or_else(|| "none".to_owned(), |id| shown(id, 100)),
            digest: hex(&other.digest),
            differences: found,
            cut,
            unreadable: both.is_none(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
