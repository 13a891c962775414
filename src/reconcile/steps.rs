//! What a run does, in which order. Pure.
//!
//! Events first: what they bring is then no difference any more. What looks different is looked at again last, when most of what
//! was under way has run.

use crate::domain::event::Source;
use crate::providers::listing::Lists;

use super::runs::{Mode, Tallies};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Their events that we do not have.
    Events(Source),
    /// Until what was stored has run.
    Wait,
    /// Everybody of ours who is linked to them.
    Plans(Source),
    /// Whoever is a customer there and not linked here.
    Customers(Source),
    /// Their books are copied.
    Copy(Source),
    /// What is in their books.
    Theirs(Source),
    /// What is in ours and not in theirs.
    Ours(Source),
    /// What looked different.
    Recheck,
    /// What came of the repairs.
    Settle,
}

/// A run notes how many of these are done, so for one and the same run they stay the same.
pub fn all(sources: &[(Source, Lists)], mode: Mode) -> Vec<Step> {
    let wait = || (mode == Mode::Apply).then_some(Step::Wait);
    let of = |what: fn(&Lists) -> bool| sources.iter().filter(move |(_, lists)| what(lists)).map(|(source, _)| *source);
    let mut steps: Vec<Step> = of(|lists| lists.events).map(Step::Events).collect();
    steps.extend(wait().filter(|_| of(|lists| lists.events).next().is_some()));
    steps.extend(of(|lists| lists.plans).flat_map(|source| [Step::Plans(source), Step::Customers(source)]));
    steps.extend(of(|lists| lists.books).flat_map(|source| [Step::Copy(source), Step::Theirs(source), Step::Ours(source)]));
    steps.push(Step::Recheck);
    steps.extend(wait());
    steps.extend((mode == Mode::Apply).then_some(Step::Settle));
    steps
}

impl Step {
    pub fn in_words(self, tallies: &Tallies) -> String {
        let seen = |name: &str| tallies.get(name).copied().unwrap_or_default();
        match self {
            Self::Events(source) => format!("{source}: events, {} looked at", seen("events")),
            Self::Wait => "waiting until what was stored has run".to_owned(),
            Self::Plans(source) => format!("{source}: plans, {} looked at", seen("accounts")),
            Self::Customers(source) => format!("{source}: customers, {} looked at", seen("customers")),
            Self::Copy(source) => format!("{source}: books, {} rows read", seen("bookings")),
            Self::Theirs(source) | Self::Ours(source) => format!("{source}: money, {} movements compared", seen("movements")),
            Self::Recheck => "looking again at what differed".to_owned(),
            Self::Settle => "looking at what came of it".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_first_and_what_differed_last() {
        let kinde = (Source::Kinde, Lists { plans: true, by_user: true, events: false, books: false });
        let stripe = (Source::Stripe, Lists { plans: true, by_user: false, events: true, books: true });
        use Source::{Kinde, Stripe};
        use Step::{Copy, Customers, Events, Ours, Plans, Recheck, Settle, Theirs, Wait};
        assert_eq!(all(&[kinde], Mode::Look), [Plans(Kinde), Customers(Kinde), Recheck]);
        assert_eq!(all(&[kinde], Mode::Apply), [Plans(Kinde), Customers(Kinde), Recheck, Wait, Settle]);
        let both = all(&[kinde, stripe], Mode::Apply);
        let plans = [Plans(Kinde), Customers(Kinde), Plans(Stripe), Customers(Stripe)];
        let money = [Copy(Stripe), Theirs(Stripe), Ours(Stripe)];
        assert_eq!(both, [&[Events(Stripe), Wait][..], &plans, &money, &[Recheck, Wait, Settle]].concat());
    }
}
