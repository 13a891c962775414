//! Reads a key set (RFC 7517) and keeps the keys we would check a token with.
//!
//! A key of another kind is passed over: an issuer may add an elliptic curve beside its RSA keys any day. A set without a
//! single usable key is an error, because "the issuer has no keys" must never replace keys that are good.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::Value;

const MAX_KEYS: usize = 32;
/// The lower end is RFC 7518 §3.3's for RS256, the upper one is our crypto library's.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

#[derive(Debug, thiserror::Error)]
pub(super) enum NotAKeySet {
    #[error("it is no JSON key set")]
    Broken(#[from] serde_json::Error),
    #[error("it holds {0} keys, more than {MAX_KEYS}")]
    TooMany(usize),
    #[error("none of its {0} keys is an RS256 signing key of at least 2048 bits")]
    NoneUsable(usize),
}

/// The usable keys by id.
pub(super) fn parse(answer: &[u8]) -> Result<HashMap<String, DecodingKey>, NotAKeySet> {
    let set: Set = serde_json::from_slice(answer)?;
    let count = set.keys.len();
    if count > MAX_KEYS {
        return Err(NotAKeySet::TooMany(count));
    }
    let keys: HashMap<_, _> = set.keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() { Err(NotAKeySet::NoneUsable(count)) } else { Ok(keys) }
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct RsaKey {
    kty: String,
    kid: String,
    n: String,
    e: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
}

fn usable(entry: Value) -> Option<(String, DecodingKey)> {
    let key: RsaKey = serde_json::from_value(entry).ok()?;
    let fits = key.kty == "RSA"
        && key.purpose.is_none_or(|purpose| purpose == "sig")
        && key.alg.is_none_or(|alg| alg == "RS256")
        && MODULUS_BITS.contains(&bits(&BASE64_URL_SAFE_NO_PAD.decode(&key.n).ok()?));
    if !fits {
        return None;
    }
    Some((key.kid, DecodingKey::from_rsa_components(&key.n, &key.e).ok()?))
}

fn bits(modulus: &[u8]) -> usize {
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    modulus.get(zeros).map_or(0, |first| (modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
}
