//! Where a process may stop while it handles a delivery.

use std::fmt;
use std::str::FromStr;

use super::scenario::{BadScript, Event, shortened};

/// Where in the handling of a delivery the process stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    BeforeStore,
    /// Stored, but the sender never hears of it.
    AfterStore,
    /// Between the first effect and the rest.
    HalfWay,
    /// All effects written, the event not yet marked.
    BeforeMark,
}

impl Place {
    pub const ALL: [Self; 4] = [Self::BeforeStore, Self::AfterStore, Self::HalfWay, Self::BeforeMark];

    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeStore => "before-store",
            Self::AfterStore => "after-store",
            Self::HalfWay => "halfway",
            Self::BeforeMark => "before-mark",
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::BeforeStore => "before the event is stored",
            Self::AfterStore => "after the store, before the answer",
            Self::HalfWay => "half-way through the effects",
            Self::BeforeMark => "after the effects, before the mark",
        }
    }

    /// No answer reached the sender, so it will try again.
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::BeforeStore | Self::AfterStore)
    }
}

impl FromStr for Place {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Self, BadScript> {
        Self::ALL.into_iter().find(|place| place.name() == text).ok_or_else(|| BadScript::UnknownPlace { word: shortened(text) })
    }
}

/// One simulated stop: in the handling of the delivery with this number, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stop {
    pub delivery: usize,
    pub place: Place,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.delivery, self.place.name())
    }
}

impl FromStr for Stop {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Self, BadScript> {
        let unreadable = || BadScript::UnreadableStop { text: shortened(text) };
        let (delivery, place) = text.split_once('-').ok_or_else(unreadable)?;
        Ok(Self { delivery: delivery.parse().map_err(|_| unreadable())?, place: place.parse()? })
    }
}

/// Everywhere the process may stop once in this order: nowhere, around the store of each delivery, and inside the effects of
/// each event, which run at the first delivery of it.
pub fn every_stop(order: &[Event]) -> Vec<Option<Stop>> {
    let around_stores = (1..=order.len())
        .flat_map(|delivery| [Place::BeforeStore, Place::AfterStore].map(|place| Some(Stop { delivery, place })));
    let inside_effects = Event::ALL
        .into_iter()
        .filter_map(|event| order.iter().position(|&sent| sent == event))
        .flat_map(|first| [Place::HalfWay, Place::BeforeMark].map(|place| Some(Stop { delivery: first + 1, place })));
    std::iter::once(None).chain(around_stores).chain(inside_effects).collect()
}
