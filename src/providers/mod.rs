//! The provider seam: what every billing provider has to answer. A closed enum, so the compiler lists what a new one lacks.
//!
//! Nothing above this room knows which provider it talks to.

use crate::clock::Clock;
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::Fact;
use crate::domain::instant::Instant;
use crate::domain::told::{Answer, Said, Told, Whose};
use crate::jwks::token::TokenError;

mod fields;
pub mod kinde;
pub mod script;

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
    #[error("the provider could not be asked: {0}")]
    Unavailable(String),
}

/// A stored event, as far as its provider's arm needs it.
#[derive(Debug, Clone, Copy)]
pub struct StoredEvent<'a> {
    pub source: Source,
    pub kind: &'a str,
    /// None once it was pruned.
    pub body: Option<&'a [u8]>,
    pub occurred: Option<Instant>,
    pub received: Instant,
}

/// One provider. `checkout` and `portal` join these verbs with the pages that need them.
#[derive(Debug)]
pub enum Provider {
    Kinde(kinde::Kinde),
    /// Kinde's deliveries, with keys and truth held in memory.
    Script(script::Script),
}

impl Provider {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Kinde(_) => "Kinde",
            Self::Script(_) => "Script",
        }
    }

    /// Bytes and the header outside the signature → a delivery with its dedupe key.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub async fn verify(&self, webhook_id: Option<&str>, body: &[u8]) -> Result<Delivery, VerifyError> {
        match self {
            Self::Kinde(kinde) => kinde.verify(body, webhook_id).await,
            Self::Script(script) => script.verify(body, webhook_id).await,
        }
    }

    /// What the provider itself says is live for whom the event names; none where it is not asked.
    fn ask(&self, told: &Told, clock: Clock) -> Result<Option<Answer>, ResolveError> {
        match self {
            // Without Management API credentials the payload's facts rule.
            Self::Kinde(_) => Ok(None),
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

/// A provider's answer that contradicts the event is not believed for this long; then the event's own facts rule.
const BELIEF_WITHIN: std::time::Duration = std::time::Duration::from_secs(10 * 60);

impl Providers {
    fn of(&self, source: Source) -> Option<&Provider> {
        match source {
            Source::Kinde => self.kinde.as_ref(),
            Source::Stripe => self.stripe.as_ref(),
            Source::Bottle => None,
        }
    }

    pub fn is_configured(&self, source: Source) -> bool {
        self.of(source).is_some()
    }

    /// None: this provider is not configured here.
    pub async fn verify(&self, source: Source, webhook_id: Option<&str>, body: &[u8]) -> Option<Result<Delivery, VerifyError>> {
        match self.of(source) {
            Some(provider) => Some(provider.verify(webhook_id, body).await),
            None => None,
        }
    }

    /// A stored event → what it says, asking the provider where that is set up. No transaction may be open.
    ///
    /// # Errors
    /// See [`ResolveError`].
    #[expect(clippy::unused_async, reason = "the arms that ask over the network await")]
    pub async fn resolve(&self, event: StoredEvent<'_>, clock: Clock) -> Result<Told, ResolveError> {
        let told = Self::read(event)?;
        let Some(provider) = self.of(event.source).filter(|_| is_worth_asking(&told)) else { return Ok(told) };
        let Some(answer) = provider.ask(&told, clock)? else { return Ok(told) };
        match contradiction(&told, &answer) {
            None => Ok(Told { answer: Some(answer), ..told }),
            Some(what) if answer.asked < event.received.plus(BELIEF_WITHIN) => Err(ResolveError::NotYet { what }),
            Some(what) => {
                tracing::warn!(
                    alert = "provider-disagrees",
                    provider = provider.name(),
                    what,
                    "the provider still contradicts its own event; the event's facts rule"
                );
                Ok(told)
            }
        }
    }

    /// A stored event → what it says by itself. Asks nobody.
    ///
    /// # Errors
    /// [`ResolveError::Unreadable`] and [`ResolveError::NoTime`].
    pub fn read(event: StoredEvent<'_>) -> Result<Told, ResolveError> {
        let untold = |said| Told { whose: Whose::default(), said, answer: None };
        match (event.source, event.body) {
            (Source::Bottle, _) => match (event.kind, event.occurred) {
                (PERIOD_OPENED, Some(at)) => Ok(untold(Said::Fact { at, fact: Fact::Opened })),
                _ => Ok(untold(Said::Nothing)),
            },
            (_, None) => Ok(untold(Said::AsStored)),
            (Source::Kinde, Some(body)) => {
                told(kinde::read(body, event.kind).map_err(|why| ResolveError::Unreadable(why.to_string()))?)
            }
            (Source::Stripe, Some(_)) => Ok(untold(Said::Nothing)),
        }
    }
}

/// The type of the event we store ourselves when a Pro account first uses a period.
pub const PERIOD_OPENED: &str = "bottle.period_opened";

/// Of an event that will be ignored nothing needs to be known, least of all from a provider that is away.
fn is_worth_asking(told: &Told) -> bool {
    let is_person = told.whose.customer_type.as_ref().is_none_or(|customer_type| customer_type == "user");
    is_person && matches!(told.said, Said::Fact { .. })
}

/// In what an answer contradicts the event that asked for it: it lacks what began, or still lists what ended.
fn contradiction(told: &Told, answer: &Answer) -> Option<String> {
    let Said::Fact { at, fact } = &told.said else { return None };
    match fact {
        Fact::Start { agreement, plan_key, .. } => {
            let listed =
                answer.live.iter().any(|l| agreement.as_ref().is_none_or(|a| *a == l.agreement) && l.plan_key == *plan_key);
            (!listed).then(|| format!("it does not list plan key {plan_key} as live"))
        }
        Fact::End { agreement: Some(agreement), effective } => {
            let ended = effective.unwrap_or(*at) <= answer.asked;
            let listed = answer.live.iter().any(|l| l.agreement == *agreement);
            (ended && listed).then(|| format!("it still lists agreement {agreement} as live"))
        }
        _ => None,
    }
}

fn told(reading: kinde::Reading) -> Result<Told, ResolveError> {
    let said = match (reading.said, reading.at) {
        (kinde::Said::Nothing, _) => Said::Nothing,
        (kinde::Said::Fact(fact), Some(at)) => Said::Fact { at, fact },
        (kinde::Said::Fact(_), None) => return Err(ResolveError::NoTime),
    };
    let whose = Whose { user: reading.user, customer: reading.customer, customer_type: reading.customer_type };
    Ok(Told { whose, said, answer: None })
}
