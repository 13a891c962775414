//! How the page of one event looks: the sentence first, then each step it took, then what it said.

use askama::Template;
use time::OffsetDateTime;

use super::assets;
use super::event_words::{EventView, change};
use super::page::Frame;
use super::person::Person;
use super::shown::shown;
use super::when::{When, Zone};
use crate::billing::log::Card;
use crate::billing::record::{Record, Said};
use crate::billing::runs::Run;
use crate::domain::event::{Source, Status};
use crate::domain::instant::Instant;
use crate::replay::Rehearsal;

/// More of a payload than this is to be had as a file only.
const PAYLOAD_SHOWN: usize = 32 * 1024;

pub struct Read {
    pub zone: Zone,
    pub card: Card,
    pub record: Record,
    pub rehearsal: Option<Rehearsal>,
    pub version: String,
}

/// What became of the form that was just sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A replay was asked for while one was due, running, or only just done.
    InProgress,
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
    conflicts: usize,
    payload: Option<&'a str>,
    payload_cut: bool,
    pruned: bool,
}

/// One line of the timeline.
struct Step {
    at: OffsetDateTime,
    when: When,
    what: String,
    /// As it is stored, of a run.
    sentence: Option<String>,
    change: Option<String>,
}

struct FactView {
    what: &'static str,
    at: When,
    plan_key: Option<String>,
    agreement: Option<String>,
    effective: Option<When>,
}

struct EntryView<'a> {
    key: &'a str,
    period: &'a str,
    delta: String,
    when: When,
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
    let steps = steps(person, read);
    EventPage {
        frame: Frame::new(format!("{} · Bottle", event.title), "account").of(Some(person)),
        js: assets::url("live.js"),
        version: &read.version,
        here: format!("/account/events/{}", card.id),
        zone: &zone.name,
        under_way: matches!(card.status, Status::Received | Status::Processing),
        in_progress: notice == Some(Notice::InProgress),
        event,
        source: match card.source {
            Source::Kinde => "Kinde",
            Source::Stripe => "Stripe",
            Source::Bottle => "Bottle itself",
        },
        steps_cut: i64::from(card.seen_count) > i64::try_from(record.deliveries.len()).unwrap_or(i64::MAX),
        steps,
        facts: record.facts.iter().map(|fact| FactView::new(fact, zone)).collect(),
        entries: record
            .entries
            .iter()
            .map(|e| EntryView { key: &e.key, period: &e.period, delta: format!("{:+}", e.delta), when: zone.when(e.created_at) })
            .collect(),
        conflicts: record.conflicts.len(),
        payload: shown_payload,
        payload_cut: payload.is_some_and(|text| text.len() > PAYLOAD_SHOWN),
        pruned: record.body.is_none(),
    }
    .render()
}

/// All that happened, oldest first. What falls on one moment keeps the order in which it has to have happened.
fn steps(person: &Person, read: &Read) -> Vec<Step> {
    let (zone, card, record) = (&read.zone, &read.card, &read.record);
    let step = |at, what: String| Step { at, when: zone.when(at), what, sentence: None, change: None };
    let mut steps = Vec::new();
    for (n, delivery) in record.deliveries.iter().enumerate() {
        let age = delivery.sent_at.map(|sent| delivery.received_at - sent).filter(|age| age.is_positive());
        let age = age.map_or_else(String::new, |age| format!(", {} after it was sent", span(age)));
        let what = match (delivery.copy, card.source) {
            (_, Source::Bottle) => "Bottle stored this itself.".to_owned(),
            (false, _) => format!("It arrived{age}, was stored, and only then was its sender told so."),
            (true, _) => format!("A copy arrived{age}: counted, nothing ran. It was copy {}.", copy_number(card, record, n)),
        };
        steps.push(step(delivery.received_at, what));
    }
    for at in &record.conflicts {
        let what =
            "Something else arrived under the same id. What was stored first stands; the other is kept for a person to judge.";
        steps.push(step(*at, what.to_owned()));
    }
    for asked in &record.replays {
        let who = if asked.by == person.user.as_str() {
            "You asked for a replay."
        } else {
            "Whoever runs this Bottle asked for a replay."
        };
        steps.push(step(asked.at, who.to_owned()));
    }
    steps.extend(record.runs.iter().map(|(at, run)| ran(*at, run, zone)));
    steps.sort_by_key(|step| step.at);
    if let Some(occurred) = card.occurred_at {
        // First, whatever the clocks say: it cannot have been heard of before it happened.
        steps.insert(0, step(occurred, "It happened, by the provider's clock.".to_owned()));
    }
    match card.status {
        Status::Processing => {
            let until = card.due_at.unwrap_or(card.received_at);
            let times = if record.claims > 1 {
                format!(" It was taken {} times without a verdict.", record.claims)
            } else {
                String::new()
            };
            steps.push(step(
                until,
                format!("A worker has it now, at the longest until this moment; then another takes it.{times}"),
            ));
        }
        Status::Received => steps.extend(card.due_at.map(|at| step(at, "It is due to run.".to_owned()))),
        Status::Failed => steps.extend(card.due_at.map(|at| step(at, "The next try.".to_owned()))),
        Status::Parked => steps.extend(card.due_at.map(|at| step(at, "It is looked at again.".to_owned()))),
        Status::Applied | Status::Ignored | Status::Dead => {}
    }
    steps
}

fn ran(at: OffsetDateTime, run: &Run, zone: &Zone) -> Step {
    let how = match run.status {
        Status::Applied => "It ran, and was applied",
        Status::Ignored => "It ran, and was ignored",
        Status::Failed => "It ran, and failed",
        Status::Parked => "It ran, and was put on hold",
        Status::Dead => "It ran for the last time, and was set aside",
        Status::Received | Status::Processing => "It ran",
    };
    let what = if run.requested_by.is_some() { format!("{how}, as the replay asked.") } else { format!("{how}.") };
    Step { at, when: zone.when(at), what, sentence: Some(shown(&run.sentence, 400)), change: change(&run.effects) }
}

/// The first delivery is number 1, also where the oldest are no longer shown.
fn copy_number(card: &Card, record: &Record, n: usize) -> usize {
    let hidden = usize::try_from(card.seen_count).unwrap_or(0).saturating_sub(record.deliveries.len());
    hidden + n + 1
}

fn span(of: time::Duration) -> String {
    let secs = of.whole_seconds();
    match secs {
        0 => format!("{} ms", of.whole_milliseconds()),
        1..=119 => format!("{secs} s"),
        120..=7199 => format!("{} min", secs / 60),
        7200..=172_799 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

impl FactView {
    fn new(said: &Said, zone: &Zone) -> Self {
        let what = match said.kind.as_str() {
            "start" => "A plan begins",
            "change" => "The plan changes",
            "end" => "An agreement ends",
            "paid" => "A payment came in",
            "payment_failed" => "A payment failed",
            "overdue" => "An invoice is overdue",
            "opened" => "The month was begun",
            "snapshot" => "What the provider said is live, when asked",
            _ => "Something else",
        };
        let when = |ns| zone.when(Instant::from_nanos(ns).datetime());
        Self {
            what,
            at: when(said.occurred_ns),
            plan_key: said.plan_key.as_deref().map(|key| shown(key, 100)),
            agreement: said.agreement.as_deref().map(|agreement| shown(agreement, 100)),
            effective: said.effective_ns.map(when),
        }
    }
}
