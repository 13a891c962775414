//! The handler most people write, and what each repair of it does.

use bottle::domain::plan::Plan;
use bottle::engine_room::Account;
use bottle::engine_room::naive::{self, Repair, Repairs};
use bottle::engine_room::scenario::{Event, Script};
use bottle::engine_room::stop::{Place, Stop};

fn repairs(list: &str) -> Repairs {
    list.parse().unwrap()
}

fn column(script: &Script, list: &str) -> Vec<String> {
    naive::run(script, repairs(list)).iter().map(|s| format!("{} {}", s.account.plan, s.account.balance)).collect()
}

#[test]
fn applying_every_delivery_as_it_arrives_ends_2450_too_high() {
    assert_eq!(
        column(&Script::article(), ""),
        ["free 10", "pro 10", "pro 500", "pro 990", "pro 1480", "pro 1970", "free 1970", "pro 2460", "pro 2950"]
    );
}

#[test]
fn deduplication_alone_takes_the_payment_and_gives_nothing() {
    assert_eq!(
        column(&Script::article(), "dedupe"),
        ["free 10", "pro 10", "pro 10", "pro 10", "pro 10", "pro 10", "free 10", "free 10", "free 10"]
    );
}

#[test]
fn a_remembered_id_rolls_back_with_its_transaction() {
    assert_eq!(column(&Script::article(), "dedupe.transaction")[..3], ["free 10", "free 10", "pro 500"]);
    assert_eq!(column(&Script::article(), "dedupe.transaction.guard.key").last().unwrap(), "pro 500");
}

/// Counted by machine, kept here so that a change of the handler shows.
#[test]
fn each_set_of_repairs_ends_right_in_so_many_of_the_504_orders() {
    let all = (0..16).map(|bits| {
        let mut on = Repairs::default();
        Repair::ALL.into_iter().enumerate().filter(|(n, _)| (bits >> n) & 1 == 1).for_each(|(_, repair)| on.set(repair));
        let endings = naive::endings(on);
        assert_eq!(endings.orders, 504);
        format!("{on}: {}", endings.right)
    });
    insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"), @r"
    : 0
    dedupe: 21
    transaction: 0
    dedupe.transaction: 240
    guard: 27
    dedupe.guard: 189
    transaction.guard: 54
    dedupe.transaction.guard: 450
    key: 378
    dedupe.key: 21
    transaction.key: 378
    dedupe.transaction.key: 252
    guard.key: 495
    dedupe.guard.key: 189
    transaction.guard.key: 504
    dedupe.transaction.guard.key: 504
    ");
}

#[test]
fn the_spread_of_endings_counts_every_order() {
    let endings = naive::endings(Repairs::default());
    assert_eq!(endings.spread.values().sum::<usize>(), 504);
    assert!(endings.spread.contains_key(&Account { plan: Plan::Pro, balance: 2_950 }));
    // Without copies nothing is sent again after the stop, so the four repairs have nothing to apply.
    assert_eq!(naive::endings_without_copies(repairs("dedupe.transaction.guard.key")).right, 0);
}

#[track_caller]
fn stops(place: Place, list: &str, after: [&str; 2]) {
    let script = Script::new(vec![Event::Up, Event::Pay], Some(Stop { delivery: 1, place })).unwrap();
    let column = column(&script, list);
    assert_eq!([column[0].as_str(), column.last().unwrap()], after, "{place:?} {list}");
}

#[test]
fn where_the_process_stops_decides_what_is_written() {
    stops(Place::BeforeStore, "", ["free 10", "pro 990"]);
    stops(Place::AfterStore, "", ["free 10", "pro 990"]);
    stops(Place::HalfWay, "", ["pro 10", "pro 500"]);
    stops(Place::BeforeMark, "", ["pro 500", "pro 990"]);
    stops(Place::AfterStore, "dedupe", ["free 10", "free 10"]);
    stops(Place::BeforeMark, "transaction", ["free 10", "free 10"]);
    stops(Place::HalfWay, "guard", ["pro 10", "pro 500"]);
    stops(Place::BeforeMark, "key", ["pro 500", "pro 500"]);
}
