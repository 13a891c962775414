//! One test binary. Each module is a subject; `support` holds what they share.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report, also from its support")]
#![expect(clippy::async_yields_async, reason = "interleavings are given two workers that have not begun yet")]
#![expect(clippy::await_holding_lock, reason = "held by a test for its own order, with one thread waiting")]

mod alerts;
mod breaker;
mod browser;
mod cli;
mod engine_room_page;
mod engine_room_runs;
mod fold;
mod forgery;
mod house;
mod housekeeping;
mod intake_answers;
mod intake_bodies;
mod intake_copies;
mod intake_server;
mod intake_trouble;
mod intake_wire;
mod interleavings;
mod jwks;
mod kills;
mod kinde_reading;
mod local_kinde;
mod naive;
mod oracle;
mod outbound;
mod outcomes;
mod parked;
mod peer;
mod pipeline_histories;
mod postgres;
mod queue;
mod start;
mod support;
mod zombies;
