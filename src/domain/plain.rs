//! A stored reason, said to somebody who has never heard of events: what became of their plan and their bottles.
//!
//! It is read off the stored text, since that is what is kept: a sentence that is reworded here is reworded for old events
//! too. A test says every reason there is.

use super::event::Status;
use super::instant::Instant;
use super::period::Period;

/// One or two whole sentences.
pub fn sentence(status: Status, stored: Option<&str>) -> String {
    let fixed = match (status, stored) {
        (Status::Received, None) => "This has arrived and is about to be worked through.",
        (Status::Received, Some(_)) => "This is about to be run again.",
        (Status::Processing, _) => "This is being worked through right now.",
        (Status::Failed, _) => {
            "Something failed on our side while this was worked through. It is tried again by itself; until then your plan and your bottles stay as they were."
        }
        (Status::Dead, _) => {
            "This could not be worked through and was set aside. Nothing of it is lost: you can replay it, and it stays here for whoever runs this Bottle to look at."
        }
        (Status::Applied | Status::Ignored | Status::Parked, stored) => return told(stored.unwrap_or_default()),
    };
    fixed.to_owned()
}

fn told(stored: &str) -> String {
    if let Some(rest) = stored.strip_prefix("plan set to ") {
        return plan_set(rest);
    }
    if let Some(rest) = stored.strip_prefix("plan is already ") {
        let (plan, granted) = rest.split_once("; ").map_or((rest, None), |(plan, granted)| (plan, Some(granted)));
        return format!("You were already on {}, so your plan did not change.{}", name(plan), added(granted));
    }
    if let Some(rest) = stored.strip_prefix("payment recorded") {
        return payment(rest);
    }
    if let Some(rest) = stored.strip_prefix("a newer plan change is already stored") {
        let granted = rest.strip_prefix("; ");
        return format!("A newer change decides your plan, so it stayed as it is.{}", added(granted));
    }
    if let Some(at) = stored.strip_prefix("parked: it says it happens at ") {
        let at = at.split(',').next().and_then(|at| Instant::parse(at).ok());
        let when = at.map_or_else(|| "later".to_owned(), |at| format!("on {}", moment(at)));
        return format!("This says that it happens {when}. It waits until then.");
    }
    if let Some((bottles, month)) = stored.strip_prefix("pack of ").and_then(|rest| rest.split_once(" bottles granted for ")) {
        let month = month.parse().map_or_else(|_| month.to_owned(), Period::in_words);
        return format!("A pack of {bottles} bottles was added for {month}.");
    }
    if let Some(rest) = stored.strip_prefix("dispute over ") {
        return dispute(rest);
    }
    if let Some(moved) = stored.strip_suffix(" recorded").and_then(movements) {
        return moved;
    }
    let known = FIXED.iter().find(|(start, _)| stored.starts_with(start));
    known.map_or_else(|| capitalised(stored), |(_, plain)| (*plain).to_owned())
}

const FIXED: &[(&str, &str)] = &[
    ("payment failure recorded", "A payment failed. Your plan stays as it is; please look at how you pay."),
    ("invoice overdue recorded", "An invoice is overdue. Your plan stays as it is; please look at how you pay."),
    ("ignored: a newer plan change is already stored", "Nothing changed: a newer change to your plan was already known."),
    ("ignored: cancels an agreement that is no longer current", "Nothing changed: this ends a plan that you had already left."),
    ("ignored: this event type carries no billing change", "Nothing changed: this says nothing about your plan or your bottles."),
    ("ignored: the customer is no person", "Nothing changed: this is about an organisation, not about you."),
    ("parked: nobody with customer id", "This waits until we know whose it is."),
    (
        "parked: plan key",
        "This names a plan that this Bottle does not know yet. Your plan stays as it is, and this goes on by itself once the plan is known.",
    ),
    (
        "parked: customer id",
        "This waits for a person to look at it: two people seem to use one customer number. Your plan stays as it is.",
    ),
    (
        "parked: the provider's own answer",
        "The billing provider's own answer does not agree with this yet. It is asked again shortly.",
    ),
    ("parked: the provider has to be asked", "This waits until the billing provider can be asked about it."),
    ("the pack's bottles are already granted", "The bottles of this pack had been added before."),
    ("purchase recorded; its bottles come", "Your purchase is known. Its bottles are added as soon as the payment has arrived."),
    ("the purchase was not paid", "This purchase was not paid, so no bottles were added."),
    ("nothing new about this money", "Nothing changed: this money had been recorded before."),
    ("invoice recorded; nothing is owed on it", "An invoice was recorded. Nothing is owed on it."),
    ("ignored: the provider has no ", "Nothing changed: the billing provider does not have what this is about, or no longer."),
    (
        "ignored: it is from the provider's live mode",
        "Nothing changed: this is about real payments, and this Bottle is set up for a test.",
    ),
    (
        "ignored: it is from the provider's test mode",
        "Nothing changed: this is a test at the billing provider and no real payment.",
    ),
    ("ignored: it is about nothing that is sold here", "Nothing changed: this is about something that is not sold here."),
];

fn plan_set(rest: &str) -> String {
    if let Some((rest, how)) = rest.split_once("; found by reconcile: no message of this had come, so ") {
        let who = how.strip_suffix(" was asked again").unwrap_or("the billing provider");
        return format!("{} We found this by asking {who} ourselves: its message about it never came.", plan_set(rest));
    }
    let (rest, granted) = rest.strip_suffix(", Pro allowance granted").map_or((rest, false), |rest| (rest, true));
    let bottles = if granted { ", and the bottles of Pro were added" } else { "" };
    match rest.split_once(" from ").map(|(plan, from)| (plan, Instant::parse(from))) {
        Some((plan, Ok(from))) => format!("Your plan changes to {} on {}{bottles}.", name(plan), moment(from)),
        _ => format!("Your plan changed to {}{bottles}.", name(rest)),
    }
}

fn payment(rest: &str) -> String {
    let (rest, cleared) =
        rest.strip_suffix("; no longer past due").map_or((rest, ""), |rest| (rest, " Nothing is owed any more."));
    let bottles = match rest {
        ", Pro allowance granted" => ", and the bottles of Pro were added.",
        ", Pro allowance already granted" => ". The bottles it pays for had been added before.",
        "; it opens no new period" => ". It opens no new month, so no bottles were added.",
        "; no Pro plan it belongs to" => ". No Pro plan is known that it belongs to, so no bottles were added.",
        _ => ".",
    };
    format!("Your payment was received{bottles}{cleared}")
}

/// From `5.00 USD recorded (needs_response); disputed payment taken back of 5.00 USD`.
fn dispute(rest: &str) -> String {
    let (money, rest) = rest.split_once(" recorded (").unwrap_or((rest, ""));
    let (status, moved) =
        rest.split_once("); ").map_or((rest.trim_end_matches(')'), None), |(status, moved)| (status, Some(moved)));
    let said = match status {
        "won" => format!("The dispute about your payment of {money} is over: the payment stands."),
        "lost" => format!("The dispute about your payment of {money} is over: your bank gave you the money back."),
        "warning_closed" | "prevented" => format!("The question about your payment of {money} is settled."),
        _ => format!("Your payment of {money} is disputed through your bank. Your plan and your bottles stay as they are."),
    };
    moved.and_then(movements).map_or(said.clone(), |moved| format!("{said} {moved}"))
}

/// From `payment of 5.00 USD, customer credit of 2.00 USD`; none if it is about something else.
fn movements(list: &str) -> Option<String> {
    let all: Option<Vec<String>> = list
        .split(", ")
        .map(|one| {
            let (what, money) = one.rsplit_once(" of ")?;
            Some(match what {
                "payment" => format!("You paid {money}."),
                "refund" => format!("You were given back {money}."),
                "refund that came back" => format!("A refund of {money} did not reach you and came back to us."),
                "customer credit" => format!("Your credit changed by {money}."),
                "disputed payment taken back" => format!("Your bank took {money} back from us."),
                "disputed payment given back" => format!("Your bank gave {money} back to us."),
                _ => return None,
            })
        })
        .collect();
    Some(all?.join(" "))
}

/// From `Pro allowance of 2026-09, 2026-10 granted`.
fn added(granted: Option<&str>) -> String {
    let months = granted.and_then(|g| g.strip_prefix("Pro allowance of ")).and_then(|g| g.strip_suffix(" granted"));
    let months: Vec<String> =
        months.into_iter().flat_map(|m| m.split(", ")).filter_map(|m| m.parse::<Period>().ok()).map(Period::in_words).collect();
    if months.is_empty() { String::new() } else { format!(" The bottles of Pro for {} were added.", months.join(" and ")) }
}

fn name(plan: &str) -> String {
    capitalised(plan).trim_end_matches('.').to_owned()
}

fn moment(at: Instant) -> String {
    let at = at.datetime();
    format!("{} {} {}, {:02}:{:02} UTC", at.day(), at.month(), at.year(), at.hour(), at.minute())
}

/// A reason that is worded nowhere here is shown as it is stored.
fn capitalised(stored: &str) -> String {
    let mut letters = stored.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let stop = if stored.is_empty() || stored.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::event::Source;
    use super::super::money::{Money, MoneyKind};
    use super::super::plan::Plan;
    use super::super::reason::{Allowance, Newer, Reason};
    use super::*;

    #[track_caller]
    fn check(reason: &Reason, plain: &str) {
        assert_eq!(sentence(reason.status(), Some(&reason.to_string())), plain, "{reason}");
    }

    /// A reason without an arm here does not compile.
    fn is_said_below(reason: &Reason) {
        match reason {
            Reason::PlanSet { .. }
            | Reason::PlanAlready { .. }
            | Reason::PaymentRecorded { .. }
            | Reason::PaymentFailureRecorded
            | Reason::InvoiceOverdueRecorded
            | Reason::NewerStoredGranted { .. }
            | Reason::NewerStored { .. }
            | Reason::NotCurrentAgreement
            | Reason::NoBillingChange { .. }
            | Reason::NotAPerson { .. }
            | Reason::WaitsForPerson { .. }
            | Reason::WaitsForPlanKey { .. }
            | Reason::ClaimedByTwo { .. }
            | Reason::FromTheFuture { .. }
            | Reason::WaitsForProvider { .. }
            | Reason::PackGranted { .. }
            | Reason::PackAlreadyGranted
            | Reason::PackAwaited
            | Reason::PackFailed
            | Reason::MoneyMoved { .. }
            | Reason::MoneyKnown
            | Reason::InvoiceSettled
            | Reason::Disputed { .. }
            | Reason::Gone { .. }
            | Reason::OtherMode { .. }
            | Reason::NothingOfOurs
            | Reason::Unasked
            | Reason::AskedAgain { .. } => {}
        }
    }

    #[test]
    fn every_reason_is_said_in_plain_words() {
        let at = Instant::parse("2026-11-20T10:00:00Z").unwrap();
        let months = || vec!["2026-09".parse().unwrap(), "2026-10".parse().unwrap()];
        let granted = vec!["2026-10".parse().unwrap()];
        let (pro, free) = (Plan::Pro, Plan::Free);
        is_said_below(&Reason::PaymentFailureRecorded);
        check(
            &Reason::PlanSet { plan: pro, granted: granted.clone(), from: None },
            "Your plan changed to Pro, and the bottles of Pro were added.",
        );
        check(&Reason::PlanSet { plan: free, granted: vec![], from: None }, "Your plan changed to Free.");
        check(
            &Reason::PlanSet { plan: free, granted: vec![], from: Some(at) },
            "Your plan changes to Free on 20 November 2026, 10:00 UTC.",
        );
        check(&Reason::PlanAlready { plan: pro, granted: vec![] }, "You were already on Pro, so your plan did not change.");
        check(
            &Reason::PlanAlready { plan: pro, granted: months() },
            "You were already on Pro, so your plan did not change. The bottles of Pro for September 2026 and October 2026 were added.",
        );
        check(
            &Reason::PaymentRecorded { allowance: Allowance::Granted(granted), cleared: true },
            "Your payment was received, and the bottles of Pro were added. Nothing is owed any more.",
        );
        check(
            &Reason::PaymentRecorded { allowance: Allowance::AlreadyGranted, cleared: false },
            "Your payment was received. The bottles it pays for had been added before.",
        );
        check(
            &Reason::PaymentRecorded { allowance: Allowance::NoProPlan, cleared: false },
            "Your payment was received. No Pro plan is known that it belongs to, so no bottles were added.",
        );
        let asked = |plan, from, changed| Reason::AskedAgain { source: Source::Kinde, plan, from, changed };
        let found = "We found this by asking Kinde ourselves: its message about it never came.";
        check(&asked(pro, None, true), &format!("Your plan changed to Pro. {found}"));
        check(&asked(free, Some(at), true), &format!("Your plan changes to Free on 20 November 2026, 10:00 UTC. {found}"));
        check(&asked(pro, None, false), "You were already on Pro, so your plan did not change.");
        let newer = || Some(Newer { key: "event_1".to_owned(), at });
        check(
            &Reason::NewerStoredGranted { granted: months(), newer: newer() },
            "A newer change decides your plan, so it stayed as it is. The bottles of Pro for September 2026 and October 2026 were added.",
        );
        check(&Reason::NewerStored { newer: newer() }, "Nothing changed: a newer change to your plan was already known.");
        check(&Reason::FromTheFuture { at }, "This says that it happens on 20 November 2026, 10:00 UTC. It waits until then.");
        for reason in [
            Reason::PaymentFailureRecorded,
            Reason::InvoiceOverdueRecorded,
            Reason::NotCurrentAgreement,
            Reason::NoBillingChange { kind: "user.created".to_owned() },
            Reason::NotAPerson { customer_type: "organization".to_owned() },
            Reason::WaitsForPerson { customer: "c".to_owned() },
            Reason::WaitsForPlanKey { key: "gold".to_owned() },
            Reason::ClaimedByTwo { customer: "c".to_owned() },
            Reason::WaitsForProvider { what: "it is away".to_owned() },
            Reason::PackAlreadyGranted,
            Reason::PackAwaited,
            Reason::PackFailed,
            Reason::MoneyKnown,
            Reason::InvoiceSettled,
            Reason::Gone { object: "sub_1".to_owned() },
            Reason::OtherMode { live: true },
            Reason::OtherMode { live: false },
            Reason::NothingOfOurs,
            Reason::Unasked,
        ] {
            let stored = reason.to_string();
            assert!(FIXED.iter().any(|(start, _)| stored.starts_with(start)), "{stored} is only repeated, not said");
        }
    }

    #[test]
    fn money_and_packs_are_said_in_plain_words() {
        let sum = |minor: i64| Money { minor, currency: "usd".parse().unwrap() };
        let period = "2026-10".parse().unwrap();
        check(&Reason::PackGranted { bottles: 100, period }, "A pack of 100 bottles was added for October 2026.");
        check(
            &Reason::PaymentRecorded { allowance: Allowance::NoPeriod, cleared: true },
            "Your payment was received. It opens no new month, so no bottles were added. Nothing is owed any more.",
        );
        for (kind, minor, plain) in [
            (MoneyKind::Charge, 500, "You paid 5.00 USD."),
            (MoneyKind::Refund, -120, "You were given back 1.20 USD."),
            (MoneyKind::RefundFailed, 120, "A refund of 1.20 USD did not reach you and came back to us."),
            (MoneyKind::Credit, -200, "Your credit changed by 2.00 USD."),
            (MoneyKind::Dispute, -500, "Your bank took 5.00 USD back from us."),
            (MoneyKind::DisputeReversal, 500, "Your bank gave 5.00 USD back to us."),
        ] {
            check(&Reason::MoneyMoved { moved: vec![(kind, sum(minor))] }, plain);
        }
        let two = vec![(MoneyKind::Charge, sum(500)), (MoneyKind::Credit, sum(200))];
        check(&Reason::MoneyMoved { moved: two }, "You paid 5.00 USD. Your credit changed by 2.00 USD.");
        let disputed = |status: &str, moved| Reason::Disputed { money: sum(500), status: status.to_owned(), moved };
        check(
            &disputed("needs_response", vec![(MoneyKind::Dispute, sum(-500))]),
            "Your payment of 5.00 USD is disputed through your bank. Your plan and your bottles stay as they are. Your bank took 5.00 USD back from us.",
        );
        check(
            &disputed("lost", vec![]),
            "The dispute about your payment of 5.00 USD is over: your bank gave you the money back.",
        );
        check(
            &disputed("won", vec![(MoneyKind::DisputeReversal, sum(500))]),
            "The dispute about your payment of 5.00 USD is over: the payment stands. Your bank gave 5.00 USD back to us.",
        );
        check(&disputed("warning_closed", vec![]), "The question about your payment of 5.00 USD is settled.");
    }

    #[test]
    fn what_is_worded_nowhere_is_shown_as_it_is_stored() {
        assert_eq!(sentence(Status::Applied, Some("refund of pi_1 noted")), "Refund of pi_1 noted.");
        assert_eq!(sentence(Status::Applied, None), "");
    }
}
