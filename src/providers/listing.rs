//! What a provider says is true now, a page at a time: plans, customers, events, books. Asked for by reconcile, and by an event
//! that only asks. No transaction may be open.

use std::time::Duration;

use time::OffsetDateTime;

use super::{AskError, Provider, ResolveError};
use crate::domain::ask_again::Party;
use crate::domain::event::Delivery;
use crate::domain::fact::Fact;
use crate::domain::ids::{ChargeId, CustomerId};
use crate::domain::instant::Instant;
use crate::domain::money::{Money, MoneyKind};

/// Until somebody has looked after the settings.
const SHUT_OUT_FOR: Duration = Duration::from_secs(60);

/// What a provider can be asked for, as it is set up here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lists {
    pub plans: bool,
    /// It knows people by their user id, and need not be told which customer they are.
    pub by_user: bool,
    pub events: bool,
    pub books: bool,
}

/// A part of a list, and what the next part is asked for with; none at its end.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

impl<T> Page<T> {
    pub const fn end() -> Self {
        Self { items: Vec::new(), next: None }
    }
}

/// A row of a provider's books about a customer's money.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The provider's id of the row.
    pub entry: String,
    /// The movement's key, as our own ledger has it.
    pub key: String,
    pub kind: MoneyKind,
    /// In the currency it was paid in, whatever the provider keeps its books in.
    pub money: Money,
    pub customer: Option<CustomerId>,
    pub charge: Option<ChargeId>,
    /// It came of a checkout of ours.
    pub marked: bool,
}

/// Which rows of the books.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    Between {
        since: OffsetDateTime,
        until: OffsetDateTime,
    },
    /// About this charge, refund or dispute, whenever.
    About(&'a str),
}

/// Why there is no list.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ListError {
    /// Worth another try, but not before this span is over.
    #[error("{why}")]
    Unavailable { why: String, again_in: Duration },
    /// We are not let in.
    #[error("{why}")]
    Refused { why: String },
    /// This release cannot read the answer.
    #[error("{why}")]
    Unreadable { why: String },
}

impl ListError {
    pub(super) fn not_set_up() -> Self {
        Self::Refused { why: "it cannot be asked as it is set up here".to_owned() }
    }
}

impl From<AskError> for ListError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Unavailable { why, again_in } => Self::Unavailable { why, again_in },
            AskError::Refused { why } => Self::Refused { why },
        }
    }
}

impl From<ResolveError> for ListError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Unavailable { why, again_in } => Self::Unavailable { why, again_in },
            other => Self::Unreadable { why: other.to_string() },
        }
    }
}

/// An event that asks waits for its answer, however long.
impl From<ListError> for ResolveError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Unavailable { why, again_in } => Self::Unavailable { why, again_in },
            ListError::Refused { why } => Self::Unavailable { why, again_in: SHUT_OUT_FOR },
            ListError::Unreadable { why } => Self::Unreadable(why),
        }
    }
}

impl Provider {
    pub fn lists(&self) -> Lists {
        match self {
            Self::Kinde(kinde) => kinde.lists(),
            Self::Stripe(_) => Lists { plans: true, by_user: false, events: true, books: true },
            Self::Script(_) => Lists::default(),
        }
    }

    /// What this party has now, as facts of the moment `asked`. None: the provider knows nobody of these names.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn plans(&self, party: &Party, asked: Instant) -> Result<Option<Vec<Fact>>, ListError> {
        match self {
            Self::Kinde(kinde) => kinde.plans(party, asked).await,
            Self::Stripe(stripe) => stripe.plans(party, asked).await,
            Self::Script(_) => Err(ListError::not_set_up()),
        }
    }

    /// Whoever may have something there.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn customers(&self, after: Option<&str>) -> Result<Page<Party>, ListError> {
        match self {
            Self::Kinde(kinde) => kinde.customers(after).await,
            Self::Stripe(stripe) => stripe.customers(after).await,
            Self::Script(_) => Err(ListError::not_set_up()),
        }
    }

    /// Events that carry billing, newest first, as they would have been delivered. Empty where there is no such list.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn events(
        &self,
        since: OffsetDateTime,
        until: OffsetDateTime,
        after: Option<&str>,
    ) -> Result<Page<Delivery>, ListError> {
        match self {
            Self::Stripe(stripe) => stripe.events(since, until, after).await,
            Self::Kinde(_) | Self::Script(_) => Ok(Page::end()),
        }
    }

    /// Rows of the provider's books. Empty where it keeps none.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn books(&self, rows: Rows<'_>, after: Option<&str>) -> Result<Page<Booking>, ListError> {
        match self {
            Self::Stripe(stripe) => stripe.books(rows, after).await,
            Self::Kinde(_) | Self::Script(_) => Ok(Page::end()),
        }
    }
}
