//! Which guard held at each step that a delivery really took, and where to read about it.

use super::TraceLine;
use super::stop::Place;
use crate::checkpoint::Step;

/// The steps as lines; `copy`: the event was stored before; `stopped`: where the process was cut off.
pub fn lines(steps: &[Step], copy: bool, stopped: Option<Place>) -> Vec<TraceLine> {
    let mut lines: Vec<TraceLine> = steps.iter().filter_map(|step| line(*step, copy)).collect();
    if stopped.is_some_and(|place| !place.is_unanswered()) {
        lines.push(TraceLine {
            step: "rolled back".to_owned(),
            guard: "Plan, allowance and mark share one transaction: cut off before its end, none of it counts.".to_owned(),
            source: "src/worker/process.rs",
        });
    }
    lines
}

fn line(step: Step, copy: bool) -> Option<TraceLine> {
    let (name, guard, source) = match step {
        Step::BeforeStore => (
            "verified",
            "The signature is the provider's, and the token is an event, not somebody's sign-in.",
            "src/providers/kinde.rs",
        ),
        Step::Stored if copy => (
            "counted",
            "The id inside the signature is unique: this delivery is a copy, counted and dropped.",
            "src/inbox/store.rs",
        ),
        Step::Stored => ("stored", "Committed before the sender is answered: a 200 means it is stored.", "src/inbox/store.rs"),
        Step::Claimed => {
            ("claimed", "A lease of 30 s, committed by itself; if this worker dies the event is due again.", "src/inbox/queue.rs")
        }
        Step::Resolved => (
            "read",
            "What it says is known before a transaction opens; nothing waits for a network with rows locked.",
            "src/providers/mod.rs",
        ),
        Step::Held => (
            "held",
            "The lease token is checked inside the transaction: a worker that overslept stops here.",
            "src/inbox/queue.rs",
        ),
        Step::Locked => ("locked", "The account is locked, then all its facts are read.", "src/accounts.rs"),
        Step::HalfWay => (
            "plan decided",
            "The plan follows from the set of facts by the time they happened, never from their arrival.",
            "src/billing/fold.rs",
        ),
        Step::BeforeMark => (
            "entries written",
            "An entry has the account and month as its key: writing it twice writes it once.",
            "src/ledger.rs",
        ),
        Step::Marked | Step::Ringing | Step::Rung | Step::Taken | Step::Sent => return None,
        Step::Committed => {
            ("committed", "Plan, allowance and mark share one transaction: all of it or nothing.", "src/worker/process.rs")
        }
    };
    Some(TraceLine { step: name.to_owned(), guard: guard.to_owned(), source })
}
