//! What a provider calls an event, in the words of somebody who has never heard of events. The one place for them.

/// What an event is about, as a person sorts their billing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Plan,
    Payment,
    Other,
}

impl Subject {
    pub const ALL: [Self; 3] = [Self::Plan, Self::Payment, Self::Other];

    /// As it stands in an address.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Payment => "payment",
            Self::Other => "other",
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Plan => "Your plan",
            Self::Payment => "Payments",
            Self::Other => "Everything else",
        }
    }

    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.as_str() == word)
    }

    /// The types of events about this; none for [`Subject::Other`], which is every type not named here.
    pub fn kinds(self) -> Vec<&'static str> {
        KINDS.iter().filter(|(_, _, subject)| *subject == self).map(|(kind, _, _)| *kind).collect()
    }
}

const KINDS: &[(&str, &str, Subject)] = &[
    ("customer.plan_changed", "Plan changed", Subject::Plan),
    ("customer.plan_assigned", "Plan assigned", Subject::Plan),
    ("customer.agreement_created", "Plan begun", Subject::Plan),
    ("customer.agreement_cancelled", "Plan cancelled", Subject::Plan),
    ("customer.payment_succeeded", "Payment received", Subject::Payment),
    ("customer.payment_failed", "Payment failed", Subject::Payment),
    ("customer.invoice_overdue", "Invoice overdue", Subject::Payment),
    ("bottle.period_opened", "Month begun", Subject::Plan),
    ("bottle.asked_kinde", "Plan looked up again", Subject::Plan),
    ("bottle.asked_stripe", "Plan looked up again", Subject::Plan),
    ("checkout.session.completed", "Checkout completed", Subject::Payment),
    ("checkout.session.async_payment_succeeded", "Payment received", Subject::Payment),
    ("checkout.session.async_payment_failed", "Payment failed", Subject::Payment),
    ("customer.subscription.created", "Subscription begun", Subject::Plan),
    ("customer.subscription.updated", "Subscription changed", Subject::Plan),
    ("customer.subscription.deleted", "Subscription ended", Subject::Plan),
    ("customer.subscription.paused", "Subscription paused", Subject::Plan),
    ("customer.subscription.resumed", "Subscription resumed", Subject::Plan),
    ("invoice.paid", "Payment received", Subject::Payment),
    ("invoice.payment_failed", "Payment failed", Subject::Payment),
    ("invoice.voided", "Invoice cancelled", Subject::Payment),
    ("invoice.marked_uncollectible", "Invoice given up", Subject::Payment),
    ("charge.refunded", "Refund", Subject::Payment),
    ("refund.created", "Refund", Subject::Payment),
    ("refund.updated", "Refund", Subject::Payment),
    ("refund.failed", "Refund failed", Subject::Payment),
    ("charge.dispute.created", "Payment disputed", Subject::Payment),
    ("charge.dispute.updated", "Dispute goes on", Subject::Payment),
    ("charge.dispute.funds_withdrawn", "Disputed money taken", Subject::Payment),
    ("charge.dispute.funds_reinstated", "Disputed money returned", Subject::Payment),
    ("charge.dispute.closed", "Dispute settled", Subject::Payment),
];

/// `Plan changed` for `customer.plan_changed`.
pub fn title(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, _, _)| *known == kind).map_or("Other message", |(_, title, _)| title)
}

/// It tells of a plan that begins; a provider may tell of one change by several of these.
pub fn begins_plan(kind: &str) -> bool {
    matches!(kind, "customer.plan_changed" | "customer.plan_assigned" | "customer.agreement_created")
}

/// A payment was tried and did not come.
pub fn says_failure(kind: &str) -> bool {
    KINDS.iter().any(|(known, title, _)| *known == kind && *title == "Payment failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_title_and_one_subject() {
        assert_eq!(title("customer.plan_changed"), "Plan changed");
        assert_eq!(title("user.created"), "Other message");
        let about: usize = Subject::ALL.into_iter().map(|subject| subject.kinds().len()).sum();
        assert_eq!(about, KINDS.len());
        assert!(Subject::Other.kinds().is_empty(), "it means all that is not named");
        for (n, (kind, _, _)) in KINDS.iter().enumerate() {
            assert!(KINDS[n + 1..].iter().all(|(other, _, _)| other != kind), "{kind} stands here twice");
        }
    }
}
