//! The billing providers: what their messages look like, and whether they are theirs.
//!
//! Storing a delivery is `intake`'s and `inbox`'s, what a fact does to an account is `billing`'s.

mod fields;
pub mod kinde;

use crate::jwks::token::TokenError;

/// Why a delivery was not taken.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum VerifyError {
    /// The provider did not send this to us as an event. Nothing is stored. `why` is for our log, not for the sender.
    #[error("not genuine: {why}")]
    NotGenuine { why: String },
    /// It may be genuine, so the sender must come again.
    #[error("cannot tell whether it is genuine: {why}")]
    CannotTell { why: String },
}

impl From<TokenError> for VerifyError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::NotGenuine(why) => Self::NotGenuine { why: why.to_owned() },
            TokenError::CannotTell { why } => Self::CannotTell { why },
        }
    }
}
