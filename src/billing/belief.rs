//! Which of the provider's answers count.
//!
//! A provider's answers may lag behind its events. One that was read from before an event, yet is dated after it, would undo
//! what the event did: the upgrade of a minute ago, or the cancellation. So an answer that contradicts what the events of the ten
//! minutes before it say is passed over, whichever of them came first. It stays stored, and counts as soon as an event explains
//! it.

use crate::domain::fact::{Dated, Fact, LiveAgreement};
use crate::domain::ids::AgreementId;
use crate::domain::told::LAG_MAX;

use super::fold::end_of;
use super::plan::CHANGE_SPAN;

/// One source's facts in their total order, without the answers that are older than they look.
pub fn without_stale_answers(facts: Vec<&Dated>) -> Vec<&Dated> {
    let stale: Vec<bool> = (0..facts.len()).map(|n| is_stale(&facts, n)).collect();
    if !stale.contains(&true) {
        return facts;
    }
    facts.into_iter().zip(stale).filter(|(_, stale)| !stale).map(|(fact, _)| fact).collect()
}

fn is_stale(facts: &[&Dated], n: usize) -> bool {
    let Fact::Snapshot { live } = &facts[n].fact else { return false };
    let asked = facts[n].at;
    let before = &facts[..n];
    let recent = &before[before.partition_point(|f| f.at < asked.minus(LAG_MAX))..];
    let newest = recent.iter().rev().find(|f| matches!(f.fact, Fact::Start { .. }));
    newest.is_some_and(|start| lacks(live, start) && !was_ended(start, facts[n], before))
        || recent.iter().any(|end| still_lists(live, end, facts[n], before))
}

/// The plan that began is not listed. A plan change may name the agreement it left, so there only the plan is compared.
fn lacks(live: &[LiveAgreement], start: &Dated) -> bool {
    let Fact::Start { agreement, plan_key, changed } = &start.fact else { return false };
    let agreement = agreement.as_ref().filter(|_| !changed);
    !live.iter().any(|l| l.plan_key == *plan_key && agreement.is_none_or(|a| *a == l.agreement))
}

/// Some End explains why it is not listed: its own, or one that may be meant for it.
fn was_ended(start: &Dated, answer: &Dated, before: &[&Dated]) -> bool {
    let Fact::Start { agreement, .. } = &start.fact else { return false };
    let around = &before[before.partition_point(|f| f.at < start.at.minus(CHANGE_SPAN))..];
    around.iter().any(|fact| {
        let Fact::End { agreement: ended, .. } = &fact.fact else { return false };
        let same = ended.is_some() && ended == agreement;
        let unsaid = (ended.is_none() || agreement.is_none()) && fact.at > start.at.plus(CHANGE_SPAN);
        (same || unsaid) && end_of(fact).is_some_and(|at| at <= answer.at)
    })
}

/// It lists what had ended, and nothing began it again.
fn still_lists(live: &[LiveAgreement], end: &Dated, answer: &Dated, before: &[&Dated]) -> bool {
    let Fact::End { agreement: Some(ended), .. } = &end.fact else { return false };
    end_of(end).is_some_and(|at| at <= answer.at)
        && live.iter().any(|l| l.agreement == *ended)
        && !before[before.partition_point(|f| f.at <= end.at.plus(CHANGE_SPAN))..].iter().any(|f| begins(f, ended))
}

fn begins(fact: &Dated, named: &AgreementId) -> bool {
    matches!(&fact.fact, Fact::Start { agreement: Some(agreement), .. } if agreement == named)
}
