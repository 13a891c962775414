//! What the subjects share.

pub mod histories;
pub mod sample_run;
pub mod tokens;

/// Cases of a random test: a share of them in everyday runs, all with `BOTTLE_TEST_SCALE` (a factor).
pub fn cases(everyday: u32) -> u32 {
    let scale = std::env::var("BOTTLE_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1_u32);
    everyday.saturating_mul(scale)
}
