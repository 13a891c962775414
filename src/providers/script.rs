//! A provider held in memory: Kinde's real verification with keys that are ours, and a truth that a scenario sets.
//!
//! The Engine Room and the tests send through it, so that what they show is the code that live deliveries meet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use crate::clock::Clock;
use crate::domain::event::Delivery;
use crate::domain::fact::LiveAgreement;
use crate::domain::ids::CustomerId;
use crate::domain::instant::Instant;
use crate::domain::told::{Answer, Told};

use super::kinde::Kinde;
use super::{AskError, VerifyError};

/// After no answer.
const AGAIN_IN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Script {
    kinde: Kinde,
    truth: Mutex<Truth>,
}

/// What the provider answers when it is asked about a customer.
#[derive(Debug, Clone, Default)]
pub enum Truth {
    /// It is not asked: the payload's facts rule.
    #[default]
    NotAsked,
    /// These agreements are live; none for customers that are not listed.
    Live(HashMap<CustomerId, Vec<LiveAgreement>>),
    /// It does not answer.
    Away,
}

impl Script {
    pub fn new(kinde: Kinde) -> Self {
        Self { kinde, truth: Mutex::default() }
    }

    pub fn set_truth(&self, truth: Truth) {
        *self.truth.lock().unwrap_or_else(PoisonError::into_inner) = truth;
    }

    pub(super) async fn verify(&self, body: &[u8], webhook_id: Option<&str>) -> Result<Delivery, VerifyError> {
        self.kinde.verify(body, webhook_id).await
    }

    pub(super) fn ask(&self, told: &Told, clock: Clock) -> Result<Option<Answer>, AskError> {
        let asked = match clock {
            Clock::At(at) => at,
            Clock::Database => Instant::from_datetime(OffsetDateTime::now_utc()),
        };
        match (&*self.truth.lock().unwrap_or_else(PoisonError::into_inner), &told.whose.customer) {
            (Truth::Away, _) => Err(AskError::Unavailable { why: "the script says it is away".to_owned(), again_in: AGAIN_IN }),
            (Truth::Live(live), Some(customer)) => {
                Ok(Some(Answer { asked, live: live.get(customer).cloned().unwrap_or_default() }))
            }
            (Truth::NotAsked | Truth::Live(_), _) => Ok(None),
        }
    }
}
