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
    /// The line at [`FULL`] is drawn: there may be more than that.
    pub has_line: bool,
}

const BOTTOM: i64 = 150;
const LINE: i64 = 84;
const LIP: i64 = 9;
/// As full as a bottle is that has its cap on.
const NECK: i64 = 18;

impl Gauge {
    pub fn new(id: &'static str, tone: &'static str, balance: i64) -> Self {
        let spills = balance > FULL;
        // Ten bottles of five hundred would hide behind the glass: what is there must be seen.
        let visible = if balance > 0 { 5 } else { 0 };
        let level_y = if spills { LIP } else { BOTTOM - (balance.max(0) * (BOTTOM - LINE) / FULL).max(visible) };
        // The puddle grows ever more slowly: ten times too much still fits the page.
        let puddle = if spills { 46 + 50 * (balance - FULL) / (balance + FULL) } else { 0 };
        Self { id, tone, level_y, level_height: BOTTOM - level_y, spill: spills.into(), puddle, has_line: true }
    }

    /// What is left of an allowance: a full bottle before anything is used, whatever the plan. Nothing can spill here.
    pub fn share(id: &'static str, left: i64, allowance: i64) -> Self {
        let allowance = allowance.max(1);
        let left = left.clamp(0, allowance);
        // One of hundreds is still to be seen.
        let visible = if left > 0 { 5 } else { 0 };
        let level_height = (left * (BOTTOM - NECK) / allowance).max(visible);
        Self { id, tone: "ours", level_y: BOTTOM - level_height, level_height, spill: 0, puddle: 0, has_line: false }
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
    fn a_share_is_a_full_bottle_before_anything_is_used() {
        let level = |left, allowance| Gauge::share("a", left, allowance).level_y;
        assert_eq!((level(10, 10), level(500, 500), level(600, 600), level(700, 600)), (NECK, NECK, NECK, NECK));
        assert_eq!((level(5, 10), level(1, 500), level(0, 10), level(0, 0), level(-1, 10)), (84, 145, 150, 150, 150));
        assert!(!Gauge::share("a", 10, 10).has_line);
    }
}
