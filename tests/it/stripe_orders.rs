//! Events of one second, in every order in which they can be asked about, through the pure fold.

use std::collections::BTreeSet;

use bottle::billing::fold::fold;
use bottle::domain::event::Source;
use bottle::domain::fact::{Agreement, Dated, Fact, InvoiceState, PackState};
use bottle::domain::ids::{AgreementId, ChargeId, EventId, EventKey, InvoiceId, PurchaseId};
use bottle::domain::instant::Instant;
use bottle::domain::money::{Money, MoneyKind, Movement};

use crate::oracle::oracle;
use crate::support::histories::moment;
use crate::support::till::rules;

const SECOND: i64 = 1_000_000_000;

/// What Stripe would answer about the one subscription after each change.
fn truth(step: usize) -> Fact {
    let began = moment("10-21 10:00:00");
    let shown = |until: Option<Instant>, over| {
        let agreement = AgreementId("sub_1".to_owned());
        Fact::Agreement(Agreement { agreement, plan_key: crate::local_stripe::PRO.to_owned(), began, until, over })
    };
    match step {
        0 => shown(Some(began), false), // incomplete
        1 => shown(None, false),
        2 => shown(Some(moment("11-21 10:00:00")), false),
        3 => shown(None, false),
        4 => shown(Some(moment("10-21 10:00:00.5")), false), // unpaid
        _ => shown(Some(moment("10-21 10:00:01")), true),
    }
}

fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let rest = |n: usize| of.iter().copied().filter(|one| *one != n).collect::<Vec<_>>();
    of.iter().flat_map(|n| permutations(&rest(*n)).into_iter().map(move |tail| [vec![*n], tail].concat())).collect()
}

fn dated(at: i64, event: usize, fact: Fact) -> Dated {
    let n = i64::try_from(event).unwrap();
    let at = Instant::from_nanos(moment("10-21 10:00:02").nanos() + at);
    Dated { at, source: Source::Stripe, event: EventId(n), key: EventKey(format!("evt_{event}")), fact }
}

fn sorted(mut facts: Vec<Dated>) -> Vec<Dated> {
    facts.sort_by(|a, b| a.order().cmp(&b.order()));
    facts
}

/// Event n tells that change n happened. It can only be asked about after that, and the answer is the truth of that moment: here
/// the least that it can be, so that as many answers as possible are old ones. Then all of it comes again, as a replay.
#[test]
fn six_subscription_events_of_one_second_end_the_same_in_all_720_orders() {
    let keys = rules().keys;
    let now = moment("10-22 10:00:00");
    let (mut ends, mut orders) = (BTreeSet::new(), 0);
    for last in 1..6_usize {
        let steps: Vec<usize> = (0..=last).collect();
        let mut of_last = BTreeSet::new();
        for order in permutations(&steps) {
            let mut known = 0;
            let mut facts = Vec::new();
            for (at, event) in (0_i64..).zip(&order) {
                known = known.max(*event);
                facts.push(dated(at * SECOND / 1000, *event, truth(known)));
            }
            let facts = sorted(facts);
            let state = fold(&facts, &keys, now);
            let second = oracle(&facts, &keys, now);
            assert_eq!((state.plan, state.past_due_since), (second.plan, second.past_due_since), "{order:?}");
            of_last.insert((
                state.plan.as_str(),
                state.decided.map(|d| d.at.to_string()),
                state.upcoming.len(),
                state.pro_periods.len(),
            ));
            orders += 1;
        }
        assert_eq!(of_last.len(), 1, "after change {last}: {of_last:?}");
        ends.extend(of_last);
    }
    assert_eq!(orders, 2 + 6 + 24 + 120 + 720);
    assert_eq!(ends.len(), 4, "the changes differ, so the test can fail: {ends:?}");
}

#[test]
fn checkout_and_late_payment_end_the_same_in_every_order_and_with_every_answer() {
    let keys = rules().keys;
    let paid_at = moment("10-25 10:00:00");
    let charge = ChargeId("py_1".to_owned());
    let pack = |state| Fact::Pack { purchase: PurchaseId("cs_1".to_owned()), state };
    let paid = || pack(PackState::Paid { at: paid_at, bottles: 100, charge: Some(charge.clone()) });
    let moved = |key: &str, kind, minor| {
        let money = Money { minor, currency: "eur".parse().unwrap() };
        Fact::Moved(Movement {
            key: key.into(),
            kind,
            money,
            reference: key.into(),
            charge: Some(charge.clone()),
            occurred: paid_at,
        })
    };
    let bill = |state| Fact::Invoice { invoice: InvoiceId("in_1".to_owned()), agreement: None, state };
    // Each event with what it can have been answered: before the money came, and after it.
    let events: [Vec<Vec<Fact>>; 5] = [
        vec![vec![pack(PackState::Awaited)], vec![paid(), moved("charge:py_1", MoneyKind::Charge, 900)]],
        vec![vec![paid(), moved("charge:py_1", MoneyKind::Charge, 900)]],
        vec![
            vec![moved("refund:re_1", MoneyKind::Refund, -300)],
            vec![moved("refund:re_1", MoneyKind::Refund, -300), moved("refund_failed:re_1", MoneyKind::RefundFailed, 300)],
        ],
        vec![vec![moved("refund:re_1", MoneyKind::Refund, -300), moved("refund_failed:re_1", MoneyKind::RefundFailed, 300)]],
        vec![vec![bill(InvoiceState::Owed { since: paid_at })], vec![bill(InvoiceState::Settled)]],
    ];
    let mut ends = BTreeSet::new();
    for order in permutations(&[0, 1, 2, 3, 4]) {
        for answers in 0..8_usize {
            let mut facts = Vec::new();
            for (at, event) in (0_i64..).zip(&order) {
                let wish = match event {
                    0 => answers & 1,
                    2 => answers >> 1 & 1,
                    4 => answers >> 2 & 1,
                    _ => 0,
                };
                facts.extend(events[*event][wish].iter().map(|fact| dated(at, *event, fact.clone())));
            }
            let state = fold(&sorted(facts), &keys, moment("10-26 10:00:00"));
            let [(_, purchase)] = state.purchases.as_slice() else { panic!("{:?}", state.purchases) };
            let money: i64 = state.money.iter().map(|(_, m)| m.money.minor).sum();
            let owed = answers >> 2 & 1 == 0;
            assert_eq!(state.past_due_since.is_some(), owed, "{order:?} {answers}");
            ends.insert((purchase.bottles, purchase.paid_at, purchase.refunded_minor, state.money.len(), money));
        }
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [(100, paid_at, 0, 3, 900)]);
}
