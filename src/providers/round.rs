//! What is asked on behalf of one claim: each customer once, and all of it within one span, because a claim is a lease.
//!
//! Sharing ends with the claim. An answer given before an event was heard says nothing about that event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::domain::ids::CustomerId;
use crate::domain::told::Answer;

use super::AskError;

/// A lease is 30 s, and the handler needs the larger part of it.
const ASKED_WITHIN: Duration = Duration::from_secs(8);
/// When there was no answer within the round.
const AGAIN_IN: Duration = Duration::from_secs(5);

type Shared = Arc<OnceCell<Result<Answer, AskError>>>;

#[derive(Debug)]
pub struct Round {
    until: Instant,
    asked: Mutex<HashMap<CustomerId, Shared>>,
}

impl Round {
    /// Begins now.
    pub fn begin() -> Self {
        Self { until: Instant::now() + ASKED_WITHIN, asked: Mutex::default() }
    }

    /// The answer about this customer: asked for now, or the one that this claim has already, refusals included.
    pub(super) async fn once<F>(&self, customer: &CustomerId, ask: impl FnOnce() -> F) -> Result<Answer, AskError>
    where
        F: Future<Output = Result<Answer, AskError>>,
    {
        let shared = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(asked.entry(customer.clone()).or_default())
        };
        shared.get_or_init(ask).await.clone()
    }

    /// Ends what takes longer than the round.
    pub(super) async fn within<T, E: From<AskError>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        timeout_at(self.until, work).await.unwrap_or_else(|_| {
            let why = "it did not answer while there was time".to_owned();
            Err(AskError::Unavailable { why, again_in: AGAIN_IN }.into())
        })
    }
}
