//! One test binary. Each module is a subject; `support` holds what they share.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report, also from its support")]

mod cli;
mod engine_room_page;
mod fold;
mod forgery;
mod jwks;
mod kills;
mod kinde_reading;
mod local_kinde;
mod naive;
mod oracle;
mod outbound;
mod peer;
mod postgres;
mod start;
mod support;
