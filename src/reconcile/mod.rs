//! Reconcile: what each provider says is true now, set beside what is stored here.
//!
//! `runs` and `findings` are what is kept of it, and what pages read.

pub mod findings;
pub mod runs;
