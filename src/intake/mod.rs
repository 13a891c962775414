//! Intake: verify, store, answer. Nothing else happens before the answer.
//!
//! A 200 means one thing: the event is stored. `batch` lets deliveries that arrive together share a commit.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use sqlx::PgPool;
use tokio::time::{Instant, timeout, timeout_at};

use crate::checkpoint::{Break, Checkpoints, Step};
use crate::clock::Clock;
use crate::db;
use crate::domain::event::{Delivery, Source};
use crate::domain::ids::EventKey;
use crate::inbox::store::{self, Stored};
use crate::providers::{Providers, VerifyError};
use crate::telemetry::labels::Arrival;
use crate::telemetry::spans::{Name, Span};
use crate::wake::Wake;

pub mod batch;

use batch::Batcher;

/// Every delivery is answered within this: a provider that waits longer may call it a failure.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(2_400);
/// The server itself ends a statement sooner. One that lasts longer has no server any more that would answer.
const STATEMENT_WITHIN: Duration = Duration::from_secs(3);

/// What a sender is told about a genuine delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub event: EventKey,
    pub copy: bool,
    /// It says something else than the first delivery of this event, which stands.
    pub conflict: bool,
}

impl Receipt {
    pub const fn arrival(&self) -> Arrival {
        match self {
            Self { conflict: true, .. } => Arrival::Conflict,
            Self { copy: true, .. } => Arrival::Copy,
            _ => Arrival::Stored,
        }
    }
}

/// Why a delivery was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error("this provider is not configured here")]
    NotConfigured,
    #[error("{0}")]
    NotGenuine(String),
    /// It may be genuine, and it may even have been stored: the sender has to try again.
    #[error("{0}")]
    Unavailable(String),
}

/// The endpoint behind the web page: one for all requests.
#[derive(Clone)]
pub struct Intake {
    providers: Arc<Providers>,
    batcher: Batcher,
}

impl Intake {
    /// Starts storing through `pool`. `wake` is told of every new event.
    pub fn start(pool: PgPool, providers: Arc<Providers>, wake: Wake, checkpoints: Checkpoints) -> Self {
        Self { providers, batcher: Batcher::start(pool, wake, checkpoints) }
    }

    pub fn is_configured(&self, source: Source) -> bool {
        self.providers.is_configured(source)
    }

    /// Takes one delivery. Returns only once it is durably stored; what is stored does not depend on who still waits for it.
    ///
    /// # Errors
    /// [`Refusal`], within [`ANSWER_WITHIN`]. After `Unavailable` a row may exist that nobody was told of.
    pub async fn receive(&self, source: Source, headers: &HeaderMap, body: &[u8]) -> Result<Receipt, Refusal> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let mut span = Span::root(Name::Deliver);
        span.word("bottle.source", source.as_str());
        let verified = timeout_at(deadline, self.providers.verify(source, headers, body)).await;
        let refused = match verified {
            Ok(Some(Ok(delivery))) => return self.keep(source, delivery, deadline, span).await,
            Ok(Some(Err(VerifyError::NotGenuine { why }))) => Refusal::NotGenuine(why),
            Ok(Some(Err(VerifyError::CannotTell { why }))) => Refusal::Unavailable(why),
            Ok(None) => Refusal::NotConfigured,
            Err(_) => Refusal::Unavailable("the provider's keys did not come in time".to_owned()),
        };
        span.forget();
        Err(refused)
    }

    async fn keep(&self, source: Source, delivery: Delivery, deadline: Instant, mut span: Span) -> Result<Receipt, Refusal> {
        let event = delivery.key.clone();
        let stored = match timeout_at(deadline, self.batcher.store(delivery, deadline)).await {
            Ok(stored) => stored,
            Err(_) => Err("the database did not answer in time".to_owned()),
        };
        // What is not genuine leaves no span: whoever posts to us could fill the queue of those that tell something.
        match stored {
            Ok(stored) => {
                span.delivers(source, &event, !stored.copy);
                let receipt = Receipt { event, copy: stored.copy, conflict: stored.conflict };
                span.word("bottle.outcome", receipt.arrival().as_str());
                Ok(receipt)
            }
            Err(why) => {
                span.delivers(source, &event, false);
                span.word("bottle.outcome", Arrival::Unavailable.as_str());
                span.fail("not stored");
                Err(Refusal::Unavailable(why))
            }
        }
    }
}

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error("the inbox could not be written")]
    Database(#[from] sqlx::Error),
    #[error("the database fell silent")]
    Silent,
    #[error(transparent)]
    Break(#[from] Break),
}

impl AcceptError {
    /// The database said no, so nothing of the batch is stored. After any other error that is unknown. A session that is
    /// ended from outside (57P01 and its kin) says so too, but maybe after its commit.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(error)) => !error.code().is_some_and(|code| code.starts_with("57P")),
            _ => false,
        }
    }
}

/// The inner step: stores verified deliveries in one statement and says what became of each. The live endpoint, the Engine
/// Room and the tests all come through here.
pub async fn accept(
    pool: &PgPool,
    batch: &[&Delivery],
    clock: Clock,
    checkpoints: &Checkpoints,
) -> Result<Vec<Stored>, AcceptError> {
    let keys: Vec<&EventKey> = batch.iter().map(|d| &d.key).collect();
    checkpoints.reach(Step::BeforeStore, &keys).await?;
    let mut connection = match clock {
        Clock::Database => db::acquire(pool, db::Use::Intake).await?,
        // A demonstration, through a pool of its own.
        Clock::At(_) => pool.acquire().await?,
    };
    let Ok(stored) = timeout(STATEMENT_WITHIN, store::store(&mut *connection, batch, clock)).await else {
        // Given back, it would take a place in the pool until TCP gives up on it, which is a quarter of an hour.
        drop(connection.detach());
        return Err(AcceptError::Silent);
    };
    let stored = stored?;
    drop(connection);
    for (delivery, stored) in batch.iter().zip(&stored) {
        tracing::info!(event = %delivery.key, event_id = %stored.id, r#type = delivery.kind, copy = stored.copy, "delivery stored");
        if stored.conflict {
            tracing::error!(event = %delivery.key, event_id = %stored.id, alert = "conflict", "a genuine delivery says something else under a known event id; the first stands");
        }
        if stored.other_header {
            tracing::warn!(event = %delivery.key, event_id = %stored.id, webhook_id = delivery.webhook_id, "the webhook-id differs from the first delivery's; the signed event id decides");
        }
    }
    checkpoints.reach(Step::Stored, &keys).await?;
    Ok(stored)
}
