//! What an event says about billing, in our words. The table `facts` holds nothing else.

use super::event::Source;
use super::ids::{AgreementId, ChargeId, EventId, EventKey, InvoiceId, PurchaseId};
use super::instant::Instant;
use super::money::{Money, Movement};

/// The type of the event we store ourselves when a Pro account first uses a period.
pub const PERIOD_OPENED: &str = "bottle.period_opened";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A plan begins. `changed`: it came from a plan change, which may name the agreement it left instead of the new one.
    Start {
        agreement: Option<AgreementId>,
        plan_key: String,
        changed: bool,
    },
    /// An agreement ends, now or at a time it names.
    End {
        agreement: Option<AgreementId>,
        effective: Option<Instant>,
    },
    Paid {
        agreement: Option<AgreementId>,
    },
    PaymentFailed {
        agreement: Option<AgreementId>,
    },
    Overdue {
        agreement: Option<AgreementId>,
    },
    /// What the provider said is live, at the moment we asked. Changes the plan, never grants.
    Snapshot {
        live: Vec<LiveAgreement>,
    },
    /// The first use of a period by a Pro account in good standing.
    Opened,
    /// What the provider answered about one agreement. Of several answers about it the newest counts, and one that it is over
    /// counts for good. Changes the plan, never grants.
    Agreement(Agreement),
    /// What the provider answered about one bill; the newest answer counts.
    Invoice {
        invoice: InvoiceId,
        agreement: Option<AgreementId>,
        state: InvoiceState,
    },
    /// What the provider answered about a pack of bottles that somebody set out to buy.
    Pack {
        purchase: PurchaseId,
        state: PackState,
    },
    /// What the provider answered about money that a customer has demanded back from their bank.
    Dispute {
        dispute: String,
        charge: ChargeId,
        money: Money,
        /// In the provider's own word.
        status: String,
    },
    /// Money moved. Told by several events, it moved once.
    Moved(Movement),
}

/// One agreement as its provider shows it. From `began` to `until` it gives what its plan gives; where the two are one moment,
/// it never gave anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    pub agreement: AgreementId,
    pub plan_key: String,
    pub began: Instant,
    pub until: Option<Instant>,
    /// It cannot be taken up again.
    pub over: bool,
}

impl Agreement {
    pub fn never_was(&self) -> bool {
        self.until.is_some_and(|until| until <= self.began)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvoiceState {
    /// `opens`: the plan it paid for, and when the period begins that it opened. None: a correction, or something else.
    Paid { opens: Option<(String, Instant)> },
    /// A payment was tried and failed.
    Owed { since: Instant },
    /// Nothing is owed, and nothing was paid.
    Settled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackState {
    Paid {
        at: Instant,
        bottles: i64,
        /// None: there was nothing to pay.
        charge: Option<ChargeId>,
    },
    /// The payment takes days.
    Awaited,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveAgreement {
    pub agreement: AgreementId,
    pub plan_key: String,
}

impl Fact {
    /// Among facts of one nanosecond: what ends comes before what begins, what begins before what is paid for it.
    pub const fn rank(&self) -> u8 {
        match self {
            Self::End { .. } => 0,
            Self::Overdue { .. } => 1,
            Self::PaymentFailed { .. } => 2,
            Self::Start { .. } => 3,
            Self::Paid { .. } => 4,
            Self::Opened => 5,
            Self::Snapshot { .. } => 6,
            Self::Agreement(_) => 7,
            Self::Invoice { .. } => 8,
            Self::Pack { .. } => 9,
            Self::Dispute { .. } => 10,
            Self::Moved(_) => 11,
        }
    }
}

/// A fact with its time and the event that said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dated {
    pub at: Instant,
    pub source: Source,
    pub event: EventId,
    pub key: EventKey,
    pub fact: Fact,
}

impl Dated {
    /// The total order of facts: time, rank, event. Never the order of arrival.
    pub fn order(&self) -> (Instant, u8, &EventKey) {
        (self.at, self.fact.rank(), &self.key)
    }
}
