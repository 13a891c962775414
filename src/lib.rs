//! Bottle: billing state that stays correct.

pub mod accounts;
pub mod billing;
pub mod checkpoint;
pub mod clock;
pub mod commands;
pub mod config;
pub mod db;
pub mod domain;
pub mod engine_room;
pub mod inbox;
pub mod intake;
pub mod jwks;
pub mod ledger;
pub mod local_kinde;
pub mod outbound;
pub mod postgres;
pub mod providers;
pub mod replay;
pub mod telemetry;
pub mod wake;
pub mod web;
pub mod worker;
