//! What is delivered, in which order, and where the process stops. Pure: no database, no clock of ours.
//!
//! A script is written the way it stands in an address, `PAY.UP.UP.PAY`, so a schedule that surprises somebody can be sent to
//! somebody else.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Account;
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

const SECOND: i64 = 1_000_000_000;
/// 2026-10-21T10:00:00Z.
const UPGRADE_NS: i64 = 1_792_576_800 * SECOND;

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

/// Deliveries in order of arrival, with at most one stop. Between one and [`Script::MOST`] of them, the stop among them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Script {
    deliveries: Vec<Event>,
    stop: Option<Stop>,
}

/// One delivery as it really goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    pub n: usize,
    pub at: Instant,
    pub event: Event,
    /// How often this event has been sent by now, this time included.
    pub copy: usize,
    /// Sent because a stop left an earlier delivery unanswered.
    pub resend: bool,
    /// Where the process stops while it handles this delivery.
    pub stop: Option<Place>,
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

    /// What really goes out, in order of time: the script, and one more attempt where a stop swallowed the answer.
    pub fn sends(&self) -> Vec<Sending> {
        let mut out: Vec<Sending> = Vec::with_capacity(self.deliveries.len() + 1);
        for (n, &event) in (1..).zip(&self.deliveries) {
            let stop = self.stop.filter(|stop| stop.delivery == n).map(|stop| stop.place);
            out.push(Sending { n, at: self.time_of(n), event, copy: 0, resend: false, stop });
        }
        if let Some(swallowed) = out.iter().copied().find(|sending| sending.stop.is_some_and(Place::is_unanswered)) {
            let at = self.next_try(&swallowed);
            // In the article's own times the next attempt may be one that the script holds already.
            if let Some(planned) = out.iter_mut().find(|sending| sending.event == swallowed.event && sending.at == at) {
                planned.resend = true;
            } else {
                let place = out.partition_point(|sending| sending.at <= at);
                out.insert(place, Sending { at, resend: true, stop: None, ..swallowed });
            }
        }
        let mut copies = [0; Event::ALL.len()];
        for (n, sending) in (1..).zip(&mut out) {
            copies[sending.event as usize] += 1;
            sending.n = n;
            sending.copy = copies[sending.event as usize];
        }
        out
    }

    fn time_of(&self, n: usize) -> Instant {
        if self.has_article_order() {
            let (event, after_secs) = ARTICLE[n - 1];
            event.occurred_at().plus(Duration::from_secs(after_secs))
        } else {
            let minutes = (n - 1) as u64;
            Event::Pay.occurred_at().plus(Duration::from_secs(60 * minutes))
        }
    }

    /// When the sender tries an unanswered delivery again. Where its schedule would have run out we grant it one more attempt:
    /// an event lost for good reaches neither lane, and shows nothing.
    fn next_try(&self, swallowed: &Sending) -> Instant {
        let wait_secs = if self.has_article_order() {
            let since_secs = swallowed.at.nanos().saturating_sub(swallowed.event.occurred_at().nanos()) / SECOND;
            ATTEMPTS_AFTER_SECS
                .iter()
                .map(|&after| after.cast_signed())
                .find(|&after| after > since_secs)
                .map_or(LAST_WAIT_SECS, |after| (after - since_secs).cast_unsigned())
        } else {
            let attempt = self.deliveries[..swallowed.n].iter().filter(|&&event| event == swallowed.event).count();
            match (ATTEMPTS_AFTER_SECS.get(attempt - 1), ATTEMPTS_AFTER_SECS.get(attempt)) {
                (Some(this), Some(next)) => next - this,
                _ => LAST_WAIT_SECS,
            }
        };
        swallowed.at.plus(Duration::from_secs(wait_secs))
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

/// Kinde's attempts, in seconds after the event: 5 s, 30 s, 2 min, 10 min, 1 h and 4 h apart, then every 12 h within 36 h.
const ATTEMPTS_AFTER_SECS: [u64; 9] = [0, 5, 35, 155, 755, 4_355, 18_755, 61_955, 105_155];
const LAST_WAIT_SECS: u64 = 12 * 3_600;

/// Each delivery with its attempt's distance from the event. Some attempts never reached us, which is why they are tried again.
const ARTICLE: [(Event, u64); 9] = [
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

/// Outside words inside a sentence.
pub(super) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(24).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn times(script: &Script) -> Vec<String> {
        script.sends().iter().map(|s| format!("{} {}{} {}", s.n, s.event.name(), s.copy, s.at)).collect()
    }

    #[test]
    fn the_article_goes_out_at_the_retry_times_of_its_sender() {
        assert_eq!(
            times(&Script::article()),
            [
                "1 PAY1 2026-10-21T10:03:00Z",
                "2 UP1 2026-10-21T10:12:35Z",
                "3 UP2 2026-10-21T11:12:35Z",
                "4 PAY2 2026-10-21T11:15:35Z",
                "5 PAY3 2026-10-21T15:15:35Z",
                "6 PAY4 2026-10-22T03:15:35Z",
                "7 OLD1 2026-10-22T15:09:35Z",
                "8 UP3 2026-10-22T15:12:35Z",
                "9 PAY5 2026-10-22T15:15:35Z",
            ]
        );
    }

    #[test]
    fn an_edited_script_goes_out_a_minute_apart() {
        let script = Script::new(vec![Event::Up, Event::Pay, Event::Old], None).unwrap();
        assert_eq!(times(&script), ["1 UP1 2026-10-21T10:03:00Z", "2 PAY1 2026-10-21T10:04:00Z", "3 OLD1 2026-10-21T10:05:00Z"]);
    }

    #[test]
    fn an_unanswered_delivery_is_sent_again_at_the_next_retry_time() {
        let unanswered =
            |delivery, deliveries| Script::new(deliveries, Some(Stop { delivery, place: Place::AfterStore })).unwrap().sends();
        let sends = unanswered(1, vec![Event::Up, Event::Pay]);
        let shown: Vec<_> = sends.iter().map(|s| (s.event, s.copy, s.resend, s.at.to_string())).collect();
        assert_eq!(
            shown,
            [
                (Event::Up, 1, false, "2026-10-21T10:03:00Z".to_owned()),
                (Event::Up, 2, true, "2026-10-21T10:03:05Z".to_owned()),
                (Event::Pay, 1, false, "2026-10-21T10:04:00Z".to_owned()),
            ]
        );
        // The fourth copy waits ten minutes, so it goes out last.
        let sends = unanswered(4, vec![Event::Pay, Event::Pay, Event::Pay, Event::Pay, Event::Up]);
        assert_eq!(
            sends.last().map(|s| (s.event, s.copy, s.at.to_string())),
            Some((Event::Pay, 5, "2026-10-21T10:16:00Z".into()))
        );
    }

    #[test]
    fn in_the_article_the_next_attempt_may_be_there_already() {
        let article = Script::article().deliveries().to_vec();
        let stop = |delivery| Some(Stop { delivery, place: Place::BeforeStore });
        let sends = Script::new(article.clone(), stop(2)).unwrap().sends();
        assert_eq!(sends.len(), 9);
        assert!(sends[2].resend);
        let sends = Script::new(article, stop(9)).unwrap().sends();
        assert_eq!((sends.len(), sends[9].resend, sends[9].at.to_string()), (10, true, "2026-10-23T03:15:35Z".into()));
    }

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
