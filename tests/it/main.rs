//! One test binary. Each module is a subject; `support` holds what they share.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report, in its support too")]

mod postgres;
mod support;
