//! One test binary. Each module is a subject; `support` holds what they share.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report, also from its support")]

mod forgery;
mod jwks;
mod kinde_reading;
mod outbound;
mod support;
