//! The bottles of this month, as a small bottle and in words.

use crate::billing::bottles::Bottles;
use crate::domain::plan::{FREE_BOTTLES, Plan};
use crate::domain::zone;

use super::gauge::{FULL, Gauge};

pub struct BottlesLeft {
    pub gauge: Gauge,
    pub left: i64,
    pub allowance: i64,
    pub used: i64,
    /// "November".
    pub month: String,
    /// "1 December".
    pub renews: String,
    pub is_free: bool,
    /// A Pro account whose Pro bottles of this month are not here: they come with its payment.
    pub waits_for_payment: bool,
    pub pro: i64,
}

impl BottlesLeft {
    pub fn new(bottles: &Bottles) -> Self {
        let renews = zone::timestamp(bottles.renews_at);
        let month = zone::timestamp(bottles.period.begins());
        Self {
            gauge: Gauge::share("left", bottles.left, bottles.allowance),
            left: bottles.left,
            allowance: bottles.allowance,
            used: bottles.used,
            month: month.strftime("%B").to_string(),
            renews: renews.strftime("%-d %B").to_string(),
            is_free: bottles.plan == Plan::Free,
            waits_for_payment: bottles.plan == Plan::Pro && bottles.allowance <= FREE_BOTTLES,
            pro: FULL,
        }
    }
}
