//! Stripe's errors: a status, and an object that names a type, often a code and the parameter at fault.

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct Refusal {
    pub status: u16,
    pub kind: &'static str,
    pub code: Option<&'static str>,
    pub decline_code: Option<&'static str>,
    pub param: Option<String>,
    pub message: String,
}

impl Refusal {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: None, decline_code: None, param: None, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// The value of one parameter is at fault.
    pub fn param(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::invalid(message) }
    }

    pub fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub fn required(param: &str) -> Self {
        Self::param(param, format!("Missing required param: {param}.")).coded("parameter_missing")
    }

    /// The object that the path names does not exist.
    pub fn missing(kind: &str, id: &str) -> Self {
        let lost = Self { param: Some("id".into()), ..Self::invalid(format!("No such {kind}: '{id}'")) };
        Self { status: 404, ..lost.coded("resource_missing") }
    }

    /// The object that a parameter names does not exist: 400, where a path answers 404.
    pub fn names_nothing(kind: &str, id: &str, param: &str) -> Self {
        Self::param(param, format!("No such {kind}: '{id}'")).coded("resource_missing")
    }

    pub fn no_such_call(method: &str, path: &str) -> Self {
        let message = format!("Unrecognized request URL ({method}: {path}). Please see https://stripe.com/docs.");
        Self { status: 404, ..Self::invalid(message) }
    }

    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(401, "invalid_request_error", message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "invalid_request_error", message)
    }

    /// The payment was refused, and this was asked in a call that pays.
    pub fn declined() -> Self {
        let declined = Self::new(402, "card_error", "Your card was declined.");
        Self { decline_code: Some("generic_decline"), ..declined.coded("card_declined") }
    }

    pub fn key_reused(key: &str) -> Self {
        let message = format!(
            "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '{key}' if you meant to execute a different request."
        );
        Self::new(400, "idempotency_error", message)
    }

    pub fn key_busy(key: &str) -> Self {
        let message =
            format!("There is currently another in-progress request using this Idempotent Key ({key}). Please try again later.");
        Self::new(409, "idempotency_error", message).coded("idempotency_key_in_use")
    }

    pub fn too_many() -> Self {
        let message = "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.";
        Self::new(429, "invalid_request_error", message).coded("rate_limit")
    }

    pub fn locked() -> Self {
        let message =
            "This object cannot be accessed right now because another API request or Stripe process is currently accessing it.";
        Self::new(429, "invalid_request_error", message).coded("lock_timeout")
    }

    pub fn broken(status: u16) -> Self {
        Self::new(status, "api_error", "An unknown error occurred")
    }

    pub fn body(&self, request_id: &str) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.kind,
            "request_log_url": format!("https://dashboard.stripe.com/acct_local/test/workbench/logs?object={request_id}"),
        });
        for (field, value) in [("code", self.code), ("decline_code", self.decline_code), ("param", self.param.as_deref())] {
            if let Some(value) = value {
                error[field] = json!(value);
            }
        }
        if let Some(code) = self.code {
            error["doc_url"] = json!(format!("https://stripe.com/docs/error-codes/{}", code.replace('_', "-")));
        }
        json!({ "error": error })
    }
}
