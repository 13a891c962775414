//! Keys: a secret key may do everything, a restricted one what it lists.

use serde::{Deserialize, Serialize};

use super::Error;
use super::refusal::Refusal;
use super::world::fresh;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keys {
    pub secret: Vec<String>,
    pub restricted: Vec<Restricted>,
}

/// `rk_test_…`, and what it may: `customers` or `customers:write` for all, `customers:read` for looking only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restricted {
    pub key: String,
    pub may: Vec<String>,
}

impl std::str::FromStr for Restricted {
    type Err = Error;

    /// `rk_test_x=customers:read,checkout_sessions`
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |why| Error::Key { key: text.to_owned(), why };
        let (key, may) = text.split_once('=').ok_or_else(|| refuse("write rk_test_…=resource:read,resource"))?;
        if !key.starts_with("rk_") {
            return Err(refuse("a restricted key begins with rk_"));
        }
        let may: Vec<String> = may.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect();
        match may.iter().find(|one| !is_right(one)) {
            None => Ok(Self { key: key.to_owned(), may }),
            Some(_) => Err(refuse("rights are resource, resource:read or resource:write")),
        }
    }
}

fn is_right(text: &str) -> bool {
    let (resource, how) = text.split_once(':').unwrap_or((text, "write"));
    !resource.is_empty() && matches!(how, "read" | "write")
}

impl Keys {
    pub fn fresh() -> Self {
        Self { secret: vec![fresh("sk_test_local", 32)], restricted: Vec::new() }
    }

    /// Whether the bearer of this key may make the call.
    pub fn check(&self, key: Option<&str>, method: &str, resource: &str) -> Result<(), Refusal> {
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return Err(Refusal::unauthenticated(
                "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY').",
            ));
        };
        if self.secret.iter().any(|secret| secret == key) {
            return Ok(());
        }
        let Some(restricted) = self.restricted.iter().find(|one| one.key == key) else {
            return Err(Refusal::unauthenticated(format!("Invalid API Key provided: {}", masked(key))));
        };
        let (reads, writes) = (format!("{resource}:read"), format!("{resource}:write"));
        let looks = method == "GET";
        if restricted.may.iter().any(|may| *may == resource || *may == writes || (looks && *may == reads)) {
            return Ok(());
        }
        let right = if looks { "read" } else { "write" };
        Err(Refusal::forbidden(format!(
            "The provided key '{}' does not have the required permissions for this endpoint on account 'acct_local'. Having the '{resource}:{right}' permission would allow this request to continue.",
            masked(key)
        )))
    }
}

/// The first and last characters, as Stripe repeats a key.
pub fn masked(key: &str) -> String {
    let chars: Vec<char> = key.chars().collect();
    if chars.len() < 12 {
        return "*".repeat(chars.len());
    }
    let (head, tail): (String, String) = (chars[..8].iter().collect(), chars[chars.len() - 4..].iter().collect());
    format!("{head}{}{tail}", "*".repeat(chars.len() - 12))
}
