//! The provider seam: what every billing provider has to answer. A closed enum, so the compiler lists what a new one lacks.
//!
//! Nothing above this room knows which provider it talks to.

use std::time::Duration;

use reqwest::header::HeaderMap;

use crate::clock::Clock;
use crate::domain::ask_again::{self, Party};
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::{Fact, PERIOD_OPENED};
use crate::domain::ids::{CustomerId, KindeUserId};
use crate::domain::instant::Instant;
use crate::domain::told::{Answer, Doubt, LAG_MAX, Said, Told, Whose};
use crate::jwks::token::{Compact, TokenError};

mod contradiction;
mod fields;
pub mod kinde;
pub mod listing;
pub mod round;
pub mod script;
pub mod stripe;

use contradiction::contradiction;
use round::Round;

/// Why a delivery is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("not genuine: {why}")]
    NotGenuine { why: String },
    /// Its keys cannot be obtained: it may well be genuine.
    #[error("cannot tell whether it is genuine: {why}")]
    CannotTell { why: String },
}

impl From<TokenError> for VerifyError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::NotGenuine(why) => Self::NotGenuine { why: why.to_owned() },
            TokenError::CannotTell { why } => Self::CannotTell { why },
        }
    }
}

/// Why a stored event has no facts yet.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// This program cannot read it; another release may.
    #[error("{0}")]
    Unreadable(String),
    /// It says no time that can be read, so it has no place among the facts; a person has to look.
    #[error("it says no time that can be read")]
    NoTime,
    /// The provider's own answer does not agree with the event yet.
    #[error("the provider does not agree yet: {what}")]
    NotYet { what: String },
    #[error("the provider could not be asked: {why}")]
    Unavailable { why: String, again_in: Duration },
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskError {
    /// Worth another try, but not before this span is over.
    #[error("{why}")]
    Unavailable { why: String, again_in: Duration },
    /// We are not let in: asking again changes nothing until somebody looks after the settings.
    #[error("{why}")]
    Refused { why: String },
}

/// What is sold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ware {
    /// Pro, month after month.
    Pro,
    /// A pack of bottles, once.
    Pack,
}

impl Ware {
    pub const ALL: [Self; 2] = [Self::Pro, Self::Pack];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pro => "pro",
            Self::Pack => "pack",
        }
    }

    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ware| ware.as_str() == word)
    }
}

/// How somebody sets out for a provider's page: all of it that is known before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// By a form of ours; who sends it is told the way.
    Ask,
    /// By a link to our own sign-in.
    SignIn,
    /// With a token that only their session has.
    OwnToken,
}

/// Who wants to go to a provider's page, and how they come back.
#[derive(Debug, Clone, Copy)]
pub struct Errand<'a> {
    pub user: &'a KindeUserId,
    /// Verified, or none.
    pub email: Option<&'a str>,
    /// What the provider knows them as.
    pub customer: Option<&'a CustomerId>,
    /// Pages of ours: where they come out, and where they turn back to.
    pub done: &'a str,
    pub back: &'a str,
    /// The same for the same click.
    pub intent: &'a str,
    /// What the provider calls the checkout that was made for this before, if one was.
    pub earlier: Option<&'a str>,
}

/// The way to a provider's page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// An address to send the person to, now.
    To(String),
    /// The same, of a checkout, with what the provider calls it.
    Checkout { url: String, reference: String },
    /// The earlier checkout is complete: it must not be paid twice, and word of it is on its way.
    Complete,
    /// Through our own sign-in, which takes this wish along.
    SignIn { plan_interest: String },
    /// A link that is made with the person's own token, which only their session has.
    OwnToken,
}

/// Why there is no way to a provider's page.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DoorError {
    #[error("this provider does not sell it")]
    NotSold,
    #[error("the provider does not know this person")]
    NoCustomer,
    #[error("the provider's page is closed")]
    Closed,
    #[error("the provider leads to {0}, which is no page of theirs")]
    StrangeAddress(String),
    /// Worth another try.
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
}

/// A stored event, as far as its provider's arm needs it.
#[derive(Clone, Copy)]
pub struct StoredEvent<'a> {
    pub source: Source,
    /// The provider's id of it, for the log.
    pub key: &'a str,
    pub kind: &'a str,
    /// None once it was pruned.
    pub body: Option<&'a [u8]>,
    pub occurred: Option<Instant>,
    pub received: Instant,
    /// The moment as of which a provider is asked: the claim's, by the database's clock. Every event that was heard of before is
    /// older than it, whichever process asks, so of two answers the later one knows more.
    pub asked: Instant,
}

/// One provider and its five verbs: name, checkout, portal, verify, resolve. What it can list besides is in `listing`.
#[derive(Debug)]
pub enum Provider {
    Kinde(kinde::Kinde),
    Stripe(stripe::Stripe),
    /// Kinde's deliveries, with keys and truth held in memory.
    Script(script::Script),
}

impl Provider {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Kinde(_) => "Kinde",
            Self::Stripe(_) => "Stripe",
            Self::Script(_) => "Script",
        }
    }

    /// How one sets out to pay for something here; none where it is not sold.
    pub const fn sells(&self, ware: Ware) -> Option<Step> {
        match self {
            Self::Kinde(kinde) => kinde.sells(ware),
            Self::Stripe(stripe) => stripe.sells(ware),
            Self::Script(_) => None,
        }
    }

    /// How one sets out to manage what is paid here.
    pub const fn manages(&self) -> Option<Step> {
        match self {
            Self::Kinde(_) => Some(Step::OwnToken),
            Self::Stripe(_) => Some(Step::Ask),
            Self::Script(_) => None,
        }
    }

    /// Whether what it tells of payments says how much was paid.
    pub const fn tells_amounts(&self) -> bool {
        matches!(self, Self::Stripe(_))
    }

    /// Where its pages are that forms of ours lead to, as origins; a sign-in's are known elsewhere.
    pub fn origins(&self) -> Vec<String> {
        match self {
            Self::Stripe(stripe) => stripe.origins(),
            Self::Kinde(_) | Self::Script(_) => Vec::new(),
        }
    }

    /// The way to pay for something. Where an earlier checkout for the same is still open it is the way to that one.
    ///
    /// # Errors
    /// See [`DoorError`].
    pub async fn checkout(&self, errand: &Errand<'_>, ware: Ware) -> Result<Way, DoorError> {
        match self {
            Self::Kinde(kinde) => kinde.checkout(ware),
            Self::Stripe(stripe) => stripe.checkout(errand, ware).await,
            Self::Script(_) => Err(DoorError::NotSold),
        }
    }

    /// The way to manage what is paid.
    ///
    /// # Errors
    /// See [`DoorError`].
    pub async fn portal(&self, errand: &Errand<'_>) -> Result<Way, DoorError> {
        match self {
            Self::Kinde(_) => Ok(Way::OwnToken),
            Self::Stripe(stripe) => stripe.portal(errand).await,
            Self::Script(_) => Err(DoorError::NoCustomer),
        }
    }

    /// Headers and bytes → a delivery with its dedupe key.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub async fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, VerifyError> {
        match self {
            Self::Kinde(kinde) => kinde.verify(body, webhook_id(headers).as_deref()).await,
            Self::Stripe(stripe) => stripe.verify(headers, body),
            Self::Script(script) => script.verify(body, webhook_id(headers).as_deref()).await,
        }
    }

    /// What the provider itself says is live for whom the event names; none where it is not asked.
    async fn ask(&self, told: &Told, clock: Clock, round: &Round) -> Result<Option<Answer>, AskError> {
        match self {
            Self::Kinde(kinde) => round.within(kinde.ask(told, clock, round)).await,
            // What it says is all that its events come to: there is nothing of their own to be confirmed.
            Self::Stripe(_) => Ok(None),
            Self::Script(script) => script.ask(told, clock),
        }
    }
}

/// The providers this process is set up for.
#[derive(Debug, Default)]
pub struct Providers {
    pub kinde: Option<Provider>,
    pub stripe: Option<Provider>,
}

impl Providers {
    pub fn of(&self, source: Source) -> Option<&Provider> {
        match source {
            Source::Kinde => self.kinde.as_ref(),
            Source::Stripe => self.stripe.as_ref(),
            Source::Bottle => None,
        }
    }

    pub fn is_configured(&self, source: Source) -> bool {
        self.of(source).is_some()
    }

    /// Those that people can buy from, in the order in which they are offered.
    pub fn all(&self) -> impl Iterator<Item = (Source, &Provider)> {
        [(Source::Kinde, &self.kinde), (Source::Stripe, &self.stripe)]
            .into_iter()
            .filter_map(|(source, provider)| Some((source, provider.as_ref()?)))
    }

    /// Those that are set up here.
    pub fn configured(&self) -> Vec<Source> {
        [Source::Kinde, Source::Stripe].into_iter().filter(|source| self.is_configured(*source)).collect()
    }

    /// None: this provider is not configured here.
    pub async fn verify(&self, source: Source, headers: &HeaderMap, body: &[u8]) -> Option<Result<Delivery, VerifyError>> {
        match self.of(source) {
            Some(provider) => Some(provider.verify(headers, body).await),
            None => None,
        }
    }

    /// A stored event → what it says, asking the provider where that is set up. No transaction may be open.
    ///
    /// An answer that contradicts its event is stale: it is asked for again for ten minutes from when we heard of the event, and
    /// so is one that does not come. An event that was older than that when it came is no reason to doubt the answer. From then
    /// on, and at once where we are not let in, the event counts by its own word: somebody paid, and neither a slow read nor a
    /// revoked credential may keep their plan from them. Of an event of Stripe's nothing counts but what Stripe answers, so there
    /// it is the answer that is waited for, however long.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve(&self, event: StoredEvent<'_>, clock: Clock, round: &Round) -> Result<Told, ResolveError> {
        if let Some(source) = ask_again::asks(event.kind).filter(|_| event.source == Source::Bottle) {
            return self.ask_again(source, event, round).await;
        }
        let provider = self.of(event.source);
        if let Some(Provider::Stripe(stripe)) = provider {
            return stripe.resolve(event).await;
        }
        let told = Self::read(event)?;
        let Some(provider) = provider.filter(|_| is_worth_asking(&told)) else { return Ok(told) };
        let answered = provider.ask(&told, clock, round).await;
        let age = age(&event);
        let doubt = match answered {
            Ok(None) => return Ok(told),
            Ok(Some(answer)) => match contradiction(&told, &answer).filter(|_| !heard_late(&told, event.received)) {
                None => return Ok(Told { answer: Some(answer), ..told }),
                Some(what) if age < LAG_MAX => return Err(ResolveError::NotYet { what }),
                Some(what) => Doubt::Differs { what },
            },
            Err(AskError::Unavailable { why, again_in }) if age < LAG_MAX => {
                return Err(ResolveError::Unavailable { why, again_in });
            }
            Err(AskError::Unavailable { .. } | AskError::Refused { .. }) => Doubt::NotAsked,
        };
        // One that runs again much later contradicts what became of it since, and nobody need look.
        let asked_for_ten_minutes = age < LAG_MAX * 2;
        if let (Doubt::Differs { what }, true) = (&doubt, asked_for_ten_minutes) {
            tracing::error!(
                alert = "provider-disagrees",
                provider = provider.name(),
                event = event.key,
                what,
                "the provider contradicts its own event after ten minutes; the event's facts rule"
            );
        }
        Ok(Told { doubt: Some(doubt), ..told })
    }

    /// Carries out an event of ours that only asks.
    async fn ask_again(&self, source: Source, event: StoredEvent<'_>, round: &Round) -> Result<Told, ResolveError> {
        let told = |whose, said| Told { whose, said, answer: None, doubt: None };
        let Some(body) = event.body else { return Ok(told(Whose::default(), Said::AsStored)) };
        let party: Party = serde_json::from_slice(body).map_err(|error| ResolveError::Unreadable(error.to_string()))?;
        let Some(provider) = self.of(source) else { return Ok(told(Whose::default(), Said::Unasked)) };
        let said = match round.within(provider.plans(&party, event.asked)).await? {
            Some(facts) => Said::Answered { at: event.asked, facts },
            None => Said::Gone { object: party.name().to_owned() },
        };
        Ok(told(party.whose(), said))
    }

    /// A stored event → what it says by itself. Asks nobody.
    ///
    /// # Errors
    /// [`ResolveError::Unreadable`] and [`ResolveError::NoTime`].
    pub fn read(event: StoredEvent<'_>) -> Result<Told, ResolveError> {
        let untold = |said| Told { whose: Whose::default(), said, answer: None, doubt: None };
        match (event.source, event.body) {
            (Source::Bottle, _) => match (event.kind, event.occurred) {
                (PERIOD_OPENED, Some(at)) => Ok(untold(Said::Fact { at, fact: Fact::Opened })),
                (kind, _) if ask_again::asks(kind).is_some() => Ok(untold(Said::Unasked)),
                _ => Ok(untold(Said::Nothing)),
            },
            (_, None) => Ok(untold(Said::AsStored)),
            (Source::Kinde, Some(body)) => {
                told(kinde::read(body, event.kind).map_err(|why| ResolveError::Unreadable(why.to_string()))?)
            }
            (Source::Stripe, Some(_)) => Ok(stripe::Stripe::read(event)),
        }
    }
}

/// The JSON inside a stored body, for people to look at. None: there is none that can be read.
pub fn payload(source: Source, body: &[u8]) -> Option<serde_json::Value> {
    match source {
        Source::Kinde => serde_json::from_slice(&Compact::split(body).ok()?.payload().ok()?).ok(),
        Source::Stripe | Source::Bottle => serde_json::from_slice(body).ok(),
    }
}

/// The provider's id of the object that a stored event is about. None: it names none.
pub fn about(source: Source, body: &[u8]) -> Option<String> {
    match source {
        Source::Stripe => stripe::about(body),
        Source::Kinde | Source::Bottle => None,
    }
}

/// The header that names the attempt. It is outside the signature, so it is only carried along.
fn webhook_id(headers: &HeaderMap) -> Option<String> {
    headers.get("webhook-id").and_then(|value| value.to_str().ok()).map(|id| id.chars().take(200).collect())
}

/// Of an event that will be ignored nothing needs to be known, least of all from a provider that is away.
fn is_worth_asking(told: &Told) -> bool {
    let is_person = told.whose.customer_type.as_ref().is_none_or(|customer_type| customer_type == kinde::PERSON);
    is_person && matches!(told.said, Said::Fact { .. })
}

/// Whether the event was old when we heard of it: what its provider says now is then what became of it since, and no lag.
fn heard_late(told: &Told, received: Instant) -> bool {
    let Said::Fact { at, .. } = &told.said else { return false };
    u64::try_from(received.nanos().saturating_sub(at.nanos())).is_ok_and(|late| Duration::from_nanos(late) >= LAG_MAX)
}

/// How long ago we heard of an event, by the one clock that says both: a process may be wrong about the time.
fn age(event: &StoredEvent<'_>) -> Duration {
    Duration::from_nanos(u64::try_from(event.asked.nanos().saturating_sub(event.received.nanos())).unwrap_or_default())
}

fn told(reading: kinde::Reading) -> Result<Told, ResolveError> {
    let is_person = reading.customer_type.as_ref().is_none_or(|customer_type| customer_type == kinde::PERSON);
    let said = match (reading.said, reading.at) {
        (kinde::Said::Nothing, _) => Said::Nothing,
        (kinde::Said::NotRead, _) => Said::NotRead,
        (kinde::Said::Fact(fact), Some(at)) => Said::Fact { at, fact },
        (kinde::Said::Fact(_), None) if !is_person => Said::NotRead,
        (kinde::Said::Fact(_), None) => return Err(ResolveError::NoTime),
    };
    let whose = Whose { user: reading.user, customer: reading.customer, customer_type: reading.customer_type };
    Ok(Told { whose, said, answer: None, doubt: None })
}
