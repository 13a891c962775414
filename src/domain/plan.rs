//! The two plans, what they allow, and which of the provider's plan keys mean which.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Bottles of a period on any plan.
pub const FREE_BOTTLES: i64 = 10;
/// What Pro adds: 500 in all.
pub const PRO_BOTTLES_MORE: i64 = 490;
/// Of one pack, bought once.
pub const PACK_BOTTLES: i64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plan {
    Free,
    Pro,
}

impl Plan {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pro => "pro",
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a plan of ours")]
pub struct NotAPlan(String);

impl FromStr for Plan {
    type Err = NotAPlan;

    fn from_str(text: &str) -> Result<Self, NotAPlan> {
        match text {
            "free" => Ok(Self::Free),
            "pro" => Ok(Self::Pro),
            other => Err(NotAPlan(other.to_owned())),
        }
    }
}

/// Facts keep the provider's plan key as given; what it means is looked up inside the fold, so a key that is configured
/// later gives every stored fact its meaning.
#[derive(Debug, Clone)]
pub struct PlanKeys {
    pub pro: BTreeSet<String>,
    pub free: BTreeSet<String>,
}

impl PlanKeys {
    pub fn plan_of(&self, key: &str) -> Option<Plan> {
        if self.pro.contains(key) {
            Some(Plan::Pro)
        } else if self.free.contains(key) {
            Some(Plan::Free)
        } else {
            None
        }
    }
}

impl Default for PlanKeys {
    fn default() -> Self {
        Self {
            pro: BTreeSet::from(["customer_pro_plan".to_owned()]),
            free: BTreeSet::from(["customer_starter_plan".to_owned(), "customer_free_plan".to_owned()]),
        }
    }
}
