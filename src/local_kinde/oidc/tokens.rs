//! What the tokens say. Claims as Kinde documents them; which are there depends on the scopes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::local_kinde::Error;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::people::{self, Person};
use crate::local_kinde::state::{Consent, Lasting, State};

/// The one organisation of this Kinde.
pub const ORG: &str = "org_10ca1k1nde";

/// The answer to a code or a refresh token, and the refresh token in it noted.
///
/// # Errors
/// The library refused to sign, or the person is gone.
pub fn answer(local: &Local, state: &mut State, consent: &Consent, nonce: Option<&str>, now: At) -> Result<Value, Error> {
    let Some(person) = state.find_person(&consent.user_id).cloned() else {
        return Err(Error::Usage("the person is gone".into()));
    };
    let lifetimes = state.switches.lifetimes.clone();
    let access_token = sign(local, &access_claims(local, consent, now, lifetimes.access_token))?;
    let mut answer = json!({
        "access_token": access_token,
        "expires_in": lifetimes.access_token,
        "scope": consent.scopes.join(" "),
        "token_type": "bearer",
    });
    if wants(consent, "openid") {
        let claims = id_claims(local, consent, &person, &access_token, nonce, now, lifetimes.id_token);
        answer["id_token"] = json!(sign(local, &claims)?);
    }
    // `offline_access` is taken in silence and gives nothing, as at Kinde.
    if wants(consent, "offline") {
        let token = people::fresh("refresh_");
        state.refresh_tokens.insert(token.clone(), Lasting::begin(consent, now, lifetimes.refresh_token));
        answer["refresh_token"] = json!(token);
    }
    Ok(answer)
}

/// For the Management API.
///
/// # Errors
/// The library refused to sign.
pub fn machine_token(local: &Local, scopes: &[String], audience: &[String], now: At, lasts: u64) -> Result<String, Error> {
    let claims = json!({
        "aud": audience,
        "azp": local.credentials.m2m_client_id,
        "exp": expiry(now, lasts),
        "gty": ["client_credentials"],
        "iat": now.unix(),
        "iss": local.url,
        "jti": uuid::Uuid::new_v4(),
        "scope": scopes.join(" "),
        "scp": scopes,
        "v": "2",
    });
    sign(local, &claims)
}

/// What scopes let an app know about somebody; the profile endpoint and the ID token say the same.
pub fn profile(person: &Person, scopes: &[String]) -> Map<String, Value> {
    let mut known = Map::new();
    let has = |scope: &str| scopes.iter().any(|one| one == scope);
    if has("email")
        && let Some(email) = &person.email
    {
        known.insert("email".into(), json!(email));
        known.insert("email_verified".into(), json!(person.email_verified));
    }
    if has("profile") {
        known.insert("given_name".into(), json!(person.given_name));
        known.insert("family_name".into(), json!(person.family_name));
        known.insert("name".into(), json!(person.name()));
        known.insert("updated_at".into(), json!(person.made_at.unix()));
        known.insert("picture".into(), Value::Null);
    }
    known
}

fn access_claims(local: &Local, consent: &Consent, now: At, lasts: u64) -> Value {
    json!({
        "aud": [],
        "azp": consent.client_id,
        "billing": { "has_payment_details": true },
        "exp": expiry(now, lasts),
        "feature_flags": {},
        "iat": now.unix(),
        "iss": local.url,
        "jti": uuid::Uuid::new_v4(),
        "org_code": ORG,
        "permissions": [],
        "scp": consent.scopes,
        "sub": consent.user_id,
    })
}

fn id_claims(
    local: &Local,
    consent: &Consent,
    person: &Person,
    access_token: &str,
    nonce: Option<&str>,
    now: At,
    lasts: u64,
) -> Value {
    let mut claims = profile(person, &consent.scopes);
    let half = &Sha256::digest(access_token)[..16];
    claims.insert("at_hash".into(), json!(URL_SAFE_NO_PAD.encode(half)));
    claims.insert("aud".into(), json!([local.url, consent.client_id]));
    claims.insert("auth_time".into(), json!(consent.signed_in_at.unix()));
    claims.insert("azp".into(), json!(consent.client_id));
    claims.insert("exp".into(), json!(expiry(now, lasts)));
    claims.insert("iat".into(), json!(now.unix()));
    claims.insert("iss".into(), json!(local.url));
    claims.insert("jti".into(), json!(uuid::Uuid::new_v4()));
    claims.insert("org_codes".into(), json!([ORG]));
    claims.insert("sub".into(), json!(consent.user_id));
    if let Some(nonce) = nonce {
        claims.insert("nonce".into(), json!(nonce));
    }
    Value::Object(claims)
}

fn sign(local: &Local, claims: &Value) -> Result<String, Error> {
    local.key().sign(claims.to_string().as_bytes())
}

fn wants(consent: &Consent, scope: &str) -> bool {
    consent.scopes.iter().any(|wanted| wanted == scope)
}

fn expiry(now: At, lasts: u64) -> i64 {
    now.unix().saturating_add_unsigned(lasts)
}
