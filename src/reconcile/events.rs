//! Events that the provider made and that never came to us: stored, with their own ids, by the code that stores deliveries. Should
//! one be delivered after all, it is a copy.

use sqlx::PgConnection;

use super::findings::{Class, State};
use super::runs::{Mode, Run};
use super::suspect::Suspect;
use super::{Done, Error, Reconciler, journal};
use crate::checkpoint::Checkpoints;
use crate::domain::event::{Delivery, Source};
use crate::inbox::open;
use crate::intake;

impl Reconciler {
    pub(super) async fn events_page(
        &self,
        conn: &mut PgConnection,
        run: &Run,
        source: Source,
        cursor: Option<&str>,
    ) -> Result<Done, Error> {
        let provider = self.provider(source)?;
        let page = self.patiently(source, || provider.events(run.since, run.until, cursor)).await?;
        let mut done = Done::at(page.next);
        done.count("events", page.items.len());
        let keys: Vec<&str> = page.items.iter().map(|event| event.key.as_str()).collect();
        let known = open::stored(&mut *conn, source, &keys).await?;
        let missing: Vec<&Delivery> = page.items.iter().filter(|event| !known.contains_key(&event.key)).collect();
        if missing.is_empty() {
            return Ok(done);
        }
        // Noted first: whoever dies between the two finds the note, and stores what is still missing.
        let suspects: Vec<Suspect> = missing.iter().map(|event| suspect(event, run.mode)).collect();
        journal::found(&mut *conn, run.id, &suspects, self.clock).await?;
        if run.mode == Mode::Look {
            return Ok(done);
        }
        let stored = intake::accept(&self.pool, &missing, self.clock, &Checkpoints::default()).await?;
        for (event, stored) in missing.iter().zip(stored) {
            if stored.copy {
                journal::drop_event(&mut *conn, run.id, source, event.key.as_str()).await?;
            } else {
                tracing::info!(event = %event.key, run = %run.id, "an event that never came was fetched and stored");
                journal::stored(&mut *conn, run.id, source, event.key.as_str(), stored.id).await?;
            }
        }
        self.wake.wake();
        Ok(done)
    }
}

fn suspect(event: &Delivery, mode: Mode) -> Suspect {
    let at = event.occurred.map_or_else(String::new, |at| format!(" of {at}"));
    let (done, state) = match mode {
        Mode::Look => ("nothing: this run only looked", State::Open),
        Mode::Apply => ("fetched and stored", State::Asked),
    };
    Suspect {
        class: Class::EventMissing,
        source: event.source,
        subject: event.key.0.clone(),
        account: None,
        customer: None,
        ours: "no such event".to_owned(),
        theirs: format!("{}{at}", event.kind),
        done,
        state,
        question: None,
    }
}
