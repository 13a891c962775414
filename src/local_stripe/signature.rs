//! `Stripe-Signature`: HMAC-SHA256 over `t`, a dot and the bytes sent, keyed with the whole secret, its `whsec_` included.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::world::fresh;

/// The endpoint's secrets, newest first: two while one is being replaced.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Secrets(pub Vec<String>);

impl Secrets {
    pub fn fresh() -> Self {
        Self(vec![new_secret()])
    }

    /// A new secret; the old one goes on signing beside it, or not.
    pub fn roll(&mut self, new: Option<String>, keep_old: bool) -> &str {
        let old = if keep_old { self.0.first().cloned() } else { None };
        self.0 = std::iter::once(new.unwrap_or_else(new_secret)).chain(old).collect();
        &self.0[0]
    }

    pub fn expire_old(&mut self) {
        self.0.truncate(1);
    }

    /// The header: a `v1` for each secret, and the `v0` that test events carry and nobody may trust.
    pub fn header(&self, at: i64, body: &str, tampered: bool) -> String {
        let signatures = self.0.iter().map(|secret| {
            let secret = if tampered { format!("{secret}?") } else { secret.clone() };
            format!(",v1={}", signature(&secret, at, body))
        });
        format!("t={at}{},v0={}", signatures.collect::<String>(), signature("v0", at, body))
    }
}

fn new_secret() -> String {
    fresh("whsec_local", 32)
}

fn signature(secret: &str, at: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(format!("{at}.{body}").as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by Stripe's own clients, not by this file.
    #[test]
    fn a_signature_is_what_stripes_clients_compute() {
        let body = r#"{"id":"evt_test_webhook","object":"event"}"#;
        assert_eq!(
            signature("whsec_test_secret", 1_700_000_000, body),
            "d95c6b7477fbd7e9f90b1b0ef5f9c7ac25abca5382460e0d988c2b2a5b71b990"
        );
        let rolled = Secrets(vec!["whsec_test_secret_rolled_key".into(), "whsec_test_secret".into()]);
        let header = rolled.header(1_790_000_123, r#"{"id":"evt_vec3","object":"event","note":"a,b=c.d"}"#, false);
        assert!(header.starts_with("t=1790000123,v1=be6ad9112bffdbe46cbe6ca07fc5b141ed0b9912d4a97d9326c0faa5aef3616a,v1=531be04b0f0e7714c748f3ef2750ead9f813515fd44c8b439fd5cbf762d34510,v0="), "{header}");
    }
}
