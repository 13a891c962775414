//! Signing in with Kinde: OpenID Connect's authorization code flow, and the calls made with what it yields.
//!
//! Here is what is asked of Kinde and when its answer is believed. Who is signed in, cookies and pages belong to `web`.
//!
//! All addresses lie on one origin of the settings: the custom domain where there is one (tokens then name that as their
//! issuer), else the tenant's own. Whatever Kinde says elsewhere leads nowhere.

mod call;
pub mod discovery;
pub mod id_token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl,
    RefreshToken, Scope, TokenResponse as _, TokenUrl,
};
use reqwest::{Method, StatusCode, Url};
use serde::{Deserialize, Serialize};

use crate::config::{Client, Kinde};
use crate::jwks::Jwks;
use crate::jwks::token::TokenError;
use crate::outbound::{self, OutboundError};
use crate::telemetry::labels::Call;
use call::Guarded;
use discovery::{Discovery, Endpoints};
use id_token::{Demands, Identity};

/// `offline` is what makes Kinde give a refresh token; the usual name of that scope is taken in silence and gives none.
const SCOPES: [&str; 4] = ["openid", "profile", "email", "offline"];
/// An access token of unknown life is taken to live this long. One that ends sooner is noticed when it is refused.
const LIFE_UNTOLD: Duration = Duration::from_secs(3600);
/// A token this close to its end is renewed first: the call takes time too.
const LIFE_MARGIN: Duration = Duration::from_secs(60);
const MAX_ANSWER: usize = 64 * 1024;

/// Kinde, as people sign in there. Cheap to clone; clones share the discovery document and the keys.
#[derive(Clone)]
pub struct Oidc {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    issuer: String,
    /// The tenant's origins: where a browser may be sent.
    origins: Vec<String>,
    /// Base URL of this Bottle, without a trailing slash.
    home: String,
    http: outbound::Client,
    jwks: Jwks,
    discovery: Discovery,
}

/// What went wrong decides what a person is told to do.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// Kinde is away or busy: the same may work in a moment.
    #[error("Kinde cannot be reached: {what}")]
    Away {
        what: &'static str,
        #[source]
        source: Option<OutboundError>,
    },
    /// The code was used, is too old, or belongs to another sign-in. A new sign-in helps.
    #[error("Kinde does not take the code (any more)")]
    CodeRefused,
    /// The refresh token has ended: its owner has to sign in again.
    #[error("Kinde does not renew this sign-in any more")]
    SignInAgain,
    /// Kinde refuses this application. Nobody can sign in until somebody mends the settings, here or there.
    #[error("Kinde refuses this application ({0}); compare KINDE_CLIENT_ID, KINDE_CLIENT_SECRET and the allowed callback URLs")]
    NotSetUp(String),
    /// What came is not, or cannot be shown to be, from Kinde for this sign-in.
    #[error("Kinde's answer is not genuine: {0}")]
    NotGenuine(&'static str),
}

/// What a person wants when they go to Kinde.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// To become somebody, rather than be recognised.
    pub sign_up: bool,
    /// Plan key they have chosen already.
    pub plan: Option<String>,
}

/// One sign-in under way: what its browser keeps, sealed, until Kinde sends it back. Each part has 128 bits at least.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    pub state: String,
    nonce: String,
    verifier: String,
}

/// What acts for a person at Kinde. It never leaves this program unsealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    access: String,
    refresh: Option<String>,
    /// Unix seconds.
    access_ends_at: i64,
}

impl Oidc {
    /// `home` is the base URL of this Bottle: Kinde sends people back to its `/callback`. `jwks` has the tenant's keys.
    ///
    /// # Errors
    /// `Refused` when the tenant's address is none that may be called.
    pub fn new(kinde: &Kinde, client: Client, home: &str, jwks: Jwks) -> Result<Self, OutboundError> {
        let issuer = kinde.issuer.clone().unwrap_or_else(|| kinde.domain.clone());
        let http = outbound::Client::new(&issuer)?;
        let discovery = Discovery::new(issuer.clone(), http.clone());
        let origins = std::iter::once(issuer.clone()).chain(kinde.issuer.is_some().then(|| kinde.domain.clone())).collect();
        let home = home.trim_end_matches('/').to_owned();
        Ok(Self { inner: Arc::new(Inner { client, issuer, origins, home, http, jwks, discovery }) })
    }

    /// The tenant's origins: what pages may lead to, and nothing else of Kinde's.
    pub fn origins(&self) -> &[String] {
        &self.inner.origins
    }

    pub fn issuer(&self) -> &str {
        &self.inner.issuer
    }

    /// Where a browser goes to sign in, and what it has to bring back.
    ///
    /// # Errors
    /// `Away` or `NotGenuine`: without the discovery document there is no way there.
    pub async fn begin(&self, wish: &Wish) -> Result<(Url, Transaction), OidcError> {
        let endpoints = self.inner.discovery.endpoints().await?;
        let client = self.oauth(&endpoints);
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let nonce = CsrfToken::new_random_len(32);
        let mut request = client
            .authorize_url(|| CsrfToken::new_random_len(32))
            .set_pkce_challenge(challenge)
            .add_scopes(SCOPES.map(|scope| Scope::new(scope.to_owned())))
            .add_extra_param("nonce", nonce.secret());
        if wish.sign_up {
            request = request.add_extra_param("prompt", "create");
        }
        if let Some(plan) = &wish.plan {
            request = request.add_extra_param("plan_interest", plan);
        }
        let (url, state) = request.url();
        let transaction =
            Transaction { state: state.into_secret(), nonce: nonce.into_secret(), verifier: verifier.into_secret() };
        Ok((url, transaction))
    }

    /// Exchanges the code that came back, and believes who it says has signed in if every rule holds.
    ///
    /// # Errors
    /// See [`OidcError`]; never `SignInAgain`.
    pub async fn finish(&self, code: &str, transaction: &Transaction) -> Result<(Identity, Tokens), OidcError> {
        let endpoints = self.inner.discovery.endpoints().await?;
        let client = self.oauth(&endpoints);
        let answer = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(transaction.verifier.clone()))
            .request_async(&Guarded(&self.inner.http))
            .await
            .map_err(|error| call::sorted(error, OidcError::CodeRefused))?;
        let id_token = answer.extra_fields().id_token.as_deref().ok_or(OidcError::NotGenuine("it has no ID token"))?;
        let verified = self.inner.jwks.verify(id_token.as_bytes()).await.map_err(|error| match error {
            TokenError::NotGenuine(why) => OidcError::NotGenuine(why),
            TokenError::CannotTell { why } => {
                tracing::warn!(why, "a sign-in waits for Kinde's keys");
                OidcError::Away { what: "its keys", source: None }
            }
        })?;
        let now = unix_now();
        let demands = Demands { issuer: &self.inner.issuer, client_id: &self.inner.client.id, nonce: &transaction.nonce, now };
        let identity = id_token::read(&verified.payload, &demands)?;
        Ok((identity, tokens(&answer, None, now)))
    }

    /// New tokens for old. Kinde takes each refresh token once: who is not given the new one has to sign in again.
    ///
    /// # Errors
    /// See [`OidcError`]; never `CodeRefused`.
    pub async fn refresh(&self, old: &Tokens) -> Result<Tokens, OidcError> {
        let refresh = old.refresh.clone().ok_or(OidcError::SignInAgain)?;
        let endpoints = self.inner.discovery.endpoints().await?;
        let client = self.oauth(&endpoints);
        let answer = client
            .exchange_refresh_token(&RefreshToken::new(refresh.clone()))
            .request_async(&Guarded(&self.inner.http))
            .await
            .map_err(|error| call::sorted(error, OidcError::SignInAgain))?;
        Ok(tokens(&answer, Some(refresh), unix_now()))
    }

    /// A one-time address of Kinde's portal where this person manages their plan; they come back to `return_path`.
    ///
    /// # Errors
    /// `SignInAgain` when the access token is refused (a refresh may help), `Away`, `NotGenuine`.
    pub async fn portal_link(&self, tokens: &Tokens, return_path: &str) -> Result<Url, OidcError> {
        let away = |source| OidcError::Away { what: "its portal", source: Some(source) };
        let back = format!("{}{return_path}", self.inner.home);
        let query = encoded(&[("subnav", "plan_details"), ("return_url", &back)]);
        let request = self
            .inner
            .http
            .request(Method::GET, &format!("/account_api/v1/portal_link?{query}"))
            .map_err(away)?
            .bearer_auth(&tokens.access)
            .build()
            .map_err(|error| away(OutboundError::Unavailable(error.without_url())))?;
        let answer = self.inner.http.call(Call::KindeSignIn, request, MAX_ANSWER).await.map_err(away)?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(OidcError::SignInAgain),
            status => return Err(away(OutboundError::Status(status))),
        }
        let link: PortalLink =
            serde_json::from_slice(&answer.body).map_err(|_| OidcError::NotGenuine("the portal's link cannot be read"))?;
        let url = Url::parse(&link.url).map_err(|_| OidcError::NotGenuine("the portal's link is no address"))?;
        if self.inner.origins.iter().any(|origin| *origin == url.origin().ascii_serialization()) {
            Ok(url)
        } else {
            Err(OidcError::NotGenuine("the portal's link leads away from the tenant"))
        }
    }

    /// Where a browser goes so that Kinde forgets it too; Kinde sends it back to our front page.
    pub fn logout_url(&self) -> String {
        let query = encoded(&[("redirect", &self.inner.home)]);
        format!("{}/logout?{query}", self.inner.issuer)
    }

    fn oauth(&self, endpoints: &Endpoints) -> call::Ready {
        <call::OauthClient>::new(ClientId::new(self.inner.client.id.clone()))
            .set_client_secret(ClientSecret::new(self.inner.client.secret.reveal().to_owned()))
            // Whether Kinde takes them in a header is documented nowhere.
            .set_auth_type(oauth2::AuthType::RequestBody)
            .set_auth_uri(AuthUrl::from_url(endpoints.authorize.clone()))
            .set_token_uri(TokenUrl::from_url(endpoints.token.clone()))
            .set_redirect_uri(self.callback())
    }

    fn callback(&self) -> RedirectUrl {
        RedirectUrl::new(format!("{}/callback", self.inner.home)).expect("a base URL that was checked, and a path")
    }
}

impl Tokens {
    /// Whether the access token is to be renewed before it is used.
    pub fn is_old(&self) -> bool {
        unix_now() >= self.access_ends_at.saturating_sub(secs(LIFE_MARGIN))
    }
}

fn tokens(answer: &call::Answer, old_refresh: Option<String>, now: i64) -> Tokens {
    Tokens {
        access: answer.access_token().secret().clone(),
        refresh: answer.refresh_token().map(|token| token.secret().clone()).or(old_refresh),
        access_ends_at: now.saturating_add(secs(answer.expires_in().unwrap_or(LIFE_UNTOLD))),
    }
}

#[derive(Deserialize)]
struct PortalLink {
    url: String,
}

fn encoded(pairs: &[(&str, &str)]) -> String {
    oauth2::url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn unix_now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

fn secs(of: Duration) -> i64 {
    i64::try_from(of.as_secs()).unwrap_or(i64::MAX)
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("issuer", &self.inner.issuer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transaction(not shown)")
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(not shown)")
    }
}
