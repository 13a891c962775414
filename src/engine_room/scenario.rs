//! What is delivered, in which order, and where the process stops. Pure: no database, no clock of ours. When each delivery goes
//! out says `timetable`.
//!
//! A script is written the way it stands in an address, `PAY.UP.UP.PAY`, so a schedule that surprises somebody can be sent to
//! somebody else.

use std::fmt;
use std::str::FromStr;

use super::Account;
use super::stop::{Place, Stop};
use crate::domain::instant::Instant;
use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE, Plan};

/// The three things that happened to the customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The change to Pro.
    Up,
    /// The payment for it.
    Pay,
    /// The end of the plan before it, which the provider reports because the upgrade replaced it.
    Old,
}

impl Event {
    pub const ALL: [Self; 3] = [Self::Up, Self::Pay, Self::Old];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "UP",
            Self::Pay => "PAY",
            Self::Old => "OLD",
        }
    }

    /// For sentences: "the payment".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Up => "upgrade to Pro",
            Self::Pay => "payment",
            Self::Old => "cancellation of the earlier plan",
        }
    }

    /// When it happened at the provider: all on 21 October 2026, three minutes apart.
    pub const fn occurred_at(self) -> Instant {
        match self {
            Self::Old => Instant::from_nanos(UPGRADE_NS - 180 * SECOND),
            Self::Up => Instant::from_nanos(UPGRADE_NS),
            Self::Pay => Instant::from_nanos(UPGRADE_NS + 180 * SECOND),
        }
    }
}

impl FromStr for Event {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Self, BadScript> {
        Self::ALL
            .into_iter()
            .find(|event| event.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| BadScript::UnknownEvent { word: shortened(text) })
    }
}

pub(super) const SECOND: i64 = 1_000_000_000;
/// 2026-10-21T10:00:00Z.
const UPGRADE_NS: i64 = 1_792_576_800 * SECOND;

/// Deliveries in order of arrival, with at most one stop. Between one and [`Script::MOST`] of them, the stop among them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Script {
    deliveries: Vec<Event>,
    stop: Option<Stop>,
}

/// Why a script cannot be run. The sentence is read by whoever opened the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadScript {
    #[error("a script needs at least one delivery, and this one has none")]
    Empty,
    #[error("a script has at most {} deliveries, and this one has {count}", Script::MOST)]
    TooMany { count: usize },
    #[error("there is no event called “{word}”; a script is made of UP, PAY and OLD, joined by full stops")]
    UnknownEvent { word: String },
    #[error("a process cannot stop at “{word}”; the places are before-store, after-store, halfway and before-mark")]
    UnknownPlace { word: String },
    #[error("the stop “{text}” cannot be read; write it like 2-halfway, or none")]
    UnreadableStop { text: String },
    #[error("the stop is at delivery {delivery}, but the script has {count}")]
    StopOutOfRange { delivery: usize, count: usize },
}

impl Script {
    pub const MOST: usize = 20;

    /// # Errors
    /// No delivery or too many, or a stop at a delivery that is not there.
    pub fn new(deliveries: Vec<Event>, stop: Option<Stop>) -> Result<Self, BadScript> {
        let count = deliveries.len();
        match stop {
            _ if count == 0 => Err(BadScript::Empty),
            _ if count > Self::MOST => Err(BadScript::TooMany { count }),
            Some(Stop { delivery, .. }) if delivery == 0 || delivery > count => {
                Err(BadScript::StopOutOfRange { delivery, count })
            }
            _ => Ok(Self { deliveries, stop }),
        }
    }

    /// The nine deliveries of the article, with its stop half-way through the first upgrade.
    pub fn article() -> Self {
        Self { deliveries: ARTICLE.iter().map(|(event, _)| *event).collect(), stop: Some(ARTICLE_STOP) }
    }

    pub fn deliveries(&self) -> &[Event] {
        &self.deliveries
    }

    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// The article's nine in the article's order, whatever the stop: only then do its delivery times mean anything.
    pub fn has_article_order(&self) -> bool {
        self.deliveries.iter().eq(ARTICLE.iter().map(|(event, _)| event))
    }

    pub fn is_article(&self) -> bool {
        self.has_article_order() && self.stop == Some(ARTICLE_STOP)
    }

    /// What a customer is owed once everything has arrived. It depends on what happened, never on how it was delivered: the
    /// upgrade is newer than the cancellation, and a payment alone belongs to no plan.
    pub fn owed(&self) -> Account {
        if self.deliveries.contains(&Event::Up) {
            Account { plan: Plan::Pro, balance: FREE_BOTTLES + PRO_BOTTLES_MORE }
        } else {
            Account { plan: Plan::Free, balance: FREE_BOTTLES }
        }
    }

    /// Reads `PAY.UP.UP`.
    ///
    /// # Errors
    /// A word that is no event.
    pub fn parse_deliveries(text: &str) -> Result<Vec<Event>, BadScript> {
        if text.is_empty() {
            return Err(BadScript::Empty);
        }
        let count = text.split('.').count();
        if count > Self::MOST {
            return Err(BadScript::TooMany { count });
        }
        text.split('.').map(str::parse).collect()
    }
}

/// The deliveries alone, as they stand in an address.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, event) in self.deliveries.iter().enumerate() {
            write!(f, "{}{}", if n == 0 { "" } else { "." }, event.name())?;
        }
        Ok(())
    }
}

/// Each delivery with its attempt's distance from the event. Some attempts never reached us, which is why they are tried again.
pub(super) const ARTICLE: [(Event, u64); 9] = [
    (Event::Pay, 0),
    (Event::Up, 755),
    (Event::Up, 4_355),
    (Event::Pay, 4_355),
    (Event::Pay, 18_755),
    (Event::Pay, 61_955),
    (Event::Old, 105_155),
    (Event::Up, 105_155),
    (Event::Pay, 105_155),
];
const ARTICLE_STOP: Stop = Stop { delivery: 2, place: Place::HalfWay };

/// All 504 different orders of the nine deliveries, in dictionary order.
pub fn every_order() -> impl Iterator<Item = [Event; 9]> {
    let mut first = ARTICLE.map(|(event, _)| event);
    first.sort_unstable();
    std::iter::successors(Some(first), |order| {
        let mut next = *order;
        next_permutation(&mut next).then_some(next)
    })
}

fn next_permutation(order: &mut [Event]) -> bool {
    let Some(pivot) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let swap = order.iter().rposition(|event| *event > order[pivot]).unwrap_or(pivot);
    order.swap(pivot, swap);
    order[pivot + 1..].reverse();
    true
}

/// Outside words inside a sentence.
pub(super) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(24).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::stop::every_stop;
    use super::*;

    #[test]
    fn the_nine_have_504_orders_and_each_has_25_stops() {
        let orders: BTreeSet<_> = every_order().collect();
        assert_eq!((every_order().count(), orders.len()), (504, 504));
        for order in orders {
            let stops = every_stop(&order);
            assert_eq!(stops.len(), 25);
            for stop in stops {
                Script::new(order.to_vec(), stop).unwrap();
            }
        }
    }

    #[test]
    fn a_script_that_cannot_run_says_why() {
        let check = |result: Result<Script, BadScript>, says: &str| {
            let said = result.unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        };
        check(Script::new(vec![], None), "at least one delivery");
        check(Script::new(vec![Event::Up; 21], None), "at most 20 deliveries, and this one has 21");
        let stop = Some(Stop { delivery: 3, place: Place::HalfWay });
        check(Script::new(vec![Event::Up; 2], stop), "at delivery 3, but the script has 2");
    }
}
