//! Tokens signed by hand, so that a test can put anything into one.

use std::sync::LazyLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde_json::{Value, json};

/// The tenant's key, made once for all tests.
pub static TENANT: LazyLock<TestKey> = LazyLock::new(TestKey::generate);
/// A key of somebody else.
pub static STRANGER: LazyLock<TestKey> = LazyLock::new(TestKey::generate);

pub struct TestKey {
    pub kid: String,
    pair: RsaKeyPair,
}

impl TestKey {
    pub fn generate() -> Self {
        Self::generate_of(KeySize::Rsa2048)
    }

    pub fn generate_of(size: KeySize) -> Self {
        let kid: Vec<String> = rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { kid: kid.join(":"), pair: RsaKeyPair::generate(size).unwrap() }
    }

    /// A compact token over exactly these bytes.
    pub fn sign(&self, header: &Value, claims: impl AsRef<[u8]>) -> String {
        self.sign_raw(&header.to_string(), claims)
    }

    /// The header too as exactly this text.
    pub fn sign_raw(&self, header: &str, claims: impl AsRef<[u8]>) -> String {
        self.sign_as(&RSA_PKCS1_SHA256, header, claims)
    }

    pub fn sign_pss(&self, header: &Value, claims: impl AsRef<[u8]>) -> String {
        self.sign_as(&RSA_PSS_SHA256, &header.to_string(), claims)
    }

    /// With the header Kinde writes.
    pub fn sign_event(&self, claims: impl AsRef<[u8]>) -> String {
        self.sign(&self.header(), claims)
    }

    pub fn header(&self) -> Value {
        json!({"alg": "RS256", "kid": self.kid, "typ": "JWT"})
    }

    pub fn jwk(&self) -> Value {
        let public = self.pair.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid,
            "n": b64(n.big_endian_without_leading_zero()), "e": b64(e.big_endian_without_leading_zero()),
        })
    }

    /// The pair that `Jwks::held` takes.
    pub fn held(&self) -> (String, DecodingKey) {
        let jwk = self.jwk();
        (self.kid.clone(), DecodingKey::from_rsa_components(jwk["n"].as_str().unwrap(), jwk["e"].as_str().unwrap()).unwrap())
    }

    /// The public key in the encoding PKCS#1 gives it.
    pub fn der(&self) -> Vec<u8> {
        self.pair.public_key().as_ref().to_vec()
    }

    pub fn pem(&self) -> String {
        let text = BASE64_STANDARD.encode(self.der());
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n", lines.join("\n"))
    }

    fn sign_as(&self, padding: &'static dyn RsaEncoding, header: &str, claims: impl AsRef<[u8]>) -> String {
        let signed = format!("{}.{}", b64(header), b64(claims));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair.sign(padding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", b64(signature))
    }
}

/// `header.claims`, not signed yet.
pub fn unsigned(header: &Value, claims: impl AsRef<[u8]>) -> String {
    format!("{}.{}", b64(header.to_string()), b64(claims))
}

pub fn b64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
