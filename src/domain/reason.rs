//! Why an event ended as it did: a closed set, and the one place where each is worded.
//!
//! The text is stored with the event and read by its owner, so it says what happened to the billing, not to the program.

use std::fmt;

use super::event::{Source, Status};
use super::instant::Instant;
use super::money::{Money, MoneyKind};
use super::period::Period;
use super::plan::Plan;
use super::told::Doubt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The plan became this one; `until` when an end that is already known will change it again.
    PlanSet {
        plan: Plan,
        granted: Vec<Period>,
        from: Option<Instant>,
    },
    PlanAlready {
        plan: Plan,
        granted: Vec<Period>,
    },
    PaymentRecorded {
        allowance: Allowance,
        cleared: bool,
    },
    PaymentFailureRecorded,
    InvoiceOverdueRecorded,
    /// Older than the change that decides the plan, yet its own month had its allowance coming.
    NewerStoredGranted {
        granted: Vec<Period>,
        newer: Option<Newer>,
    },
    NewerStored {
        newer: Option<Newer>,
    },
    NotCurrentAgreement,
    NoBillingChange {
        kind: String,
    },
    NotAPerson {
        customer_type: String,
    },
    WaitsForPerson {
        customer: String,
    },
    WaitsForPlanKey {
        key: String,
    },
    ClaimedByTwo {
        customer: String,
    },
    FromTheFuture {
        at: Instant,
    },
    WaitsForProvider {
        what: String,
    },
    PackGranted {
        bottles: i64,
        period: Period,
    },
    PackAlreadyGranted,
    PackAwaited,
    PackFailed,
    MoneyMoved {
        moved: Vec<(MoneyKind, Money)>,
    },
    MoneyKnown,
    InvoiceSettled,
    Disputed {
        money: Money,
        status: String,
        moved: Vec<(MoneyKind, Money)>,
    },
    Gone {
        object: String,
    },
    OtherMode {
        live: bool,
    },
    NothingOfOurs,
    Unasked,
    /// The provider was asked again by ourselves, because what it said differed from what we had.
    AskedAgain {
        source: Source,
        plan: Plan,
        from: Option<Instant>,
        changed: bool,
    },
}

/// What became of the allowance that a payment is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowance {
    Granted(Vec<Period>),
    AlreadyGranted,
    NoProPlan,
    /// It paid for a correction, or for something else than a plan.
    NoPeriod,
}

/// The event that decides the plan now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newer {
    pub key: String,
    pub at: Instant,
}

impl Reason {
    /// The status an event ends in for this reason.
    pub const fn status(&self) -> Status {
        match self {
            Self::PlanSet { .. }
            | Self::PlanAlready { .. }
            | Self::PaymentRecorded { .. }
            | Self::PaymentFailureRecorded
            | Self::InvoiceOverdueRecorded
            | Self::NewerStoredGranted { .. }
            | Self::PackGranted { .. }
            | Self::PackAlreadyGranted
            | Self::PackAwaited
            | Self::PackFailed
            | Self::MoneyMoved { .. }
            | Self::MoneyKnown
            | Self::InvoiceSettled
            | Self::Disputed { .. }
            | Self::AskedAgain { .. } => Status::Applied,
            Self::NewerStored { .. }
            | Self::NotCurrentAgreement
            | Self::NoBillingChange { .. }
            | Self::NotAPerson { .. }
            | Self::Gone { .. }
            | Self::OtherMode { .. }
            | Self::NothingOfOurs => Status::Ignored,
            Self::WaitsForPerson { .. }
            | Self::WaitsForPlanKey { .. }
            | Self::ClaimedByTwo { .. }
            | Self::FromTheFuture { .. }
            | Self::WaitsForProvider { .. }
            | Self::Unasked => Status::Parked,
        }
    }

    /// The name of the alert a person must get because of it, if one must.
    pub fn alert(&self) -> Option<&'static str> {
        match self {
            // It has a deadline, until it is over and well.
            Self::Disputed { status, .. } if !matches!(status.as_str(), "won" | "warning_closed" | "prevented") => {
                Some("dispute")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlanSet { plan, granted, from } => {
                write!(f, "plan set to {plan}")?;
                if let Some(from) = from {
                    write!(f, " from {from}")?;
                }
                if granted.is_empty() { Ok(()) } else { f.write_str(", Pro allowance granted") }
            }
            Self::PlanAlready { plan, granted } => {
                write!(f, "plan is already {plan}")?;
                grants(f, granted)
            }
            Self::PaymentRecorded { allowance, cleared } => {
                f.write_str(match allowance {
                    Allowance::Granted(_) => "payment recorded, Pro allowance granted",
                    Allowance::AlreadyGranted => "payment recorded, Pro allowance already granted",
                    Allowance::NoProPlan => "payment recorded; no Pro plan it belongs to",
                    Allowance::NoPeriod => "payment recorded; it opens no new period",
                })?;
                if *cleared { f.write_str("; no longer past due") } else { Ok(()) }
            }
            Self::PaymentFailureRecorded => f.write_str("payment failure recorded"),
            Self::InvoiceOverdueRecorded => f.write_str("invoice overdue recorded"),
            Self::NewerStoredGranted { granted, .. } => {
                f.write_str("a newer plan change is already stored")?;
                grants(f, granted)
            }
            Self::NewerStored { .. } => f.write_str("ignored: a newer plan change is already stored"),
            Self::NotCurrentAgreement => f.write_str("ignored: cancels an agreement that is no longer current"),
            Self::NoBillingChange { kind } => write!(f, "ignored: this event type carries no billing change ({})", shown(kind)),
            Self::NotAPerson { customer_type } => write!(f, "ignored: the customer is no person but `{}`", shown(customer_type)),
            Self::WaitsForPerson { customer } => {
                write!(f, "parked: nobody with customer id {} has signed in yet", shown(customer))
            }
            Self::WaitsForPlanKey { key } => {
                write!(f, "parked: plan key `{}` is not configured; the plan stays as it was", shown(key))
            }
            Self::ClaimedByTwo { customer } => write!(f, "parked: customer id {} is claimed by two people", shown(customer)),
            Self::FromTheFuture { at } => write!(f, "parked: it says it happens at {at}, more than an hour ahead"),
            Self::WaitsForProvider { what } => {
                write!(f, "parked: the provider's own answer does not agree yet ({what}); asked again")
            }
            Self::PackGranted { bottles, period } => write!(f, "pack of {bottles} bottles granted for {period}"),
            Self::PackAlreadyGranted => f.write_str("the pack's bottles are already granted"),
            Self::PackAwaited => f.write_str("purchase recorded; its bottles come when it is paid"),
            Self::PackFailed => f.write_str("the purchase was not paid; no bottles are granted"),
            Self::MoneyMoved { moved } => {
                movements(f, moved)?;
                f.write_str(" recorded")
            }
            Self::MoneyKnown => f.write_str("nothing new about this money"),
            Self::InvoiceSettled => f.write_str("invoice recorded; nothing is owed on it"),
            Self::Disputed { money, status, moved } => {
                write!(f, "dispute over {money} recorded ({})", shown(status))?;
                if moved.is_empty() { Ok(()) } else { f.write_str("; ").and_then(|()| movements(f, moved)) }
            }
            Self::Gone { object } => write!(f, "ignored: the provider has no {}, or no longer", shown(object)),
            Self::OtherMode { live: true } => f.write_str("ignored: it is from the provider's live mode, and this is a test"),
            Self::OtherMode { live: false } => f.write_str("ignored: it is from the provider's test mode, and this is live"),
            Self::NothingOfOurs => f.write_str("ignored: it is about nothing that is sold here"),
            Self::Unasked => f.write_str("parked: the provider has to be asked about it first"),
            Self::AskedAgain { source, plan, changed: false, .. } => {
                write!(f, "plan is already {plan}; {} was asked again, and nothing changed", by_name(*source))
            }
            Self::AskedAgain { source, plan, from, changed: true } => {
                write!(f, "plan set to {plan}")?;
                if let Some(from) = from {
                    write!(f, " from {from}")?;
                }
                let name = by_name(*source);
                write!(f, "; found by reconcile: no message of this had come, so {name} was asked again")
            }
        }
    }
}

fn by_name(source: Source) -> &'static str {
    match source {
        Source::Kinde => "Kinde",
        Source::Stripe => "Stripe",
        Source::Bottle => "Bottle",
    }
}

fn grants(f: &mut fmt::Formatter<'_>, granted: &[Period]) -> fmt::Result {
    for (n, period) in granted.iter().enumerate() {
        write!(f, "{}{period}", if n == 0 { "; Pro allowance of " } else { ", " })?;
    }
    if granted.is_empty() { Ok(()) } else { f.write_str(" granted") }
}

fn movements(f: &mut fmt::Formatter<'_>, moved: &[(MoneyKind, Money)]) -> fmt::Result {
    for (n, (kind, money)) in moved.iter().enumerate() {
        let what = match kind {
            MoneyKind::Charge => "payment",
            MoneyKind::Refund => "refund",
            MoneyKind::RefundFailed => "refund that came back",
            MoneyKind::Credit => "customer credit",
            MoneyKind::Dispute => "disputed payment taken back",
            MoneyKind::DisputeReversal => "disputed payment given back",
        };
        write!(
            f,
            "{}{what} of {}",
            if n == 0 { "" } else { ", " },
            money.negated().filter(|m| m.minor > 0).unwrap_or(money.clone())
        )?;
    }
    Ok(())
}

/// Outside words inside a sentence: short, and without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// A reason as it is stored: with a word about the provider, if the event counts although that did not confirm it.
pub fn sentence(reason: &Reason, doubt: Option<&Doubt>) -> String {
    match doubt {
        None => reason.to_string(),
        Some(Doubt::Differs { what }) => format!("{reason}; the provider's own answer still differs: {what}"),
        Some(Doubt::NotAsked) => format!("{reason}; the provider could not be asked to confirm it"),
    }
}

/// An error that will be tried again.
pub fn failed(error: &str, next: Instant) -> String {
    format!("failed: {}, next try at {next}", shown_error(error))
}

/// An event that needs a person.
pub fn dead(attempts: i32, error: &str) -> String {
    let plural = if attempts == 1 { "" } else { "s" };
    format!("dead after {attempts} attempt{plural}: {}", shown_error(error))
}

/// An event whose workers died each time before they could say anything.
pub fn dead_unexplained(claims: i32) -> String {
    format!("dead after {claims} claims: no worker lived to say why")
}

/// A stored sentence without what differs from event to event (ids, times, keys), so that alike ends can be counted together.
pub fn gist(stored: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut quoted = false;
    for word in stored.split_whitespace() {
        let marks = word.matches('`').count();
        let varies = quoted || marks > 0 || word.chars().any(|c| c.is_ascii_digit()) || word.contains('_');
        quoted ^= marks % 2 == 1;
        match (varies, words.last()) {
            (true, Some(&"…")) => {}
            (true, _) => words.push("…"),
            (false, _) => words.push(word),
        }
    }
    if words.is_empty() { "no reason stored".to_owned() } else { words.join(" ").chars().take(200).collect() }
}

fn shown_error(error: &str) -> String {
    error.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stored: &str, told: &str) {
        assert_eq!(gist(stored), told);
    }

    #[test]
    fn alike_ends_have_one_gist() {
        check("plan set to pro, Pro allowance granted", "plan set to pro, Pro allowance granted");
        check(
            "parked: plan key `a b c` is not configured; the plan stays as it was",
            "parked: plan key … is not configured; the plan stays as it was",
        );
        check(
            "parked: nobody with customer id customer_x has signed in yet",
            "parked: nobody with customer id … has signed in yet",
        );
        check("failed: it broke, next try at 2026-10-21T10:00:05Z", "failed: it broke, next try at …");
        check("dead after 6 attempts: it broke", "dead after … attempts: it broke");
        check("", "no reason stored");
    }
}
