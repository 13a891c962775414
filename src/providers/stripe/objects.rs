//! The fields of Stripe's objects that are used, as version `2026-10-28.endive` has them. Words of theirs stay text: any of them
//! may get company. What is not here is not read.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A list inside an object, maybe only its beginning.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub data: Vec<T>,
    #[serde(default)]
    pub has_more: bool,
}

/// A reference that was expanded, or was not.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Ref<T> {
    Id(String),
    Object(Box<T>),
}

/// Something of which only the id counts. Of a deleted customer there is nothing else left.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Named {
    pub id: String,
}

pub(super) type Metadata = BTreeMap<String, String>;

impl Ref<Named> {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Id(id) => id,
            Self::Object(named) => &named.id,
        }
    }
}

impl<T> Ref<T> {
    pub(super) fn object(&self) -> Option<&T> {
        match self {
            Self::Object(object) => Some(object),
            Self::Id(_) => None,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Session {
    pub id: String,
    pub mode: String,
    pub status: Option<String>,
    pub payment_status: String,
    pub created: i64,
    pub url: Option<String>,
    pub client_reference_id: Option<String>,
    pub metadata: Option<Metadata>,
    pub customer: Option<Ref<Named>>,
    pub subscription: Option<Ref<Subscription>>,
    pub payment_intent: Option<Ref<PaymentIntent>>,
    pub line_items: Option<List<Item>>,
}

/// What was put into a checkout.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    pub id: String,
    pub price: Option<Ref<Named>>,
    pub quantity: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PaymentIntent {
    pub status: String,
    pub amount_received: i64,
    pub currency: String,
    pub latest_charge: Option<Ref<Charge>>,
}

impl PaymentIntent {
    pub(super) fn charge_id(&self) -> Option<&str> {
        self.latest_charge.as_ref().map(|charge| match charge {
            Ref::Id(id) => id.as_str(),
            Ref::Object(charge) => charge.id.as_str(),
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Subscription {
    pub id: String,
    pub status: String,
    pub customer: Ref<Named>,
    pub metadata: Option<Metadata>,
    pub items: List<SubscriptionItem>,
    pub start_date: i64,
    pub cancel_at: Option<i64>,
    #[serde(default)]
    pub cancel_at_period_end: bool,
    pub canceled_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub latest_invoice: Option<Ref<LatestInvoice>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SubscriptionItem {
    pub price: Ref<Named>,
    /// Here, and no longer at the subscription, since version `2025-03-31.basil`.
    pub current_period_end: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct LatestInvoice {
    pub status: Option<String>,
    pub billing_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Invoice {
    pub id: String,
    pub status: Option<String>,
    pub billing_reason: Option<String>,
    pub created: i64,
    pub currency: String,
    pub customer: Option<Ref<Named>>,
    #[serde(default)]
    pub attempted: bool,
    #[serde(default)]
    pub starting_balance: i64,
    pub ending_balance: Option<i64>,
    pub metadata: Option<Metadata>,
    pub parent: Option<Parent>,
    pub lines: List<Line>,
    /// Only where it was asked for.
    pub payments: Option<List<InvoicePayment>>,
    pub status_transitions: Transitions,
}

#[derive(Debug, Deserialize)]
pub(super) struct Parent {
    pub subscription_details: Option<SubscriptionDetails>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SubscriptionDetails {
    pub subscription: Ref<Named>,
    pub metadata: Option<Metadata>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Transitions {
    pub finalized_at: Option<i64>,
    pub paid_at: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub id: String,
    pub period: Span,
    pub parent: Option<LineParent>,
    pub pricing: Option<Pricing>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Span {
    pub start: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct LineParent {
    pub subscription_item_details: Option<ItemDetails>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ItemDetails {
    #[serde(default)]
    pub proration: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pricing {
    pub price_details: Option<PriceDetails>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PriceDetails {
    pub price: Ref<Named>,
}

/// Ties a payment to an invoice: neither of the two names the other any more.
#[derive(Debug, Deserialize)]
pub(super) struct InvoicePayment {
    pub id: String,
    pub status: String,
    pub amount_paid: Option<i64>,
    pub currency: String,
    pub payment: Payment,
}

#[derive(Debug, Deserialize)]
pub(super) struct Payment {
    pub payment_intent: Option<Ref<PaymentIntent>>,
    pub charge: Option<Ref<Named>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Charge {
    pub id: String,
    pub created: i64,
    pub customer: Option<Ref<Named>>,
    pub metadata: Option<Metadata>,
    pub balance_transaction: Option<Ref<Booked>>,
    pub refunds: Option<List<Refund>>,
}

/// When it reached the books.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Booked {
    pub created: i64,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refund {
    pub id: String,
    pub status: Option<String>,
    pub amount: i64,
    pub currency: String,
    pub created: i64,
    pub charge: Option<Ref<Charge>>,
    /// Money left us, and came back: each has its entry in Stripe's books, which no later answer lacks again.
    pub balance_transaction: Option<serde::de::IgnoredAny>,
    pub failure_balance_transaction: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Dispute {
    pub id: String,
    pub status: String,
    pub amount: i64,
    pub currency: String,
    pub charge: Ref<Charge>,
    #[serde(default)]
    pub balance_transactions: Vec<Movement>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Movement {
    pub id: String,
    /// Signed, in the currency our money is kept in.
    pub amount: i64,
    pub currency: String,
    pub created: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Portal {
    pub url: String,
}

/// A row of Stripe's books.
#[derive(Debug, Deserialize)]
pub(super) struct BalanceTransaction {
    pub id: String,
    /// Signed, in the currency our money is kept in.
    pub amount: i64,
    pub currency: String,
    /// The accounting class, which is what Stripe advises to go by.
    pub reporting_category: String,
    pub source: Option<Ref<Subject>>,
}

/// What a row is about: a charge, a refund, a dispute, or something that has none of these.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Subject {
    pub id: String,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    pub customer: Option<Ref<Named>>,
    pub charge: Option<Ref<Named>>,
    pub metadata: Option<Metadata>,
}
