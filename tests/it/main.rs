//! One test binary. Each module is a subject; `support` holds what they share.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report, also from its support")]

mod breaker;
mod engine_room_page;
mod fold;
mod forgery;
mod interleavings;
mod jwks;
mod kinde_reading;
mod local_kinde;
mod naive;
mod oracle;
mod outbound;
mod outcomes;
mod parked;
mod pipeline_histories;
mod postgres;
mod queue;
mod support;
mod zombies;
