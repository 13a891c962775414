//! What the subjects share.

pub mod sample_run;
