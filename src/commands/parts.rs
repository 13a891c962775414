//! Parts that several commands put together alike.

use std::sync::Arc;

use anyhow::Context;
use sqlx::PgPool;

use crate::billing::apply::Rules;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::config::{Config, Kinde};
use crate::inbox::queue;
use crate::jwks::Jwks;
use crate::outbound;
use crate::providers::{Provider, Providers, kinde};
use crate::worker::process::Engine;

/// `kinde` is the tenant that is configured, or the local one.
pub fn providers(config: &Config, kinde: Option<&Kinde>) -> anyhow::Result<Providers> {
    let kinde = kinde
        .map(|tenant| {
            let client = outbound::Client::new(&tenant.domain).context("KINDE_DOMAIN")?;
            let jwks = Jwks::new(format!("{}/.well-known/jwks", tenant.domain), client);
            jwks.warm();
            let issuers = std::iter::once(tenant.domain.clone()).chain(tenant.issuer.clone());
            anyhow::Ok(Provider::Kinde(kinde::Kinde::new(Arc::new(jwks), issuers, Some(config.webhook_url("kinde")))))
        })
        .transpose()?;
    Ok(Providers { kinde, stripe: None })
}

/// The tenant whose user ids name accounts: its Kinde subdomain, whatever its custom domain.
pub fn rules(config: &Config, kinde: Option<&Kinde>) -> Rules {
    let tenant = kinde.map_or_else(|| "local".to_owned(), |k| k.domain.clone());
    Rules { keys: config.plans.clone(), tenant }
}

pub fn engine(pool: PgPool, providers: Arc<Providers>, rules: Rules, checkpoints: Checkpoints) -> Engine {
    Engine { pool, providers, rules: Arc::new(rules), checkpoints, clock: Clock::Database, lease_secs: queue::LEASE_SECS }
}
