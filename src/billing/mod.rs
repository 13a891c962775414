//! Billing rules: an event's facts → the account's plan, standing and allowance.
//!
//! Reading order: `fold` (pure: the set of facts → state), with `plan`, `ends`, `allowance` and `standing` as its parts;
//! `verdict` (pure: what one event did, as a sentence); `apply` (thin: reads and writes in the caller's transaction);
//! `facts` and `runs` (the SQL of the two tables); `log` (what the pages read). No provider and no network in here.

pub mod allowance;
pub mod apply;
mod book;
mod ends;
mod facts;
pub mod fold;
pub mod plan;
pub mod runs;
pub mod standing;
pub mod verdict;
mod whose;
