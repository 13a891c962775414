//! Stripe: whether a delivery is theirs, what a stored one came to, and the pages on which people pay.
//!
//! An event is a hint and nothing more. Of its body three things are read: its id, its type and the id of the object it is about;
//! that object is then fetched, and what it says when asked becomes facts as of that moment. So a payload that is old, comes late
//! or out of order cannot do harm, and neither can the version it is written in. `created` orders nothing: it counts whole
//! seconds, and Stripe itself forbids it.
//!
//! `signature` and `envelope` read deliveries, `api` asks, `objects` holds the fields of an answer that are used, `reading` says
//! what they mean, `doors` opens checkout and portal.

mod api;
mod doors;
mod envelope;
mod listing;
mod objects;
mod reading;
mod signature;

use std::fmt;

use reqwest::header::HeaderMap;
use time::OffsetDateTime;

use super::{ResolveError, StoredEvent, VerifyError};
use crate::domain::event::{Delivery, Source};
use crate::domain::instant::Instant;
use crate::domain::told::{Said, Told, Whose};
use crate::outbound::Client;
use api::{Api, Found};
use envelope::Envelope;
use reading::Shop;

/// One Stripe account in one of its modes.
pub struct Stripe {
    api: Api,
    secrets: Vec<String>,
    shop: Shop,
}

/// The types that carry a billing change and that every endpoint can be subscribed to: those it has to be.
pub const READ: [&str; 17] = [
    "checkout.session.completed",
    "checkout.session.async_payment_succeeded",
    "checkout.session.async_payment_failed",
    "customer.subscription.created",
    "customer.subscription.updated",
    "customer.subscription.deleted",
    "invoice.paid",
    "invoice.payment_failed",
    "invoice.voided",
    "invoice.marked_uncollectible",
    "charge.refunded",
    "refund.created",
    "refund.updated",
    "refund.failed",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.dispute.closed",
];

/// What a Stripe account needs to be known by. Half of it is secret, so it is not for printing.
pub struct Settings {
    pub client: Client,
    /// A secret or restricted key.
    pub key: String,
    /// The key is of the live mode.
    pub live: bool,
    /// The endpoint's secrets: more than one while they are being changed.
    pub webhook_secrets: Vec<String>,
    /// The price that is Pro, and the one that is a pack of bottles.
    pub price_pro: String,
    pub price_pack: Option<String>,
    /// Whose people are meant where a checkout of ours names one.
    pub tenant: String,
}

impl fmt::Debug for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripe").field("shop", &self.shop).finish_non_exhaustive()
    }
}

impl Stripe {
    pub fn new(settings: Settings) -> Self {
        let Settings { client, key, live, webhook_secrets, price_pro, price_pack, tenant } = settings;
        Self { api: Api::new(client, key), secrets: webhook_secrets, shop: Shop { live, price_pro, price_pack, tenant } }
    }

    /// # Errors
    /// [`VerifyError::NotGenuine`] only: nobody has to be asked.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, VerifyError> {
        self.verify_at(headers, body, Instant::from_datetime(OffsetDateTime::now_utc()))
    }

    /// As [`Stripe::verify`], at a given time.
    ///
    /// # Errors
    /// As [`Stripe::verify`].
    pub fn verify_at(&self, headers: &HeaderMap, body: &[u8], now: Instant) -> Result<Delivery, VerifyError> {
        let not_genuine = |why: String| VerifyError::NotGenuine { why };
        let mut lines = headers.get_all("stripe-signature").iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(not_genuine("it has not just one Stripe-Signature".to_owned()));
        };
        let sent = signature::check(line.as_bytes(), body, &self.secrets, now).map_err(|e| not_genuine(e.to_string()))?;
        let envelope = Envelope::read(body).map_err(|e| not_genuine(e.to_string()))?;
        Ok(Delivery {
            source: Source::Stripe,
            key: envelope.id.clone(),
            kind: envelope.kind.clone(),
            webhook_id: None,
            body: body.to_owned(),
            occurred: envelope.created,
            sent: Some(sent),
            digest: envelope.digest(),
        })
    }

    /// Fetches the object that a stored event is about: mostly one call.
    ///
    /// # Errors
    /// See [`ResolveError`]. That there is no such object is no error.
    pub async fn resolve(&self, event: StoredEvent<'_>) -> Result<Told, ResolveError> {
        let untold = |said| Told { whose: Whose::default(), said, answer: None, doubt: None };
        let Some(body) = event.body else { return Ok(untold(Said::AsStored)) };
        let Some(about) = reading::about(event.kind) else { return Ok(untold(Said::Nothing)) };
        let envelope = Envelope::read(body).map_err(|error| ResolveError::Unreadable(error.to_string()))?;
        if envelope.kind != event.kind {
            let (stored, signed) = (event.kind, envelope.kind);
            return Err(ResolveError::Unreadable(format!("stored as `{stored}` but signed as `{signed}`")));
        }
        if envelope.live != self.shop.live {
            return Ok(untold(Said::OtherMode { live: envelope.live }));
        }
        let object = envelope.object.ok_or_else(|| ResolveError::Unreadable("it names no object".to_owned()))?;
        Ok(match self.shop.ask(&self.api, about, &object, event.asked).await? {
            Found::There((whose, facts)) => {
                Told { whose, said: Said::Answered { at: event.asked, facts }, answer: None, doubt: None }
            }
            Found::Gone => untold(Said::Gone { object }),
        })
    }

    /// What a stored event says while nobody is asked: what it came to when somebody was.
    pub fn read(event: StoredEvent<'_>) -> Told {
        let said = if reading::about(event.kind).is_some() { Said::Unasked } else { Said::Nothing };
        Told { whose: Whose::default(), said, answer: None, doubt: None }
    }
}

/// The id of the object that an event is about, of a body that was verified before it was stored.
pub(super) fn about(body: &[u8]) -> Option<String> {
    Envelope::read(body).ok()?.object
}
