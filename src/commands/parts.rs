//! Parts that several commands put together alike.

use std::sync::Arc;

use anyhow::{Context, bail};
use sqlx::PgPool;

use crate::accounts;
use crate::billing::apply::Rules;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::config::{Config, Kinde};
use crate::inbox::queue;
use crate::jwks::Jwks;
use crate::outbound;
use crate::providers::{Provider, Providers, kinde};
use crate::worker::process::Engine;

/// When a tenant's public keys are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Now, so that the first delivery need not wait for them.
    AtOnce,
    /// A stored event was verified before it was stored: to run one needs no key.
    WhenNeeded,
}

/// `kinde` is the tenant that is configured, or the local one.
pub fn providers(config: &Config, kinde: Option<&Kinde>, keys: Keys) -> anyhow::Result<Providers> {
    let kinde = kinde
        .map(|tenant| {
            let client = outbound::Client::new(&tenant.domain).context("KINDE_DOMAIN")?;
            let jwks = Jwks::new(format!("{}/.well-known/jwks", tenant.domain), client);
            if keys == Keys::AtOnce {
                jwks.warm();
            }
            let issuers = std::iter::once(tenant.domain.clone()).chain(tenant.issuer.clone());
            anyhow::Ok(Provider::Kinde(kinde::Kinde::new(Arc::new(jwks), issuers, Some(config.webhook_url("kinde")))))
        })
        .transpose()?;
    Ok(Providers { kinde, stripe: None })
}

/// The tenant whose user ids name accounts: its Kinde subdomain, whatever its custom domain. The local Kinde is one tenant on
/// whatever port it runs: its people are the same after a start on another.
pub fn rules(config: &Config) -> Rules {
    let tenant = config.kinde.as_ref().map_or_else(|| "local".to_owned(), |k| k.domain.clone());
    Rules { keys: config.plans.clone(), tenant }
}

/// A database is worked on with the settings it was begun with.
pub async fn check_tenant(pool: &PgPool, rules: &Rules) -> anyhow::Result<()> {
    let stored = accounts::tenant(pool, &rules.tenant).await?;
    if stored != rules.tenant {
        bail!(
            "KINDE_DOMAIN: this database belongs to the tenant `{stored}`, and the settings say `{}`; set KINDE_DOMAIN to that \
             tenant, or use another database (DATABASE_URL, or BOTTLE_DATA)",
            rules.tenant
        );
    }
    Ok(())
}

pub fn engine(pool: PgPool, providers: Arc<Providers>, rules: Rules, checkpoints: Checkpoints) -> Engine {
    Engine { pool, providers, rules: Arc::new(rules), checkpoints, clock: Clock::Database, lease_secs: queue::LEASE_SECS }
}
