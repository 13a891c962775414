//! What a stored event turned out to say, once its provider's arm has read it.

use std::time::Duration;

use super::fact::{Fact, LiveAgreement};
use super::ids::{CustomerId, KindeUserId};
use super::instant::Instant;

/// An event in our words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub whose: Whose,
    pub said: Said,
    /// What the provider answered when it was asked, if it was asked and could be believed.
    pub answer: Option<Answer>,
    /// Why the event counts by its own word alone, although its provider was to be asked.
    pub doubt: Option<Doubt>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The provider kept contradicting it.
    Differs { what: String },
    /// The provider did not answer, or does not let us ask.
    NotAsked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Fact {
        at: Instant,
        fact: Fact,
    },
    /// This type of event carries no billing change.
    Nothing,
    /// It does, but of somebody who is no person, and it cannot be read.
    NotRead,
    /// The body was pruned; the facts that were stored from it stand.
    AsStored,
    /// What the provider answered about the object that the event names, as of this moment. Nothing else in the event counts.
    Answered {
        at: Instant,
        facts: Vec<Fact>,
    },
    /// The provider has no such object, or no longer.
    Gone {
        object: String,
    },
    /// It is from the provider's test mode where we are live, or the reverse.
    OtherMode {
        live: bool,
    },
    /// Only the provider's answer says anything, and this once nobody asks: what an earlier answer said stands.
    Unasked,
}

impl Said {
    /// What it comes to, as far as the event or its provider just said so.
    pub fn facts(&self) -> &[Fact] {
        match self {
            Self::Fact { fact, .. } => std::slice::from_ref(fact),
            Self::Answered { facts, .. } => facts,
            Self::Nothing | Self::NotRead | Self::AsStored | Self::Gone { .. } | Self::OtherMode { .. } | Self::Unasked => &[],
        }
    }
}

/// Whom the event names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whose {
    pub user: Option<KindeUserId>,
    pub customer: Option<CustomerId>,
    pub customer_type: Option<String>,
}

/// A provider's own answers may lag behind its events by this much: for so long an answer that contradicts an event is not
/// believed.
pub const LAG_MAX: Duration = Duration::from_secs(10 * 60);

/// The agreements that were live when the provider was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub asked: Instant,
    pub live: Vec<LiveAgreement>,
}
