//! The compact token (RFC 7515): taking it apart, and checking that the issuer signed it.
//!
//! RS256 and nothing else. The choice is ours and never the token's, so its header has no say beyond naming a key among
//! those we hold: `jku`, `x5u`, `jwk` and `x5c` are not even read. Claims are none of this room's business.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{Jwks, KeyError};

/// Longer tokens are refused unread.
pub const MAX_TOKEN: usize = 256 * 1024;
const MAX_KID: usize = 512;

/// A token whose signature is the issuer's.
#[derive(Debug)]
pub struct Verified {
    pub kid: String,
    pub typ: Option<String>,
    /// The signed bytes, decoded and not looked at.
    pub payload: Vec<u8>,
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("{0}")]
    NotGenuine(&'static str),
    /// Genuine or not: without keys nobody knows.
    #[error("{why}")]
    CannotTell { why: String },
}

/// The three parts of a token, still encoded.
#[derive(Debug, Clone, Copy)]
pub struct Compact<'a> {
    /// `header.payload`, which the signature covers.
    signed: &'a str,
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
}

impl Jwks {
    /// # Errors
    /// `NotGenuine` when it is no RS256 token of this issuer, `CannotTell` when its keys are not to be had.
    pub async fn verify(&self, token: &[u8]) -> Result<Verified, TokenError> {
        let token = Compact::split(token)?;
        let header = Header::read(token.header)?;
        let key = self.key(&header.kid).await.map_err(|error| match error {
            KeyError::Unknown => TokenError::NotGenuine("no key of the issuer has the id it names"),
            KeyError::Unavailable { .. } => TokenError::CannotTell { why: error.to_string() },
        })?;
        match jsonwebtoken::crypto::verify(token.signature, token.signed.as_bytes(), &key, Algorithm::RS256) {
            Ok(true) => Ok(Verified { kid: header.kid, typ: header.typ, payload: token.payload()? }),
            Ok(false) | Err(_) => Err(TokenError::NotGenuine("its signature is not the issuer's")),
        }
    }
}

impl<'a> Compact<'a> {
    /// Exactly three parts; white space is allowed around the token, never inside.
    ///
    /// # Errors
    /// `NotGenuine` for anything else.
    pub fn split(token: &'a [u8]) -> Result<Self, TokenError> {
        let not = TokenError::NotGenuine;
        if token.len() > MAX_TOKEN {
            return Err(not("it is longer than any token we take"));
        }
        let token = str::from_utf8(token.trim_ascii()).map_err(|_| not("it is not text"))?;
        let mut parts = token.splitn(4, '.');
        let (Some(header), Some(payload), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(not("it has not exactly three parts"));
        };
        if signature.is_empty() {
            return Err(not("it is not signed"));
        }
        Ok(Self { signed: &token[..header.len() + 1 + payload.len()], header, payload, signature })
    }

    /// # Errors
    /// `NotGenuine` when it is not base64url without padding.
    pub fn payload(&self) -> Result<Vec<u8>, TokenError> {
        BASE64_URL_SAFE_NO_PAD.decode(self.payload).map_err(|_| TokenError::NotGenuine("its payload is not base64url"))
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    typ: Option<String>,
    /// Extensions that must be understood; we understand none (RFC 7515 §4.1.11).
    #[serde(default, deserialize_with = "present")]
    crit: bool,
    /// An unencoded payload (RFC 7797) would be signed over other bytes than we decode.
    #[serde(default, deserialize_with = "present")]
    b64: bool,
}

impl Header {
    fn read(part: &str) -> Result<Self, TokenError> {
        let not = TokenError::NotGenuine;
        let json = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| not("its header is not base64url"))?;
        // serde would take an array for a struct.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(not("its header is no JSON object"));
        }
        let header: Self = serde_json::from_slice(&json).map_err(|_| not("its header cannot be read"))?;
        if header.alg != "RS256" {
            return Err(not("it is not signed with RS256"));
        }
        if header.crit || header.b64 {
            return Err(not("its header demands an extension"));
        }
        if header.kid.len() > MAX_KID {
            return Err(not("its key id is too long"));
        }
        Ok(header)
    }
}

/// Even `null` counts as present.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}
