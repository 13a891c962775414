//! What is told of an event below its sentence, to its owner and to operators alike: each step it took, what was read in it, the
//! entries it brought.

use time::OffsetDateTime;

use super::event_words::change;
use super::person::Person;
use super::shown::shown;
use super::when::{When, Zone};
use crate::billing::log::Card;
use crate::billing::record::{Asked, Entry, Receipt, Record, Said};
use crate::billing::runs::Run;
use crate::domain::event::{Source, Status};
use crate::domain::instant::Instant;

/// Who reads it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader<'a> {
    Owner(&'a Person),
    /// Is told who asked for what, and what came in which header.
    Operator,
}

/// One line of the timeline.
pub(super) struct Step {
    pub at: OffsetDateTime,
    pub when: When,
    pub what: String,
    /// As it is stored, of a run.
    pub sentence: Option<String>,
    pub change: Option<String>,
}

pub(super) struct FactView {
    pub what: &'static str,
    pub at: When,
    pub plan_key: Option<String>,
    pub agreement: Option<String>,
    /// And what happens then.
    pub effective: Option<(&'static str, When)>,
}

pub(super) struct EntryView<'a> {
    pub key: &'a str,
    pub period: &'a str,
    pub delta: String,
    pub when: When,
}

/// All that happened, oldest first. What falls on one moment keeps the order in which it has to have happened.
/// `more` is what only this reader is told.
pub(super) fn steps(reader: Reader<'_>, card: &Card, record: &Record, zone: &Zone, more: Vec<Step>) -> Vec<Step> {
    let step = |at, what: String| Step { at, when: zone.when(at), what, sentence: None, change: None };
    let mut steps = more;
    for (n, delivery) in record.deliveries.iter().enumerate() {
        let age = delivery.sent_at.map(|sent| delivery.received_at - sent).filter(|age| age.is_positive());
        let age = age.map_or_else(String::new, |age| format!(", {} after it was sent", span(age)));
        let what = match (delivery.copy, card.source) {
            (_, Source::Bottle) => "Bottle stored this itself.".to_owned(),
            (false, _) => format!("It arrived{age}, was stored, and only then was its sender told so."),
            (true, _) => format!("A copy arrived{age}: counted, nothing ran. It was copy {}.", copy_number(card, record, n)),
        };
        steps.push(Step { sentence: reader.header(delivery), ..step(delivery.received_at, what) });
    }
    for at in &record.conflicts {
        let what =
            "Something else arrived under the same id. What was stored first stands; the other is kept for a person to judge.";
        steps.push(step(*at, what.to_owned()));
    }
    for asked in &record.replays {
        steps.push(step(asked.at, reader.who(asked)));
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

pub(super) fn span(of: time::Duration) -> String {
    let secs = of.whole_seconds();
    match secs {
        0 => format!("{} ms", of.whole_milliseconds()),
        1..=119 => format!("{secs} s"),
        120..=7199 => format!("{} min", secs / 60),
        7200..=172_799 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

impl Reader<'_> {
    fn who(self, asked: &Asked) -> String {
        match (self, asked.bulk) {
            (Self::Owner(person), _) if asked.by == person.user.as_str() => "You asked for a replay.".to_owned(),
            (Self::Owner(_), _) => "Whoever runs this Bottle asked for a replay.".to_owned(),
            (Self::Operator, None) => format!("{} asked for a replay.", shown(&asked.by, 100)),
            (Self::Operator, Some(bulk)) => format!("{} asked for a replay, with bulk replay {bulk}.", shown(&asked.by, 100)),
        }
    }

    fn header(self, delivery: &Receipt) -> Option<String> {
        match self {
            Self::Owner(_) => None,
            Self::Operator => Some(
                delivery
                    .webhook_id
                    .as_deref()
                    .map_or_else(|| "no webhook-id".to_owned(), |id| format!("webhook-id {}", shown(id, 100))),
            ),
        }
    }
}

impl FactView {
    pub fn new(said: &Said, zone: &Zone) -> Self {
        let (what, takes_effect) = match said.kind.as_str() {
            "start" => ("A plan begins", "it takes effect"),
            "change" => ("The plan changes", "it takes effect"),
            "end" => ("An agreement ends", "it takes effect"),
            "paid" => ("A payment came in", ""),
            "payment_failed" => ("A payment failed", ""),
            "overdue" => ("An invoice is overdue", ""),
            "opened" => ("The month was begun", ""),
            "snapshot" => ("What the provider said is live, when asked", ""),
            "agreement" => ("How a subscription stands, by the provider’s answer", "until"),
            "agreement_over" => ("A subscription is over, by the provider’s answer", "since"),
            "invoice_paid" => ("An invoice is paid, by the provider’s answer", "its period begins"),
            "invoice_owed" => ("An invoice is owed, by the provider’s answer", ""),
            "invoice_settled" => ("On an invoice nothing is owed, by the provider’s answer", ""),
            "pack_paid" => ("A purchase is paid, by the provider’s answer", "paid"),
            "pack_awaited" => ("A purchase waits for its payment, by the provider’s answer", ""),
            "pack_failed" => ("A purchase was not paid, by the provider’s answer", ""),
            "dispute" => ("How a dispute stands, by the provider’s answer", ""),
            "moved" => ("Money moved, by the provider’s answer", "it moved"),
            _ => ("Something else", ""),
        };
        let when = |ns| zone.when(Instant::from_nanos(ns).datetime());
        Self {
            what,
            at: when(said.occurred_ns),
            plan_key: said.plan_key.as_deref().map(|key| shown(key, 100)),
            agreement: said.agreement.as_deref().map(|agreement| shown(agreement, 100)),
            effective: said.effective_ns.map(|ns| (takes_effect, when(ns))),
        }
    }
}

impl<'a> EntryView<'a> {
    pub fn new(entry: &'a Entry, zone: &Zone) -> Self {
        Self { key: &entry.key, period: &entry.period, delta: format!("{:+}", entry.delta), when: zone.when(entry.created_at) }
    }
}
