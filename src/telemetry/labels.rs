//! The words that metrics and spans are labelled with. Closed sets all: nothing that came from outside is ever a label, or
//! whoever posts to us could fill a Prometheus with series.

use crate::domain::event::Source;
use crate::domain::word::words;

words! {
    /// Whose endpoint a delivery was posted to.
    Endpoint {
        Kinde = "kinde",
        Stripe = "stripe",
        /// An address of no provider: somebody has written it wrong.
        Other = "other",
    }
}

words! {
    /// What became of a delivery.
    Arrival {
        Stored = "stored",
        Copy = "copy",
        Conflict = "conflict",
        NotGenuine = "not_genuine",
        TooLarge = "too_large",
        /// Its body broke off or did not come in time.
        Unreadable = "unreadable",
        Unavailable = "unavailable",
        Unconfigured = "unconfigured",
    }
}

impl Arrival {
    /// It was answered with 200.
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Stored | Self::Copy | Self::Conflict)
    }
}

words! {
    /// How a run of an event ended.
    Attempt {
        Applied = "applied",
        Ignored = "ignored",
        Parked = "parked",
        /// It did not go through: tried again, or dead.
        Failed = "failed",
        /// Given back uncharged.
        Released = "released",
        LeaseLost = "lease_lost",
        Stopped = "stopped",
    }
}

words! {
    /// What is asked of whom.
    Call {
        KindeKeys = "kinde_keys",
        KindeSignIn = "kinde_sign_in",
        KindeToken = "kinde_token",
        KindeManagement = "kinde_management",
        StripeApi = "stripe_api",
        AlertWebhook = "alert_webhook",
        Mail = "mail",
    }
}

words! {
    /// How a call ended.
    CallEnd {
        Ok = "ok",
        /// The other side said no.
        Refused = "refused",
        Limited = "limited",
        /// The other side is in trouble.
        Failed = "failed",
        /// No answer, or half of one.
        Unreachable = "unreachable",
        /// We would not make it, or not read it to its end.
        Stopped = "stopped",
    }
}

impl CallEnd {
    /// What a status means for the call as such.
    pub const fn of_status(status: u16) -> Self {
        match status {
            429 => Self::Limited,
            500.. => Self::Failed,
            400.. => Self::Refused,
            _ => Self::Ok,
        }
    }
}

words! { Fetch { Ok = "ok", Failed = "failed" } }

words! {
    /// Whose connections a pool has.
    Pool { Intake = "intake", Worker = "worker", Reminders = "reminders", Web = "web", Cli = "cli", Reconcile = "reconcile", Scrape = "scrape" }
}

words! { Connection { Idle = "idle", Busy = "busy" } }

words! { Letter { Sent = "sent", PutOff = "put_off", Dead = "dead" } }

words! { Waiting { Waiting = "waiting", Dead = "dead" } }

words! { Channel { Webhook = "webhook", Email = "email" } }

words! {
    /// What a person has to look at. A condition that is newer than this list counts as other.
    Condition {
        Dead = "dead",
        Parked = "parked",
        Overdue = "overdue",
        Conflict = "conflict",
        Dispute = "dispute",
        Breaker = "breaker",
        SilentKinde = "silent:kinde",
        SilentStripe = "silent:stripe",
        Drift = "reconcile drift",
        Late = "reconcile late",
        Other = "other",
    }
}

words! {
    /// Events that are not settled, and those that died.
    Open { Received = "received", Processing = "processing", Failed = "failed", Parked = "parked", Dead = "dead" }
}

words! {
    /// What became of a finished span.
    SpanEnd {
        Sent = "sent",
        /// The queue was full.
        Dropped = "dropped",
        /// The collector would not have it, or was not there.
        Lost = "lost",
    }
}

words! { Level { Error = "error", Warn = "warn", Info = "info" } }

words! {
    /// Where a panic was caught.
    Part { Web = "web", Worker = "worker", Handler = "handler", Bell = "bell", Courier = "courier", Replayer = "replayer", Reconcile = "reconcile" }
}

/// The sources as words.
pub const SOURCES: &[&str] = &[Source::Kinde.as_str(), Source::Stripe.as_str(), Source::Bottle.as_str()];

impl Condition {
    pub fn of(text: &str) -> &'static str {
        Self::WORDS.iter().find(|word| **word == text).copied().unwrap_or(Self::Other.as_str())
    }
}
