//! The header `Stripe-Signature`: `t=<seconds>,v1=<hex>[,v1=<hex>…]`, HMAC-SHA256 over `<seconds>.<body>`.
//!
//! The key is the whole text of the secret, `whsec_` included; other senders that use this prefix decode what follows, so this
//! code is no use for them. Official libraries disagree about headers that Stripe never writes; here anything it does not write
//! is refused, but for schemes other than `v1`, which are to come and are passed over.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::domain::instant::Instant;

/// A signature is made anew for each attempt, so a retry days later passes as well.
const TOLERANCE: Duration = Duration::from_secs(300);
/// One signature a secret in use, and there are never more than a few.
const ITEMS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("its body is empty")]
    Empty,
    #[error("its Stripe-Signature cannot be read")]
    Malformed,
    #[error("its Stripe-Signature has no signature of the scheme v1")]
    NoScheme,
    #[error("none of the configured secrets made its signature (the right endpoint's secret, without spaces?)")]
    NoMatch,
    #[error("it was signed more than five minutes from now")]
    WrongTime,
}

/// The time of signing, if one of the secrets made one of the signatures and that was just now.
pub(super) fn check(header: &[u8], body: &[u8], secrets: &[String], now: Instant) -> Result<Instant, SignatureError> {
    if body.is_empty() {
        return Err(SignatureError::Empty);
    }
    let header = Header::read(header)?;
    if header.signatures.is_empty() {
        return Err(SignatureError::NoScheme);
    }
    if !secrets.iter().any(|secret| header.is_made_by(secret, body)) {
        return Err(SignatureError::NoMatch);
    }
    // Only now: what the header says about itself is no news from a stranger.
    let recent = header.at >= now.minus(TOLERANCE) && header.at <= now.plus(TOLERANCE);
    if recent { Ok(header.at) } else { Err(SignatureError::WrongTime) }
}

struct Header<'a> {
    /// As it was written: these characters are signed.
    time: &'a str,
    at: Instant,
    signatures: Vec<[u8; 32]>,
}

impl<'a> Header<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, SignatureError> {
        let text = str::from_utf8(bytes).map_err(|_| SignatureError::Malformed)?;
        if text.split(',').count() > ITEMS_MAX {
            return Err(SignatureError::Malformed);
        }
        let mut time = None;
        let mut signatures = Vec::new();
        for item in text.split(',') {
            match item.split_once('=').ok_or(SignatureError::Malformed)? {
                ("t", value) if time.is_none() => time = Some(value),
                ("t", _) => return Err(SignatureError::Malformed),
                // One that cannot be read may stand beside a good one.
                ("v1", value) => signatures.extend(hex(value)),
                _ => {}
            }
        }
        let time = time.ok_or(SignatureError::Malformed)?;
        Ok(Self { time, at: seconds(time).ok_or(SignatureError::Malformed)?, signatures })
    }

    fn is_made_by(&self, secret: &str, body: &[u8]) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length will do");
        mac.update(self.time.as_bytes());
        mac.update(b".");
        mac.update(body);
        self.signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    }
}

/// Whole seconds in the one way in which a number is written.
fn seconds(text: &str) -> Option<Instant> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let secs: i64 = text.parse().ok().filter(|_| is_number)?;
    secs.checked_mul(1_000_000_000).map(Instant::from_nanos)
}

/// 32 bytes in small letters.
fn hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
