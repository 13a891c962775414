//! What the handlers of a sign-in share, and the check of a request that comes before any of them.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use reqwest::Url;

use super::pre_login::PreLogin;
use super::session_tokens::Vault;
use crate::accounts;
use crate::billing::apply::{self, Rules};
use crate::billing::arrival::{self, Learned};
use crate::billing::opening;
use crate::config::Secret;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, KindeUserId};
use crate::domain::plan::{Plan, PlanKeys};
use crate::inbox::queue;
use crate::oidc::Oidc;
use crate::oidc::id_token::Identity;
use crate::wake::Wake;

/// Asks the provider which customer a person is there; none where they are none yet.
pub type CustomerOf = Arc<dyn Fn(KindeUserId) -> BoxFuture<'static, Result<Option<CustomerId>, String>> + Send + Sync>;

/// A sign-in never waits longer than this to learn who somebody is as a customer: the next one learns it too.
const LEARN_WITHIN: Duration = Duration::from_secs(2);

/// Sign-in, as it is set up here.
pub struct SignIn {
    pub oidc: Oidc,
    pub pre_login: PreLogin,
    pub vault: Vault,
    /// Whose user ids name accounts.
    tenant: String,
    plans: PlanKeys,
    /// None: the Management API is not set up, and events teach it.
    customer_of: Option<CustomerOf>,
    wake: Wake,
}

/// What a sign-in is put together from.
pub struct Parts {
    pub oidc: Oidc,
    pub session_key: Secret,
    pub https: bool,
    pub tenant: String,
    pub plans: PlanKeys,
    pub customer_of: Option<CustomerOf>,
    pub wake: Wake,
}

impl SignIn {
    pub fn new(parts: Parts) -> Self {
        Self {
            pre_login: PreLogin::new(&parts.session_key, parts.https),
            vault: Vault::new(&parts.session_key),
            oidc: parts.oidc,
            tenant: parts.tenant,
            plans: parts.plans,
            customer_of: parts.customer_of,
            wake: parts.wake,
        }
    }

    /// The provider's key for a plan by our name for it. A link can name no other.
    pub fn plan_key(&self, plan: &str) -> Option<String> {
        let keys = match plan.parse().ok()? {
            Plan::Pro => &self.plans.pro,
            Plan::Free => &self.plans.free,
        };
        keys.first().cloned()
    }

    /// The account of whoever has signed in, with what Kinde says of them, and with the bottles of this month.
    ///
    /// In a task of its own: a browser that goes away would drop a transaction half-way, and leave its connection in it.
    pub async fn account(&self, pool: &sqlx::PgPool, who: &Identity) -> Result<AccountId, apply::Error> {
        let (pool, who) = (pool.clone(), who.clone());
        let rules = Rules { keys: self.plans.clone(), tenant: self.tenant.clone() };
        whole(async move {
            let mut tx = pool.begin().await?;
            let now = crate::clock::Clock::Database.now(&mut *tx).await?;
            let account = arrival::account(&mut tx, &rules.tenant, &who.user, now).await?;
            accounts::greet(&mut tx, account, who.email.as_deref(), who.email_verified, Some(&who.name)).await?;
            opening::open_period(&mut tx, account, &rules, now).await?;
            tx.commit().await?;
            Ok(account)
        })
        .await
    }

    /// Learns which customer they are, if that can be had soon. Nothing of it can fail a sign-in.
    pub async fn learn_customer(&self, pool: &sqlx::PgPool, account: AccountId, user: &KindeUserId) {
        let Some(customer_of) = &self.customer_of else { return };
        match tokio::time::timeout(LEARN_WITHIN, self.learn(customer_of, pool, account, user)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(%user, why, "who they are as a customer could not be learned at a sign-in"),
            Err(_) => tracing::warn!(%user, "who they are as a customer was not learned in time at a sign-in"),
        }
    }

    async fn learn(
        &self,
        customer_of: &CustomerOf,
        pool: &sqlx::PgPool,
        account: AccountId,
        user: &KindeUserId,
    ) -> Result<(), String> {
        let Some(customer) = customer_of(user.clone()).await? else { return Ok(()) };
        let (pool, named) = (pool.clone(), customer.clone());
        let learned = whole::<_, sqlx::Error>(async move {
            let mut tx = pool.begin().await?;
            let now = crate::clock::Clock::Database.now(&mut *tx).await?;
            let learned = arrival::learn_customer(&mut tx, Source::Kinde, account, &named, now).await?;
            if learned == Learned::New {
                queue::rearm_customers(&mut tx, &[named], now).await?;
            }
            tx.commit().await?;
            Ok(learned)
        });
        match learned.await.map_err(|error| error.to_string())? {
            Learned::New => self.wake.wake(),
            Learned::Known => {}
            Learned::Somebodys(other) => {
                tracing::error!(%customer, %account, %other, alert = "customer-claimed-twice", "a customer id is claimed by two people");
            }
        }
        Ok(())
    }
}

/// Runs to its end, whatever becomes of who waits for it.
async fn whole<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    tokio::spawn(work).await.map_err(|_| sqlx::Error::WorkerCrashed)?
}

/// A browser that only looks ahead, or anybody who asks for headers alone, begins and ends no sign-in. Browsers that are told
/// this come again when somebody really goes there.
pub fn only_looking(method: &Method, headers: &HeaderMap) -> Option<Response> {
    let ahead = ["sec-purpose", "purpose", "x-moz"].iter().any(|name| {
        headers.get(*name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.to_ascii_lowercase().contains("pre"))
    });
    if ahead {
        Some(StatusCode::SERVICE_UNAVAILABLE.into_response())
    } else if *method == Method::GET {
        None
    } else {
        Some(StatusCode::NO_CONTENT.into_response())
    }
}

/// Whether the browser uses the name that Kinde sends it back to: a cookie set under another one would be missing there.
pub fn is_canonical(headers: &HeaderMap, base: &Url) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let asked = host.and_then(|host| Url::parse(&format!("{}://{host}/", base.scheme())).ok());
    asked.is_some_and(|asked| asked.origin() == base.origin())
}
