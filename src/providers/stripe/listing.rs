//! What Stripe says is true now: subscriptions, events of its last 30 days, balance transactions.

use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::Stripe;
use super::api::Found;
use super::envelope::Envelope;
use super::objects::{BalanceTransaction, List, Ref, Subscription};
use super::reading::{MARK_TENANT, about, money};
use crate::domain::ask_again::Party;
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::Fact;
use crate::domain::ids::{ChargeId, CustomerId};
use crate::domain::instant::Instant;
use crate::domain::money::MoneyKind;
use crate::providers::listing::{Booking, ListError, Page, Rows};

const PAGE: (&str, &str) = ("limit", "100");
/// A customer with more subscriptions than fit on so many pages is an answer that never ends.
const PAGES_MAX: usize = 20;

impl Stripe {
    /// Every subscription that these customers ever had.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn plans(&self, party: &Party, asked: Instant) -> Result<Option<Vec<Fact>>, ListError> {
        let mut facts: Option<Vec<Fact>> = None;
        for customer in &party.customers {
            let of = [PAGE, ("customer", customer.as_str()), ("status", "all"), ("expand[0]", "data.latest_invoice")];
            let mut after = None;
            for n in 0.. {
                if n == PAGES_MAX {
                    return Err(ListError::Unreadable { why: format!("the subscriptions of {customer} do not end") });
                }
                let Some(page) = self.page::<Subscription>("/v1/subscriptions", &of, after.as_deref(), |one| &one.id).await?
                else {
                    break;
                };
                let facts = facts.get_or_insert_default();
                for one in &page.items {
                    facts.extend(self.shop.subscription(one, asked)?);
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(facts)
    }

    /// Customers with a subscription to Pro that is not over.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn customers(&self, after: Option<&str>) -> Result<Page<Party>, ListError> {
        let of = [PAGE, ("price", self.shop.price_pro.as_str())];
        let page = self.page::<Subscription>("/v1/subscriptions", &of, after, |one| &one.id).await?.unwrap_or(Page::end());
        let party = |one: &Subscription| {
            let whose = self.shop.whose_marked(Some(&one.customer), &[&one.metadata]);
            Party { user: whose.user, customers: whose.customer.into_iter().collect() }
        };
        Ok(Page { items: page.items.iter().map(party).collect(), next: page.next })
    }

    /// Only what a webhook would be read of is wanted: the list has everything that happens at Stripe.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn events(
        &self,
        since: OffsetDateTime,
        until: OffsetDateTime,
        after: Option<&str>,
    ) -> Result<Page<Delivery>, ListError> {
        let (since, until) = (since.unix_timestamp().to_string(), until.unix_timestamp().to_string());
        let of = [PAGE, ("created[gte]", since.as_str()), ("created[lt]", until.as_str())];
        let mut query = of.to_vec();
        query.extend(after.map(|after| ("starting_after", after)));
        // An event that is forgotten leaves nothing older to be listed after it.
        let Found::There(list) = self.api.list::<Box<RawValue>>("/v1/events", &query).await? else { return Ok(Page::end()) };
        let mut next = None;
        let mut items = Vec::new();
        for raw in &list.data {
            let body = raw.get().as_bytes();
            let envelope = Envelope::read(body).map_err(|error| ListError::Unreadable { why: format!("/v1/events: {error}") })?;
            next = Some(envelope.id.0.clone());
            if about(&envelope.kind).is_some() && envelope.live == self.shop.live {
                items.push(Delivery {
                    source: Source::Stripe,
                    key: envelope.id,
                    kind: envelope.kind,
                    webhook_id: None,
                    body: body.to_owned(),
                    occurred: envelope.created,
                    sent: None,
                    digest: Delivery::FETCHED,
                });
            }
        }
        Ok(Page { items, next: next.filter(|_| list.has_more) })
    }

    /// Rows about customers' money; fees, payouts and the like are left out.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn books(&self, rows: Rows<'_>, after: Option<&str>) -> Result<Page<Booking>, ListError> {
        let (since, until);
        let mut of = vec![PAGE, ("expand[0]", "data.source")];
        match rows {
            Rows::About(reference) => of.push(("source", reference)),
            Rows::Between { since: from, until: to } => {
                (since, until) = (from.unix_timestamp().to_string(), to.unix_timestamp().to_string());
                of.extend([("created[gte]", since.as_str()), ("created[lt]", until.as_str())]);
            }
        }
        let page = self.page::<BalanceTransaction>("/v1/balance_transactions", &of, after, |one| &one.id).await?;
        let page = page.unwrap_or(Page::end());
        let mut items = Vec::new();
        for row in &page.items {
            items.extend(self.booking(row)?);
        }
        Ok(Page { items, next: page.next })
    }

    fn booking(&self, row: &BalanceTransaction) -> Result<Option<Booking>, ListError> {
        let kind = match row.reporting_category.as_str() {
            "charge" => MoneyKind::Charge,
            "refund" => MoneyKind::Refund,
            "refund_failure" => MoneyKind::RefundFailed,
            "dispute" => MoneyKind::Dispute,
            "dispute_reversal" => MoneyKind::DisputeReversal,
            _ => return Ok(None),
        };
        let Some(source) = row.source.as_ref() else { return Ok(None) };
        let (id, object) = match source {
            Ref::Id(id) => (id.as_str(), None),
            Ref::Object(object) => (object.id.as_str(), Some(object)),
        };
        // A dispute moves money several times, and each is a row of its own.
        let named = if matches!(kind, MoneyKind::Dispute | MoneyKind::DisputeReversal) { &row.id } else { id };
        // Kept in another currency than was paid in, it is worth what the object says.
        let paid = object.and_then(|object| object.amount.zip(object.currency.as_deref()));
        let paid = paid.filter(|(_, currency)| *currency != row.currency);
        let (minor, currency) = match paid {
            Some((amount, currency)) => (if row.amount < 0 { amount.saturating_neg() } else { amount }, currency),
            None => (row.amount, row.currency.as_str()),
        };
        let charge = match kind {
            MoneyKind::Charge => Some(id.to_owned()),
            _ => object.and_then(|object| object.charge.as_ref()).map(|charge| charge.id().to_owned()),
        };
        let customer = object.and_then(|object| object.customer.as_ref()).map(|customer| CustomerId(customer.id().to_owned()));
        let metadata = object.and_then(|object| object.metadata.as_ref());
        Ok(Some(Booking {
            entry: row.id.clone(),
            key: format!("{kind}:{named}"),
            kind,
            money: money(minor, currency)?,
            customer,
            charge: charge.map(ChargeId),
            marked: metadata.is_some_and(|metadata| metadata.get(MARK_TENANT) == Some(&self.shop.tenant)),
        }))
    }

    /// A page of a list after the object `after`. None: whom the list is of is not there.
    async fn page<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        after: Option<&str>,
        id: impl Fn(&T) -> &str,
    ) -> Result<Option<Page<T>>, ListError> {
        let mut query = query.to_vec();
        query.extend(after.map(|after| ("starting_after", after)));
        Ok(match self.api.list::<T>(path, &query).await? {
            Found::There(List { data, has_more }) => {
                let next = data.last().map(|last| id(last).to_owned()).filter(|_| has_more);
                Some(Page { items: data, next })
            }
            Found::Gone => None,
        })
    }
}
