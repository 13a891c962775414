//! What the subjects share.

pub mod histories;
