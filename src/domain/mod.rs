//! The nouns of the trade, parsed once and carried as proof. No I/O, no clock, no randomness.

pub mod ask_again;
pub mod event;
pub mod fact;
pub mod ids;
pub mod instant;
pub mod money;
pub mod period;
pub mod plain;
pub mod plan;
pub mod reason;
pub mod reason_code;
pub mod told;
pub mod word;
pub mod zone;
