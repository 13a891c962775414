//! Billing rules: an event's facts → the account's plan, standing and allowance.
//!
//! Reading order: `fold` (pure: the set of facts → state), with `belief`, `plan`, `ends`, `course`, `spans`, `outlook`,
//! `allowance`, `standing` and `movements` as its parts; `verdict` (pure: what one event did, as a sentence); `apply` (thin: reads
//! and writes in the caller's transaction); `facts` and `runs` (the SQL of the two tables); `booked` (what of it stands in the
//! ledgers already) and `stamps` (what became of it); `bottles` (what a period has left, and taking from it) and `opening` (the first use of a period); `arrival`
//! (what a sign-in has to do with billing). `rehearsal` runs the same without writing, `check` asks whether what is stored is what
//! the facts give. `disputes` names what a person has to answer. `log`, `record` and `purchase` are what people's pages
//! read, `words` what they call it. No provider and no network in here.

pub mod allowance;
pub mod apply;
pub mod arrival;
mod belief;
mod book;
mod booked;
pub mod bottles;
pub mod check;
pub mod compare;
mod course;
pub mod disputes;
mod ends;
mod facts;
pub mod fold;
pub mod log;
mod movements;
pub mod opening;
mod outlook;
pub mod plan;
pub mod purchase;
pub mod record;
pub mod rehearsal;
pub mod runs;
mod spans;
mod stamps;
pub mod standing;
pub mod verdict;
mod whose;
pub mod words;
