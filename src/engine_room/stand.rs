//! The stand a run takes place on: a schema of its own, a small pool, and a sender whose keys are held in memory.
//!
//! The schema is made by the same migrations as the live one, so transactions, rollbacks and claims are real, and no live row
//! can be seen or locked. Runs follow one another under an advisory lock; their rows are removed afterwards.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use jsonwebtoken::DecodingKey;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Postgres};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::time::timeout;

use super::RoomError;
use super::scenario::Event;
use crate::billing::apply::Rules;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::db;
use crate::domain::event::{Delivery, Source};
use crate::domain::instant::Instant;
use crate::domain::plan::PlanKeys;
use crate::inbox::queue;
use crate::jwks::Jwks;
use crate::providers::kinde::Kinde;
use crate::providers::script::Script as ScriptProvider;
use crate::providers::{Provider, Providers};
use crate::worker::process::Engine;

const SCHEMA: &str = "engine_room";
const KID: &str = "engine-room";
const CONNECTIONS: u32 = 3;
/// Any number that no other advisory lock of ours uses.
const RUN_LOCK: i64 = 0x0B07_71E0;
/// A visitor waits this long for the run of another one.
const TURN_WITHIN: Duration = Duration::from_secs(20);
/// Visitors waiting at most; a further one is asked to come again.
const WAITERS_MAX: usize = 16;
const LOCK_NOT_AVAILABLE: &str = "55P03";
const NO_RIGHT: &str = "42501";

pub struct Stand {
    pub pool: PgPool,
    providers: Arc<Providers>,
    signing: KeyPair,
    /// Within this process, so that those who wait do not use up the pool.
    queue: Arc<Mutex<()>>,
    waiters: Semaphore,
}

/// While it lives no other run touches the schema, in whatever process.
pub struct Turn {
    connection: PoolConnection<Postgres>,
    _place: OwnedMutexGuard<()>,
}

impl Stand {
    /// Makes the schema if it is not there yet, and a key pair for this process.
    pub async fn build(options: &PgConnectOptions) -> Result<Self, RoomError> {
        let options = options
            .clone()
            .application_name("bottle engine room")
            // Nobody is told that anything here is stored, so a commit need not wait for the disk.
            .options([
                ("search_path", SCHEMA),
                ("synchronous_commit", "off"),
                ("statement_timeout", "30s"),
                ("lock_timeout", "20s"),
                ("idle_in_transaction_session_timeout", "30s"),
            ]);
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(TURN_WITHIN).connect_lazy_with(options.clone());
        make_schema(&pool, &options).await?;

        let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|_| RoomError::Key)?;
        let public: PublicKeyComponents<Vec<u8>> = pair.public_key().into();
        let decoding = DecodingKey::from_rsa_raw_components(&public.n, &public.e);
        let jwks = Jwks::held([(KID.to_owned(), decoding)]);
        let kinde = Kinde::new(Arc::new(jwks), ["https://engine-room.invalid".to_owned()], None);
        let providers = Providers { kinde: Some(Provider::Script(ScriptProvider::new(kinde))), stripe: None };
        Ok(Self {
            pool,
            providers: Arc::new(providers),
            signing: pair,
            queue: Arc::default(),
            waiters: Semaphore::new(WAITERS_MAX),
        })
    }

    /// Waits for its turn and starts with empty tables. Turns are given in the order of asking.
    pub async fn turn(&self) -> Result<Turn, RoomError> {
        let _waits = self.waiters.try_acquire().map_err(|_| RoomError::Busy)?;
        let place = timeout(TURN_WITHIN, Arc::clone(&self.queue).lock_owned()).await.map_err(|_| RoomError::Busy)?;
        let mut connection = self.pool.acquire().await?;
        // The database's lock lives as long as the connection, so the connection must not outlive the turn.
        connection.close_on_drop();
        let locked = sqlx::query!("select pg_advisory_lock($1)", RUN_LOCK).execute(&mut *connection).await;
        locked.map_err(|error| match error {
            sqlx::Error::Database(db) if db.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => RoomError::Busy,
            other => RoomError::Database(other),
        })?;
        let mut turn = Turn { connection, _place: place };
        turn.clear().await?;
        Ok(turn)
    }

    /// The real worker at this moment of the scenario.
    pub fn engine(&self, now: Instant, checkpoints: Checkpoints) -> Engine {
        Engine {
            pool: self.pool.clone(),
            providers: Arc::clone(&self.providers),
            rules: Arc::new(Rules { keys: PlanKeys::default(), tenant: SCHEMA.to_owned() }),
            checkpoints,
            clock: Clock::At(now),
            lease_secs: queue::LEASE_SECS,
        }
    }

    /// The bytes Kinde would post for this event. `account` tells test accounts apart.
    pub fn token(&self, event: Event, account: usize) -> Result<Vec<u8>, RoomError> {
        let header = BASE64URL.encode(json!({ "alg": "RS256", "kid": KID, "typ": "JWT" }).to_string());
        let claims = BASE64URL.encode(claims(event, account).to_string());
        let message = format!("{header}.{claims}");
        let mut signature = vec![0; self.signing.public_modulus_len()];
        self.signing
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|_| RoomError::Key)?;
        Ok(format!("{message}.{}", BASE64URL.encode(signature)).into_bytes())
    }

    /// Verifies a delivery as the live endpoint does.
    pub async fn verify(&self, body: &[u8], webhook_id: &str) -> Result<Delivery, RoomError> {
        let value = HeaderValue::from_str(webhook_id).map_err(|error| RoomError::Refused(error.to_string()))?;
        let headers = HeaderMap::from_iter([(HeaderName::from_static("webhook-id"), value)]);
        match self.providers.verify(Source::Kinde, &headers, body).await {
            Some(Ok(delivery)) => Ok(delivery),
            Some(Err(error)) => Err(RoomError::Refused(error.to_string())),
            None => Err(RoomError::Refused("no provider is set up".to_owned())),
        }
    }
}

impl Turn {
    /// Empties the tables, each named with its schema: this can touch no other.
    pub async fn clear(&mut self) -> Result<(), RoomError> {
        sqlx::raw_sql(
            // Not truncate: that makes new files each time, which stay until the next checkpoint.
            "delete from engine_room.receipts; delete from engine_room.conflicts; delete from engine_room.replays; \
             delete from engine_room.event_runs; delete from engine_room.facts; delete from engine_room.ledger; \
             delete from engine_room.customer_map; delete from engine_room.inbox_events; delete from engine_room.accounts",
        )
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }
}

/// The schema, as new as this program. Who runs a Bottle may have made it before, for a role that may make none.
async fn make_schema(pool: &PgPool, options: &PgConnectOptions) -> Result<(), RoomError> {
    let no_right = |error: sqlx::Error| match &error {
        sqlx::Error::Database(db) if db.code().as_deref() == Some(NO_RIGHT) => RoomError::Closed,
        _ => RoomError::Database(error),
    };
    // Asked first: making one that is there already needs the right to make one too.
    let there = sqlx::query_scalar!(r#"select to_regnamespace($1) is not null as "there!""#, SCHEMA).fetch_one(pool).await?;
    if !there {
        sqlx::query("create schema if not exists engine_room").execute(pool).await.map_err(no_right)?;
    }
    db::migrate(options).await.map_err(|error| match error {
        db::Error::NotOwner(_) => RoomError::Closed,
        error => RoomError::Schema(error),
    })?;
    // Runs are cleared away here; in the live schema nothing can.
    sqlx::raw_sql("alter table engine_room.ledger disable trigger user").execute(pool).await.map_err(no_right)?;
    Ok(())
}

/// The provider's id of a test account's event.
pub fn event_key(event: Event, account: usize) -> String {
    format!("event_{}{account:029x}", ["0a", "0b", "0c"][event as usize])
}

pub fn user_id(account: usize) -> String {
    format!("kp_{account:032x}")
}

/// The claims of a delivery, in the shape that was seen live: the plan change names no agreement.
fn claims(event: Event, account: usize) -> Value {
    let (kind, plan) = match event {
        Event::Up => ("customer.plan_changed", Some("customer_pro_plan")),
        Event::Pay => ("customer.payment_succeeded", None),
        Event::Old => ("customer.agreement_cancelled", None),
    };
    let happened = event.occurred_at();
    let mut data = json!({
        "user_id": user_id(account),
        "customer_id": format!("customer_{account:032x}"),
        "customer_type": "user",
    });
    if let Some(plan) = plan {
        data["plan"] = json!({ "key": plan });
    }
    json!({
        "type": kind,
        "event_id": event_key(event, account),
        "source": "user",
        "event_timestamp": happened.to_string(),
        "timestamp": happened.plus(Duration::from_millis(1_077)).to_string(),
        "data": data,
    })
}
