//! A second fold, written apart from the first and read straight off the billing rules: sets of facts, `any` and `all`, one
//! rule a function. It is slow and means to be; where the two disagree on a history, one of them misread a rule.
//!
//! Below it stand the rules as a table of short histories, each with the sentence it holds to.

use std::collections::BTreeSet;

use bottle::domain::event::Source;
use bottle::domain::fact::{Agreement, Dated, Fact, InvoiceState, LiveAgreement};
use bottle::domain::ids::AgreementId;
use bottle::domain::instant::Instant;
use bottle::domain::period::Period;
use bottle::domain::plan::{Plan, PlanKeys};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleState {
    pub plan: Plan,
    pub plan_changed_at: Option<Instant>,
    pub past_due_since: Option<Instant>,
    pub pro_periods: BTreeSet<Period>,
}

/// Nanoseconds, wide enough that no sum of two times overflows.
type Ns = i128;
type Facts<'a> = Vec<&'a Dated>;

/// The span of one change.
const CHANGE: Ns = 10 * 1_000_000_000;
/// By how much a provider's answers may lag behind its events.
const LAG: Ns = 600 * 1_000_000_000;
/// How long after what made it Pro a payment naming no agreement still belongs to it.
const BELONGS: Ns = 45 * 86_400 * 1_000_000_000;

/// The state of one account from the set of its facts.
pub fn oracle(facts: &[Dated], keys: &PlanKeys, now: Instant) -> OracleState {
    let now = ns(now);
    let tales = [Source::Kinde, Source::Stripe].map(|source| told_by(source, facts));
    let verdicts = || tales.iter().map(|tale| decide(tale, keys, now));
    let plan = if verdicts().any(|verdict| verdict.plan == Plan::Pro) { Plan::Pro } else { Plan::Free };
    OracleState {
        plan,
        plan_changed_at: verdicts().filter(|verdict| verdict.plan == plan).filter_map(|verdict| verdict.since).max().map(instant),
        past_due_since: tales.iter().filter_map(|tale| past_due_since(tale, keys, now)).min(),
        pro_periods: tales.iter().flat_map(|tale| pro_periods(tale, keys)).collect(),
    }
}

/// Each source is folded by itself; what we opened ourselves belongs to all of them.
fn told_by(source: Source, facts: &[Dated]) -> Facts<'_> {
    let told: Facts<'_> = facts.iter().filter(|dated| dated.source == source || dated.fact == Fact::Opened).collect();
    told.iter().copied().filter(|dated| !is_out_of_date(dated, &told)).collect()
}

/// An answer that contradicts what happened in the ten minutes before we asked was read from before that.
fn is_out_of_date(answer: &Dated, facts: &[&Dated]) -> bool {
    let Fact::Snapshot { live } = &answer.fact else { return false };
    let earlier = || facts.iter().copied().filter(|dated| dated.order() < answer.order());
    let recent = || earlier().filter(|dated| ns(answer.at) - ns(dated.at) <= LAG);
    let lacks_the_last_start =
        recent().filter(|dated| is_start(dated)).max_by(|a, b| a.order().cmp(&b.order())).is_some_and(|start| {
            let Fact::Start { agreement, plan_key, changed } = &start.fact else { unreachable!("it is a Start") };
            let listed = live.iter().any(|one| {
                one.plan_key == *plan_key && (*changed || agreement.is_none() || agreement.as_ref() == Some(&one.agreement))
            });
            let explained = earlier().filter_map(end).any(|end| {
                let over = end.takes_effect <= ns(answer.at);
                let its_own = end.named.is_some() && end.named == agreement.as_ref() && end.at >= ns(start.at) - CHANGE;
                let maybe_its_own = (end.named.is_none() || agreement.is_none()) && end.at > ns(start.at) + CHANGE;
                over && (its_own || maybe_its_own)
            });
            !listed && !explained
        });
    let lists_what_ended = recent().filter_map(end).any(|end| {
        let Some(ended) = end.named else { return false };
        let again = earlier().any(|start| is_start(start) && names(start, ended) && ns(start.at) > end.at + CHANGE);
        end.takes_effect <= ns(answer.at) && live.iter().any(|one| one.agreement == *ended) && !again
    });
    lacks_the_last_start || lists_what_ended
}

fn ns(at: Instant) -> Ns {
    Ns::from(at.nanos())
}

fn instant(at: Ns) -> Instant {
    Instant::from_nanos(i64::try_from(at).expect("a moment taken from a fact"))
}

// ---- the plan --------------------------------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
struct Verdict {
    plan: Plan,
    since: Option<Ns>,
}

impl Verdict {
    /// What never leaves a payer on Free.
    fn better(self, other: Self) -> Self {
        if (other.plan, other.since) > (self.plan, self.since) { other } else { self }
    }
}

/// What could decide the plan: a Start that was told, or an agreement that the last snapshot listed as live.
#[derive(Debug, Clone, Copy)]
enum Candidate<'a> {
    Told(&'a Dated),
    Listed {
        snapshot: &'a Dated,
        live: &'a LiveAgreement,
        deciding: Ns,
    },
    /// The answer that counts about one agreement.
    Answered {
        answer: &'a Dated,
        agreement: &'a Agreement,
    },
}

#[derive(Debug, Clone, Copy)]
struct End<'a> {
    at: Ns,
    takes_effect: Ns,
    named: Option<&'a AgreementId>,
}

/// The facts of one source, seen at one moment.
struct Sight<'a> {
    facts: &'a [&'a Dated],
    t: Ns,
    keys: &'a PlanKeys,
}

/// The plan is that of the newest live Start; with none it is Free.
fn decide(facts: &[&Dated], keys: &PlanKeys, t: Ns) -> Verdict {
    let sight = Sight { facts, t, keys };
    match sight.newest_live(|_| true) {
        Some(newest) => match keys.plan_of(newest.plan_key()) {
            Some(plan) => Verdict { plan, since: Some(newest.deciding()) },
            None => {
                let before = as_before(newest.changed_at(), facts, keys);
                let known = sight.newest_live(|one| keys.plan_of(one.plan_key()).is_some());
                let known = known.map(|one| (keys.plan_of(one.plan_key()), Some(one.deciding())));
                known.into_iter().filter_map(|(plan, since)| Some(Verdict { plan: plan?, since })).fold(before, Verdict::better)
            }
        },
        None => Verdict { plan: Plan::Free, since: sight.free_since(keys) },
    }
}

/// A plan nobody knows leaves standing what stood before that change.
fn as_before(t: Ns, facts: &[&Dated], keys: &PlanKeys) -> Verdict {
    let earlier: Facts<'_> = facts.iter().copied().filter(|dated| ns(dated.at) < t).collect();
    decide(&earlier, keys, t)
}

impl<'a> Sight<'a> {
    fn snapshot(&self) -> Option<&'a Dated> {
        let snapshots = || self.facts.iter().copied().filter(|dated| matches!(dated.fact, Fact::Snapshot { .. }));
        snapshots().find(|one| snapshots().all(|other| other.order() <= one.order()))
    }

    fn ends(&self) -> impl Iterator<Item = End<'a>> {
        self.facts.iter().filter_map(|dated| end(dated))
    }

    /// With a snapshot: what it lists, and what was told after it. Without: all Starts.
    fn candidates(&self) -> Vec<Candidate<'a>> {
        let snapshot = self.snapshot();
        let counts = |start: &Dated| snapshot.is_none_or(|snapshot| start.order() > snapshot.order());
        let told = self.facts.iter().copied().filter(|dated| is_start(dated) && counts(dated)).map(Candidate::Told);
        let listed = snapshot.into_iter().flat_map(|snapshot| self.listed(snapshot));
        told.chain(listed).chain(self.answered()).collect()
    }

    /// About each agreement one answer counts: that it is over, else the newest. One that ended as it began never was.
    fn answered(&self) -> Vec<Candidate<'a>> {
        let all: Vec<(&'a Dated, &'a Agreement)> = self.facts.iter().filter_map(|dated| answer(dated)).collect();
        let outdone = |(dated, one): &(&Dated, &Agreement)| {
            all.iter()
                .any(|(other, later)| later.agreement == one.agreement && (later.over, other.order()) > (one.over, dated.order()))
        };
        let counts = all.iter().filter(|one| !outdone(one) && one.1.until.is_none_or(|until| until > one.1.began));
        counts.map(|(answer, agreement)| Candidate::Answered { answer, agreement }).collect()
    }

    fn listed(&self, snapshot: &'a Dated) -> Vec<Candidate<'a>> {
        let Fact::Snapshot { live } = &snapshot.fact else { return Vec::new() };
        live.iter().map(|live| Candidate::Listed { snapshot, live, deciding: self.deciding(snapshot, live) }).collect()
    }

    /// A listed agreement decides from the last time it was told to begin with that plan, else from the moment we asked.
    fn deciding(&self, snapshot: &Dated, live: &LiveAgreement) -> Ns {
        let begins = |dated: &Dated| match &dated.fact {
            Fact::Start { agreement, plan_key, .. } => agreement.as_ref() == Some(&live.agreement) && *plan_key == live.plan_key,
            _ => false,
        };
        let told = || self.facts.iter().filter(|dated| begins(dated) && dated.order() < snapshot.order());
        told().map(|dated| ns(dated.at)).max().unwrap_or(ns(snapshot.at))
    }

    fn newest_live(&self, counts: impl Fn(&Candidate<'a>) -> bool) -> Option<Candidate<'a>> {
        let live: Vec<_> = self.candidates().into_iter().filter(|one| counts(one) && self.is_live(one)).collect();
        live.iter().copied().find(|one| live.iter().all(|other| !other.is_newer_than(one, self.keys)))
    }

    fn is_live(&self, start: &Candidate<'a>) -> bool {
        if let Candidate::Answered { agreement, .. } = start {
            return agreement.until.is_none_or(|until| ns(until) > self.t);
        }
        self.ends().filter(|end| self.is_ended_by(start, end)).all(|end| end.takes_effect > self.t)
    }

    fn is_ended_by(&self, start: &Candidate<'a>, end: &End<'a>) -> bool {
        match start {
            Candidate::Told(_) => self.told_is_ended_by(start, end),
            Candidate::Listed { snapshot, live, .. } => listed_is_ended_by(ns(snapshot.at), &live.agreement, end),
            // Nobody else is asked when it ends.
            Candidate::Answered { .. } => false,
        }
    }

    fn told_is_ended_by(&self, start: &Candidate<'a>, end: &End<'a>) -> bool {
        match (self.counts_as_naming(start), end.named) {
            // Its own end, unless it was re-activated since.
            (Some(agreement), Some(ended)) => agreement == ended && end.at >= start.at() - CHANGE,
            (_, None) => end.at > start.at() + CHANGE,
            (None, Some(ended)) => end.at > start.at() + CHANGE && !self.lives_one_other_than(ended),
        }
    }

    fn lives_one_other_than(&self, ended: &AgreementId) -> bool {
        self.candidates().iter().any(|one| self.counts_as_naming(one).is_some_and(|named| named != ended) && self.is_live(one))
    }

    /// A plan change may name the agreement it left: if that one ended with the change, it names none.
    fn counts_as_naming(&self, start: &Candidate<'a>) -> Option<&'a AgreementId> {
        let left = |agreement: &AgreementId| {
            self.ends().any(|end| end.named == Some(agreement) && (end.at - start.at()).abs() <= CHANGE)
        };
        start.named().filter(|agreement| !(start.is_change() && left(agreement)))
    }

    /// No Start is live: when that came to be, as far as it is known.
    fn free_since(&self, keys: &PlanKeys) -> Option<Ns> {
        let ended = self.candidates().iter().filter_map(|start| self.ended_at(start)).max();
        ended.or_else(|| self.snapshot().map(|snapshot| self.free_without_snapshots(keys).unwrap_or(ns(snapshot.at))))
    }

    fn ended_at(&self, start: &Candidate<'a>) -> Option<Ns> {
        if let Candidate::Answered { agreement, .. } = start {
            return agreement.until.map(ns);
        }
        self.ends().filter(|end| self.is_ended_by(start, end)).map(|end| end.takes_effect).min()
    }

    fn free_without_snapshots(&self, keys: &PlanKeys) -> Option<Ns> {
        let told: Facts<'_> = self.facts.iter().copied().filter(|dated| !matches!(dated.fact, Fact::Snapshot { .. })).collect();
        let verdict = decide(&told, keys, self.t);
        verdict.since.filter(|_| verdict.plan == Plan::Free)
    }
}

/// What a snapshot lists was live when we asked: only an end that comes or takes effect after that is news.
fn listed_is_ended_by(asked: Ns, agreement: &AgreementId, end: &End<'_>) -> bool {
    if end.named.is_some_and(|ended| ended != agreement) {
        return false;
    }
    let already_known = end.at <= asked;
    let slack = if end.named.is_none() { CHANGE } else { 0 };
    if already_known { end.takes_effect > asked } else { end.at > asked + slack }
}

impl<'a> Candidate<'a> {
    /// What was known before this is what was before it.
    fn changed_at(&self) -> Ns {
        match self {
            Self::Answered { answer, .. } => ns(answer.at),
            Self::Told(_) | Self::Listed { .. } => self.deciding() - CHANGE,
        }
    }

    fn at(&self) -> Ns {
        match self {
            Self::Told(dated) => ns(dated.at),
            Self::Listed { snapshot, .. } => ns(snapshot.at),
            Self::Answered { agreement, .. } => ns(agreement.began),
        }
    }

    fn deciding(&self) -> Ns {
        match self {
            Self::Told(dated) => ns(dated.at),
            Self::Listed { deciding, .. } => *deciding,
            Self::Answered { agreement, .. } => ns(agreement.began),
        }
    }

    fn plan_key(&self) -> &'a str {
        match self {
            Self::Told(Dated { fact: Fact::Start { plan_key, .. }, .. }) => plan_key,
            Self::Told(_) => unreachable!("only Starts are candidates"),
            Self::Listed { live, .. } => &live.plan_key,
            Self::Answered { agreement, .. } => &agreement.plan_key,
        }
    }

    /// The agreement as it was named.
    fn named(&self) -> Option<&'a AgreementId> {
        match self {
            Self::Told(Dated { fact: Fact::Start { agreement, .. }, .. }) => agreement.as_ref(),
            Self::Told(_) => None,
            Self::Listed { live, .. } => Some(&live.agreement),
            Self::Answered { agreement, .. } => Some(&agreement.agreement),
        }
    }

    fn is_change(&self) -> bool {
        matches!(self, Self::Told(Dated { fact: Fact::Start { changed: true, .. }, .. }))
    }

    fn is_newer_than(&self, other: &Self, keys: &PlanKeys) -> bool {
        match (self, other) {
            (Self::Answered { agreement: one, .. }, Self::Answered { agreement: other, .. }) => {
                // Whoever pays for Pro has it.
                let weight = |one: &Agreement| (keys.plan_of(&one.plan_key), one.began, one.agreement.clone());
                weight(one) > weight(other)
            }
            (Self::Answered { .. }, _) => false,
            (_, Self::Answered { .. }) => true,
            (Self::Told(one), Self::Told(other)) => one.order() > other.order(),
            (Self::Told(_), Self::Listed { .. }) => true,
            (Self::Listed { .. }, Self::Told(_)) => false,
            (Self::Listed { .. }, Self::Listed { .. }) => {
                // Of two that nobody told us about, Pro counts for more than Free, and either for more than an unknown key.
                let weight = |one: &Self| (one.deciding(), keys.plan_of(one.plan_key()), one.plan_key().to_owned());
                weight(self) > weight(other)
            }
        }
    }
}

fn is_start(dated: &Dated) -> bool {
    matches!(dated.fact, Fact::Start { .. })
}

fn answer(dated: &Dated) -> Option<(&Dated, &Agreement)> {
    match &dated.fact {
        Fact::Agreement(agreement) => Some((dated, agreement)),
        _ => None,
    }
}

fn end(dated: &Dated) -> Option<End<'_>> {
    match &dated.fact {
        Fact::End { agreement, effective } => {
            let takes_effect = ns(effective.unwrap_or(dated.at).max(dated.at));
            Some(End { at: ns(dated.at), takes_effect, named: agreement.as_ref() })
        }
        _ => None,
    }
}

// ---- the Pro entries -------------------------------------------------------------------------------------------------

/// The months in which something lies that makes them Pro.
fn pro_periods(facts: &[&Dated], keys: &PlanKeys) -> BTreeSet<Period> {
    let belonging = payments_that_belong(facts, keys);
    let grants = |dated: &Dated| is_pro_start(dated, keys) || dated.fact == Fact::Opened || has(&belonging, dated);
    let granted = facts.iter().filter(|dated| grants(dated)).map(|dated| Period::of(dated.at));
    granted.chain(facts.iter().filter_map(|dated| billed_period(dated, keys))).collect()
}

/// A bill that was paid for Pro says itself for when.
fn billed_period(dated: &Dated, keys: &PlanKeys) -> Option<Period> {
    match &dated.fact {
        Fact::Invoice { state: InvoiceState::Paid { opens: Some((plan_key, from)) }, .. } => {
            (keys.plan_of(plan_key) == Some(Plan::Pro)).then(|| Period::of(*from))
        }
        _ => None,
    }
}

/// The smallest set of payments that the rule holds for: nothing belongs only through itself.
fn payments_that_belong<'a>(facts: &[&'a Dated], keys: &PlanKeys) -> Facts<'a> {
    let mut belonging: Facts<'a> = Vec::new();
    while let Some(one) = facts.iter().find(|paid| !has(&belonging, paid) && belongs(paid, facts, &belonging, keys)) {
        belonging.push(one);
    }
    belonging
}

fn belongs(paid: &Dated, facts: &[&Dated], belonging: &[&Dated], keys: &PlanKeys) -> bool {
    match &paid.fact {
        Fact::Paid { agreement: Some(agreement) } => {
            facts.iter().any(|start| is_pro_start(start, keys) && names(start, agreement))
        }
        Fact::Paid { agreement: None } => facts.iter().any(|other| {
            let is_pro = is_pro_start(other, keys) || other.fact == Fact::Opened || has(belonging, other);
            is_pro && other.at <= paid.at && ns(paid.at) - ns(other.at) <= BELONGS
        }),
        _ => false,
    }
}

fn is_pro_start(dated: &Dated, keys: &PlanKeys) -> bool {
    matches!(&dated.fact, Fact::Start { plan_key, .. } if keys.plan_of(plan_key) == Some(Plan::Pro))
}

fn names(start: &Dated, agreement: &AgreementId) -> bool {
    matches!(&start.fact, Fact::Start { agreement: Some(named), .. } if named == agreement)
}

fn has(facts: &[&Dated], dated: &Dated) -> bool {
    facts.iter().any(|one| std::ptr::eq(*one, dated))
}

// ---- standing --------------------------------------------------------------------------------------------------------

/// The first bad news that neither a later payment nor the end of the plan has settled.
fn past_due_since(facts: &[&Dated], keys: &PlanKeys, now: Ns) -> Option<Instant> {
    let is_bad = |dated: &Dated| matches!(dated.fact, Fact::PaymentFailed { .. } | Fact::Overdue { .. });
    let is_paid_later =
        |bad: &Dated| facts.iter().any(|paid| matches!(paid.fact, Fact::Paid { .. }) && paid.order() > bad.order());
    let is_over = |bad: Instant| plan_ends(facts, keys, now).iter().any(|end| ns(bad) <= *end + CHANGE);
    let told = facts.iter().filter(|bad| is_bad(bad) && !is_paid_later(bad)).map(|bad| bad.at);
    let billed = facts.iter().filter_map(|dated| owed_since(dated, facts));
    told.chain(billed).filter(|bad| !is_over(*bad)).min()
}

/// A bill is owed if the newest answer about it says so.
fn owed_since(dated: &Dated, facts: &[&Dated]) -> Option<Instant> {
    let Fact::Invoice { invoice, state: InvoiceState::Owed { since }, .. } = &dated.fact else { return None };
    let is_same = |other: &Dated| matches!(&other.fact, Fact::Invoice { invoice: id, .. } if id == invoice);
    let newest = !facts.iter().any(|other| is_same(other) && other.order() > dated.order());
    newest.then_some(*since)
}

/// The moments up to now at which the plan ended and, one change later, nothing had taken its place.
fn plan_ends(facts: &[&Dated], keys: &PlanKeys, now: Ns) -> Vec<Ns> {
    let may_end = |dated: &Dated| match &dated.fact {
        Fact::Start { plan_key, .. } if keys.plan_of(plan_key) == Some(Plan::Free) => Some(ns(dated.at)),
        Fact::Snapshot { .. } => Some(ns(dated.at)),
        Fact::Agreement(agreement) => agreement.until.map(ns),
        _ => end(dated).map(|end| end.takes_effect),
    };
    let is_free_after = |moment: Ns| {
        // An answer about an agreement is about all of its time, and about none before that.
        let known_by = |dated: &Dated| answer(dated).map_or(ns(dated.at), |(_, agreement)| ns(agreement.began));
        let counts = |dated: &Dated| known_by(dated) <= moment + CHANGE;
        let known: Facts<'_> = facts.iter().copied().filter(|dated| counts(dated)).collect();
        decide(&known, keys, moment + CHANGE).plan == Plan::Free
    };
    facts.iter().filter_map(|dated| may_end(dated)).filter(|moment| *moment <= now && is_free_after(*moment)).collect()
}

// ---- the rules, held to histories written by hand --------------------------------------------------------------------

mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::fold::folded;
    use crate::support::histories::{GOLD, history, meanings, moment, read_history, shuffled, told, wire_history};

    /// A sentence; the facts; a moment to read them at; the state in words.
    type Row = (&'static str, &'static [&'static str], &'static str, &'static str);

    #[track_caller]
    fn check(rows: &[Row]) {
        for (sentence, lines, now, want) in rows {
            for facts in orders(&told(lines)) {
                let state = oracle(&facts, &PlanKeys::default(), moment(now));
                assert_eq!(shown(&state), *want, "\n{sentence}\nread at {now}: {facts:#?}");
                assert_eq!(shown(&folded(&facts, moment(now))), *want, "\nthe product: {sentence}\nread at {now}: {facts:#?}");
            }
        }
    }

    fn shown(state: &OracleState) -> String {
        let short = |at: Instant| at.to_string().trim_start_matches("2026-").trim_end_matches('Z').replace('T', " ");
        let mut text = state.plan.to_string();
        if let Some(at) = state.plan_changed_at {
            text += &format!(" since {}", short(at));
        }
        if let Some(at) = state.past_due_since {
            text += &format!(", past due since {}", short(at));
        }
        if !state.pro_periods.is_empty() {
            let periods: Vec<_> = state.pro_periods.iter().map(ToString::to_string).collect();
            text += &format!("; {}", periods.join(" "));
        }
        text
    }

    /// Every order of arrival.
    fn orders(facts: &[Dated]) -> Vec<Vec<Dated>> {
        if facts.is_empty() {
            return vec![Vec::new()];
        }
        (0..facts.len())
            .flat_map(|n| {
                let mut rest = facts.to_vec();
                let first = rest.remove(n);
                orders(&rest).into_iter().map(move |tail| [vec![first.clone()], tail].concat())
            })
            .collect()
    }

    #[test]
    fn the_newest_live_start_decides() {
        check(&[
            ("An account nobody has said anything about is Free.", &[], "10-21 10:00:00", "free"),
            (
                "A plan that began is the plan from then on.",
                &["10-21 10:00:00 start a pro"],
                "10-21 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "A Start counts even where the reader's clock runs behind it.",
                &["10-21 10:00:00 start a pro"],
                "10-21 09:59:59",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "A later change to Starter is the plan, and the month that was Pro stays granted.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 change - starter"],
                "10-23 10:00:00",
                "free since 10-22 10:00:00; 2026-10",
            ),
            (
                "A Pro plan heard of after a later Starter change does not come back, yet its own month is granted.",
                &["11-22 10:00:00 change - starter", "10-21 10:00:00 start a pro"],
                "11-23 10:00:00",
                "free since 11-22 10:00:00; 2026-10",
            ),
            (
                "Of two Starts in one nanosecond the greater event key is the newer.",
                &["10-21 10:00:00 start a pro", "10-21 10:00:00 start b starter"],
                "10-22 10:00:00",
                "free since 10-21 10:00:00; 2026-10",
            ),
            (
                "When the newest Start has ended, an older one that lives decides again.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 start b starter", "10-23 10:00:00 end b"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
        ]);
    }

    #[test]
    fn an_upgrade_is_pro_whatever_its_events_name_and_however_they_fall() {
        let triple = "10-21 10:00:02";
        check(&[
            (
                "An upgrade cancels the old agreement first, then begins the new one.",
                &[
                    "09-01 10:00:00 start old starter",
                    "10-21 10:00:00 end old",
                    "10-21 10:00:01 start new pro",
                    "10-21 10:00:02 change - pro",
                ],
                triple,
                "pro since 10-21 10:00:02; 2026-10",
            ),
            (
                "The change names the new agreement and the cancellation comes last.",
                &[
                    "09-01 10:00:00 start old starter",
                    "10-21 10:00:00 change new pro",
                    "10-21 10:00:01 start new pro",
                    "10-21 10:00:09 end old",
                ],
                "10-22 10:00:00",
                "pro since 10-21 10:00:01; 2026-10",
            ),
            (
                "The change names the old agreement, which ended just before it.",
                &["09-01 10:00:00 start old starter", "10-21 10:00:00 end old", "10-21 10:00:02 change old pro"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:02; 2026-10",
            ),
            (
                "The change names the old agreement, which ends exactly one change later.",
                &["10-21 10:00:00 change old pro", "10-21 10:00:10 end old"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "One nanosecond more and it was a change within the agreement, which has ended now.",
                &["10-21 10:00:00 change old pro", "10-21 10:00:10.000000001 end old"],
                "10-22 10:00:00",
                "free since 10-21 10:00:10.000000001; 2026-10",
            ),
            (
                "Nobody names anything, and the cancellation comes one change later.",
                &["10-21 10:00:00 start - pro", "10-21 10:00:10 end -"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "All in one nanosecond: what ends comes before what begins.",
                &["10-21 10:00:00 change - pro", "10-21 10:00:00 start - pro", "10-21 10:00:00 end -"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "The late cancellation of the earlier plan ends nothing.",
                &["10-21 09:57:00 end old", "10-21 10:00:00 change - pro", "10-21 10:03:00 paid -"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "Nor does one that names no agreement.",
                &["10-21 09:57:00 end -", "10-21 10:00:00 start a pro"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
        ]);
    }

    #[test]
    fn an_end_ends_what_it_means() {
        check(&[
            (
                "The cancellation of the current agreement is the end of Pro.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a"],
                "10-25 10:00:00",
                "free since 10-25 10:00:00; 2026-10",
            ),
            (
                "The cancellation of another agreement is not.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end b"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "A cancellation that names nothing ends whatever is older than one change.",
                &["10-21 10:00:00 start a pro", "10-21 10:00:10.000000001 end -"],
                "10-26 10:00:00",
                "free since 10-21 10:00:10.000000001; 2026-10",
            ),
            (
                "A plan that names nothing ends with any cancellation more than one change later.",
                &["10-21 10:00:00 change - pro", "10-21 10:00:10.000000001 end a"],
                "10-26 10:00:00",
                "free since 10-21 10:00:10.000000001; 2026-10",
            ),
            (
                "It does not end with that of an old agreement while another one lives.",
                &["10-21 09:00:00 start new starter", "10-21 10:00:00 change - pro", "10-21 10:05:00 end old"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "The agreement that the cancellation itself names does not hold it up.",
                &["10-21 09:00:00 start old starter", "10-21 10:00:00 change - pro", "10-21 10:05:00 end old"],
                "10-26 10:00:00",
                "free since 10-21 10:05:00; 2026-10",
            ),
            (
                "Once that other agreement has ended too, nothing holds it up.",
                &[
                    "10-21 09:00:00 start new starter",
                    "10-21 10:00:00 change - pro",
                    "10-21 10:05:00 end old",
                    "10-25 10:00:00 end new",
                ],
                "10-26 10:00:00",
                "free since 10-25 10:00:00; 2026-10",
            ),
            (
                "An agreement begun again after its cancellation lives.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a", "10-25 10:00:10.000000001 start a pro"],
                "10-27 10:00:00",
                "pro since 10-25 10:00:10.000000001; 2026-10",
            ),
            (
                "A Start told within one change of its own cancellation does not.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a", "10-25 10:00:10 start a pro"],
                "10-27 10:00:00",
                "free since 10-25 10:00:00; 2026-10",
            ),
            (
                "Told as a change there, it left that agreement and lives.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a", "10-25 10:00:10 change a pro"],
                "10-27 10:00:00",
                "pro since 10-25 10:00:10; 2026-10",
            ),
        ]);
    }

    #[test]
    fn an_end_takes_effect_when_it_says() {
        const FACTS: &[&str] = &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a at 11-21 10:00:00"];
        check(&[
            (
                "Cancelled to the period's end, Pro lasts to its last nanosecond.",
                FACTS,
                "11-21 09:59:59.999999999",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            ("At that moment it is over.", FACTS, "11-21 10:00:00", "free since 11-21 10:00:00; 2026-10"),
            ("It stays over.", FACTS, "12-31 10:00:00", "free since 11-21 10:00:00; 2026-10"),
            (
                "An effective time before the cancellation itself is the cancellation's.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a at 10-22 10:00:00"],
                "10-25 09:59:59.999999999",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "So it ends then, not before.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a at 10-22 10:00:00"],
                "10-25 10:00:00",
                "free since 10-25 10:00:00; 2026-10",
            ),
            (
                "The first of several ends is the one.",
                &["10-21 10:00:00 start a pro", "10-24 10:00:00 end a at 11-21 10:00:00", "10-25 10:00:00 end -"],
                "12-01 10:00:00",
                "free since 10-25 10:00:00; 2026-10",
            ),
            (
                "Taken up again before it ran out, it does not run out.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 end a at 11-21 10:00:00", "10-26 10:00:00 start a pro"],
                "12-01 10:00:00",
                "pro since 10-26 10:00:00; 2026-10",
            ),
        ]);
    }

    #[test]
    fn an_unknown_plan_leaves_the_plan_as_it_was() {
        check(&[
            (
                "A change to a plan we do not know leaves the payer on Pro.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 start b gold"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "Its cancellation of the old agreement belongs to that change, before or after it.",
                &["10-21 10:00:00 start a pro", "10-25 09:59:50 end a", "10-25 10:00:00 start b gold"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "A cancellation before the change was heard is part of what was.",
                &["10-21 10:00:00 start a pro", "10-25 09:59:49.999999999 end a", "10-25 10:00:00 start b gold"],
                "10-26 10:00:00",
                "free since 10-25 09:59:49.999999999; 2026-10",
            ),
            (
                "Two unknown changes in a row look back twice.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:00 start b gold", "10-25 11:00:00 start c gold"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            ("With nothing before it the account is Free.", &["10-25 10:00:00 start b gold"], "10-26 10:00:00", "free"),
            (
                "Once it has ended it decides nothing.",
                &["10-21 10:00:00 start a starter", "10-25 10:00:00 start b gold", "10-26 10:00:00 end b"],
                "10-26 10:00:00",
                "free since 10-21 10:00:00",
            ),
        ]);
    }

    #[test]
    fn a_key_configured_later_gives_stored_facts_their_meaning() {
        let facts = told(&["10-21 10:00:00 start b gold", "11-21 10:00:00 paid b"]);
        let mut keys = PlanKeys::default();
        assert_eq!(shown(&oracle(&facts, &keys, moment("11-22 10:00:00"))), "free");
        keys.pro.insert(GOLD.to_owned());
        assert_eq!(shown(&oracle(&facts, &keys, moment("11-22 10:00:00"))), "pro since 10-21 10:00:00; 2026-10 2026-11");
    }

    #[test]
    fn a_period_is_pro_by_what_lies_in_it() {
        let pro = "pro since 10-21 10:00:00";
        let with = |periods: &str| format!("{pro}; {periods}");
        let rows: &[(&str, &[&str], String)] = &[
            (
                "A renewal paid for a Pro agreement.",
                &["10-21 10:00:00 start a pro", "12-21 10:00:00 paid a"],
                with("2026-10 2026-12"),
            ),
            (
                "A payment heard to be older than its agreement still belongs to it.",
                &["10-21 10:00:00 start a pro", "09-21 10:00:00 paid a"],
                with("2026-09 2026-10"),
            ),
            (
                "A payment for an agreement that never was Pro grants nothing, however near.",
                &["10-21 10:00:00 start a pro", "11-01 10:00:00 paid b"],
                with("2026-10"),
            ),
            (
                "A payment naming nothing belongs up to 45 days after the Start.",
                &["10-21 10:00:00 start a pro", "12-05 10:00:00 paid -"],
                with("2026-10 2026-12"),
            ),
            ("Not one nanosecond more.", &["10-21 10:00:00 start a pro", "12-05 10:00:00.000000001 paid -"], with("2026-10")),
            ("Not before the Start.", &["10-21 10:00:00 start a pro", "09-30 10:00:00 paid -"], with("2026-10")),
            (
                "Each payment of a chain carries the next.",
                &["10-21 10:00:00 start a pro", "11-25 10:00:00 paid -", "12-30 10:00:00 paid -"],
                with("2026-10 2026-11 2026-12"),
            ),
            (
                "A gap of more than 45 days breaks it.",
                &["10-21 10:00:00 start a pro", "11-10 10:00:00 paid -", "12-25 10:00:00.000000001 paid -"],
                with("2026-10 2026-11"),
            ),
            (
                "A payment for a Pro agreement carries a payment naming nothing.",
                &["10-21 10:00:00 start a pro", "12-01 10:00:00 paid a", "12-31 10:00:00 paid -"],
                with("2026-10 2026-12"),
            ),
            (
                "A period opened while Pro is Pro, and carries a payment.",
                &["10-21 10:00:00 start a pro", "11-01 00:00:00 bottle opened", "12-10 10:00:00 paid -"],
                with("2026-10 2026-11 2026-12"),
            ),
            (
                "Two payments of one nanosecond do not carry each other.",
                &["10-21 10:00:00 start a pro", "12-31 10:00:00 paid -", "12-31 10:00:00 paid -"],
                with("2026-10"),
            ),
            (
                "A payment belongs to an agreement as it was named, even by a change that left it.",
                &["10-21 10:00:00 change old pro", "10-21 10:00:05 end old", "11-21 10:00:00 paid old"],
                with("2026-10 2026-11"),
            ),
            (
                "A second payment in one month grants nothing more.",
                &["10-21 10:00:00 start a pro", "10-21 10:03:00 paid a", "10-28 10:03:00 paid -"],
                with("2026-10"),
            ),
        ];
        for (sentence, facts, want) in rows {
            for facts in orders(&told(facts)) {
                assert_eq!(shown(&oracle(&facts, &PlanKeys::default(), moment("12-31 23:00:00"))), *want, "{sentence}");
            }
        }
        check(&[
            (
                "The last nanosecond of a month belongs to that month.",
                &["10-31 23:59:59.999999999 start a pro"],
                "11-01 00:00:00",
                "pro since 10-31 23:59:59.999999999; 2026-10",
            ),
            (
                "A chain of payments naming nothing needs something Pro to begin with.",
                &["10-21 10:00:00 paid -", "11-21 10:00:00 paid -", "11-22 10:00:00 start a starter"],
                "12-01 00:00:00",
                "free since 11-22 10:00:00",
            ),
            (
                "A later cancellation takes nothing back.",
                &["10-21 10:00:00 start a pro", "11-01 08:00:00 bottle opened", "10-31 10:00:00 end a"],
                "12-01 00:00:00",
                "free since 10-31 10:00:00; 2026-10 2026-11",
            ),
        ]);
    }

    #[test]
    fn standing_is_bad_until_paid_or_over() {
        check(&[
            (
                "A failed payment is shown and changes no plan.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-28 10:00:00 overdue -"],
                "12-01 00:00:00",
                "pro since 10-21 10:00:00, past due since 11-21 10:00:00; 2026-10",
            ),
            (
                "A later payment settles it.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-22 10:00:00 paid a"],
                "12-01 00:00:00",
                "pro since 10-21 10:00:00; 2026-10 2026-11",
            ),
            (
                "A payment in the same nanosecond settles it.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-21 10:00:00 paid -"],
                "12-01 00:00:00",
                "pro since 10-21 10:00:00; 2026-10 2026-11",
            ),
            (
                "An earlier payment does not.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 paid a", "11-21 10:00:00.000000001 overdue a"],
                "12-01 00:00:00",
                "pro since 10-21 10:00:00, past due since 11-21 10:00:00.000000001; 2026-10 2026-11",
            ),
            (
                "The plan's end settles it.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-25 10:00:00 end a"],
                "12-01 00:00:00",
                "free since 11-25 10:00:00; 2026-10",
            ),
            (
                "A plan's end that is still to come does not.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-25 10:00:00 end a at 12-21 10:00:00"],
                "12-21 09:59:59.999999999",
                "pro since 10-21 10:00:00, past due since 11-21 10:00:00; 2026-10",
            ),
            (
                "When it comes, it does.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-25 10:00:00 end a at 12-21 10:00:00"],
                "12-21 10:00:00",
                "free since 12-21 10:00:00; 2026-10",
            ),
            (
                "A downgrade settles it.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-25 10:00:00 change a starter"],
                "12-01 00:00:00",
                "free since 11-25 10:00:00; 2026-10",
            ),
            (
                "A change from one Pro agreement to another is no end.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 failed a", "11-25 10:00:00 end a", "11-25 10:00:10 start b pro"],
                "12-01 00:00:00",
                "pro since 11-25 10:00:10, past due since 11-21 10:00:00; 2026-10 2026-11",
            ),
            (
                "What was settled by an end stays settled when the plan begins again.",
                &[
                    "10-21 10:00:00 start a pro",
                    "11-21 10:00:00 failed a",
                    "11-25 10:00:00 end a",
                    "11-25 10:00:10.000000001 start b pro",
                ],
                "12-01 00:00:00",
                "pro since 11-25 10:00:10.000000001; 2026-10 2026-11",
            ),
            (
                "Whether anything took the plan's place is asked one change after its end, by then nothing had.",
                &[
                    "10-21 10:00:00 start a pro",
                    "11-21 10:00:00 failed a",
                    "11-25 10:00:00 end a",
                    "11-25 10:00:02 start b pro",
                    "11-25 10:00:03 end b",
                ],
                "11-25 10:00:01",
                "pro since 11-25 10:00:02; 2026-10 2026-11",
            ),
            (
                "Bad news in the nanosecond of the end is settled with it, later news is not.",
                &[
                    "10-21 10:00:00 start a pro",
                    "11-25 10:00:00 failed a",
                    "11-25 10:00:00 end a",
                    "11-25 10:00:10.000000001 overdue a",
                ],
                "12-01 00:00:00",
                "free since 11-25 10:00:00, past due since 11-25 10:00:10.000000001; 2026-10",
            ),
        ]);
    }

    #[test]
    fn an_unknown_plan_takes_nothing_from_a_payer() {
        check(&[
            (
                "A Pro Start of the same change is not forgotten because its twin has an unknown plan key.",
                &["10-21 10:00:00 start a pro", "10-21 10:00:01 start a gold"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "Leaving Pro for an unknown plan keeps Pro until somebody says what the plan is.",
                &["10-21 10:00:00 start a pro", "11-21 10:00:00 end a", "11-21 10:00:01 start b gold"],
                "11-22 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
        ]);
    }

    #[test]
    fn a_snapshot_corrects_the_plan_and_grants_nothing() {
        check(&[
            (
                "Of two listed agreements that nobody told us about, Pro counts.",
                &["10-21 10:00:00 snapshot a=pro b=starter"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "A listed agreement with an unknown plan does not hide a listed Pro one.",
                &["10-21 10:00:00 snapshot a=pro b=gold"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "What it lists is the plan from the moment we asked, without an allowance.",
                &["10-23 10:00:00 snapshot a=pro"],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00",
            ),
            (
                "If we had heard it begin, it decides from then.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 end a", "10-23 10:00:00 snapshot a=pro"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "What it does not list is over, though nobody told us.",
                &["10-21 10:00:00 start a pro", "10-23 10:00:00 snapshot"],
                "10-24 10:00:00",
                "free since 10-23 10:00:00; 2026-10",
            ),
            (
                "If we were told, it is over since then.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 end a", "10-23 10:00:00 snapshot"],
                "10-24 10:00:00",
                "free since 10-22 10:00:00; 2026-10",
            ),
            (
                "With nothing known and nothing listed, Free is known from the moment we asked.",
                &["10-23 10:00:00 snapshot"],
                "10-24 10:00:00",
                "free since 10-23 10:00:00",
            ),
            (
                "A later change undoes it.",
                &["10-23 10:00:00 snapshot a=pro", "10-24 10:00:00 change b starter"],
                "10-25 10:00:00",
                "free since 10-24 10:00:00",
            ),
            (
                "A later snapshot undoes it.",
                &["10-22 10:00:00 snapshot a=pro", "10-23 10:00:00 snapshot b=starter"],
                "10-25 10:00:00",
                "free since 10-23 10:00:00",
            ),
            (
                "An earlier snapshot, heard late, undoes nothing.",
                &["10-24 10:00:00 snapshot a=pro", "10-23 10:00:00 snapshot"],
                "10-25 10:00:00",
                "pro since 10-24 10:00:00",
            ),
            (
                "An end long before we asked is contradicted by the answer.",
                &[
                    "10-23 09:49:59 end a",
                    "10-23 09:49:59 end -",
                    "10-23 09:49:59.999999999 end a",
                    "10-23 10:00:00 snapshot a=pro",
                ],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00",
            ),
            (
                "Within ten minutes it is the answer that is out of date.",
                &["10-23 09:00:00 start a pro", "10-23 09:50:00 end a", "10-23 10:00:00 snapshot a=pro"],
                "10-24 10:00:00",
                "free since 10-23 09:50:00; 2026-10",
            ),
            (
                "Unless it was told to begin again.",
                &["10-23 09:50:00 end a", "10-23 09:50:10.000000001 start a pro", "10-23 10:00:00 snapshot a=pro"],
                "10-24 10:00:00",
                "pro since 10-23 09:50:10.000000001; 2026-10",
            ),
            (
                "An end that is still to come makes no answer out of date.",
                &["10-23 09:59:00 end a at 11-21 10:00:00", "10-23 10:00:00 snapshot a=pro"],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00",
            ),
            (
                "An answer that lacks the plan of a minute ago is out of date.",
                &["10-23 09:59:00 start a pro", "10-23 10:00:00 snapshot b=starter"],
                "10-24 10:00:00",
                "pro since 10-23 09:59:00; 2026-10",
            ),
            (
                "So is one that lists its agreement with the plan before.",
                &["10-23 09:59:00 start a pro", "10-23 10:00:00 snapshot a=starter"],
                "10-24 10:00:00",
                "pro since 10-23 09:59:00; 2026-10",
            ),
            (
                "A change may name the agreement it left, so there only the plan has to be listed.",
                &["10-23 09:59:00 change a pro", "10-23 10:00:00 snapshot b=pro"],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00; 2026-10",
            ),
            (
                "What was told to end need not be listed.",
                &["10-23 09:58:00 start a pro", "10-23 09:59:00 end a", "10-23 10:00:00 snapshot b=starter"],
                "10-24 10:00:00",
                "free since 10-23 10:00:00; 2026-10",
            ),
            (
                "Nor what another change replaced.",
                &["10-23 09:58:00 start a pro", "10-23 09:59:00 start b starter", "10-23 10:00:00 snapshot b=starter"],
                "10-24 10:00:00",
                "free since 10-23 09:59:00; 2026-10",
            ),
            (
                "An end right after we asked ends it.",
                &["10-23 10:00:00 snapshot a=pro", "10-23 10:00:00.000000001 end a"],
                "10-24 10:00:00",
                "free since 10-23 10:00:00.000000001",
            ),
            (
                "One that names nothing needs more than a change's span.",
                &["10-23 10:00:00 snapshot a=pro", "10-23 10:00:10 end -"],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00",
            ),
            (
                "Given that, it ends it.",
                &["10-23 10:00:00 snapshot a=pro", "10-23 10:00:10.000000001 end -"],
                "10-24 10:00:00",
                "free since 10-23 10:00:10.000000001",
            ),
            (
                "An end known before we asked that takes effect later still does.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 end a at 11-21 10:00:00", "10-23 10:00:00 snapshot a=pro"],
                "11-21 10:00:00",
                "free since 11-21 10:00:00; 2026-10",
            ),
            (
                "Until then it is Pro.",
                &["10-21 10:00:00 start a pro", "10-22 10:00:00 end a at 11-21 10:00:00", "10-23 10:00:00 snapshot a=pro"],
                "11-21 09:59:59.999999999",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "Of two listed agreements the one that began later decides.",
                &["10-20 10:00:00 start a starter", "10-21 10:00:00 start b pro", "10-23 10:00:00 snapshot a=starter b=pro"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "One we never heard begin counts from the moment we asked, so it is the later.",
                &["10-21 10:00:00 start a starter", "10-23 10:00:00 snapshot a=starter b=pro"],
                "10-24 10:00:00",
                "pro since 10-23 10:00:00",
            ),
            (
                "A listed plan we do not know leaves the plan as it was.",
                &["10-21 10:00:00 start a pro", "10-23 10:00:00 snapshot b=gold"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "A listed agreement holds up a plan naming nothing that began after we asked.",
                &["10-23 10:00:00 snapshot a=starter", "10-24 10:00:00 change - pro", "10-25 10:00:00 end old"],
                "10-26 10:00:00",
                "pro since 10-24 10:00:00; 2026-10",
            ),
        ]);
    }

    #[test]
    fn each_source_tells_its_own_story() {
        check(&[
            (
                "Pro if either says so.",
                &["10-21 10:00:00 stripe start a pro", "10-22 10:00:00 start b starter"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "If both say so, since the later.",
                &["10-21 10:00:00 stripe start a pro", "11-22 10:00:00 start b pro"],
                "11-24 10:00:00",
                "pro since 11-22 10:00:00; 2026-10 2026-11",
            ),
            (
                "The cancellation of one is not the other's.",
                &["10-21 10:00:00 stripe start a pro", "10-22 10:00:00 end a", "10-22 10:00:00 end -"],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
            (
                "Free of both since the later of the ends.",
                &[
                    "10-20 10:00:00 stripe start a pro",
                    "10-21 10:00:00 stripe end a",
                    "10-20 10:00:00 start a pro",
                    "10-22 10:00:00 end a",
                ],
                "10-24 10:00:00",
                "free since 10-22 10:00:00; 2026-10",
            ),
            (
                "A payment to one does not settle, or belong to, the other.",
                &["10-20 10:00:00 start a pro", "10-21 10:00:00 failed a", "11-22 10:00:00 stripe paid -"],
                "11-24 10:00:00",
                "pro since 10-20 10:00:00, past due since 10-21 10:00:00; 2026-10",
            ),
            (
                "Past due since the earlier of the two.",
                &["10-20 10:00:00 start a pro", "10-22 10:00:00 failed a", "10-21 10:00:00 stripe overdue -"],
                "11-24 10:00:00",
                "pro since 10-20 10:00:00, past due since 10-21 10:00:00; 2026-10",
            ),
            (
                "A period we opened carries payments of both.",
                &["10-02 10:00:00 bottle opened", "11-02 10:00:00 stripe paid -", "11-10 10:00:00 paid -"],
                "11-24 10:00:00",
                "free; 2026-10 2026-11",
            ),
        ]);
    }

    #[test]
    fn the_newest_answer_about_an_agreement_is_how_it_stands() {
        check(&[
            (
                "An agreement that the provider shows is the plan from its own beginning, and grants nothing by itself.",
                &["10-21 10:00:05 stripe answer a pro from 10-21 10:00:00"],
                "10-22 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "Of two answers the later one counts, whichever was heard first.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "10-21 10:00:07 stripe answer a pro from 10-21 10:00:00 to 10-21 10:00:00",
                ],
                "10-22 10:00:00",
                "free",
            ),
            (
                "Over is over, even if a wrong clock dates another answer later.",
                &[
                    "10-25 10:00:05 stripe over a pro from 10-21 10:00:00 to 10-25 10:00:00",
                    "10-26 10:00:07 stripe answer a pro from 10-21 10:00:00",
                ],
                "10-27 10:00:00",
                "free since 10-25 10:00:00",
            ),
            (
                "Canceled for later, it lasts until then.",
                &["10-25 10:00:05 stripe answer a pro from 10-21 10:00:00 to 11-21 10:00:00"],
                "11-21 09:59:59.999999999",
                "pro since 10-21 10:00:00",
            ),
            (
                "And no longer.",
                &["10-25 10:00:05 stripe answer a pro from 10-21 10:00:00 to 11-21 10:00:00"],
                "11-21 10:00:00",
                "free since 11-21 10:00:00",
            ),
            (
                "Taken up again before it ran out, it does not run out.",
                &[
                    "10-25 10:00:05 stripe answer a pro from 10-21 10:00:00 to 11-21 10:00:00",
                    "10-26 10:00:05 stripe answer a pro from 10-21 10:00:00",
                ],
                "12-21 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "Who pays for Pro has it, whatever else they began later.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "10-22 10:00:05 stripe answer b starter from 10-22 10:00:00",
                    "10-23 10:00:05 stripe answer c gold from 10-23 10:00:00",
                ],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "The same agreement on a plan nobody knows keeps what it gave.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "10-21 10:00:06 stripe answer a gold from 10-21 10:00:00",
                ],
                "10-24 10:00:00",
                "pro since 10-21 10:00:00",
            ),
            (
                "A paid bill grants the month it says, not the one in which it was asked about.",
                &[
                    "11-02 10:00:00 stripe bill i paid pro from 10-31 23:59:59",
                    "11-02 10:00:00 stripe bill j paid starter from 11-01 10:00:00",
                ],
                "11-03 10:00:00",
                "free; 2026-10",
            ),
            ("A correction grants nothing.", &["11-02 10:00:00 stripe bill i paid"], "11-03 10:00:00", "free"),
            (
                "A bill that was tried in vain is owed, and takes nothing away.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "11-22 10:00:00 stripe bill i owed from 11-21 10:00:00",
                ],
                "11-23 10:00:00",
                "pro since 10-21 10:00:00, past due since 11-21 10:00:00",
            ),
            (
                "Paid, it is owed no more; an older answer, heard later, does not bring it back.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "11-25 10:00:00 stripe bill i paid pro from 11-21 10:00:00",
                    "11-22 10:00:00 stripe bill i owed from 11-21 10:00:00",
                ],
                "11-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-11",
            ),
            (
                "Another bill that was paid, asked about again, settles nothing.",
                &[
                    "10-21 10:00:05 stripe answer a pro from 10-21 10:00:00",
                    "11-22 10:00:00 stripe bill i owed from 11-21 10:00:00",
                    "11-25 10:00:00 stripe bill j paid pro from 10-21 10:00:00",
                ],
                "11-26 10:00:00",
                "pro since 10-21 10:00:00, past due since 11-21 10:00:00; 2026-10",
            ),
            (
                "The plan's end settles it, also where one hears of that much later.",
                &[
                    "12-20 10:00:05 stripe over a pro from 10-21 10:00:00 to 12-05 10:00:00",
                    "11-22 10:00:00 stripe bill i owed from 11-21 10:00:00",
                ],
                "12-26 10:00:00",
                "free since 12-05 10:00:00",
            ),
            (
                "Whoever comes back owes nothing of what ended.",
                &[
                    "11-22 10:00:00 stripe bill i owed from 11-21 10:00:00",
                    "12-05 10:00:05 stripe over a pro from 10-21 10:00:00 to 12-05 10:00:00",
                    "12-20 10:00:05 stripe answer b pro from 12-20 10:00:00",
                ],
                "12-26 10:00:00",
                "pro since 12-20 10:00:00",
            ),
            (
                "Stripe's end is not Kinde's.",
                &["10-21 10:00:00 start a pro", "10-25 10:00:05 stripe over a pro from 10-21 10:00:00 to 10-25 10:00:00"],
                "10-26 10:00:00",
                "pro since 10-21 10:00:00; 2026-10",
            ),
        ]);
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_changes_nothing((facts, again, now) in read_history()) {
            let keys = PlanKeys::default();
            prop_assert_eq!(oracle(&facts, &keys, now), oracle(&again, &keys, now));
        }

        #[test]
        fn one_more_fact_takes_no_grant_back(facts in history(), more in history()) {
            let (keys, now) = (PlanKeys::default(), moment("12-31 00:00:00"));
            let all = [facts.clone(), more].concat();
            prop_assert!(oracle(&facts, &keys, now).pro_periods.is_subset(&oracle(&all, &keys, now).pro_periods));
        }

        #[test]
        fn shuffling_keeps_every_fact((facts, again) in history().prop_flat_map(|facts| (Just(facts.clone()), shuffled(facts)))) {
            let sorted = |facts: &[Dated]| facts.iter().map(|dated| (dated.key.clone(), dated.clone())).collect::<BTreeMap<_, _>>();
            prop_assert_eq!(sorted(&facts).len(), facts.len());
            prop_assert_eq!(sorted(&facts), sorted(&again));
        }

        #[test]
        fn every_wire_event_means_one_fact_at_the_time_it_states(claims in wire_history()) {
            let facts = meanings(&claims);
            prop_assert_eq!(facts.len(), claims.len());
            for (claims, fact) in claims.iter().zip(&facts) {
                let stated = claims.get("event_timestamp").unwrap_or(&claims["timestamp"]);
                prop_assert_eq!(fact.at, Instant::parse(stated.as_str().unwrap()).unwrap());
                prop_assert!(claims["event_id"].as_str().unwrap().starts_with("event_"));
                prop_assert!(claims["data"]["user_id"].as_str().unwrap().starts_with("kp_"));
            }
        }
    }

    /// A generator that never reaches an edge proves nothing about it.
    #[test]
    fn drawn_histories_reach_the_edges() {
        let mut runner = TestRunner::deterministic();
        let strategy = read_history();
        let (mut seen, drawn) = (BTreeMap::<&str, usize>::new(), 1_000);
        for _ in 0..drawn {
            let (facts, _, now) = strategy.new_tree(&mut runner).unwrap().current();
            let keys = PlanKeys::default();
            let state = oracle(&facts, &keys, now);
            let gaps: BTreeSet<Ns> =
                facts.iter().flat_map(|one| facts.iter().map(move |other| ns(one.at) - ns(other.at))).collect();
            let same = |one: &Dated, other: &Dated| one.at == other.at && one.key != other.key;
            let kinde = told_by(Source::Kinde, &facts);
            let sight = Sight { facts: &kinde, t: ns(now), keys: &keys };
            let started = sight.candidates();
            for (edge, met) in [
                ("no fact at all", facts.is_empty()),
                ("pro", state.plan == Plan::Pro),
                ("free since a moment", state.plan == Plan::Free && state.plan_changed_at.is_some()),
                ("past due on Pro", state.plan == Plan::Pro && state.past_due_since.is_some()),
                ("several periods", state.pro_periods.len() > 2),
                ("two facts of one nanosecond", facts.iter().any(|one| facts.iter().any(|other| same(one, other)))),
                ("one change apart", gaps.contains(&CHANGE)),
                ("a nanosecond less", gaps.contains(&(CHANGE - 1))),
                ("a nanosecond more", gaps.contains(&(CHANGE + 1))),
                ("45 days apart", gaps.contains(&BELONGS)),
                ("45 days and a nanosecond", gaps.contains(&(BELONGS + 1))),
                ("a listed agreement decides", matches!(sight.newest_live(|_| true), Some(Candidate::Listed { .. }))),
                (
                    "a listed agreement ended",
                    started.iter().any(|one| matches!(one, Candidate::Listed { .. }) && !sight.is_live(one)),
                ),
                ("an unknown plan decides", sight.newest_live(|_| true).is_some_and(|one| one.plan_key() == GOLD)),
                ("a change that left its agreement", started.iter().any(|one| one.named() != sight.counts_as_naming(one))),
                (
                    "held up by another agreement",
                    sight.ends().any(|end| {
                        end.named.is_some_and(|ended| {
                            let late = |one: &Candidate<'_>| sight.counts_as_naming(one).is_none() && end.at > one.at() + CHANGE;
                            started.iter().any(late) && sight.lives_one_other_than(ended)
                        })
                    }),
                ),
                ("an end still to come", sight.ends().any(|end| end.at <= sight.t && end.takes_effect > sight.t)),
            ] {
                *seen.entry(edge).or_default() += usize::from(met);
            }
        }
        let rare: Vec<_> = seen.iter().filter(|(_, times)| **times * 200 < drawn).collect();
        assert!(rare.is_empty(), "met in fewer than one of 200 histories: {rare:?}, of all {seen:?}");
    }
}
