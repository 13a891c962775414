//! A run for the page to be drawn from without a database: the pipeline as one would tell it, not as it is. Tests of the
//! pipeline must not use it.

use std::time::Duration;

use bottle::domain::event::Status;
use bottle::domain::plan::Plan;
use bottle::engine_room::naive::{self, Repairs};
use bottle::engine_room::scenario::{Event, Script};
use bottle::engine_room::stop::Place;
use bottle::engine_room::timetable::Sending;
use bottle::engine_room::{Account, AccountRow, InboxRow, LedgerRow, Rows, Run, Step, TraceLine};

pub fn sample_run(script: &Script) -> Run {
    let mut pipeline = Told::default();
    let naive = naive::run(script, Repairs::default());
    let steps = script.sends().iter().zip(naive).map(|(sending, naive)| pipeline.step(sending, naive.account)).collect();
    Run { script: script.clone(), steps, took: Duration::from_millis(84) }
}

#[derive(Default)]
struct Told {
    rows: Rows,
    newest: Option<Event>,
}

impl Told {
    fn step(&mut self, sending: &Sending, naive: Account) -> Step {
        let event = sending.event;
        let mut trace = vec![line("verified", "the signature, by the key its header names", "src/providers/script.rs")];
        let mut stopped = sending.stop;
        let mut outcome;
        if sending.stop == Some(Place::BeforeStore) {
            outcome = "stopped before the store; nothing is known of it".to_owned();
        } else {
            self.rows.receipts += 1;
            let known = self.rows.inbox.iter_mut().find(|row| row.event == event);
            let copy = known.is_some();
            if let Some(row) = known {
                row.seen += 1;
                outcome = "copy counted, nothing runs".to_owned();
                trace.push(line("counted", "unique (source, dedupe_key): the event is stored already", "src/inbox/queue.rs"));
            } else {
                outcome = "stored".to_owned();
                trace.push(line("stored", "unique (source, dedupe_key): one row for each event", "src/inbox/queue.rs"));
                self.rows.inbox.push(InboxRow {
                    event,
                    key: format!("event_{}", event.name().to_lowercase()),
                    kind: kind(event).to_owned(),
                    status: Status::Received,
                    reason: None,
                    seen: 1,
                    claims: 0,
                    attempts: 0,
                });
            }
            let dies = sending.stop.is_some_and(Place::is_unanswered);
            let open: Vec<usize> =
                (0..self.rows.inbox.len()).filter(|&at| self.rows.inbox[at].status == Status::Received).collect();
            let stops_inside = sending.stop.filter(|place| !place.is_unanswered());
            if !dies {
                trace.push(line("answered", "200 only after the commit", "src/intake/mod.rs"));
            }
            if open.is_empty() && stops_inside.is_some() {
                stopped = None;
            }
            for at in open.into_iter().filter(|_| !dies) {
                self.rows.inbox[at].claims += 1;
                trace.push(line("claimed", "for update skip locked, and a lease of 30 s", "src/inbox/queue.rs"));
                if stops_inside.is_some() && self.rows.inbox[at].event == event {
                    trace.push(line("rolled back", "one transaction: all effects or none", "src/billing/apply.rs"));
                    outcome = "stored; rolled back whole; its lease ends in 30 s".to_owned();
                    continue;
                }
                let said = self.apply(at, &mut trace);
                outcome = if copy {
                    format!("copy counted; the stored event runs to the end: {said}")
                } else {
                    format!("stored; {said}")
                };
            }
            if dies {
                outcome.push_str("; no answer, so it will be sent again");
            }
        }
        let balance = self.rows.ledger.iter().map(|entry| entry.delta).sum::<i64>();
        let plan = self.rows.account.as_ref().map_or(Plan::Free, |account| account.plan);
        let pipeline = Account { plan, balance: if balance == 0 { 10 } else { balance } };
        let Sending { n, at, event, copy, resend, .. } = *sending;
        Step { n, at, event, copy, resend, stopped, naive, pipeline, outcome, trace, rows: self.rows.clone() }
    }

    fn apply(&mut self, at: usize, trace: &mut Vec<TraceLine>) -> String {
        let event = self.rows.inbox[at].event;
        let account = self.rows.account.get_or_insert(AccountRow { plan: Plan::Free, plan_changed_at: None });
        if self.rows.ledger.is_empty() {
            self.rows.ledger.push(LedgerRow { entry_key: "free:1:2026-10".into(), delta: 10 });
        }
        let newer = self.newest.is_none_or(|newest| event.occurred_at() > newest.occurred_at());
        let (status, reason) = match event {
            Event::Up => {
                account.plan = Plan::Pro;
                account.plan_changed_at = Some(event.occurred_at());
                self.newest = Some(event);
                self.rows.ledger.push(LedgerRow { entry_key: "pro:1:2026-10".into(), delta: 490 });
                trace.push(line("folded", "facts ordered by when they happened", "src/billing/fold.rs"));
                trace.push(line("granted", "unique entry key pro:1:2026-10", "src/ledger.rs"));
                (Status::Applied, "plan set to pro, Pro allowance granted")
            }
            Event::Old if !newer => {
                trace.push(line("folded", "a newer plan change stands: 10:00:00 against 09:57:00", "src/billing/fold.rs"));
                (Status::Ignored, "ignored: a newer plan change is already stored")
            }
            Event::Old => (Status::Applied, "plan is already free"),
            Event::Pay if account.plan == Plan::Pro => {
                trace.push(line("not granted", "unique entry key pro:1:2026-10", "src/ledger.rs"));
                (Status::Applied, "payment recorded, Pro allowance already granted")
            }
            Event::Pay => {
                trace.push(line("folded", "a payment alone belongs to no plan", "src/billing/fold.rs"));
                (Status::Applied, "payment recorded; no Pro plan it belongs to")
            }
        };
        trace.push(line("marked", "in the same transaction as the effects, by the lease's token", "src/inbox/queue.rs"));
        let row = &mut self.rows.inbox[at];
        (row.status, row.reason, row.claims) = (status, Some(reason.to_owned()), row.claims);
        reason.to_owned()
    }
}

fn line(step: &str, guard: &str, source: &'static str) -> TraceLine {
    TraceLine { step: step.into(), guard: guard.into(), source }
}

fn kind(event: Event) -> &'static str {
    match event {
        Event::Up => "customer.plan_changed",
        Event::Pay => "customer.payment_succeeded",
        Event::Old => "customer.agreement_cancelled",
    }
}
