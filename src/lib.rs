//! Bottle: a reminder app whose billing state stays correct however its provider's messages repeat, arrive late, or fail
//! half-way.
//!
//! # The way of an event
//! ```text
//!               bytes                   stored event               claim
//! POST /webhooks ───▶ intake ──verify──▶ inbox ──claim, commit──▶ worker ──resolve──▶ providers    (no transaction open)
//!                                                                   │ ◀──── facts ────┘
//!   page ◀── accounts, runs of an event ◀── billing::apply, in one transaction ◀── billing::fold (pure)
//! ```
//! File by file: `web/webhooks` → `intake` → `inbox/store` → `inbox/queue` → `worker/process` → `providers/kinde` →
//! `worker/handle` → `billing/apply` → `billing/book` → `billing/fold` → `accounts`, `ledger` → `billing/runs`. No arrow
//! points back.
//!
//! # The way of a reminder
//! `reminders/schedule` (it and its bottle, under the account's lock) → its time comes → `bell` → `reminders/ring` (due, a letter
//! in the `outbox`, the next occurrence and its bottle, in one transaction) → `courier` → `mail`.
//!
//! # What runs by itself
//! `worker` (events), `bell` and `courier` (reminders and their letters), `replayer` (what operators asked to run again),
//! `reconcile` (each night: is what we have what the providers say?), `housekeeping`, `alerts`. Each takes its work from a table, so
//! any number of them may run in any number of processes; `scrape` and `collector` tell how they do.
//!
//! # What always holds
//! - A 200 means that the event is committed. Nothing acknowledged is lost, and nothing is acknowledged twice as new.
//! - An account's state is a pure function of the *set* of its facts: not of their order, their copies or their second runs.
//! - Effects and the mark "applied" share one transaction, and only who still holds the lease may write them.
//! - No transaction is open while a network is waited for.
//! - Every open event has a due time; none can be forgotten. Every event ends with a reason its owner can read.
//! - The ledger is append-only, and an entry's key says which business fact it is for.
//! - A bottle is taken with the reminder it is for, from what the period has left, read under the account's lock: no balance
//!   goes below zero, and what is shown is what can be spent.
//! - The SQL for a table lives in the one room named after it, and a room imports only from floors below it. A test reads
//!   this source and keeps both true.

// Floor 0: words and pipes.
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod db;
pub mod domain;
pub mod postgres;
pub mod seal;
pub mod telemetry;
pub mod wake;
// Floor 1: one outside thing each.
pub mod accounts;
pub mod collector;
pub mod inbox;
pub mod jwks;
pub mod ledger;
pub mod mail;
pub mod money;
pub mod oidc;
pub mod outbound;
pub mod outbox;
pub mod providers;
pub mod sessions;
// Floor 2: rules.
pub mod billing;
pub mod checkouts;
pub mod intake;
pub mod operators;
pub mod reminders;
pub mod replay;
// Floor 3: movers.
pub mod alerts;
pub mod bell;
pub mod courier;
pub mod housekeeping;
pub mod reconcile;
pub mod replayer;
pub mod scrape;
pub mod worker;
// Floor 4: demonstration.
pub mod engine_room;
// Floor 5: the face.
pub mod web;
// Floor 6: the door frame.
pub mod commands;
// Outside: they speak only HTTP and JWT, and know nothing of the rest.
pub mod local_kinde;
pub mod local_stripe;
