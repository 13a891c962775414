//! What can be set to go wrong, or otherwise than usual, while it runs. Deliveries first, then the shape of events, then the
//! answers of the APIs, then how long things last.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Error;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Switches {
    pub deliveries: Deliveries,
    pub spelling: Spelling,
    pub apis: Apis,
    pub lifetimes: Lifetimes,
}

/// How the events of what people do are carried. Orders say this themselves; holding and hurrying are for both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deliveries {
    pub copies: u32,
    pub late_secs: u64,
    /// The answers to this many first attempts count as lost.
    pub drop_answers: u32,
    pub shuffle: bool,
    /// Nothing is sent until it is off again.
    pub hold: bool,
    /// Divides every wait.
    pub speed: f64,
}

/// Which of the spellings seen in integrations events have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spelling {
    pub plan: PlanField,
    pub whose: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanField {
    #[default]
    Key,
    Code,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// `user_id` and `customer_id`
    #[default]
    Both,
    /// `customer_id` alone
    Customer,
    /// `customer: {id}`
    Nested,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Apis {
    pub trouble: Trouble,
    /// How many more requests meet it; 0 is all of them.
    pub requests: u32,
    /// What `RateLimit-Reset` says, and how long a slow answer takes.
    pub secs: u64,
    /// Agreements and entitlements are answered as they were so long ago.
    pub lag_secs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    #[default]
    None,
    TooMany,
    ServerError,
    Unavailable,
    Slow,
}

/// In seconds; the defaults are Kinde's, where Kinde tells them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lifetimes {
    pub code: u64,
    pub id_token: u64,
    pub access_token: u64,
    pub refresh_token: u64,
    /// How long a refresh token that was used is still good.
    pub overlap: u64,
}

impl Default for Switches {
    fn default() -> Self {
        let deliveries = Deliveries::default();
        Self { deliveries, spelling: Spelling::default(), apis: Apis::default(), lifetimes: Lifetimes::default() }
    }
}

impl Default for Deliveries {
    fn default() -> Self {
        Self { copies: 1, late_secs: 0, drop_answers: 0, shuffle: false, hold: false, speed: 1.0 }
    }
}

impl Default for Spelling {
    fn default() -> Self {
        Self { plan: PlanField::Key, whose: Whose::Both }
    }
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { code: 60, id_token: 3600, access_token: 86400, refresh_token: 15 * 86400, overlap: 10 }
    }
}

impl Deliveries {
    /// # Errors
    /// A number that would do harm or mean nothing.
    pub fn check(self) -> Result<Self, Error> {
        within("deliveries of each event", u64::from(self.copies), 1, 100)?;
        within("seconds late", self.late_secs, 0, MOST_SECS)?;
        within("answers to lose", u64::from(self.drop_answers), 0, 100)?;
        if !(self.speed.is_finite() && (0.001..=1e9).contains(&self.speed)) {
            return Err(Error::Usage(format!("speed of the waits: between 0.001 and 1000000000, not {}", self.speed)));
        }
        Ok(self)
    }
}

impl Apis {
    /// # Errors
    /// A number that would do harm or mean nothing.
    pub fn check(self) -> Result<Self, Error> {
        within("requests", u64::from(self.requests), 0, 100_000)?;
        within("seconds", self.secs, 0, 3600)?;
        within("seconds behind", self.lag_secs, 0, MOST_SECS)?;
        Ok(self)
    }

    /// What the next request meets, and one fewer left to meet it.
    pub fn take(&mut self) -> (Trouble, Duration) {
        let met = (self.trouble, Duration::from_secs(self.secs));
        match self.requests {
            0 => {}
            1 => *self = Self { lag_secs: self.lag_secs, ..Self::default() },
            _ => self.requests -= 1,
        }
        met
    }
}

impl Lifetimes {
    /// # Errors
    /// A number that would do harm or mean nothing.
    pub fn check(self) -> Result<Self, Error> {
        for (name, secs) in [("code", self.code), ("ID token", self.id_token), ("access token", self.access_token)] {
            within(&format!("lifetime of a {name}"), secs, 1, MOST_SECS)?;
        }
        within("lifetime of a refresh token", self.refresh_token, 1, MOST_SECS)?;
        within("overlap of refresh tokens", self.overlap, 0, MOST_SECS)?;
        Ok(self)
    }
}

/// A year.
const MOST_SECS: u64 = 366 * 86400;

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Usage(format!("{name}: between {least} and {most}, not {value}")))
}

#[cfg(test)]
mod tests {
    use super::{Apis, Deliveries, Trouble};

    #[test]
    fn trouble_for_so_many_requests_ends_by_itself_and_leaves_the_lag() {
        let mut apis = Apis { trouble: Trouble::TooMany, requests: 2, secs: 7, lag_secs: 30 };
        let met: Vec<Trouble> = (0..3).map(|_| apis.take().0).collect();
        assert_eq!(met, [Trouble::TooMany, Trouble::TooMany, Trouble::None]);
        assert_eq!(apis.lag_secs, 30);
        let mut apis = Apis { trouble: Trouble::Slow, requests: 0, ..apis };
        assert!((0..3).all(|_| apis.take().0 == Trouble::Slow));
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let usual = Deliveries::default();
        assert!(usual.clone().check().is_ok());
        for wrong in [
            Deliveries { copies: 0, ..usual.clone() },
            Deliveries { speed: 0.0, ..usual.clone() },
            Deliveries { speed: f64::NAN, ..usual.clone() },
            Deliveries { late_secs: u64::MAX, ..usual },
        ] {
            assert!(wrong.clone().check().is_err(), "{wrong:?}");
        }
    }
}
