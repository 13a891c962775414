//! Seals what lies where others can read it: a cookie in a browser, a row in the database. Who has not the key can neither
//! read it nor change it unseen.
//!
//! One secret in the settings, and a key derived from it for each purpose (HKDF-SHA256), so that what was sealed for one
//! opens for no other.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::config::Secret;

/// The key of one purpose. Cheap to clone.
#[derive(Clone)]
pub struct Seal {
    key: Arc<RandomizedNonceKey>,
}

impl Seal {
    pub fn new(secret: &Secret, purpose: &'static str) -> Self {
        let bytes = derive::<32>(secret, purpose);
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).expect("an AES-256 key of 32 bytes is one");
        Self { key: Arc::new(key) }
    }

    /// As text. `owner` is not in it, but it opens for nobody else: a row's content cannot be moved into another row.
    pub fn seal(&self, content: &[u8], owner: &str) -> String {
        let mut sealed = content.to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(owner), &mut sealed)
            .expect("AES-GCM refuses only content of 64 GiB and more");
        sealed.splice(0..0, nonce.as_ref().iter().copied());
        BASE64_URL_SAFE_NO_PAD.encode(sealed)
    }

    /// None: it was not sealed by this key for this owner, or it was changed since.
    pub fn open(&self, sealed: &str, owner: &str) -> Option<Vec<u8>> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let nonce = Nonce::try_assume_unique_for_key(bytes.get(..NONCE_LEN)?).ok()?;
        let mut content = bytes.split_off(NONCE_LEN);
        let length = self.key.open_in_place(nonce, Aad::from(owner), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(not shown)")
    }
}

/// Key bytes for a purpose that brings its own cipher.
pub fn derive<const N: usize>(secret: &Secret, purpose: &'static str) -> [u8; N] {
    let mut bytes = [0; N];
    Salt::new(HKDF_SHA256, b"bottle")
        .extract(secret.reveal().as_bytes())
        .expand(&[purpose.as_bytes()], Length(N))
        .and_then(|key| key.fill(&mut bytes))
        .expect("no purpose takes more than 255 times 32 bytes");
    bytes
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn only_the_same_key_purpose_and_owner_open_what_was_sealed() {
        let seal = Seal::new(&secret("one"), "tokens");
        let sealed = seal.seal(b"content", "account 1");
        assert_eq!(Seal::new(&secret("one"), "tokens").open(&sealed, "account 1").unwrap(), b"content");
        assert!(seal.open(&sealed, "account 2").is_none());
        assert!(Seal::new(&secret("one"), "cookies").open(&sealed, "account 1").is_none());
        assert!(Seal::new(&secret("two"), "tokens").open(&sealed, "account 1").is_none());
        assert_ne!(seal.seal(b"content", "account 1"), sealed, "the same content is never sealed alike");
        assert_eq!(seal.open(&seal.seal(b"", "a"), "a").unwrap(), b"");
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open() {
        let seal = Seal::new(&secret("one"), "tokens");
        let sealed = seal.seal(b"content", "a");
        for at in 0..sealed.len() - 1 {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(seal.open(str::from_utf8(&changed).unwrap(), "a").is_none(), "{at}");
            assert!(seal.open(&sealed[..at], "a").is_none(), "{at}");
        }
        assert!(seal.open("no base64!", "a").is_none());
    }

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        assert_ne!(derive::<64>(&secret("one"), "a"), derive::<64>(&secret("one"), "b"));
        assert_ne!(derive::<64>(&secret("one"), "a"), derive::<64>(&secret("two"), "a"));
        assert_eq!(derive::<64>(&secret("one"), "a"), derive::<64>(&secret("one"), "a"));
    }
}
