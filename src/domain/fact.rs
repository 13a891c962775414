//! What an event says about billing, in our words. The table `facts` holds nothing else.

use super::event::Source;
use super::ids::{AgreementId, EventId, EventKey};
use super::instant::Instant;

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
