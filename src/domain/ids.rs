//! Ids that cannot be mixed up.

use std::fmt;

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type, serde::Serialize, serde::Deserialize)]
        #[sqlx(transparent)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type, serde::Serialize, serde::Deserialize)]
        #[sqlx(transparent)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

row_id! {
    /// `inbox_events.id`: ours, given in order of arrival. Never an order of what happened.
    EventId
}
row_id! {
    /// `accounts.id`.
    AccountId
}
row_id! {
    /// `reminders.id`: one occurrence of a reminder.
    ReminderId
}
text_id! {
    /// The provider's own id of an event, from inside the signature: what deliveries are deduplicated by.
    EventKey
}
text_id! {
    /// A person at Kinde, `kp_…`; with the tenant it names an account.
    KindeUserId
}
text_id! {
    /// A customer at the billing provider.
    CustomerId
}
text_id! {
    /// One contract between a customer and a plan.
    AgreementId
}
text_id! {
    /// A bill of the provider.
    InvoiceId
}
text_id! {
    /// One purchase that is no agreement: a checkout that was begun.
    PurchaseId
}
text_id! {
    /// One payment, as the provider booked it.
    ChargeId
}

/// Given with each claim; only who still holds it may settle the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::Type)]
#[sqlx(transparent)]
pub struct LeaseToken(pub uuid::Uuid);

impl LeaseToken {
    pub fn fresh() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}
