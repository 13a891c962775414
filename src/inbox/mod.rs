//! The inbox: stored events, and the queue of those that still have to run.
//!
//! ```text
//!            ┌────────── replay ───────────┐
//!            ▼                             │
//! stored ▶ received ─claim▶ processing ─▶ applied │ ignored │ dead (after the sixth charged failure)
//!            ▲                │  │  │
//!            │   lease ended ─┘  │  └──▶ parked ─ the mapping is learned ─▶ claimed again
//!            └───── released     └─────▶ failed ─ its wait is over ───────▶ claimed again
//! ```
//! `received`, `processing`, `failed` and `parked` are open. An open row may be claimed if and only if it is due; `due_at` is
//! the retry time, the lease's end or "never" (`infinity`), so no state can be forgotten.
//!
//! `store`, `queue` and `prune` hold every statement that writes `inbox_events`, `receipts` and `conflicts`; `history`, `open` and
//! `watch` only read, and so do `search`, `health` and `inspect` for operators.

pub mod claimed;
pub mod health;
pub mod history;
pub mod inspect;
pub mod open;
pub mod prune;
pub mod queue;
pub mod search;
pub mod store;
pub mod watch;
