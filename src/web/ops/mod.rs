//! The operators' pages: how the inbox does, every event of every account, what waits for a person, replays of many, and what was
//! done. `guard` lets operators in and nobody else; `filters` is what a list is asked for, in its address; `trouble` is what
//! becomes of a question that takes too long.

pub mod actions;
pub mod boxes;
pub mod bulk;
pub mod bulk_form;
mod difference;
pub mod event;
pub mod event_forms;
mod event_view;
pub mod events;
pub mod filters;
pub mod guard;
pub mod overview;
pub mod reconcile;
mod said;
mod trouble;
mod words;
