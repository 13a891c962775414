//! What people see: plain pages without a script.

pub mod deliveries;
pub mod operator;
pub mod page;
pub mod plan;
pub mod words;
