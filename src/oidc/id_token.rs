//! The ID token: who has signed in. Its signature is checked by `jwks`; here is what it says, and whether that was said to us,
//! now, about the sign-in that asked (OpenID Connect Core §3.1.3.7).
//!
//! The claims are read into types of our own: a claim of the wrong type is a refusal, never a check passed over.

use serde::Deserialize;
use serde_json::Value;

use super::OidcError;
use crate::domain::ids::KindeUserId;

/// How far our clock and Kinde's may be apart.
const SKEW_SECS: i64 = 60;
const NAME_CHARS_MAX: usize = 100;
const EMAIL_BYTES_MAX: usize = 254;
const USER_BYTES_MAX: usize = 128;

/// Who has signed in, as Kinde says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: KindeUserId,
    /// What to call them: their name, else their address, else nothing better than their id.
    pub name: String,
    pub email: Option<String>,
    pub email_verified: bool,
}

/// What an ID token has to say to be for us.
#[derive(Debug, Clone, Copy)]
pub struct Demands<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    /// Unix seconds.
    pub now: i64,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    nonce: String,
    // Told for people's convenience, so an odd one costs nobody their sign-in.
    #[serde(default)]
    name: Value,
    #[serde(default)]
    given_name: Value,
    #[serde(default)]
    family_name: Value,
    #[serde(default)]
    email: Value,
    #[serde(default)]
    email_verified: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Reads a payload whose signature is the issuer's.
///
/// # Errors
/// `NotGenuine`, with the rule that it breaks.
pub fn read(payload: &[u8], demands: &Demands<'_>) -> Result<Identity, OidcError> {
    let claims: Claims =
        serde_json::from_slice(payload).map_err(|_| OidcError::NotGenuine("the ID token's claims cannot be read"))?;
    match broken_rule(&claims, demands) {
        Some(rule) => Err(OidcError::NotGenuine(rule)),
        None => Ok(identity(claims)),
    }
}

fn broken_rule(claims: &Claims, demands: &Demands<'_>) -> Option<&'static str> {
    let audiences = match &claims.aud {
        Audience::One(one) => std::slice::from_ref(one),
        Audience::Many(many) => many,
    };
    // Kinde's documents show the issuer beside the client id; a token that somebody else may use as well is refused.
    let ours = audiences.iter().any(|audience| audience == demands.client_id);
    let others = audiences.iter().any(|audience| audience != demands.client_id && audience != demands.issuer);
    let user = &claims.sub;
    if claims.iss != demands.issuer {
        Some("the ID token is another issuer's")
    } else if !ours {
        Some("the ID token is for another application")
    } else if others {
        Some("the ID token is for others too")
    } else if claims.azp.as_ref().is_some_and(|azp| azp != demands.client_id) || (audiences.len() > 1 && claims.azp.is_none()) {
        Some("the ID token was given to another application")
    } else if claims.exp <= demands.now.saturating_sub(SKEW_SECS) {
        Some("the ID token has ended")
    } else if claims.iat.max(claims.nbf.unwrap_or(i64::MIN)) > demands.now.saturating_add(SKEW_SECS) {
        Some("the ID token is of the future")
    } else if claims.nonce != demands.nonce {
        Some("the ID token is of another sign-in")
    } else if user.is_empty() || user.len() > USER_BYTES_MAX || !user.bytes().all(|b| b.is_ascii_graphic()) {
        Some("the ID token names nobody")
    } else {
        None
    }
}

fn identity(claims: Claims) -> Identity {
    // An address is whole or none: cut, it might read like somebody else's.
    let email = claims.email.as_str().filter(|e| !e.is_empty() && e.len() <= EMAIL_BYTES_MAX && !e.contains(char::is_control));
    let email = email.map(str::to_owned);
    let whole = [text(&claims.given_name), text(&claims.family_name)];
    let whole = whole.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let name = text(&claims.name).or(Some(whole).filter(|name| !name.is_empty()));
    Identity {
        name: name.or_else(|| email.clone()).unwrap_or_else(|| claims.sub.clone()),
        email_verified: email.is_some() && claims.email_verified == Value::Bool(true),
        email,
        user: KindeUserId(claims.sub),
    }
}

/// A text that says something, cut to what a page has room for. Control characters have no business in a name.
fn text(value: &Value) -> Option<String> {
    let text: String = value.as_str()?.trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    Some(text).filter(|text| !text.is_empty())
}
