//! The product's fold against the independent one: random histories, in any order, read at any moment.

use bottle::billing::fold::fold;
use bottle::domain::event::Source;
use bottle::domain::fact::{Dated, Fact};
use bottle::domain::ids::{EventId, EventKey};
use bottle::domain::instant::Instant;
use bottle::domain::plan::{Plan, PlanKeys};
use proptest::prelude::*;

use crate::oracle::{OracleState, oracle};
use crate::support::cases;
use crate::support::histories::{meanings, moment, read_history, wire_history};

fn folded(facts: &[Dated], now: Instant) -> OracleState {
    let mut facts = facts.to_vec();
    facts.sort_by(|a, b| a.order().cmp(&b.order()));
    let state = fold(&facts, &PlanKeys::default(), now);
    OracleState {
        plan: state.plan,
        plan_changed_at: state.decided.map(|d| d.at),
        past_due_since: state.past_due_since,
        pro_periods: state.pro_periods,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1_500), ..ProptestConfig::default() })]

    #[test]
    fn any_history_folds_as_the_independent_fold_says((facts, shuffled, now) in read_history()) {
        let want = oracle(&facts, &PlanKeys::default(), now);
        prop_assert_eq!(&folded(&facts, now), &want);
        prop_assert_eq!(&folded(&shuffled, now), &want, "in another order of arrival");
    }

    #[test]
    fn what_is_stored_as_upcoming_comes_to_pass((facts, _, now) in read_history(), later in 0..400_i64) {
        let later = Instant::from_nanos(now.nanos() + later * 3_600_000_000_000);
        let mut sorted = facts.clone();
        sorted.sort_by(|a, b| a.order().cmp(&b.order()));
        let state = fold(&sorted, &PlanKeys::default(), now);
        let now = (state.plan, state.decided.map(|d| d.at), state.past_due_since);
        let read = state.upcoming.iter().take_while(|u| u.at <= later).last();
        let read = read.map_or(now, |u| (u.plan, u.decided, u.past_due_since));
        let want = oracle(&facts, &PlanKeys::default(), later);
        prop_assert_eq!(read, (want.plan, want.plan_changed_at, want.past_due_since));
    }

    #[test]
    fn events_as_the_wire_has_them_fold_as_the_independent_fold_says(claims in wire_history()) {
        let facts = meanings(&claims);
        let now = moment("12-31 00:00:00");
        prop_assert_eq!(folded(&facts, now), oracle(&facts, &PlanKeys::default(), now));
    }
}

/// One prefix after another, not one call inside another: a provider's odd history must not end the process.
#[test]
fn thousands_of_changes_to_plans_nobody_knows_leave_the_plan_as_it_was() {
    let start = |n: i64, plan_key: &str| Dated {
        at: Instant::from_nanos(moment("10-01 00:00:00").nanos() + n * 60_000_000_000),
        source: Source::Kinde,
        event: EventId(n),
        key: EventKey(format!("event_{n:08}")),
        fact: Fact::Start { agreement: None, plan_key: plan_key.to_owned(), changed: true },
    };
    let mut facts = vec![start(0, "customer_starter_plan")];
    facts.extend((1..3_000).map(|n| start(n, "gold")));
    let state = fold(&facts, &PlanKeys::default(), moment("12-31 00:00:00"));
    assert_eq!((state.plan, state.decided.map(|d| d.at)), (Plan::Free, Some(facts[0].at)));
    assert_eq!(state.unknown.map(|u| u.key), Some(facts[2_999].key.clone()));
}
