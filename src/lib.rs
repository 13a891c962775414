//! Bottle: billing state that stays correct.

pub mod domain;
pub mod config;
pub mod db;
pub mod telemetry;
pub mod clock;
pub mod wake;
pub mod checkpoint;
pub mod postgres;
pub mod outbound;
pub mod jwks;
pub mod providers;
pub mod accounts;
pub mod ledger;
pub mod inbox;
pub mod billing;
pub mod intake;
pub mod replay;
pub mod worker;
pub mod engine_room;
pub mod web;
pub mod commands;
pub mod local_kinde;
