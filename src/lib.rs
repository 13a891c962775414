//! Bottle: billing state that stays correct.

pub mod domain;
pub mod jwks;
pub mod outbound;
pub mod providers;
