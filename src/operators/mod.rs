//! What operators do and write down: notes on events, the decision that a dead one may rest, and the record of every action.
//! The SQL of `event_notes` and `operator_actions`, which only ever grow.

pub mod actions;
pub mod boxes;
pub mod notes;
