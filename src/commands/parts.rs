//! Parts that several commands put together alike.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::accounts;
use crate::alerts::email::Email;
use crate::alerts::outgoing::Channels;
use crate::alerts::webhook::{Webhook, WebhookError};
use crate::bell::Bell;
use crate::billing::apply::Rules;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::config::{Config, Kinde, Nightly};
use crate::courier::{self, Courier};
use crate::inbox::queue;
use crate::jwks::Jwks;
use crate::mail::Mail;
use crate::oidc::Oidc;
use crate::outbound;
use crate::providers::kinde::{self, management::Management};
use crate::providers::{Provider, Providers, stripe};
use crate::reconcile::{self, Reconciler};
use crate::reminders::ring::Letters;
use crate::replayer::Replayer;
use crate::wake::Wake;
use crate::web::sign_in::{self, SignIn};
use crate::worker::process::Engine;

/// By night nobody waits: what is still on its way after a minute has gone astray.
const DIFFERS_FOR: Duration = Duration::from_secs(60);
/// Events that were stored by a nightly run, while none of them gets on.
const WAITED_FOR: Duration = Duration::from_secs(5 * 60);
/// At night there is time.
const NIGHTLY_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// When a tenant's public keys are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Now, so that the first delivery need not wait for them.
    AtOnce,
    /// A stored event was verified before it was stored: to run one needs no key.
    WhenNeeded,
}

/// A tenant's public keys: its webhooks and its sign-ins are signed with the same.
pub fn keys(kinde: &Kinde, when: Keys) -> anyhow::Result<Jwks> {
    let client = outbound::Client::new(&kinde.domain).context("KINDE_DOMAIN")?;
    let jwks = Jwks::new(format!("{}/.well-known/jwks", kinde.domain), client);
    if when == Keys::AtOnce {
        jwks.warm();
    }
    Ok(jwks)
}

/// `kinde` is the tenant that is configured, or the local one, with its keys.
pub fn providers(config: &Config, kinde: Option<(&Kinde, &Jwks)>) -> anyhow::Result<Providers> {
    let kinde = kinde
        .map(|(tenant, jwks)| {
            let issuers = std::iter::once(tenant.domain.clone()).chain(tenant.issuer.clone());
            let mut arm = kinde::Kinde::new(Arc::new(jwks.clone()), issuers, Some(config.webhook_url("kinde")))
                .selling(config.plans.pro.first().cloned());
            if let Some(credentials) = &tenant.m2m {
                let client = outbound::Client::new(&tenant.domain).context("KINDE_DOMAIN")?;
                arm = arm.with_management(Management::new(client, &tenant.domain, credentials.clone()).context("KINDE_DOMAIN")?);
            }
            anyhow::Ok(Provider::Kinde(arm))
        })
        .transpose()?;
    let stripe = config
        .stripe
        .as_ref()
        .map(|account| {
            let client = outbound::Client::new(&account.api_base).context("STRIPE_API_BASE")?;
            anyhow::Ok(Provider::Stripe(stripe::Stripe::new(stripe::Settings {
                client,
                key: account.secret_key.reveal().to_owned(),
                live: account.live,
                webhook_secrets: account.webhook_secrets.iter().map(|secret| secret.reveal().to_owned()).collect(),
                price_pro: account.price_pro.clone(),
                price_pack: account.price_pack.clone(),
                tenant: tenant(config),
            })))
        })
        .transpose()?;
    Ok(Providers { kinde, stripe })
}

/// Sign-in at this tenant; none where it has no client id and secret for us.
pub fn sign_in(config: &Config, kinde: &Kinde, jwks: &Jwks, asked: &Providers, wake: &Wake) -> anyhow::Result<Option<SignIn>> {
    let Some(client) = kinde.client.clone() else { return Ok(None) };
    let oidc = Oidc::new(kinde, client, config.base_url(), jwks.clone()).context("KINDE_ISSUER")?;
    let rules = rules(config);
    Ok(Some(SignIn::new(sign_in::Parts {
        oidc,
        session_key: super::session_key::get(config)?,
        https: config.is_production(),
        tenant: rules.tenant,
        plans: rules.keys,
        customer_of: customer_of(asked),
        wake: wake.clone(),
    })))
}

/// Who a person is as a customer, where the Management API may be asked.
fn customer_of(providers: &Providers) -> Option<sign_in::CustomerOf> {
    let Some(Provider::Kinde(kinde)) = &providers.kinde else { return None };
    let management = kinde.management()?.clone();
    Some(Arc::new(move |user| {
        let management = management.clone();
        Box::pin(async move { management.customer_of(&user).await.map_err(|error| error.to_string()) })
    }))
}

/// The tenant whose user ids name accounts: its Kinde subdomain, whatever its custom domain. The local Kinde is one tenant on
/// whatever port it runs: its people are the same after a start on another.
fn tenant(config: &Config) -> String {
    config.kinde.as_ref().map_or_else(|| "local".to_owned(), |k| k.domain.clone())
}

/// The price of Pro at Stripe is one more plan key.
pub fn rules(config: &Config) -> Rules {
    let mut keys = config.plans.clone();
    keys.pro.extend(config.stripe.as_ref().map(|stripe| stripe.price_pro.clone()));
    Rules { keys, tenant: tenant(config) }
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

pub fn replayer(pool: PgPool, wake: &Wake) -> Replayer {
    Replayer { pool, wake: wake.clone(), clock: Clock::Database }
}

pub fn bell(pool: PgPool, config: &Config, rules: Rules, checkpoints: Checkpoints) -> Bell {
    let page = format!("{}/reminders", config.web.url.as_str().trim_end_matches('/'));
    let letters = config.mail.as_ref().map(|_| Letters { page });
    Bell { pool, rules: Arc::new(rules), letters, checkpoints, clock: Clock::Database }
}

/// The minute of the day at which providers are asked nightly; none where none can be asked, or nobody wants it.
pub fn night(config: &Config, rules: &Rules, providers: &Providers) -> Option<u16> {
    let minute = match config.nightly {
        Nightly::Off => return None,
        Nightly::At(minute) => minute,
        Nightly::Unsaid => reconcile::night::usual_minute(&rules.tenant),
    };
    (!reconcile::askable(providers).is_empty()).then_some(minute)
}

pub fn reconciler(pool: PgPool, providers: Arc<Providers>, rules: Rules, wake: Wake, stop: CancellationToken) -> Reconciler {
    Reconciler {
        pool,
        providers,
        rules: Arc::new(rules),
        clock: Clock::Database,
        wake,
        settle: DIFFERS_FOR,
        wait: WAITED_FOR,
        patience: NIGHTLY_PATIENCE,
        progress: tokio::sync::watch::Sender::default(),
        stop,
    }
}

/// Where alerts go besides the log.
pub fn channels(config: &Config) -> anyhow::Result<Channels> {
    let webhook = config.alerts.webhook.as_ref().map(|(url, secret)| Webhook::new(url, secret.reveal()));
    let webhook = webhook.transpose().map_err(|error| match error {
        WebhookError::Secret => anyhow::anyhow!("ALERT_WEBHOOK_SECRET: {error}"),
        WebhookError::Address(_) => anyhow::anyhow!("ALERT_WEBHOOK_URL: {error}"),
    })?;
    let email = match (&config.alerts.email, &config.mail) {
        (Some(to), Some(server)) => Some(Email { mail: Mail::new(server.url.reveal(), &server.from)?, to: to.clone() }),
        _ => None,
    };
    Ok(Channels { webhook, email })
}

/// None: no mail server is set up.
pub fn courier(pool: &PgPool, config: &Config, checkpoints: Checkpoints) -> anyhow::Result<Option<Courier>> {
    let Some(server) = &config.mail else { return Ok(None) };
    let mail = Mail::new(server.url.reveal(), &server.from)?;
    Ok(Some(Courier { pool: pool.clone(), mail, checkpoints, clock: Clock::Database, lease_secs: courier::LEASE_SECS }))
}
