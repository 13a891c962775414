//! The Engine Room's sentence about a run, and numbers as words.

use crate::engine_room::naive::{self, NaiveStep, Repairs};
use crate::engine_room::report::{thousands, verdict};
use crate::engine_room::scenario::Event;
use crate::engine_room::stop::Place;
use crate::engine_room::{Account, Run};

/// The whole page in two sentences, from the run's own numbers.
pub fn headline(run: &Run, naive: &[NaiveStep], repairs: Repairs) -> String {
    let (owed, end) = (run.script.owed(), naive.last().map_or(naive::FRESH, |step| step.account));
    let distinct = Event::ALL.iter().filter(|event| run.script.deliveries().contains(event)).count();
    let order: Vec<i64> = run.steps.iter().filter(|s| s.copy == 1).map(|step| step.event.occurred_at().nanos()).collect();
    let cut_off = match run.script.stop().map(|stop| stop.place) {
        Some(Place::HalfWay) => "once cut off half‑way",
        _ => "once cut off",
    };
    let traits: Vec<&str> = [
        (run.steps.iter().any(|step| step.copy > 1), "repeated"),
        (!order.is_sorted(), "out of order"),
        (run.script.stop().is_some(), cut_off),
    ]
    .into_iter()
    .filter_map(|(holds, words)| holds.then_some(words))
    .collect();
    let traits = match traits.as_slice() {
        [] => String::new(),
        [one] => format!(": {one}"),
        [one, two] => format!(": {one} and {two}"),
        [most @ .., last] => format!(": {}, and {last}", most.join(", ")),
    };
    let handler = if repairs.none() { "The handler most people write" } else { "The handler most people write, so repaired," };
    let theirs = ending_words(end, owed);
    let ours = ending_words(run.pipeline(), owed);
    format!(
        "{} billing event{} arrive{} as {} deliver{}{traits}. {handler} ends at {theirs}; Bottle ends at {ours}.",
        capital(number(distinct)),
        if distinct == 1 { "" } else { "s" },
        if distinct == 1 { "s" } else { "" },
        number(run.steps.len()),
        if run.steps.len() == 1 { "y" } else { "ies" },
    )
}

fn ending_words(end: Account, owed: Account) -> String {
    let off = verdict(end, owed).map_or_else(|| "which is right".into(), |off| format!("that is {off}"));
    format!("{} bottles, {off}", thousands(end.balance))
}

pub fn number(count: usize) -> &'static str {
    const WORDS: [&str; 22] = [
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
        "twenty-one",
    ];
    WORDS.get(count).copied().unwrap_or("many")
}

pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
