//! Kinde: whether a delivery is theirs, and what a stored one says.
//!
//! Both questions read a token with the same code in `envelope`, so the id that was checked is the id that is used. Kinde's
//! webhook tokens carry no `iss`, `aud` or `exp`: the signature by a key of our tenant is the whole proof, and users' tokens
//! are signed by the same keys, so what sets an event apart is its shape. There is no age limit: Kinde retries for
//! 36 hours, and an old token posted again is only a copy.
//!
//! No official shape of a billing event's `data` is published. What is read here is what integrations that run against
//! live tenants read; every spelling seen in one of them is taken.

mod envelope;
mod listing;
mod m2m;
pub mod management;
mod pace;
mod reading;

use std::sync::Arc;

use time::OffsetDateTime;

use super::fields::{Fields, Twice};
use super::round::Round;
use super::{AskError, DoorError, Step, VerifyError, Ware, Way};
use crate::clock::Clock;
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::Fact;
use crate::domain::ids::{AgreementId, CustomerId, KindeUserId};
use crate::domain::instant::Instant;
use crate::domain::told::{Answer, Told};
use crate::jwks::Jwks;
use crate::jwks::token::{Compact, TokenError};
use envelope::{Envelope, NotAnEvent};
use management::Management;

/// One Kinde tenant, as its deliveries see it.
#[derive(Debug, Clone)]
pub struct Kinde {
    jwks: Arc<Jwks>,
    issuers: Vec<String>,
    /// Whom a token may name as its audience: us by our webhook address, or the tenant.
    audiences: Vec<String>,
    /// None: no credentials for it are set, so nobody is asked.
    management: Option<Management>,
    /// The plan key that is Pro.
    sells: Option<String>,
}

impl Kinde {
    /// `issuers` are the tenant's names (its Kinde subdomain and, where there is one, its custom domain), `webhook_url` the
    /// address at which Kinde reaches us.
    pub fn new(jwks: Arc<Jwks>, issuers: impl IntoIterator<Item = String>, webhook_url: Option<String>) -> Self {
        let issuers: Vec<_> = issuers.into_iter().map(|issuer| envelope::bare(&issuer).to_owned()).collect();
        let webhook_url = webhook_url.map(|url| envelope::bare(&url).to_owned());
        let audiences = issuers.iter().cloned().chain(webhook_url).collect();
        Self { jwks, issuers, audiences, management: None, sells: None }
    }

    /// The same tenant, to be asked through its Management API too.
    #[must_use]
    pub fn with_management(self, management: Management) -> Self {
        Self { management: Some(management), ..self }
    }

    pub fn management(&self) -> Option<&Management> {
        self.management.as_ref()
    }

    /// The agreements that are live for whom the event names; none where nobody is asked or the person is no customer.
    pub(super) async fn ask(&self, told: &Told, clock: Clock, round: &Round) -> Result<Option<Answer>, AskError> {
        let Some(management) = &self.management else { return Ok(None) };
        let customer = match (&told.whose.customer, &told.whose.user) {
            (Some(customer), _) => customer.clone(),
            (None, Some(user)) => match management.customer_of(user).await? {
                Some(customer) => customer,
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        round.once(&customer, || management.live_agreements(&customer, clock)).await.map(Some)
    }

    /// Sells Pro under this plan key.
    #[must_use]
    pub fn selling(self, plan_key: Option<String>) -> Self {
        Self { sells: plan_key, ..self }
    }

    /// Its plans, and no packs.
    pub(super) const fn sells(&self, ware: Ware) -> Option<Step> {
        match (ware, &self.sells) {
            (Ware::Pro, Some(_)) => Some(Step::SignIn),
            (Ware::Pro, None) | (Ware::Pack, _) => None,
        }
    }

    /// Kinde shows its plans in the course of a sign-in, and its portal to who brings their own token.
    ///
    /// # Errors
    /// [`DoorError::NotSold`]: there are no packs at Kinde.
    pub fn checkout(&self, ware: Ware) -> Result<Way, DoorError> {
        match (ware, &self.sells) {
            (Ware::Pro, Some(key)) => Ok(Way::SignIn { plan_interest: key.clone() }),
            (Ware::Pro, None) | (Ware::Pack, _) => Err(DoorError::NotSold),
        }
    }

    /// Checks a request's body, which is to be one signed token, and reads what intake stores. `webhook_id` is the header of
    /// that name; it proves nothing and is only carried along.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub async fn verify(&self, body: &[u8], webhook_id: Option<&str>) -> Result<Delivery, VerifyError> {
        self.verify_at(body, webhook_id, Instant::from_datetime(OffsetDateTime::now_utc())).await
    }

    /// As [`Kinde::verify`], at a given time: it decides about `exp` and `nbf`, should Kinde ever send them.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub async fn verify_at(&self, body: &[u8], webhook_id: Option<&str>, now: Instant) -> Result<Delivery, VerifyError> {
        let token = self.jwks.verify(body).await?;
        let json = String::from_utf8_lossy(&token.payload);
        let not_genuine = |error: NotAnEvent| VerifyError::NotGenuine { why: error.to_string() };
        let envelope = Envelope::read(&json).map_err(not_genuine)?;
        envelope.is_for(&self.issuers, &self.audiences, now).map_err(not_genuine)?;
        Ok(Delivery {
            source: Source::Kinde,
            key: envelope.event_id.clone(),
            kind: envelope.kind.clone(),
            webhook_id: webhook_id.map(str::to_owned),
            body: body.to_owned(),
            occurred: envelope.at,
            sent: envelope.sent,
            digest: envelope.digest(),
        })
    }
}

/// What a stored event says, and about whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub user: Option<KindeUserId>,
    pub customer: Option<CustomerId>,
    /// Other than `user`: the customer is no person, and the event must not touch anybody's account, whatever `said` is.
    pub customer_type: Option<String>,
    /// None: it says no time we can read.
    pub at: Option<Instant>,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Fact(Fact),
    /// This type of event carries no billing change.
    Nothing,
    /// It does, but the customer is no person and the event cannot be read.
    NotRead,
}

/// The event says something about billing that we cannot use. Reading it again changes nothing; a newer program might.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the stored body is no token: {0}")]
    NotAToken(#[from] TokenError),
    #[error("the stored token is no event: {0}")]
    NotAnEvent(String),
    #[error("stored as `{stored}` but signed as `{signed}`")]
    OtherKind { stored: String, signed: String },
    #[error("data: {0}")]
    Ambiguous(#[from] Twice),
    #[error("it names no plan, neither in data.plan.key nor in data.plan.code")]
    NoPlan,
    #[error("it names neither a user nor a customer")]
    Nobody,
}

/// Reads the body of a stored delivery of the type `kind`. Its signature was checked before it was stored.
///
/// # Errors
/// See [`Unreadable`]. Never because of what `data` holds when the type carries no billing change.
pub fn read(body: &[u8], kind: &str) -> Result<Reading, Unreadable> {
    let payload = Compact::split(body)?.payload()?;
    let json = String::from_utf8_lossy(&payload);
    let event = Envelope::read(&json).map_err(|error| Unreadable::NotAnEvent(error.to_string()))?;
    if event.kind != kind {
        return Err(Unreadable::OtherKind { stored: kind.to_owned(), signed: event.kind });
    }
    let data = Fields::of(event.data.get()).map_err(|error| Unreadable::NotAnEvent(error.to_string()))?;
    let Some(fact) = fact(kind, &data) else {
        return Ok(Whose::read(&data).unwrap_or_default().reading(event.at, Said::Nothing));
    };
    let whose = Whose::read(&data)?;
    if whose.is_no_person() {
        // It will be ignored for that, so a fact that cannot be read is no fault.
        let said = fact.map_or(Said::NotRead, Said::Fact);
        return Ok(whose.reading(event.at, said));
    }
    if whose.user.is_none() && whose.customer.is_none() {
        return Err(Unreadable::Nobody);
    }
    Ok(whose.reading(event.at, Said::Fact(fact?)))
}

/// The types that carry a billing change: those a webhook has to be subscribed to.
pub const READ: [&str; 7] = [
    "customer.plan_assigned",
    "customer.agreement_created",
    "customer.plan_changed",
    "customer.agreement_cancelled",
    "customer.payment_succeeded",
    "customer.payment_failed",
    "customer.invoice_overdue",
];

/// None: this type carries no billing change.
fn fact(kind: &str, data: &Fields<'_>) -> Option<Result<Fact, Unreadable>> {
    let agreement = || Ok::<_, Unreadable>(flat_or_nested(data, "agreement_id", "agreement")?.map(AgreementId));
    let start = |changed| Ok(Fact::Start { agreement: agreement()?, plan_key: plan_key(data)?, changed });
    Some(match kind {
        "customer.plan_assigned" | "customer.agreement_created" => start(false),
        "customer.plan_changed" => start(true),
        "customer.agreement_cancelled" => {
            effective(data).map_err(Unreadable::from).and_then(|effective| Ok(Fact::End { agreement: agreement()?, effective }))
        }
        "customer.payment_succeeded" => agreement().map(|agreement| Fact::Paid { agreement }),
        "customer.payment_failed" => agreement().map(|agreement| Fact::PaymentFailed { agreement }),
        "customer.invoice_overdue" => agreement().map(|agreement| Fact::Overdue { agreement }),
        _ => return None,
    })
}

/// Both spellings occur in integrations; which one Kinde sends is undecided, and they name the same thing.
fn plan_key(data: &Fields<'_>) -> Result<String, Unreadable> {
    let plan = data.inside("plan")?.ok_or(Unreadable::NoPlan)?;
    let key = plan.text("key")?;
    let code = plan.text("code")?;
    key.or(code).ok_or(Unreadable::NoPlan)
}

/// When a cancellation takes effect is documented nowhere. This name is a guess: right, it keeps a paid month whole; wrong, the
/// field is absent and the cancellation counts from the event's own time.
fn effective(data: &Fields<'_>) -> Result<Option<Instant>, Twice> {
    Ok(data.text("effective_at")?.and_then(|text| Instant::parse(&text).ok()))
}

/// `data.<flat>`, else `data.<nested>.id`.
fn flat_or_nested(data: &Fields<'_>, flat: &'static str, nested: &'static str) -> Result<Option<String>, Twice> {
    if let Some(id) = data.text(flat)? {
        return Ok(Some(id));
    }
    data.inside(nested)?.map_or(Ok(None), |inner| inner.text("id"))
}

/// The customer type of people.
pub(super) const PERSON: &str = "user";

#[derive(Debug, Default)]
struct Whose {
    user: Option<KindeUserId>,
    customer: Option<CustomerId>,
    customer_type: Option<String>,
}

impl Whose {
    fn read(data: &Fields<'_>) -> Result<Self, Twice> {
        // Nobody has seen `customer_type` in an event; an organisation's events carry its code.
        let organization = data.text("org_code")?.map(|_| "organization".to_owned());
        Ok(Self {
            user: flat_or_nested(data, "user_id", "user")?.map(KindeUserId),
            customer: flat_or_nested(data, "customer_id", "customer")?.map(CustomerId),
            customer_type: data.text("customer_type")?.or(organization),
        })
    }

    fn is_no_person(&self) -> bool {
        self.customer_type.as_ref().is_some_and(|customer_type| customer_type != PERSON)
    }

    fn reading(self, at: Option<Instant>, said: Said) -> Reading {
        Reading { user: self.user, customer: self.customer, customer_type: self.customer_type, at, said }
    }
}
