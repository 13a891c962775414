//! The money of the account page: each movement, what they come to in each currency, and what became of what was bought once.

use super::shown::shown;
use super::when::{When, Zone};
use crate::billing::runs::Moved;
use crate::domain::money::{Currency, Money, MoneyKind};
use crate::engine_room::report::thousands;
use crate::money::bills::Bill;
use crate::money::{Line, Total};

pub struct MoneyView {
    pub lines: Vec<LineView>,
    pub totals: Vec<TotalView>,
    pub packs: Vec<PackView>,
    /// Providers whose messages carry no amounts.
    pub silent: Vec<&'static str>,
    pub older: Option<String>,
    pub newest: Option<String>,
}

pub struct LineView {
    pub when: When,
    pub what: &'static str,
    pub amount: String,
    pub reference: String,
    pub event: i64,
}

pub struct TotalView {
    pub paid: String,
    /// How it comes to that, where more than payments went into it.
    pub parts: Vec<String>,
}

pub struct PackView {
    pub when: When,
    pub bottles: String,
    pub price: String,
    pub stamp: Option<Stamp>,
    pub event: i64,
}

/// What became of a purchase: a word and a shape.
pub struct Stamp {
    pub word: String,
    pub tone: &'static str,
    pub shape: &'static str,
}

const BACK: &str = "M13.8 8A5.8 5.8 0 1 1 12 3.8M12.4 1v3.2H9.2";
const ALARM: &str = "M8 1.6 15 14.2H1zM8 6v4M8 12v.1";
const FINE: &str = "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.2 2.2L11.2 6";

/// What a movement is to the customer.
pub fn what(kind: MoneyKind, minor: i64) -> &'static str {
    match kind {
        MoneyKind::Charge => "You paid",
        MoneyKind::Refund => "Given back to you",
        MoneyKind::RefundFailed => "A refund that did not reach you",
        MoneyKind::Credit if minor < 0 => "Added to your credit",
        MoneyKind::Credit => "Paid from your credit",
        MoneyKind::Dispute => "Taken back by your bank",
        MoneyKind::DisputeReversal => "Returned by your bank, the dispute being won",
    }
}

impl LineView {
    pub fn new(line: &Line, zone: &Zone) -> Self {
        Self {
            when: zone.when(line.occurred_at),
            what: what(line.kind, line.money.minor),
            amount: line.money.to_string(),
            reference: shown(&line.reference, 100),
            event: line.event.0,
        }
    }
}

impl TotalView {
    pub fn new(total: &Total) -> Self {
        let sum = |minor: i128| format!("{} {}", total.currency.amount(minor), total.currency);
        let parts = total.by_kind.iter().map(|(kind, minor)| {
            let what = match kind {
                MoneyKind::Charge => "paid",
                MoneyKind::Refund => "given back",
                MoneyKind::RefundFailed => "refunds that came back",
                MoneyKind::Credit => "credit used, which is no money",
                MoneyKind::Dispute => "taken back by your bank",
                MoneyKind::DisputeReversal => "returned by your bank",
            };
            // Which way it went, the words say.
            let minor = if matches!(kind, MoneyKind::Refund | MoneyKind::Dispute) { -minor } else { *minor };
            format!("{what} {}", sum(minor))
        });
        let parts: Vec<String> = if total.by_kind.keys().eq([&MoneyKind::Charge]) { Vec::new() } else { parts.collect() };
        Self { paid: sum(total.paid()), parts }
    }
}

impl PackView {
    pub fn new(bill: &Bill, zone: &Zone) -> Self {
        Self {
            when: zone.when(bill.purchase.paid_at.datetime()),
            bottles: thousands(bill.purchase.bottles),
            price: bill.price.as_ref().map_or_else(|| "nothing to pay".to_owned(), ToString::to_string),
            stamp: stamp(bill),
            event: bill.event.0,
        }
    }
}

fn stamp(bill: &Bill) -> Option<Stamp> {
    let back = bill.purchase.refunded_minor;
    match (bill.purchase.disputed.as_deref(), &bill.price) {
        (Some("won"), _) => Some(Stamp { word: "Dispute won: the payment stands".to_owned(), tone: "good", shape: FINE }),
        (Some("lost"), _) => Some(Stamp { word: "Disputed: your bank gave it back".to_owned(), tone: "bad", shape: ALARM }),
        (Some("warning_closed" | "prevented") | None, _) if back <= 0 => None,
        (Some("warning_closed" | "prevented") | None, Some(price)) if back >= price.minor => {
            Some(Stamp { word: "Refunded".to_owned(), tone: "wait", shape: BACK })
        }
        (Some("warning_closed" | "prevented") | None, Some(price)) => {
            let part = Money { minor: back, currency: price.currency.clone() };
            Some(Stamp { word: format!("Refunded in part, {part}"), tone: "wait", shape: BACK })
        }
        (Some("warning_closed" | "prevented") | None, None) => {
            Some(Stamp { word: "Refunded".to_owned(), tone: "wait", shape: BACK })
        }
        (Some(_), _) => Some(Stamp { word: "Disputed".to_owned(), tone: "bad", shape: ALARM }),
    }
}

/// What a run moved, as it was kept with the run: `paid 12.00 USD`.
pub fn moved(moved: &Moved) -> Option<String> {
    let kind: MoneyKind = moved.kind.parse().ok()?;
    let currency: Currency = moved.currency.parse().ok()?;
    let sum = Money { minor: moved.amount_minor.checked_abs()?, currency };
    Some(match kind {
        MoneyKind::Charge => format!("paid {sum}"),
        MoneyKind::Refund => format!("{sum} given back"),
        MoneyKind::RefundFailed => format!("a refund of {sum} came back"),
        MoneyKind::Credit if moved.amount_minor < 0 => format!("{sum} added to your credit"),
        MoneyKind::Credit => format!("{sum} from your credit"),
        MoneyKind::Dispute => format!("{sum} taken back by your bank"),
        MoneyKind::DisputeReversal => format!("{sum} returned by your bank"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{ChargeId, EventId, PurchaseId};
    use crate::domain::instant::Instant;
    use crate::money::Purchase;

    #[test]
    fn a_purchase_is_stamped_by_what_became_of_it() {
        let bill = |price: Option<i64>, refunded_minor, disputed: Option<&str>| Bill {
            purchase: Purchase {
                id: PurchaseId("cs_1".to_owned()),
                bottles: 100,
                charge: price.map(|_| ChargeId("ch_1".to_owned())),
                paid_at: Instant::from_nanos(0),
                refunded_minor,
                disputed: disputed.map(str::to_owned),
            },
            price: price.map(|minor| Money { minor, currency: "usd".parse().unwrap() }),
            event: EventId(1),
        };
        let word = |bill: &Bill| stamp(bill).map(|stamp| stamp.word).unwrap_or_default();
        for (bill, stamped) in [
            (bill(Some(500), 0, None), ""),
            (bill(None, 0, None), ""),
            (bill(Some(500), 0, Some("warning_closed")), ""),
            (bill(Some(500), 120, None), "Refunded in part, 1.20 USD"),
            (bill(Some(500), 500, None), "Refunded"),
            (bill(Some(500), 500, Some("warning_closed")), "Refunded"),
            (bill(Some(500), 0, Some("needs_response")), "Disputed"),
            (bill(Some(500), 0, Some("a_new_word")), "Disputed"),
            (bill(Some(500), 0, Some("won")), "Dispute won: the payment stands"),
            (bill(Some(500), 0, Some("lost")), "Disputed: your bank gave it back"),
        ] {
            assert_eq!(word(&bill), stamped, "{bill:?}");
        }
    }
}
