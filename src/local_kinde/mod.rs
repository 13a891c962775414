//! A stand-in for Kinde on this machine: one RSA key, the two documents Kinde publishes about it, and signed webhooks sent on
//! Kinde's retry schedule. Sign-in, the Management API and the plan page join it with the people's pages.
//!
//! It imports nothing from the rest of the crate. What it knows of Kinde it knows by itself, so a misreading in the product is
//! not mirrored here; the two meet over HTTP and JWT only, and callers pass plain strings and paths.
//!
//! Reading order: `cli` and `server` are the doors; an `order` says what to send and how; `events` writes the claims about
//! `people`, `key` signs them, `sender` carries them.

use std::io;
use std::path::PathBuf;

pub mod cli;
pub mod events;
pub mod key;
pub mod order;
mod page;
pub mod people;
pub mod sender;
pub mod server;

/// What can go wrong in here. A delivery that gets no 200 is no error: it is an attempt on record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("the local Kinde cannot use `{addr}`: it is not an address of the form host:port")]
    NotAnAddress { addr: String, source: io::Error },
    #[error("the local Kinde listens on loopback only, and `{addr}` is not loopback: anyone who reaches it can forge events")]
    NotLoopback { addr: String },
    #[error("the local Kinde cannot listen on {addr}")]
    Listen { addr: String, source: io::Error },
    #[error("`{url}` is not an http or https URL that webhooks can be posted to")]
    WebhookUrl { url: String },
    #[error("cannot read or write the signing key {}", path.display())]
    KeyFile { path: PathBuf, source: io::Error },
    #[error("{} holds no usable RSA key: delete it, and a new one is made", path.display())]
    KeyRejected { path: PathBuf },
    #[error("the RSA key could not be made or used")]
    Crypto,
    #[error("no client for outgoing deliveries")]
    Client { source: reqwest::Error },
    #[error("the local Kinde at {url} did not take the order: {answer}")]
    NotTaken { url: String, answer: String },
    #[error("the local Kinde at {url} cannot be reached")]
    Away { url: String, source: reqwest::Error },
    #[error("cannot wait for Ctrl-C")]
    Signal { source: io::Error },
    #[error("cannot write to standard output")]
    Output { source: io::Error },
}
