//! A stand-in for Kinde on this machine: sign-in, the Account and Management APIs, plans, and signed webhooks sent on Kinde's retry
//! schedule, as far as an app with billing meets them. On the wire it behaves as Kinde is known to; where that is not known, the
//! files say so.
//!
//! It imports nothing from the rest of the crate. What it knows of Kinde it knows by itself, so a misreading in the product is
//! not mirrored here; the two meet over HTTP and JWT only, and callers pass plain strings and paths.
//!
//! Reading order: `cli` and `server` are the doors, and `server` lists every address. `state` is all it remembers, `store` keeps that
//! in a file, `switches` is what can be set to go wrong. What somebody does (`plans`) or an `order` says becomes `events` about
//! `people`; `key` signs them, `journeys` remembers where they are on their way, `dispatch` and `sender` carry them. `oidc`, `api` and
//! `pages` answer requests; `local` is what they share.

use std::io;
use std::path::PathBuf;

mod api;
pub mod app;
pub mod cli;
mod dispatch;
pub mod events;
mod history;
mod journeys;
pub mod key;
mod local;
mod moment;
mod oidc;
pub mod order;
mod pages;
pub mod people;
mod plans;
pub mod sender;
pub mod server;
mod state;
mod store;
mod switches;

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
    #[error("the folder {} is in use by another local Kinde: stop it, or choose another folder", folder.display())]
    FolderTaken { folder: PathBuf },
    #[error("cannot read or write the local Kinde's state {}", path.display())]
    StateFile { path: PathBuf, source: io::Error },
    #[error("{} cannot be understood ({why}): delete it, and the local Kinde begins anew", path.display())]
    StateRejected { path: PathBuf, why: String },
    #[error("cannot write the local Kinde's state {}: {why}", path.display())]
    NotWritten { path: PathBuf, why: String },
    #[error("the RSA key could not be made or used")]
    Crypto,
    #[error("no client for outgoing deliveries")]
    Client { source: reqwest::Error },
    #[error("the local Kinde at {url} did not take the order: {answer}")]
    NotTaken { url: String, answer: String },
    #[error(
        "no local Kinde answers at {url}: start `bottle`, say where it is (BOTTLE_LOCAL_KINDE_ADDR or --via), or post past it (--to)"
    )]
    Away { url: String, source: reqwest::Error },
    #[error("cannot wait for Ctrl-C")]
    Signal { source: io::Error },
    #[error("cannot write to standard output")]
    Output { source: io::Error },
}
