//! What a stored event turned out to say, once its provider's arm has read it.

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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Fact {
        at: Instant,
        fact: Fact,
    },
    /// This type of event carries no billing change.
    Nothing,
    /// The body was pruned; the facts that were stored from it stand.
    AsStored,
}

/// Whom the event names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whose {
    pub user: Option<KindeUserId>,
    pub customer: Option<CustomerId>,
    pub customer_type: Option<String>,
}

/// The agreements that were live when the provider was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub asked: Instant,
    pub live: Vec<LiveAgreement>,
}
