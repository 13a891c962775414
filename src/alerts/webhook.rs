//! Alerts as signed JSON, by the conventions of Standard Webhooks, so that any of its libraries can check them: headers
//! `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,<base64 HMAC-SHA256 of id.timestamp.body>`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, Url};
use sha2::Sha256;
use time::OffsetDateTime;

use crate::outbound::{Client, OutboundError};
use crate::telemetry::labels::Call;

use super::outgoing::NotSent;

/// Nobody reads the answer; this much of it is taken off the wire.
const ANSWER_MAX: usize = 16 * 1024;
const PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

pub struct Webhook {
    client: Client,
    url: Url,
    key: Vec<u8>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("origin", &self.url.origin().ascii_serialization()).finish_non_exhaustive()
    }
}

/// What is wrong with a webhook's settings. The secret itself is never repeated.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("must be `whsec_` and the base64 of 24 to 64 random bytes, e.g. whsec_$(openssl rand -base64 32)")]
    Secret,
    #[error(transparent)]
    Address(#[from] OutboundError),
}

impl Webhook {
    /// # Errors
    /// The secret has not the form, or the address is none that may be called.
    pub fn new(url: &Url, secret: &str) -> Result<Self, WebhookError> {
        Ok(Self { client: Client::new(url.as_str())?, url: url.clone(), key: key(secret).ok_or(WebhookError::Secret)? })
    }

    pub(super) async fn post(&self, id: &str, body: &str) -> Result<(), NotSent> {
        let at = OffsetDateTime::now_utc().unix_timestamp();
        let request = self
            .client
            .request(Method::POST, self.url.as_str())
            .and_then(|request| {
                request
                    .header("content-type", "application/json")
                    .header("webhook-id", id)
                    .header("webhook-timestamp", at)
                    .header("webhook-signature", signature(&self.key, id, at, body))
                    .body(body.to_owned())
                    .build()
                    .map_err(OutboundError::Unavailable)
            })
            .map_err(|e| NotSent(e.to_string()))?;
        let answer = self.client.call(Call::AlertWebhook, request, ANSWER_MAX).await.map_err(|e| NotSent(e.to_string()))?;
        match answer.status {
            status if status.is_success() => Ok(()),
            status => Err(NotSent(format!("it answered with status {status}"))),
        }
    }
}

fn key(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
    KEY_BYTES.contains(&key.len()).then_some(key)
}

fn signature(key: &[u8], id: &str, at: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_refused_unless_it_is_long_and_random_enough_to_be_one() {
        for bad in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64", &STANDARD.encode([7; 32])] {
            assert!(key(bad).is_none(), "{bad}");
        }
        assert_eq!(key(&format!("whsec_{}", STANDARD.encode([7; 32]))).unwrap(), [7; 32]);
    }

    /// The example that the specification's own libraries are tested with.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let made = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
