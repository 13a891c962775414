//! The mark: a bottle, filled to a balance. It stands wherever a balance is shown, with the number beside it in text.

use askama::Template;

use crate::domain::plan::{FREE_BOTTLES, PRO_BOTTLES_MORE};

/// What Pro allows, and where the line on the bottle is.
pub const FULL: i64 = FREE_BOTTLES + PRO_BOTTLES_MORE;

/// Drawn in a box of 200 by 164. Above the line at [`FULL`] it is full to the lip and spills.
#[derive(Template)]
#[template(path = "_bottle.html")]
pub struct Gauge {
    /// Makes the ids of its parts unique on the page.
    pub id: &'static str,
    /// `naive` or `ours`.
    pub tone: &'static str,
    pub level_y: i64,
    pub level_height: i64,
    pub spill: i64,
    pub puddle: i64,
}

const BOTTOM: i64 = 150;
const LINE: i64 = 84;
const LIP: i64 = 9;

impl Gauge {
    pub fn new(id: &'static str, tone: &'static str, balance: i64) -> Self {
        let spills = balance > FULL;
        // Ten bottles of five hundred would hide behind the glass: what is there must be seen.
        let visible = if balance > 0 { 5 } else { 0 };
        let level_y = if spills { LIP } else { BOTTOM - (balance.max(0) * (BOTTOM - LINE) / FULL).max(visible) };
        // The puddle grows ever more slowly: ten times too much still fits the page.
        let puddle = if spills { 46 + 50 * (balance - FULL) / (balance + FULL) } else { 0 };
        Self { id, tone, level_y, level_height: BOTTOM - level_y, spill: spills.into(), puddle }
    }

    /// What is left of an allowance: full to the line before anything is used, whatever the plan.
    pub fn share(id: &'static str, left: i64, allowance: i64) -> Self {
        let allowance = allowance.max(1);
        Self::new(id, "ours", left.clamp(0, allowance) * FULL / allowance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_filled_to_the_line_by_what_pro_allows_and_spills_above() {
        let level = |balance| Gauge::new("a", "ours", balance).level_y;
        assert_eq!((level(0), level(10), level(500), level(501)), (150, 145, LINE, LIP));
        let puddle = |balance| Gauge::new("a", "naive", balance).puddle;
        assert_eq!(puddle(500), 0);
        assert!(puddle(990) < puddle(2_950) && puddle(1_000_000) < 97);
    }

    #[test]
    fn a_share_is_full_to_the_line_before_anything_is_used() {
        let level = |left, allowance| Gauge::share("a", left, allowance).level_y;
        assert_eq!((level(10, 10), level(500, 500), level(5, 10), level(0, 10), level(0, 0)), (LINE, LINE, 117, 150, 150));
    }
}
