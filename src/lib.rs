//! Bottle: billing state that stays correct.

pub mod domain;
pub mod postgres;
