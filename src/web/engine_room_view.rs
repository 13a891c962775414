//! The Engine Room's page. Pure: a finished run and what the address asks for go in, HTML comes out.
//!
//! It works without JavaScript: each step is a link, the editor is a form. The script beside it fetches the same addresses
//! and moves the attributes of elements with equal ids, so ids here are part of that agreement (`static/engine_room.js`).

use askama::Template;

use super::assets;
use super::engine_room_panels::{Editor, EveryPanel, RepairPanel, editor, every_panel, repair_panel};
use super::engine_room_words::{capital, headline, number};
use super::page::Frame;
use super::person::Person;
use super::score::{self, HEIGHT, LEFT, NAIVE_BASE, NAIVE_TOP, OURS_BASE, OURS_TOP, RACK, RIGHT, Score, TOKEN, WIDTH};
use crate::domain::plan::Plan;
use crate::engine_room::address::{Address, BadAddress, PATH};
use crate::engine_room::naive::{self, NaiveStep};
use crate::engine_room::report::{Summary, day, thousands, time_of_day, times};
use crate::engine_room::scenario::Event;
use crate::engine_room::{Account, Became, EveryOrder, KILLS_A_CHECKPOINT, Rows, Run, Step, TraceLine};

/// What the page is made from.
pub struct View<'a> {
    pub person: Option<&'a Person>,
    /// The run of `address.script`.
    pub run: &'a Run,
    pub address: &'a Address,
    /// The address could not be read; `run` and `address` are then the article's.
    pub problem: Option<&'a BadAddress>,
    pub every_order: &'a EveryOrder,
}

#[derive(Template)]
#[template(path = "engine_room.html")]
struct Page<'a> {
    frame: Frame,
    script_js: String,
    problem: Option<String>,
    headline: String,
    score: Score,
    /// The last step, and the one looked at.
    last: usize,
    at: usize,
    controls: Controls,
    now: Option<Now<'a>>,
    lines: Vec<Line<'a>>,
    rows: Database,
    summary: Summary,
    grants: String,
    took: String,
    naive_name: String,
    repair: RepairPanel,
    every: EveryPanel,
    editor: Editor,
    kills: String,
}

struct Controls {
    back: String,
    step: String,
    play: String,
    playing: bool,
    reset: &'static str,
    /// Where a playing page goes by itself.
    next: Option<String>,
}

/// The delivery looked at.
struct Now<'a> {
    title: String,
    naive: String,
    ours: &'a str,
    trace: &'a [TraceLine],
}

/// A row of the table; at phone width a card.
struct Line<'a> {
    n: usize,
    href: String,
    state: &'static str,
    symbol: &'static str,
    is_copy: bool,
    event: &'static str,
    copy: String,
    stopped: bool,
    day: String,
    time: String,
    naive: Cell,
    naive_note: &'a str,
    ours: Cell,
    outcome: &'a str,
    guard: String,
    source: &'static str,
}

struct Cell {
    plan: &'static str,
    balance: String,
    bar: i64,
    off: bool,
}

struct Database {
    inbox: Vec<InboxLine>,
    receipts: usize,
    ledger: Vec<(String, String)>,
    sum: String,
    plan: &'static str,
    changed: String,
}

struct InboxLine {
    event: &'static str,
    key: String,
    kind: String,
    status: &'static str,
    reason: String,
    seen: u32,
}

/// # Errors
/// Only if the template itself fails.
pub fn render(view: &View<'_>) -> Result<String, askama::Error> {
    let (run, address) = (view.run, view.address);
    let naive = naive::run(&run.script, address.repairs);
    let (at, last) = (address.at_step(), run.steps.len());
    let page = Page {
        frame: Frame::new("Engine Room · Bottle", "engine-room").of(view.person),
        script_js: assets::url("engine_room.js"),
        problem: view.problem.map(ToString::to_string),
        headline: headline(run, &naive, address.repairs),
        score: Score::draw(run, &naive, address),
        last,
        at,
        controls: controls(address, at, last),
        now: at.checked_sub(1).and_then(|index| now(run, &naive, index)),
        lines: lines(run, &naive, address, at),
        rows: database(at.checked_sub(1).and_then(|index| run.steps.get(index)).map(|step| &step.rows)),
        grants: times(run.rows().grants()),
        summary: run.summary(),
        took: format!("{} ms", run.took.as_millis().max(1)),
        naive_name: match address.repairs.count() {
            0 => "The handler most people write".into(),
            1 => "The handler most people write, with one repair".into(),
            count => format!("The handler most people write, with {} repairs", number(count)),
        },
        repair: repair_panel(run, &naive, address),
        every: every_panel(view.every_order, address),
        editor: editor(address),
        kills: KILLS_A_CHECKPOINT.map(|kills| format!(", {} at each", times(kills as usize))).unwrap_or_default(),
    };
    page.render()
}

fn controls(address: &Address, at: usize, last: usize) -> Controls {
    let to = |step| address.with_step(step).to_string();
    let from_here = if at == last { 0 } else { at };
    let play = Address { step: Some(from_here).filter(|&step| step < last), play: true, ..address.clone() };
    let playing = address.play && at < last;
    let next = Address { step: Some(at + 1).filter(|&step| step < last), play: at + 1 < last, ..address.clone() };
    Controls {
        back: to(at.saturating_sub(1)),
        step: to((at + 1).min(last)),
        play: if playing { to(at) } else { play.to_string() },
        playing,
        reset: PATH,
        next: playing.then(|| next.to_string()),
    }
}

fn now<'a>(run: &'a Run, naive: &[NaiveStep], index: usize) -> Option<Now<'a>> {
    let (step, naive) = (run.steps.get(index)?, naive.get(index)?);
    let copy = if step.copy > 1 { format!(", copy {}", step.copy) } else { String::new() };
    Some(Now {
        title: format!(
            "{} of {} · {}{copy} · {} {} UTC",
            step.n,
            run.steps.len(),
            capital(step.event.words()),
            day(step.at),
            time_of_day(step.at)
        ),
        naive: naive.note.clone(),
        ours: &step.outcome,
        trace: &step.trace,
    })
}

fn lines<'a>(run: &'a Run, naive: &'a [NaiveStep], address: &Address, at: usize) -> Vec<Line<'a>> {
    let owed = run.script.owed();
    let most = naive.iter().map(|step| step.account.balance).max().unwrap_or(0).max(3_000);
    let cell = |account: Account| Cell {
        plan: account.plan.as_str(),
        balance: thousands(account.balance),
        bar: (account.balance * 100 / most).max(1),
        off: account.balance > owed.balance,
    };
    let line = |(index, (step, theirs)): (usize, (&'a Step, &'a NaiveStep))| {
        let guard = guard_of(step, run.became(index));
        Line {
            n: step.n,
            href: address.with_step(step.n).query(),
            state: if index + 1 == at {
                "now"
            } else if index < at {
                "past"
            } else {
                "later"
            },
            symbol: match step.event {
                Event::Up => "up",
                Event::Pay => "pay",
                Event::Old => "old",
            },
            is_copy: step.copy > 1,
            event: step.event.name(),
            copy: match (step.copy, step.resend) {
                (1, _) => String::new(),
                (copy, false) => format!("copy {copy}"),
                (copy, true) => format!("copy {copy}, sent again"),
            },
            stopped: theirs.stopped || step.stopped.is_some(),
            day: day(step.at),
            time: time_of_day(step.at),
            naive: cell(theirs.account),
            naive_note: &theirs.note,
            ours: cell(step.pipeline),
            outcome: &step.outcome,
            guard: guard.map(|line| line.guard.clone()).unwrap_or_default(),
            source: guard.map_or("", |line| line.source),
        }
    };
    let mut lines: Vec<Line<'a>> = run.steps.iter().zip(naive).enumerate().map(line).collect();
    // In a long script most rows are copies, held by one and the same guard: it is named where it changes.
    if lines.len() > score::WORDY {
        let guards: Vec<String> = lines.iter().map(|line| line.guard.clone()).collect();
        let same = |n: usize| n > 0 && guards[n] == guards[n - 1];
        lines.iter_mut().enumerate().filter(|(n, _)| same(*n)).for_each(|(_, line)| line.guard.clear());
    }
    lines
}

/// The guard that decided: for a copy the one at the door, for late news the order of facts, otherwise the last one met.
fn guard_of(step: &Step, became: Option<Became>) -> Option<&TraceLine> {
    match became {
        Some(Became::Counted) => step.trace.iter().find(|line| line.step == "counted"),
        Some(Became::Ignored) => step.trace.iter().find(|line| line.step == "plan decided"),
        _ => step.trace.last(),
    }
}

fn database(rows: Option<&Rows>) -> Database {
    let nothing = Rows::default();
    let rows = rows.unwrap_or(&nothing);
    let inbox = rows.inbox.iter().map(|row| InboxLine {
        event: row.event.name(),
        key: row.key.clone(),
        kind: row.kind.clone(),
        status: row.status.as_str(),
        reason: row.reason.clone().unwrap_or_default(),
        seen: row.seen,
    });
    Database {
        inbox: inbox.collect(),
        receipts: rows.receipts,
        ledger: rows.ledger.iter().map(|entry| (entry.entry_key.clone(), signed(entry.delta))).collect(),
        sum: thousands(rows.ledger.iter().map(|entry| entry.delta).sum()),
        plan: rows.account.as_ref().map_or(Plan::Free, |account| account.plan).as_str(),
        changed: rows
            .account
            .as_ref()
            .and_then(|account| account.plan_changed_at)
            .map_or_else(|| "never".into(), |at| format!("{} {}", day(at), time_of_day(at))),
    }
}

fn signed(delta: i64) -> String {
    if delta > 0 { format!("+{}", thousands(delta)) } else { thousands(delta) }
}
