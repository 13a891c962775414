//! One event in a customer's words: what happened, what it changed, what a replay would change. The account page's cards and
//! the event's own page say the same.

use std::collections::BTreeMap;

use crate::billing::log::{Card, Newer, RUNS_COUNTED_TO};
use crate::billing::plan::CHANGE_SPAN;
use crate::billing::runs::Effects;
use crate::billing::words;
use crate::domain::event::{Source, Status};
use crate::domain::period::Period;
use crate::domain::plain;
use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE};
use crate::replay::Rehearsal;

use super::money_view;
use super::shown::shown;
use super::status_mark::{StatusMark, mark};
use super::when::{When, Zone};

/// What a reason may take up on a page.
const REASON_MAX: usize = 400;

/// An event as both pages show it.
#[derive(Debug, Clone)]
pub struct EventView {
    pub id: i64,
    pub key: String,
    pub kind: String,
    pub title: &'static str,
    pub mark: StatusMark,
    pub sentence: String,
    /// As it is stored.
    pub reason: String,
    pub change: Option<String>,
    /// Whose answer changed the plan, where the event by itself would not have.
    pub by_answer: Option<ByAnswer>,
    pub occurred: Option<When>,
    pub received: When,
    pub copies: Option<String>,
    pub runs: String,
    pub attempts: i32,
    pub next_try: Option<When>,
    pub newer: Option<NewerView>,
    /// It can be asked for now.
    pub replayable: bool,
    /// What a replay would change; none where that costs too much for a list.
    pub dry_run: Option<String>,
}

/// The provider was asked, and what it said is what counts.
#[derive(Debug, Clone)]
pub struct ByAnswer {
    pub provider: &'static str,
    pub plan: String,
}

#[derive(Debug, Clone)]
pub struct NewerView {
    pub id: i64,
    pub title: &'static str,
    pub occurred: Option<When>,
}

impl EventView {
    pub fn new(card: &Card, zone: &Zone, rehearsal: Option<&Rehearsal>) -> Self {
        let reason = card.reason.as_deref().map(|reason| shown(reason, REASON_MAX));
        let replayable = !matches!(card.status, Status::Received | Status::Processing);
        Self {
            id: card.id.0,
            key: shown(card.key.as_str(), 100),
            kind: shown(&card.kind, 100),
            title: words::title(&card.kind),
            mark: mark(card.status),
            sentence: sentence(card, reason.as_deref()),
            reason: reason.unwrap_or_else(|| "nothing stored yet".to_owned()),
            change: change(&card.changed),
            by_answer: by_answer(card),
            occurred: card.occurred_at.map(|at| zone.when(at)),
            received: zone.when(card.received_at),
            copies: (card.seen_count > 1).then(|| format!("{} copies", card.seen_count)),
            runs: runs(card.runs),
            attempts: card.attempts,
            next_try: card.due_at.filter(|_| matches!(card.status, Status::Failed | Status::Parked)).map(|at| zone.when(at)),
            newer: card.newer.as_ref().map(|newer| NewerView::new(newer, zone)),
            replayable,
            dry_run: if replayable { rehearsal.map(|rehearsal| dry_run(rehearsal, card.status)) } else { None },
        }
    }
}

impl NewerView {
    fn new(newer: &Newer, zone: &Zone) -> Self {
        Self { id: newer.id.0, title: words::title(&newer.kind), occurred: newer.occurred_at.map(|at| zone.when(at)) }
    }
}

/// An upgrade is told by several events: the first that is run changes the plan, and the others have nothing left to do. To say
/// of these that something newer was known would be right, and would help nobody.
fn sentence(card: &Card, reason: Option<&str>) -> String {
    let is_same_change = card.newer.as_ref().is_some_and(|newer| {
        let apart = card.occurred_at.zip(newer.occurred_at).map(|(this, that)| (this - that).abs());
        apart.is_some_and(|apart| apart <= CHANGE_SPAN) && words::begins_plan(&card.kind) && words::begins_plan(&newer.kind)
    });
    if card.status == Status::Ignored && is_same_change {
        return "This belongs to a change of your plan that another message had already told us of, so nothing was left to do."
            .to_owned();
    }
    plain::sentence(card.status, reason)
}

fn by_answer(card: &Card) -> Option<ByAnswer> {
    let plan = card.changed.plan.as_ref().filter(|plan| card.changed.by_answer && plan.before != plan.after)?;
    Some(ByAnswer { provider: provider_name(card.source), plan: name(&plan.after) })
}

pub fn provider_name(source: Source) -> &'static str {
    match source {
        Source::Kinde => "Kinde",
        Source::Stripe => "Stripe",
        Source::Bottle => "Bottle itself",
    }
}

fn runs(runs: i64) -> String {
    match runs {
        0 => "not run yet".to_owned(),
        1 => "run once".to_owned(),
        2 => "run twice".to_owned(),
        RUNS_COUNTED_TO => format!("run {RUNS_COUNTED_TO} times or more"),
        more => format!("run {more} times"),
    }
}

/// `Free → Pro · 10 → 500 bottles for October 2026 · paid 12.00 USD`; none if nothing changed that can be counted.
pub fn change(effects: &Effects) -> Option<String> {
    let plan = effects.plan.as_ref().filter(|p| p.before != p.after).map(|p| format!("{} → {}", name(&p.before), name(&p.after)));
    let mut months: BTreeMap<&str, i64> = BTreeMap::new();
    for entry in effects.entries.iter().filter(|e| !e.key.starts_with("free:")) {
        *months.entry(&entry.period).or_default() += entry.delta;
    }
    let bottles = months.into_iter().map(|(period, delta)| {
        let month = period.parse::<Period>().map_or_else(|_| shown(period, 20), Period::in_words);
        // The month's free bottles count whether or not their entry is written yet.
        if delta == PRO_BOTTLES_MORE {
            format!("{FREE_BOTTLES} → {} bottles for {month}", FREE_BOTTLES + delta)
        } else {
            format!("{delta:+} bottles for {month}")
        }
    });
    let money = effects.money.iter().filter_map(money_view::moved);
    let parts: Vec<String> = plan.into_iter().chain(bottles).chain(money).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// What a replay would change, in one sentence, of an event that stands as `status`.
fn dry_run(rehearsal: &Rehearsal, status: Status) -> String {
    let would = match rehearsal {
        Rehearsal::WouldFail(_) => return "A replay would fail: what is stored of it cannot be read.".to_owned(),
        Rehearsal::Would(would) => would,
    };
    let reason = &would.verdict.reason;
    if would.changes_nothing() {
        let stored = reason.to_string();
        return match reason.status() {
            Status::Parked => "A replay would change nothing: it would wait again, for the same reason.".to_owned(),
            Status::Ignored => {
                let why = stored.strip_prefix("ignored: ").unwrap_or(&stored);
                format!("A replay would change nothing: {}.", shown(why, REASON_MAX))
            }
            _ if status == Status::Applied => "A replay would change nothing: already applied.".to_owned(),
            _ => "A replay would be applied, and would change neither your plan nor your bottles.".to_owned(),
        };
    }
    if let Some(change) = change(&would.verdict.effects) {
        return format!("A replay would change this: {change}.");
    }
    let owed = (would.before.past_due_since.is_some(), would.after.past_due_since.is_some());
    match owed {
        (false, true) => "A replay would change this: a payment would be past due.".to_owned(),
        (true, false) => "A replay would change this: nothing would be past due any more.".to_owned(),
        _ if !would.verdict.effects.is_nothing() => "A replay would write the free bottles of a month.".to_owned(),
        _ => format!(
            "A replay would change when your plan changes. {}",
            plain::sentence(reason.status(), Some(&reason.to_string()))
        ),
    }
}

pub fn name(plan: &str) -> String {
    match plan {
        "pro" => "Pro".to_owned(),
        "free" => "Free".to_owned(),
        other => shown(other, 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::billing::runs::{Granted, Moved, PlanChange};

    #[test]
    fn a_change_is_said_as_before_and_after() {
        let plan = |before: &str, after: &str| Some(PlanChange { before: before.to_owned(), after: after.to_owned() });
        let entry = |key: &str, delta| Granted { key: key.to_owned(), period: "2026-10".to_owned(), delta };
        let effects = |plan, entries| Effects { plan, entries, ..Effects::default() };
        let upgrade = effects(plan("free", "pro"), vec![entry("free:1:2026-10", 10), entry("pro:1:2026-10", 490)]);
        assert_eq!(change(&upgrade).unwrap(), "Free → Pro · 10 → 500 bottles for October 2026");
        assert_eq!(change(&effects(plan("pro", "pro"), vec![])), None);
        assert_eq!(change(&effects(None, vec![entry("pack:cs_1", 50)])).unwrap(), "+50 bottles for October 2026");
        let moved = |kind: &str, amount_minor, currency: &str| Moved {
            key: String::new(),
            kind: kind.to_owned(),
            amount_minor,
            currency: currency.to_owned(),
        };
        let paid = Effects {
            money: vec![moved("charge", 500, "usd"), moved("credit", 200, "usd")],
            ..effects(None, vec![entry("pack:cs_1", 100)])
        };
        assert_eq!(change(&paid).unwrap(), "+100 bottles for October 2026 · paid 5.00 USD · 2.00 USD from your credit");
        let back = Effects { money: vec![moved("refund", -450, "jpy"), moved("what", 1, "usd")], ..Effects::default() };
        assert_eq!(change(&back).unwrap(), "450 JPY given back");
    }
}
