//! One local Kinde at work: what its handlers and its dispatcher share, and the few things that touch state, keys and deliveries
//! together.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rand::seq::SliceRandom as _;
use tokio::sync::Notify;

use super::Error;
use super::app::App;
use super::events::{self, Event, Told};
use super::history;
use super::journeys::{self, SentEvent};
use super::key::{Jwks, SigningKey};
use super::moment::At;
use super::order::Order;
use super::people;
use super::sender::{KINDE_WAITS, Manner, Sender};
use super::state::{Credentials, RetiredKey, State};
use super::store::Store;

pub struct Local {
    /// The issuer.
    pub url: String,
    pub folder: PathBuf,
    pub app: App,
    pub credentials: Credentials,
    /// Where webhooks go. Without it, events are kept and sent nowhere.
    pub webhook_url: Option<String>,
    pub store: Arc<Store>,
    pub key: RwLock<Arc<SigningKey>>,
    pub sender: Sender,
    /// Told when there may be something new to send.
    pub wake: Notify,
}

/// Between two events of one change that are sent out of order.
const APART: Duration = Duration::from_millis(700);
/// Kinde's message comes a moment after what it tells of.
const LONGEST_LAG_MS: u64 = 350;

impl Local {
    pub fn key(&self) -> Arc<SigningKey> {
        Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key that signs, then those it replaced.
    pub fn jwks(&self) -> Jwks {
        let mut jwks = self.key().jwks();
        let kid = jwks.keys[0].kid.clone();
        let retired = self.store.read(|state| state.retired_keys.clone());
        jwks.keys.extend(retired.into_iter().map(|key| key.jwk).filter(|jwk| jwk.kid != kid));
        jwks
    }

    /// The audience of tokens for the Management API.
    pub fn api(&self) -> String {
        format!("{}/api", self.url)
    }

    /// A new key signs from now on. The old one is noted as retired before its file is replaced, so no stop in between can leave
    /// tokens that nobody can verify.
    ///
    /// # Errors
    /// The key could not be made or kept.
    pub async fn rotate(&self) -> Result<(), Error> {
        let (key, der) = tokio::task::spawn_blocking(SigningKey::make).await.map_err(|_| Error::Crypto)??;
        let old = self.key().jwk();
        self.store.change(|state| {
            state.retired_keys.retain(|retired| retired.jwk != old);
            state.retired_keys.insert(0, RetiredKey { jwk: old, retired_at: At::now() });
        });
        self.store.settle().await?;
        SigningKey::put(&der, &self.folder)?;
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
        Ok(())
    }

    /// Signs what a person did, and puts it on its way as the switches say.
    ///
    /// # Errors
    /// The library refused to sign.
    pub fn tell(&self, state: &mut State, told: &[Told], now: At) -> Result<(), Error> {
        let switches = state.switches.clone();
        let mut ranks: Vec<u32> = (0..).take(told.len()).collect();
        shuffle(&mut ranks);
        for (told, rank) in told.iter().zip(ranks) {
            let happened = later(state.last_happened, now);
            state.last_happened = Some(happened);
            let lag = Duration::from_millis(rand::random_range(150..LONGEST_LAG_MS));
            let event = events::compose(told, happened.0, lag, switches.spelling)?;
            // Nothing is sent before it was made. Out of order, all start from one moment, or chance would put some back.
            let (from, out_of_turn) = match switches.deliveries.shuffle {
                true => (now.after(Duration::from_millis(2 * LONGEST_LAG_MS)), APART * rank),
                false => (happened.after(lag), Duration::ZERO),
            };
            let manner = Manner {
                copies: switches.deliveries.copies,
                late: Duration::from_secs(switches.deliveries.late_secs) + out_of_turn,
                drop_answers: switches.deliveries.drop_answers,
                attempts: u32::MAX,
                speed: 1.0,
                answer_within: KINDE_WAITS,
            };
            self.send(state, event, manner, from)?;
        }
        Ok(())
    }

    /// Ada's past, on her first sign-in.
    ///
    /// # Errors
    /// The library refused to sign.
    pub fn tell_history(&self, state: &mut State, now: At) -> Result<(), Error> {
        for (told, happened) in history::told(state.made_at) {
            let lag = Duration::from_millis(rand::random_range(900..1150));
            let event = events::compose(&told, happened.0, lag, state.switches.spelling)?;
            let manner = Manner {
                copies: 1,
                late: Duration::ZERO,
                drop_answers: 0,
                attempts: u32::MAX,
                speed: 1.0,
                answer_within: KINDE_WAITS,
            };
            self.send(state, event, manner, now)?;
        }
        Ok(())
    }

    /// Carries out an order: what it says happens here too. Gives type, event id and webhook id of each event.
    ///
    /// # Errors
    /// The order makes no sense, or there is nowhere to send events.
    pub fn take(&self, order: &Order) -> Result<Vec<[String; 3]>, Error> {
        if self.webhook_url.is_none() {
            return Err(Error::Usage(
                "this local Kinde was started without a webhook URL, so there is nowhere to send events".into(),
            ));
        }
        let (manner, now) = (order.manner()?, At::now());
        self.store.change(|state| {
            let events = order.take_place(state, now)?;
            events.into_iter().map(|event| self.send(state, event, manner, now)).collect()
        })
    }

    fn send(&self, state: &mut State, event: Event, manner: Manner, from: At) -> Result<[String; 3], Error> {
        let to = self.webhook_url.as_deref().unwrap_or_default();
        let sent = SentEvent {
            webhook_id: people::webhook_id(to, &event.event_id),
            token: self.key().sign(&event.claims)?,
            event_type: event.event_type,
            event_id: event.event_id,
            made_at: from,
        };
        let names = [sent.event_type.clone(), sent.event_id.clone(), sent.webhook_id.clone()];
        match &self.webhook_url {
            Some(to) => journeys::begin(state, sent, to, manner, from),
            None => state.events.push(sent),
        }
        Ok(names)
    }

    /// Waits until what was changed is in the file, and only then lets it be sent.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn settle(&self) -> Result<(), Error> {
        self.store.settle().await?;
        self.wake.notify_one();
        Ok(())
    }
}

/// Some other order than the given one.
fn shuffle(ranks: &mut [u32]) {
    let given = ranks.to_vec();
    while ranks.len() > 1 && *ranks == *given {
        ranks.shuffle(&mut rand::rng());
    }
}

/// Things happen one after the other, however fast somebody clicks.
fn later(last: Option<At>, now: At) -> At {
    last.map_or(now, |last| now.max(last.after(Duration::from_millis(40))))
}
