//! What Stripe says is true now: subscriptions, events of its last 30 days, balance transactions.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::api::{ANSWER_MAX, Listed};
use super::envelope::Envelope;
use super::objects::{BalanceTransaction, Named, Ref, Subscription};
use super::reading::{MARK_TENANT, about, money};
use super::{READ, Stripe};
use crate::domain::ask_again::Party;
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::Fact;
use crate::domain::ids::{ChargeId, CustomerId};
use crate::domain::instant::Instant;
use crate::domain::money::MoneyKind;
use crate::providers::listing::{Booking, ListError, Page, Rows};

const SUBSCRIPTIONS: &str = "/v1/subscriptions";
const EVENTS: &str = "/v1/events";
const BOOKS: &str = "/v1/balance_transactions";
/// Items of a page, and how large it may be: where so many are too large together, fewer are asked for. One alone is read even
/// where it is too large to be used, since the list goes on after its id.
const LIMITS: [(&str, usize); 3] = [("100", ANSWER_MAX), ("25", ANSWER_MAX), ("1", 8 * ANSWER_MAX)];
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
            let of = [("customer", customer.as_str()), ("status", "all"), ("expand[0]", "data.latest_invoice")];
            let mut after = None;
            for n in 0.. {
                if n == PAGES_MAX {
                    return Err(ListError::Unreadable { why: format!("the subscriptions of {customer} do not end") });
                }
                let Some(page) = self.page(SUBSCRIPTIONS, &of, after.as_deref()).await? else { break };
                let facts = facts.get_or_insert_default();
                for raw in &page.items {
                    // Passed over, it would be a plan that they lack.
                    facts.extend(self.shop.subscription(&read(SUBSCRIPTIONS, raw)?, asked)?);
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
        let of = [("price", self.shop.price_pro.as_str())];
        let page = self.page(SUBSCRIPTIONS, &of, after).await?.unwrap_or(Page::end());
        let party = |one: Subscription| {
            let whose = self.shop.whose_marked(Some(&one.customer), &[&one.metadata]);
            Party { user: whose.user, customers: whose.customer.into_iter().collect() }
        };
        let readable = page.items.iter().filter_map(|raw| match read(SUBSCRIPTIONS, raw) {
            Ok(one) => Some(party(one)),
            Err(why) => {
                pass_over(SUBSCRIPTIONS, raw, &why);
                None
            }
        });
        Ok(Page { items: readable.collect(), next: page.next })
    }

    /// Only what a webhook would be read of is asked for: without it the list has everything that happens at Stripe.
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
        let kinds: Vec<String> = (0..READ.len()).map(|n| format!("types[{n}]")).collect();
        let mut of = vec![("created[gte]", since.as_str()), ("created[lt]", until.as_str())];
        of.extend(kinds.iter().map(String::as_str).zip(READ));
        // An event that is forgotten leaves nothing older to be listed after it.
        let page = self.page(EVENTS, &of, after).await?.unwrap_or(Page::end());
        let mut items = Vec::new();
        for raw in &page.items {
            let body = raw.get().as_bytes();
            let envelope = match Envelope::read(body) {
                Ok(envelope) if body.len() <= ANSWER_MAX => envelope,
                Ok(_) => {
                    pass_over(EVENTS, raw, &"it is too large");
                    continue;
                }
                Err(why) => {
                    pass_over(EVENTS, raw, &why);
                    continue;
                }
            };
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
        Ok(Page { items, next: page.next })
    }

    /// Rows about customers' money; fees, payouts and the like are left out.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn books(&self, rows: Rows<'_>, after: Option<&str>) -> Result<Page<Booking>, ListError> {
        let (since, until);
        let mut of = vec![("expand[0]", "data.source")];
        match rows {
            Rows::About(reference) => of.push(("source", reference)),
            Rows::Between { since: from, until: to } => {
                (since, until) = (from.unix_timestamp().to_string(), to.unix_timestamp().to_string());
                of.extend([("created[gte]", since.as_str()), ("created[lt]", until.as_str())]);
            }
        }
        let page = self.page(BOOKS, &of, after).await?.unwrap_or(Page::end());
        let mut items = Vec::new();
        for raw in &page.items {
            match read::<BalanceTransaction>(BOOKS, raw).and_then(|row| self.booking(&row)) {
                Ok(booking) => items.extend(booking),
                // One of ours is then missing in their books, and told as that.
                Err(why) => pass_over(BOOKS, raw, &why),
            }
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
    async fn page(
        &self,
        path: &str,
        query: &[(&str, &str)],
        after: Option<&str>,
    ) -> Result<Option<Page<Box<RawValue>>>, ListError> {
        for (limit, most) in LIMITS {
            let mut query = query.to_vec();
            query.push(("limit", limit));
            query.extend(after.map(|after| ("starting_after", after)));
            match self.api.list(path, &query, most).await? {
                Listed::There(list) => {
                    // After the last that has an id: what follows it is then listed once more.
                    let next = list.data.iter().rev().find_map(|raw| id(raw)).filter(|_| list.has_more);
                    if list.has_more && (next.is_none() || next.as_deref() == after) {
                        return Err(ListError::Unreadable { why: format!("{path} does not say where it goes on") });
                    }
                    return Ok(Some(Page { items: list.data, next }));
                }
                Listed::Gone => return Ok(None),
                Listed::TooLarge => {
                    tracing::info!(path, limit, after, "a page of Stripe's is too large; fewer items are asked for");
                }
            }
        }
        Err(ListError::Unreadable { why: format!("one item of {path} is too large to be passed over") })
    }
}

fn read<T: DeserializeOwned>(path: &str, raw: &RawValue) -> Result<T, ListError> {
    serde_json::from_str(raw.get()).map_err(|error| ListError::Unreadable { why: format!("an item of {path}: {error}") })
}

fn id(raw: &RawValue) -> Option<String> {
    serde_json::from_str::<Named>(raw.get()).ok().map(|named| named.id)
}

/// One item that cannot be read is no reason to compare nothing.
fn pass_over(path: &str, raw: &RawValue, why: &dyn Display) {
    let id = id(raw);
    tracing::warn!(path, id, %why, "an item that Stripe lists cannot be read and is passed over");
}
