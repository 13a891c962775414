//! Bottle: billing state that stays correct.

pub mod domain;
pub mod engine_room;
pub mod web;
