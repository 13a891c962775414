//! The pages on which people pay and manage what they pay: checkout and portal.
//!
//! Both are made for one click. A portal's address is good for minutes, so each click gets its own. A checkout stays open for a
//! day, and whoever set out to pay is led to the same one again for as long: two open checkouts of one subscription could both be
//! paid. Their addresses come from Stripe, and a person is sent there, so they are looked at before.

use reqwest::Url;
use uuid::Uuid;

use super::Stripe;
use super::api::Found;
use super::envelope::is_id;
use super::objects::{Portal, Session};
use super::reading::{MARK_TENANT, MARK_USER};
use crate::providers::{DoorError, Errand, ResolveError, Step, Ware, Way};

impl Stripe {
    pub(in crate::providers) const fn sells(&self, ware: Ware) -> Option<Step> {
        match (ware, &self.shop.price_pack) {
            (Ware::Pro, _) | (Ware::Pack, Some(_)) => Some(Step::Ask),
            (Ware::Pack, None) => None,
        }
    }

    /// What [`Stripe::ours`] lets through, in the words of a content policy.
    pub(in crate::providers) fn origins(&self) -> Vec<String> {
        vec![self.api.stand_in().unwrap_or_else(|| "https://*.stripe.com".to_owned())]
    }

    /// A checkout for one subscription, or one pack. `errand.intent` names the click: asked for twice, it is one checkout.
    ///
    /// # Errors
    /// See [`DoorError`]; [`DoorError::Closed`] also when the earlier checkout is over and was not paid.
    pub async fn checkout(&self, errand: &Errand<'_>, ware: Ware) -> Result<Way, DoorError> {
        match errand.earlier {
            Some(earlier) => self.again(earlier).await,
            None => match self.begin(errand, ware).await? {
                Found::There(session) => self.to(session),
                // The customer was deleted there. They can buy all the same, as somebody new.
                Found::Gone if errand.customer.is_some() => {
                    let intent = format!("{}-new", errand.intent);
                    match self.begin(&Errand { customer: None, intent: &intent, ..*errand }, ware).await? {
                        Found::There(session) => self.to(session),
                        Found::Gone => Err(DoorError::Closed),
                    }
                }
                Found::Gone => Err(DoorError::Closed),
            },
        }
    }

    /// The way to a checkout that was made before, if it is one still.
    async fn again(&self, earlier: &str) -> Result<Way, DoorError> {
        if !is_id(earlier) {
            return Err(DoorError::Closed);
        }
        match self.api.get::<Session>(&format!("/v1/checkout/sessions/{earlier}"), &[]).await? {
            Found::There(session) if session.status.as_deref() == Some("complete") => Ok(Way::Complete),
            Found::There(session) => self.to(session),
            Found::Gone => Err(DoorError::Closed),
        }
    }

    fn to(&self, session: Session) -> Result<Way, DoorError> {
        match (session.status.as_deref(), session.url) {
            (None | Some("open"), Some(url)) => Ok(Way::Checkout { url: self.ours(url)?, reference: session.id }),
            _ => Err(DoorError::Closed),
        }
    }

    async fn begin(&self, errand: &Errand<'_>, ware: Ware) -> Result<Found<Session>, DoorError> {
        let (mode, price, inherits) = match ware {
            Ware::Pro => ("subscription", self.shop.price_pro.as_str(), "subscription_data"),
            Ware::Pack => {
                let pack = self.shop.price_pack.as_deref().ok_or(DoorError::NotSold)?;
                ("payment", pack, "payment_intent_data")
            }
        };
        let user = errand.user.as_str();
        let mut form = vec![
            ("mode".to_owned(), mode.to_owned()),
            ("line_items[0][price]".to_owned(), price.to_owned()),
            ("line_items[0][quantity]".to_owned(), "1".to_owned()),
            ("success_url".to_owned(), errand.done.to_owned()),
            ("cancel_url".to_owned(), errand.back.to_owned()),
            ("client_reference_id".to_owned(), user.to_owned()),
        ];
        // Nothing is passed on by itself from a checkout to what comes of it.
        for place in ["metadata".to_owned(), format!("{inherits}[metadata]")] {
            form.push((format!("{place}[{MARK_USER}]"), user.to_owned()));
            form.push((format!("{place}[{MARK_TENANT}]"), self.shop.tenant.clone()));
        }
        match (errand.customer, errand.email) {
            (Some(customer), _) => form.push(("customer".to_owned(), customer.0.clone())),
            (None, Some(email)) => form.push(("customer_email".to_owned(), email.to_owned())),
            (None, None) => {}
        }
        if mode == "payment" && errand.customer.is_none() {
            // Without a customer there is no portal later, and refunds name nobody.
            form.push(("customer_creation".to_owned(), "always".to_owned()));
        }
        let key = format!("bottle-checkout-{}", errand.intent);
        Ok(self.api.post::<Session>("/v1/checkout/sessions", &form, &key).await?)
    }

    /// The customer's portal.
    ///
    /// # Errors
    /// See [`DoorError`]; [`DoorError::NoCustomer`] for somebody who never bought anything here.
    pub async fn portal(&self, errand: &Errand<'_>) -> Result<Way, DoorError> {
        let customer = errand.customer.ok_or(DoorError::NoCustomer)?;
        let form = [("customer".to_owned(), customer.0.clone()), ("return_url".to_owned(), errand.back.to_owned())];
        // Not the errand's intent: under that, a second click on a page that was left open would get the first one's link again.
        let key = format!("bottle-portal-{}", Uuid::new_v4());
        match self.api.post::<Portal>("/v1/billing_portal/sessions", &form, &key).await? {
            Found::There(portal) => Ok(Way::To(self.ours(portal.url)?)),
            Found::Gone => Err(DoorError::NoCustomer),
        }
    }

    /// Only to Stripe, or to the stand-in that we are set to ask.
    fn ours(&self, url: String) -> Result<String, DoorError> {
        let strange = || DoorError::StrangeAddress(url.chars().take(100).collect());
        let read = Url::parse(&url).map_err(|_| strange())?;
        let host = read.host_str().unwrap_or_default();
        let is_stripe = read.scheme() == "https"
            && (host == "stripe.com" || host.ends_with(".stripe.com"))
            && read.port().is_none()
            && read.username().is_empty()
            && read.password().is_none();
        if is_stripe || self.api.is_stand_in(&read) { Ok(url) } else { Err(strange()) }
    }
}

impl From<ResolveError> for DoorError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Unavailable { why, .. } => Self::Unavailable(why),
            other => Self::Refused(other.to_string()),
        }
    }
}
