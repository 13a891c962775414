//! What stands below the picture: the switches of the naive handler, the run of all orders, the editor. Pure, as the page is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::engine_room::address::{Address, PATH};
use crate::engine_room::naive::{self, Endings, NaiveStep, Repair, Repairs};
use crate::engine_room::report::{thousands, verdict};
use crate::engine_room::scenario::{Event, Script};
use crate::engine_room::stop::Place;
use crate::engine_room::{Account, EveryOrder, Run};

pub(super) struct RepairPanel {
    pub(super) switches: Vec<Switch>,
    pub(super) hidden: Vec<(&'static str, String)>,
    pub(super) ending: String,
    pub(super) verdict: String,
    pub(super) is_right: bool,
    pub(super) right: usize,
    pub(super) orders: usize,
    pub(super) spread: Vec<Ending>,
    pub(super) alone_right: usize,
    pub(super) alone_orders: usize,
    /// Said where this script leaves the customer short.
    pub(super) short: bool,
    pub(super) candour: &'static str,
    pub(super) none: bool,
}

pub(super) struct Switch {
    pub(super) name: &'static str,
    pub(super) on: bool,
    pub(super) title: &'static str,
    pub(super) words: &'static str,
}

pub(super) struct Ending {
    pub(super) words: String,
    pub(super) count: String,
    pub(super) bar: i64,
    pub(super) right: bool,
}

pub(super) struct EveryPanel {
    pub(super) action: String,
    /// `not run`, `running`, `done`, `failed`.
    pub(super) state: &'static str,
    pub(super) done: String,
    pub(super) total: String,
    pub(super) bar: i64,
    pub(super) result: Option<EveryResult>,
    pub(super) why: String,
}

pub(super) struct EveryResult {
    pub(super) schedules: String,
    pub(super) right: String,
    pub(super) one_grant: String,
    pub(super) all_right: bool,
    pub(super) took: String,
    pub(super) naive_right: String,
    pub(super) spread: Vec<Ending>,
}

pub(super) struct Editor {
    pub(super) rows: Vec<EditorRow>,
    pub(super) stop_rows: Vec<(usize, bool)>,
    pub(super) places: Vec<(&'static str, &'static str, bool)>,
    pub(super) is_full: bool,
    pub(super) is_article: bool,
    pub(super) repair: String,
    pub(super) most: usize,
}

pub(super) struct EditorRow {
    pub(super) n: usize,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    pub(super) choices: Vec<(&'static str, bool)>,
}

pub(super) fn repair_panel(run: &Run, naive: &[NaiveStep], address: &Address) -> RepairPanel {
    let (owed, repairs) = (run.script.owed(), address.repairs);
    let end = naive.last().map_or(naive::FRESH, |step| step.account);
    let (endings, alone) = (naive::endings(repairs), naive::endings_without_copies(repairs));
    let off = verdict(end, owed);
    RepairPanel {
        switches: Repair::ALL.into_iter().map(|repair| switch(repair, repairs)).collect(),
        hidden: hidden(address),
        ending: format!("{}, {}", end.plan, thousands(end.balance)),
        is_right: off.is_none(),
        short: end.balance < owed.balance,
        verdict: off.unwrap_or_else(|| "right".into()),
        right: endings.right,
        orders: endings.orders,
        spread: spread(&endings.spread, Script::article().owed(), 6),
        alone_right: alone.right,
        alone_orders: alone.orders,
        candour: candour(repairs, &endings, &alone),
        none: repairs.none(),
    }
}

fn switch(repair: Repair, repairs: Repairs) -> Switch {
    let (title, words) = match repair {
        Repair::Dedupe => ("Deduplicate", "remember each event’s id, skip it the next time"),
        Repair::Transaction => ("One transaction", "all writes of a delivery, or none of them"),
        Repair::Guard => ("Plan guard", "a plan change must be newer than the stored one"),
        Repair::EntryKey => ("Entry key", "the month’s allowance is written under a key, once"),
    };
    Switch { name: repair.name(), on: repairs.has(repair), title, words }
}

/// What the number of right orders does not say.
fn candour(repairs: Repairs, endings: &Endings, alone: &Endings) -> &'static str {
    let copies_help = endings.right * alone.orders > alone.right * endings.orders;
    if repairs.dedupe && !repairs.transaction {
        "The id is remembered before the work is done, so what the stop broke off stays broken: every copy that could have mended \
         it is skipped. Where it still ends right, another event happened to bring what was lost."
    } else if endings.right == endings.orders && copies_help {
        "Right each time, but only because the upgrade comes again after the stop. This handler keeps nothing it could run again \
         by itself; a sender that gives up takes the upgrade with it. Bottle has stored the event, and needs no copy."
    } else if copies_help {
        "Many of these are right by luck: a copy that comes after the stop redoes what was lost. Deliver each event once, and the \
         loss shows."
    } else {
        "Copies hide what was lost, and add what was not owed; the two do not cancel out."
    }
}

fn spread(spread: &BTreeMap<Account, usize>, owed: Account, most: usize) -> Vec<Ending> {
    let mut by_count: Vec<(Account, usize)> = spread.iter().map(|(account, count)| (*account, *count)).collect();
    by_count.sort_by_key(|&(account, count)| (account != owed, Reverse(count)));
    let highest = by_count.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let bar = |count: usize| i64::try_from(count * 100 / highest).unwrap_or(100).clamp(1, 100);
    let ending = |words: String, count: usize, right| Ending { words, count: thousands(count as i64), bar: bar(count), right };
    let rest: Vec<usize> = by_count.iter().skip(most).map(|(_, count)| *count).collect();
    let shown = by_count.iter().take(most);
    let mut out: Vec<Ending> = shown
        .map(|&(account, count)| ending(format!("{}, {}", account.plan, thousands(account.balance)), count, account == owed))
        .collect();
    if !rest.is_empty() {
        out.push(ending(format!("{} other endings", rest.len()), rest.iter().sum(), false));
    }
    out
}

/// The rest of the address, for a form that changes one part of it.
fn hidden(address: &Address) -> Vec<(&'static str, String)> {
    let mut fields = vec![];
    if !address.script.has_article_order() {
        fields.push(("script", address.script.to_string()));
    }
    match address.script.stop() {
        _ if address.script.is_article() => {}
        Some(stop) => fields.push(("stop", stop.to_string())),
        None => fields.push(("stop", "none".into())),
    }
    fields
}

pub(super) fn every_panel(every: &EveryOrder, address: &Address) -> EveryPanel {
    let query = address.to_string();
    let query = query.strip_prefix(PATH).unwrap_or_default();
    let mut panel = EveryPanel {
        action: format!("{PATH}/every-order{query}"),
        state: "not run",
        done: String::new(),
        total: String::new(),
        bar: 0,
        result: None,
        why: String::new(),
    };
    match every {
        EveryOrder::NotRun => {}
        EveryOrder::Running { done, total } => {
            panel.state = "running";
            panel.done = thousands(*done as i64);
            panel.total = thousands(*total as i64);
            panel.bar = i64::try_from(done * 100 / (*total).max(1)).unwrap_or(100);
        }
        EveryOrder::Done(result) => {
            panel.state = "done";
            let owed = Script::article().owed();
            panel.result = Some(EveryResult {
                schedules: thousands(result.schedules as i64),
                right: thousands(result.ended_right as i64),
                one_grant: thousands(result.one_grant as i64),
                all_right: result.ended_right == result.schedules && result.one_grant == result.schedules,
                took: format!("{} s", result.took.as_secs().max(1)),
                naive_right: thousands(result.naive_spread.get(&owed).copied().unwrap_or(0) as i64),
                spread: spread(&result.naive_spread, owed, 6),
            });
        }
        EveryOrder::Failed { why } => {
            panel.state = "failed";
            panel.why.clone_from(why);
        }
    }
    panel
}

pub(super) fn editor(address: &Address) -> Editor {
    let script = &address.script;
    let count = script.deliveries().len();
    let row = |(n, &event): (usize, &Event)| EditorRow {
        n,
        is_first: n == 1,
        is_last: n == count,
        choices: Event::ALL.map(|choice| (choice.name(), choice == event)).to_vec(),
    };
    let place = script.stop().map_or(Place::HalfWay, |stop| stop.place);
    Editor {
        rows: (1..).zip(script.deliveries()).map(row).collect(),
        stop_rows: (1..=count).map(|n| (n, script.stop().is_some_and(|stop| stop.delivery == n))).collect(),
        places: Place::ALL.map(|choice| (choice.name(), choice.words(), choice == place)).to_vec(),
        is_full: count == Script::MOST,
        is_article: script.is_article(),
        repair: address.repairs.to_string(),
        most: Script::MOST,
    }
}
