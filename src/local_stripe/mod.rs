//! A stand-in for Stripe on this machine, at the level of the wire: the API under `/v1`, the pages a buyer sees, signed webhooks
//! with their retries, a clock that can be moved, and switches that make it misbehave the way the real one does.
//!
//! It imports nothing from the rest of the crate. What it knows of Stripe it knows by itself, so a misreading in the product is
//! not mirrored here; the two meet over HTTP only, and callers pass plain strings. Stripe's own clients are run against it.
//!
//! Reading order: `cli` and `server` are the doors. `gate` lets a call to `/v1` in (key, version, faults, repeated keys), `api` is
//! the table of calls, `world` holds every object, and one file for each kind of object says what Stripe does with it. `clock`
//! makes the things happen that time brings. `delivery` carries events, signed by `signature`, the way `switches` say. `control`
//! is what a test turns, `page` and `buyer` are what a person sees.

use std::io;
use std::path::PathBuf;

mod api;
mod balance;
mod buyer;
mod calls;
mod catalog;
mod checkout;
pub mod cli;
mod clock;
mod control;
mod customers;
mod delivery;
mod disputes;
mod dunning;
mod events;
mod expand;
mod faults;
mod form;
mod gate;
mod idempotency;
mod invoices;
mod keys;
mod lines;
mod list;
mod money;
mod page;
mod payments;
mod portal;
mod proration;
mod refunds;
mod refusal;
mod render;
pub mod server;
mod shapes;
mod signature;
mod state;
mod subscription_calls;
mod subscriptions;
mod switches;
mod world;

/// What can go wrong in here. A webhook that gets no 2xx is no error: it is an attempt on record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the local Stripe cannot use `{addr}`: it is not an address of the form host:port")]
    NotAnAddress { addr: String, source: io::Error },
    #[error("the local Stripe listens on loopback only, and `{addr}` is not loopback: anyone who reaches it can take its money")]
    NotLoopback { addr: String },
    #[error("the local Stripe cannot listen on {addr}")]
    Listen { addr: String, source: io::Error },
    #[error("`{url}` is not an http or https URL that webhooks can be posted to")]
    WebhookUrl { url: String },
    #[error("`{key}` is not a key this local Stripe can take: {why}")]
    Key { key: String, why: &'static str },
    #[error("`{version}` is not a version of Stripe's API that the local Stripe knows")]
    Version { version: String },
    #[error("`{currency}` is not a currency the local Stripe can settle in")]
    Currency { currency: String },
    #[error("cannot read or write {}", path.display())]
    StateFile { path: PathBuf, source: io::Error },
    #[error("{} is not a state that this local Stripe wrote: delete it, and a new one is begun", path.display())]
    StateRejected { path: PathBuf, source: serde_json::Error },
    #[error("no client for outgoing webhooks")]
    Client { source: reqwest::Error },
    #[error("cannot wait for Ctrl-C")]
    Signal { source: io::Error },
    #[error("cannot write to standard output")]
    Output { source: io::Error },
}
