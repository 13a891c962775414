//! The stable names of what can become of an event, for machines: a sentence may be worded better, a name stays.

use super::reason::Reason;
use super::word::words;

words! {
    /// One for each [`Reason`], and two for what has none.
    Code {
        PlanSet = "plan_set",
        PlanAlready = "plan_already",
        PaymentRecorded = "payment_recorded",
        PaymentFailureRecorded = "payment_failure_recorded",
        InvoiceOverdueRecorded = "invoice_overdue_recorded",
        NewerStoredGranted = "newer_stored_granted",
        NewerStored = "newer_stored",
        NotCurrentAgreement = "not_current_agreement",
        NoBillingChange = "no_billing_change",
        NotAPerson = "not_a_person",
        WaitsForPerson = "waits_for_person",
        WaitsForPlanKey = "waits_for_plan_key",
        ClaimedByTwo = "claimed_by_two",
        FromTheFuture = "from_the_future",
        WaitsForProvider = "waits_for_provider",
        PackGranted = "pack_granted",
        PackAlreadyGranted = "pack_already_granted",
        PackAwaited = "pack_awaited",
        PackFailed = "pack_failed",
        MoneyMoved = "money_moved",
        MoneyKnown = "money_known",
        InvoiceSettled = "invoice_settled",
        Disputed = "disputed",
        Gone = "gone",
        OtherMode = "other_mode",
        NothingOfOurs = "nothing_of_ours",
        Unasked = "unasked",
        AskedAgain = "asked_again",
        /// A run that is tried again.
        Failed = "failed",
        Dead = "dead",
    }
}

impl Reason {
    pub const fn code(&self) -> Code {
        match self {
            Self::PlanSet { .. } => Code::PlanSet,
            Self::PlanAlready { .. } => Code::PlanAlready,
            Self::PaymentRecorded { .. } => Code::PaymentRecorded,
            Self::PaymentFailureRecorded => Code::PaymentFailureRecorded,
            Self::InvoiceOverdueRecorded => Code::InvoiceOverdueRecorded,
            Self::NewerStoredGranted { .. } => Code::NewerStoredGranted,
            Self::NewerStored { .. } => Code::NewerStored,
            Self::NotCurrentAgreement => Code::NotCurrentAgreement,
            Self::NoBillingChange { .. } => Code::NoBillingChange,
            Self::NotAPerson { .. } => Code::NotAPerson,
            Self::WaitsForPerson { .. } => Code::WaitsForPerson,
            Self::WaitsForPlanKey { .. } => Code::WaitsForPlanKey,
            Self::ClaimedByTwo { .. } => Code::ClaimedByTwo,
            Self::FromTheFuture { .. } => Code::FromTheFuture,
            Self::WaitsForProvider { .. } => Code::WaitsForProvider,
            Self::PackGranted { .. } => Code::PackGranted,
            Self::PackAlreadyGranted => Code::PackAlreadyGranted,
            Self::PackAwaited => Code::PackAwaited,
            Self::PackFailed => Code::PackFailed,
            Self::MoneyMoved { .. } => Code::MoneyMoved,
            Self::MoneyKnown => Code::MoneyKnown,
            Self::InvoiceSettled => Code::InvoiceSettled,
            Self::Disputed { .. } => Code::Disputed,
            Self::Gone { .. } => Code::Gone,
            Self::OtherMode { .. } => Code::OtherMode,
            Self::NothingOfOurs => Code::NothingOfOurs,
            Self::AskedAgain { .. } => Code::AskedAgain,
            Self::Unasked => Code::Unasked,
        }
    }
}
