//! What the objects of Stripe mean in our words. Which object is asked for is decided by the event's type; what it means, by the
//! object alone: of two events about one object it does not matter which is run first, or whether one never came.

use super::api::{Api, Found};
use super::objects::{
    Charge, Dispute, Invoice, InvoicePayment, Line, List, Metadata, Named, PaymentIntent, Ref, Refund, Session, Subscription,
};
use crate::domain::fact::{Agreement, Fact, InvoiceState, PackState};
use crate::domain::ids::{AgreementId, ChargeId, CustomerId, InvoiceId, KindeUserId, PurchaseId};
use crate::domain::instant::Instant;
use crate::domain::money::{Money, MoneyKind, Movement};
use crate::domain::plan::PACK_BOTTLES;
use crate::domain::told::Whose;
use crate::providers::ResolveError;

/// What is sold here, and to whom.
#[derive(Debug)]
pub(super) struct Shop {
    pub live: bool,
    pub price_pro: String,
    pub price_pack: Option<String>,
    pub tenant: String,
}

/// Marks that our checkouts leave on whatever comes of them. A buyer can set neither.
pub(super) const MARK_USER: &str = "bottle_user";
pub(super) const MARK_TENANT: &str = "bottle_tenant";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Session,
    Subscription,
    Invoice,
    Charge,
    Refund,
    Dispute,
}

/// None: this type carries no billing change. `invoice.payment_succeeded` tells of the same payment as `invoice.paid`, and
/// `charge.refund.updated` of the same refund as `refund.updated`.
pub(super) fn about(kind: &str) -> Option<About> {
    Some(match kind {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" | "checkout.session.async_payment_failed" => {
            About::Session
        }
        "customer.subscription.created"
        | "customer.subscription.updated"
        | "customer.subscription.deleted"
        | "customer.subscription.paused"
        | "customer.subscription.resumed" => About::Subscription,
        "invoice.paid" | "invoice.payment_failed" | "invoice.voided" | "invoice.marked_uncollectible" => About::Invoice,
        "charge.refunded" => About::Charge,
        "refund.created" | "refund.updated" | "refund.failed" => About::Refund,
        "charge.dispute.created"
        | "charge.dispute.updated"
        | "charge.dispute.closed"
        | "charge.dispute.funds_withdrawn"
        | "charge.dispute.funds_reinstated" => About::Dispute,
        _ => return None,
    })
}

type Answer = (Whose, Vec<Fact>);

impl Shop {
    /// Fetches an object, with what belongs to it, and reads it.
    pub(super) async fn ask(&self, api: &Api, about: About, id: &str, asked: Instant) -> Result<Found<Answer>, ResolveError> {
        match about {
            About::Session => {
                let expand = [
                    ("expand[0]", "line_items"),
                    ("expand[1]", "subscription.latest_invoice"),
                    ("expand[2]", "payment_intent.latest_charge.balance_transaction"),
                ];
                let path = format!("/v1/checkout/sessions/{id}");
                let Found::There(mut session) = api.get::<Session>(&path, &expand).await? else { return Ok(Found::Gone) };
                if let Some(items) = session.line_items.take() {
                    let data = api.whole(items, &format!("{path}/line_items"), &[], |item| &item.id).await?;
                    session.line_items = Some(List { data, has_more: false });
                }
                self.session(&session, asked).map(Found::There)
            }
            About::Subscription => {
                let expand = [("expand[0]", "latest_invoice")];
                let subscription = api.get::<Subscription>(&format!("/v1/subscriptions/{id}"), &expand).await?;
                there(subscription, |one| {
                    Ok((self.whose_marked(Some(&one.customer), &[&one.metadata]), self.subscription(one, asked)?))
                })
            }
            About::Invoice => {
                let expand = [("expand[0]", "payments.data.payment.payment_intent")];
                let path = format!("/v1/invoices/{id}");
                let Found::There(mut invoice) = api.get::<Invoice>(&path, &expand).await? else { return Ok(Found::Gone) };
                let lines = std::mem::replace(&mut invoice.lines, List { data: Vec::new(), has_more: false });
                let lines = api.whole(lines, &format!("{path}/lines"), &[], |line| &line.id).await?;
                let payments = match invoice.payments.take() {
                    Some(payments) => {
                        let of = [("invoice", id), ("expand[0]", "data.payment.payment_intent")];
                        api.whole(payments, "/v1/invoice_payments", &of, |payment| &payment.id).await?
                    }
                    None => Vec::new(),
                };
                self.invoice(&invoice, &lines, &payments).map(Found::There)
            }
            About::Charge => {
                let charge = api.get::<Charge>(&format!("/v1/charges/{id}"), &[("expand[0]", "refunds")]).await?;
                let Found::There(mut charge) = charge else { return Ok(Found::Gone) };
                let refunds = match charge.refunds.take() {
                    Some(refunds) => api.whole(refunds, "/v1/refunds", &[("charge", id)], |refund| &refund.id).await?,
                    None => return Err(unreadable("the charge came without its refunds")),
                };
                let mut facts = Vec::new();
                for refund in &refunds {
                    facts.extend(refunded(refund, &charge.id)?);
                }
                Ok(Found::There((self.whose_marked(charge.customer.as_ref(), &[&charge.metadata]), facts)))
            }
            About::Refund => {
                let refund = api.get::<Refund>(&format!("/v1/refunds/{id}"), &[("expand[0]", "charge")]).await?;
                there(refund, |refund| {
                    // A refund of no charge gives money back by another way, which nobody has paid us by.
                    let Some(charge) = refund.charge.as_ref().and_then(Ref::object) else { return Ok(Answer::default()) };
                    Ok((self.whose_marked(charge.customer.as_ref(), &[&charge.metadata]), refunded(refund, &charge.id)?))
                })
            }
            About::Dispute => {
                let dispute = api.get::<Dispute>(&format!("/v1/disputes/{id}"), &[("expand[0]", "charge")]).await?;
                there(dispute, |dispute| {
                    let charge = dispute.charge.object().ok_or_else(|| unreadable("the dispute came without its charge"))?;
                    Ok((self.whose_marked(charge.customer.as_ref(), &[&charge.metadata]), disputed(dispute, &charge.id)?))
                })
            }
        }
    }

    fn session(&self, session: &Session, asked: Instant) -> Result<Answer, ResolveError> {
        // The reference may have been set by a buyer, the marks only by us: where they disagree it is no checkout of ours.
        let mut whose = self.whose_marked(session.customer.as_ref(), &[&session.metadata]);
        whose.user = whose.user.filter(|user| session.client_reference_id.as_ref() == Some(&user.0));
        let facts = match (session.mode.as_str(), session.subscription.as_ref().and_then(Ref::object)) {
            ("subscription", Some(subscription)) => self.subscription(subscription, asked)?,
            ("payment", _) => self.pack(session)?,
            _ => Vec::new(),
        };
        Ok((whose, facts))
    }

    fn pack(&self, session: &Session) -> Result<Vec<Fact>, ResolveError> {
        let items = session.line_items.iter().flat_map(|items| &items.data);
        let is_pack = |price: &Ref<Named>| Some(price.id()) == self.price_pack.as_deref();
        let packs: i64 =
            items.filter(|item| item.price.as_ref().is_some_and(is_pack)).map(|item| item.quantity.unwrap_or(1)).sum();
        if packs < 1 {
            return Ok(Vec::new());
        }
        let bottles = packs.saturating_mul(PACK_BOTTLES);
        let payment = session.payment_intent.as_ref().and_then(Ref::object);
        let charge = payment.and_then(PaymentIntent::charge_id).map(|id| ChargeId(id.to_owned()));
        let mut facts = Vec::new();
        let state = match (session.payment_status.as_str(), payment.map(|p| p.status.as_str())) {
            ("paid", _) => {
                let at = match payment.and_then(|p| p.latest_charge.as_ref()).and_then(Ref::object) {
                    // What a bank transfer pays reaches the books days after it was begun.
                    Some(charge) => {
                        charge.balance_transaction.as_ref().and_then(Ref::object).map_or(charge.created, |b| b.created)
                    }
                    None => session.created,
                };
                PackState::Paid { at: seconds(at)?, bottles, charge: charge.clone() }
            }
            // Nothing had to be paid.
            ("no_payment_required", _) => PackState::Paid { at: seconds(session.created)?, bottles, charge: None },
            (_, Some("requires_payment_method" | "canceled")) => PackState::Failed,
            _ => PackState::Awaited,
        };
        if let (PackState::Paid { at, .. }, Some(charge), Some(payment)) = (&state, &charge, payment) {
            facts.push(charged(charge, money(payment.amount_received, &payment.currency)?, *at));
        }
        facts.push(Fact::Pack { purchase: PurchaseId(session.id.clone()), state });
        Ok(facts)
    }

    pub(super) fn subscription(&self, one: &Subscription, asked: Instant) -> Result<Vec<Fact>, ResolveError> {
        let began = seconds(one.start_date)?;
        let first_is_unpaid = || {
            // A payment that takes days leaves the subscription active while it is on its way, and also when it failed: Stripe
            // then only voids the invoice.
            let latest = one.latest_invoice.as_ref().and_then(Ref::object);
            latest.is_some_and(|invoice| {
                invoice.billing_reason.as_deref() == Some("subscription_create") && invoice.status.as_deref() != Some("paid")
            })
        };
        let (until, over) = match one.status.as_str() {
            "active" if first_is_unpaid() => (Some(began), false),
            "active" | "trialing" | "past_due" => (self.planned_end(one)?, false),
            "incomplete" => (Some(began), false),
            "incomplete_expired" => (Some(began), true),
            "unpaid" | "paused" => (Some(asked), false),
            "canceled" => (Some(one.ended_at.or(one.canceled_at).map_or(Ok(asked), seconds)?), true),
            other => return Err(unreadable(&format!("the subscription is `{other}`, which this release does not know"))),
        };
        // Of several items the one that is Pro counts.
        let prices: Vec<&str> = one.items.data.iter().map(|item| item.price.id()).collect();
        let price = prices.iter().find(|price| **price == self.price_pro).or(prices.first());
        let plan_key = (*price.ok_or_else(|| unreadable("the subscription has no price"))?).to_owned();
        let agreement = AgreementId(one.id.clone());
        Ok(vec![Fact::Agreement(Agreement { agreement, plan_key, began, until, over })])
    }

    /// Canceled for later, in one of the two ways in which that is written.
    fn planned_end(&self, one: &Subscription) -> Result<Option<Instant>, ResolveError> {
        let period_end = || one.items.data.iter().filter_map(|item| item.current_period_end).max();
        one.cancel_at.or_else(|| period_end().filter(|_| one.cancel_at_period_end)).map(seconds).transpose()
    }

    fn invoice(&self, one: &Invoice, lines: &[Line], payments: &[InvoicePayment]) -> Result<Answer, ResolveError> {
        let details = one.parent.as_ref().and_then(|parent| parent.subscription_details.as_ref());
        let marks = [details.map_or(&None, |details| &details.metadata), &one.metadata];
        let whose = self.whose_marked(one.customer.as_ref(), &marks);
        let is_under_way = payments.iter().filter_map(intent).any(|intent| intent.status == "processing");
        let state = match one.status.as_deref() {
            Some("paid") => InvoiceState::Paid { opens: self.opens(one, lines)? },
            Some("open") if one.attempted && !is_under_way => {
                InvoiceState::Owed { since: seconds(one.status_transitions.finalized_at.unwrap_or(one.created))? }
            }
            _ => InvoiceState::Settled,
        };
        let mut facts = vec![Fact::Invoice {
            invoice: InvoiceId(one.id.clone()),
            agreement: details.map(|details| AgreementId(details.subscription.id().to_owned())),
            state,
        }];
        let paid_at = seconds(one.status_transitions.paid_at.unwrap_or(one.created))?;
        for payment in payments.iter().filter(|payment| payment.status == "paid") {
            // One that names neither was paid past Stripe: no money of theirs moved.
            let (charge, amount) = match (intent(payment), &payment.payment.charge) {
                (Some(intent), _) => (intent.charge_id(), Some(intent.amount_received)),
                (None, Some(charge)) => (Some(charge.id()), payment.amount_paid),
                (None, None) => (None, None),
            };
            if let (Some(charge), Some(amount)) = (charge, amount.filter(|amount| *amount != 0)) {
                facts.push(charged(&ChargeId(charge.to_owned()), money(amount, &payment.currency)?, paid_at));
            }
        }
        if let Some(used) =
            one.ending_balance.and_then(|ending| ending.checked_sub(one.starting_balance)).filter(|used| *used != 0)
        {
            facts.push(Fact::Moved(Movement {
                key: format!("credit:{}", one.id),
                kind: MoneyKind::Credit,
                money: money(used, &one.currency)?,
                reference: one.id.clone(),
                charge: None,
                occurred: seconds(one.status_transitions.finalized_at.unwrap_or(one.created))?,
            }));
        }
        Ok((whose, facts))
    }

    /// The plan an invoice paid for and when that period begins. What changes a period that is already open opens none, and the
    /// invoice's own `period_start` is that of the period before.
    fn opens(&self, one: &Invoice, lines: &[Line]) -> Result<Option<(String, Instant)>, ResolveError> {
        if !matches!(one.billing_reason.as_deref(), Some("subscription_create" | "subscription_cycle")) {
            return Ok(None);
        }
        let opening = lines.iter().filter_map(|line| {
            let details = line.parent.as_ref()?.subscription_item_details.as_ref()?;
            let price = line.pricing.as_ref()?.price_details.as_ref()?.price.id();
            (!details.proration).then_some((price == self.price_pro, line.period.start, price))
        });
        opening.max().map(|(_, start, price)| Ok((price.to_owned(), seconds(start)?))).transpose()
    }

    /// The customer, and the person whom a checkout of ours marked.
    pub(super) fn whose_marked(&self, customer: Option<&Ref<Named>>, marks: &[&Option<Metadata>]) -> Whose {
        let marked = marks.iter().filter_map(|mark| mark.as_ref()).find(|mark| mark.get(MARK_TENANT) == Some(&self.tenant));
        Whose {
            user: marked.and_then(|mark| mark.get(MARK_USER)).filter(|user| !user.is_empty()).cloned().map(KindeUserId),
            customer: customer.map(|customer| CustomerId(customer.id().to_owned())),
            customer_type: None,
        }
    }
}

fn there<T>(found: Found<T>, read: impl FnOnce(&T) -> Result<Answer, ResolveError>) -> Result<Found<Answer>, ResolveError> {
    match found {
        Found::There(object) => read(&object).map(Found::There),
        Found::Gone => Ok(Found::Gone),
    }
}

fn intent(payment: &InvoicePayment) -> Option<&PaymentIntent> {
    payment.payment.payment_intent.as_ref().and_then(Ref::object)
}

fn charged(charge: &ChargeId, money: Money, occurred: Instant) -> Fact {
    Fact::Moved(Movement {
        key: format!("charge:{charge}"),
        kind: MoneyKind::Charge,
        money,
        reference: charge.0.clone(),
        charge: Some(charge.clone()),
        occurred,
    })
}

/// A charge's `amount_refunded` is the sum of its refunds so far. What moved is each refund; one that failed moved twice.
fn refunded(refund: &Refund, charge: &str) -> Result<Vec<Fact>, ResolveError> {
    let status = refund.status.as_deref().unwrap_or_default();
    let left = refund.balance_transaction.is_some() || matches!(status, "succeeded" | "failed");
    let came_back = refund.failure_balance_transaction.is_some() || status == "failed";
    let amount = money(refund.amount, &refund.currency)?;
    let gone = amount.negated().ok_or_else(|| unreadable("the refund's amount is out of range"))?;
    let moved = |kind: MoneyKind, money| {
        Ok::<_, ResolveError>(Fact::Moved(Movement {
            key: format!("{kind}:{}", refund.id),
            kind,
            money,
            reference: refund.id.clone(),
            charge: Some(ChargeId(charge.to_owned())),
            occurred: seconds(refund.created)?,
        }))
    };
    let mut facts = Vec::new();
    if left {
        facts.push(moved(MoneyKind::Refund, gone)?);
    }
    if came_back {
        facts.push(moved(MoneyKind::RefundFailed, amount)?);
    }
    Ok(facts)
}

/// The money goes when a dispute is opened, not when it is lost, and comes back if it is won; an inquiry moves none.
fn disputed(dispute: &Dispute, charge: &str) -> Result<Vec<Fact>, ResolveError> {
    let charge = ChargeId(charge.to_owned());
    let whole = money(dispute.amount, &dispute.currency)?;
    let mut facts = Vec::new();
    for booked in dispute.balance_transactions.iter().filter(|booked| booked.amount != 0) {
        // Kept in another currency than was paid in, it is worth what is disputed.
        let worth = if booked.currency == dispute.currency { booked.amount.checked_abs() } else { Some(dispute.amount) };
        let worth = Money { minor: worth.ok_or_else(|| unreadable("the dispute's amount is out of range"))?, ..whole.clone() };
        let (kind, money) = match booked.amount > 0 {
            true => (MoneyKind::DisputeReversal, Some(worth)),
            false => (MoneyKind::Dispute, worth.negated()),
        };
        facts.push(Fact::Moved(Movement {
            key: format!("{kind}:{}", booked.id),
            kind,
            money: money.ok_or_else(|| unreadable("the dispute's amount is out of range"))?,
            reference: dispute.id.clone(),
            charge: Some(charge.clone()),
            occurred: seconds(booked.created)?,
        }));
    }
    facts.push(Fact::Dispute { dispute: dispute.id.clone(), charge, money: whole, status: dispute.status.clone() });
    Ok(facts)
}

pub(super) fn money(minor: i64, currency: &str) -> Result<Money, ResolveError> {
    let currency = currency.parse().map_err(|error: crate::domain::money::NotACurrency| unreadable(&error.to_string()))?;
    Ok(Money { minor, currency })
}

fn seconds(secs: i64) -> Result<Instant, ResolveError> {
    secs.checked_mul(1_000_000_000).map(Instant::from_nanos).ok_or_else(|| unreadable("it has a time out of range"))
}

fn unreadable(why: &str) -> ResolveError {
    ResolveError::Unreadable(why.to_owned())
}
