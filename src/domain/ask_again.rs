//! "Ask again about this customer": the event we store ourselves where a provider's answer differs from what is stored here.
//!
//! It says nothing about billing. Whoever runs it asks the provider, and that answer is its fact: so a repair that waits in the
//! queue, or runs twice, can never write an old truth over a newer one.

use serde::{Deserialize, Serialize};

use super::event::Source;
use super::ids::{CustomerId, KindeUserId};
use super::told::Whose;

const KINDE: &str = "bottle.asked_kinde";
const STRIPE: &str = "bottle.asked_stripe";

/// Somebody as a provider knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    pub user: Option<KindeUserId>,
    pub customers: Vec<CustomerId>,
}

impl Party {
    pub fn whose(&self) -> Whose {
        Whose { user: self.user.clone(), customer: self.customers.first().cloned(), customer_type: None }
    }

    /// One of their names at the provider, for people.
    pub fn name(&self) -> &str {
        let user = self.user.as_ref().map(KindeUserId::as_str);
        self.customers.first().map(CustomerId::as_str).or(user).unwrap_or("nobody")
    }

    /// All of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.customers.iter().map(CustomerId::as_str).chain(self.user.as_ref().map(KindeUserId::as_str))
    }
}

/// The type of the event that asks this provider. None: there is nobody to ask.
pub const fn kind(source: Source) -> Option<&'static str> {
    match source {
        Source::Kinde => Some(KINDE),
        Source::Stripe => Some(STRIPE),
        Source::Bottle => None,
    }
}

/// The provider that an event of this type asks; none for any other type.
pub fn asks(kind: &str) -> Option<Source> {
    match kind {
        KINDE => Some(Source::Kinde),
        STRIPE => Some(Source::Stripe),
        _ => None,
    }
}

/// Whose word a stored event comes to: its sender's, or, if it only asks, that of whoever is asked. Each provider's facts are
/// folded by themselves.
pub fn speaker(source: Source, kind: &str) -> Source {
    if source == Source::Bottle { asks(kind).unwrap_or(source) } else { source }
}
