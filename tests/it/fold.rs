//! The product's fold against the independent one: random histories, in any order, read at any moment.

use bottle::billing::fold::fold;
use bottle::domain::event::Source;
use std::collections::HashMap;
use std::time::Duration;

use bottle::domain::fact::{Agreement, Dated, Fact, InvoiceState, LiveAgreement};
use bottle::domain::ids::{AgreementId, EventId, EventKey, InvoiceId};
use bottle::domain::instant::Instant;
use bottle::domain::plan::{Plan, PlanKeys};
use proptest::prelude::*;

use crate::oracle::{OracleState, oracle};
use crate::support::cases;
use crate::support::histories::{meanings, moment, read_history, wire_history};

pub fn folded(facts: &[Dated], now: Instant) -> OracleState {
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

/// What a provider tells that is asked about each object: an agreement begins when it begins, in every answer about it.
fn answers_alone(facts: Vec<Dated>) -> Vec<Dated> {
    let mut begins = HashMap::new();
    let answers = facts.into_iter().filter_map(|mut dated| match &mut dated.fact {
        Fact::Agreement(one) => {
            one.began = *begins.entry(one.agreement.clone()).or_insert(one.began);
            Some(dated)
        }
        Fact::Invoice { .. } | Fact::Opened => Some(dated),
        _ => None,
    });
    answers.map(|dated| Dated { source: Source::Stripe, ..dated }).collect()
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
    fn answers_about_agreements_and_bills_alone_fold_as_the_independent_fold_says((facts, _, now) in read_history()) {
        let facts = answers_alone(facts);
        prop_assert_eq!(folded(&facts, now), oracle(&facts, &PlanKeys::default(), now));
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

/// Five thousand facts a shape: what used to be a pass for each moment at which a plan may end. A pass for each of them takes
/// minutes here, one pass for all some milliseconds.
#[test]
fn an_account_of_years_is_folded_in_one_pass() {
    let at = |n: i64| Instant::from_nanos(moment("01-01 00:00:00").nanos() + n * 60_000_000_000);
    let dated = |n: i64, at: Instant, fact: Fact| Dated {
        at,
        source: Source::Kinde,
        event: EventId(n),
        key: EventKey(format!("event_{n:08}")),
        fact,
    };
    let agreement = |n: i64| Some(AgreementId(format!("agreement_{n}")));
    let pro = || "customer_pro_plan".to_owned();
    let start = |n: i64| Fact::Start { agreement: agreement(n), plan_key: pro(), changed: false };
    let first = |of: Option<i64>| match of {
        Some(n) => vec![dated(0, at(-2), start(n)), dated(1, at(-1), Fact::PaymentFailed { agreement: None })],
        None => vec![dated(1, at(-1), Fact::PaymentFailed { agreement: None })],
    };
    let pairs = 2_500;
    let each = |facts: &mut Vec<Dated>, of: &dyn Fn(i64) -> [Dated; 2]| facts.extend((1..=pairs).flat_map(of));

    // Upgrades: what ends is replaced within the same change, so no end ends the plan.
    let mut upgrades = first(Some(0));
    each(&mut upgrades, &|n| {
        let end = Fact::End { agreement: agreement(n - 1), effective: None };
        [dated(2 * n, at(n), end), dated(2 * n + 1, at(n).plus(Duration::from_secs(2)), start(n))]
    });
    // One agreement that lasts under many that begin and end.
    let mut lasting = first(Some(-1));
    each(&mut lasting, &|n| {
        let end = Fact::End { agreement: agreement(n), effective: None };
        [dated(2 * n, at(2 * n), start(n)), dated(2 * n + 1, at(2 * n + 1), end)]
    });
    // All still to end, one after another.
    let mut pending = first(None);
    each(&mut pending, &|n| {
        let end = Fact::End { agreement: agreement(n), effective: Some(at(1_000_000 - n)) };
        [dated(2 * n, at(n), start(n)), dated(2 * n + 1, at(n).plus(Duration::from_secs(30)), end)]
    });
    // Each confirmed by the provider.
    let mut answered = first(None);
    each(&mut answered, &|n| {
        let live = vec![LiveAgreement { agreement: AgreementId(format!("agreement_{n}")), plan_key: pro() }];
        [dated(2 * n, at(n), start(n)), dated(2 * n + 1, at(n).plus(Duration::from_secs(30)), Fact::Snapshot { live })]
    });
    // Answers about one agreement after another, and about each one's bill, beside one that lasts.
    let one = |n: i64, until: Option<Instant>| {
        let agreement = AgreementId(format!("agreement_{n}"));
        Fact::Agreement(Agreement { agreement, plan_key: pro(), began: at(n), until, over: until.is_some() })
    };
    let bill = |n: i64, state: InvoiceState| Fact::Invoice { invoice: InvoiceId(format!("bill_{n}")), agreement: None, state };
    let mut asked = vec![dated(0, at(-2), one(-2, None)), dated(1, at(-1), bill(-1, InvoiceState::Owed { since: at(-1) }))];
    each(&mut asked, &|n| {
        let over = at(n).plus(Duration::from_secs(30));
        [dated(2 * n, over, one(n, Some(over))), dated(2 * n + 1, over, bill(n, InvoiceState::Settled))]
    });
    let now = at(2 * pairs + 10);
    for (shape, mut facts) in
        [("upgrades", upgrades), ("lasting", lasting), ("pending", pending), ("answered", answered), ("asked", asked)]
    {
        facts.sort_by(|a, b| a.order().cmp(&b.order()));
        let began = std::time::Instant::now();
        let state = fold(&facts, &PlanKeys::default(), now);
        let took = began.elapsed();
        println!("{shape}: {} facts, {} changes to come, {took:?}", facts.len(), state.upcoming.len());
        assert_eq!((state.plan, state.past_due_since), (Plan::Pro, Some(at(-1))), "{shape}");
        assert_eq!(state.upcoming.len(), if shape == "pending" { usize::try_from(pairs).unwrap() } else { 0 }, "{shape}");
        assert!(took < Duration::from_secs(2), "{shape}: {took:?}");
    }
}
