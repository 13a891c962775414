//! What is looked for. Each condition is a question to the tables: it holds or it does not, whoever asks and whenever.

use std::time::Duration;

use sqlx::PgConnection;

use crate::billing::disputes;
use crate::domain::event::Source;
use crate::domain::ids::EventId;
use crate::inbox::watch::{self, NAMED};
use crate::operators::boxes::{self, Pile};
use crate::reconcile;
use crate::worker::pause;

use super::{Error, book};

/// A mapping that is still missing after this will not come by itself.
const PARKED_LONG: Duration = Duration::from_secs(24 * 3600);
/// A worker that runs takes what is due within seconds.
const OVERDUE: Duration = Duration::from_secs(5 * 60);
/// A provider that is silent for this long may have switched our endpoint off.
const SILENT: Duration = Duration::from_secs(24 * 3600);
/// A conflict is looked at by a person, not settled; it stays on the board this long.
const CONFLICT_SHOWN: Duration = Duration::from_secs(24 * 3600);

/// Who opens a dispute and is answered at once may have it closed before anybody looked.
const DISPUTE_SHOWN: Duration = Duration::from_secs(24 * 3600);

/// One night may fail; of the second somebody has to hear.
const RECONCILED_WITHIN_HOURS: f64 = 48.0;

/// A condition that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its name: two findings of one name are one alert.
    pub condition: String,
    pub sentence: String,
    /// Some of the events it is about.
    pub events: Vec<EventId>,
}

/// All that holds now. `providers` are those that are configured.
///
/// # Errors
/// The database's.
pub async fn find(conn: &mut PgConnection, providers: &[Source]) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    // One that an operator acknowledged is a decision and no longer news; dead once more it is.
    let dead = boxes::page(conn, Pile::Dead, None, NAMED).await?.into_iter().map(|boxed| boxed.id).collect();
    note(&mut findings, "dead", dead, |n| {
        format!("{n} did not go through and will not be tried again by itself; read why, mend it and replay, or acknowledge it")
    });
    let parked = watch::parked(conn, PARKED_LONG).await?;
    note(&mut findings, "parked", parked, |n| {
        format!("{n} waited for more than a day for what tells whose they are or what their plan is")
    });
    let overdue = watch::overdue(conn, OVERDUE).await?;
    note(&mut findings, "overdue", overdue, |n| {
        format!("{n} fell due more than 5 minutes ago and no worker took them; is one running?")
    });
    let conflicting = watch::conflicting(conn, CONFLICT_SHOWN).await?;
    note(&mut findings, "conflict", conflicting, |n| {
        format!("{n} came again with other content under the same id, genuinely signed; the first content stands")
    });
    let disputed = disputes::to_answer(conn, DISPUTE_SHOWN, NAMED).await?;
    note(&mut findings, "dispute", disputed, |n| {
        format!("{n} told of a payment that its customer disputes at their bank; answer it at the provider, before its deadline")
    });
    if let Some(fingerprint) = pause::paused(conn).await?.into_iter().next() {
        findings.push(Finding {
            condition: "breaker".to_owned(),
            sentence: format!(
                "every event fails alike, so the worker pauses and probes; nothing is lost and no event is charged: {fingerprint}"
            ),
            events: Vec::new(),
        });
    }
    findings.extend(drift(conn).await?);
    for provider in providers {
        if book::silent_for(conn, *provider, SILENT).await? {
            findings.push(Finding {
                condition: format!("silent:{}", provider.as_str()),
                sentence: format!(
                    "nothing was heard from {} for a day; is the webhook still enabled there, and its address right?",
                    provider.as_str()
                ),
                events: Vec::new(),
            });
        }
    }
    Ok(findings)
}

/// What reconcile found and could not repair.
async fn drift(conn: &mut PgConnection) -> Result<Option<Finding>, Error> {
    let drift = reconcile::watch::drift(conn).await?;
    let classes: Vec<String> = drift.classes.iter().map(|(class, n)| format!("{}: {n}", class.title())).collect();
    Ok((!classes.is_empty()).then(|| Finding {
        condition: "reconcile drift".to_owned(),
        sentence: format!(
            "what we have differs from what a provider says, and nothing has repaired it ({}); `bottle reconcile` says what to do",
            classes.join("; ")
        ),
        events: drift.events,
    }))
}

/// That providers are asked nightly, and that it came to nothing for two days.
///
/// # Errors
/// The database's.
pub async fn late(conn: &mut PgConnection) -> Result<Option<Finding>, Error> {
    let is_late = reconcile::watch::is_late(conn, RECONCILED_WITHIN_HOURS).await?;
    Ok(is_late.then(|| Finding {
        condition: "reconcile late".to_owned(),
        sentence: "the nightly reconcile has not succeeded for two days; `bottle reconcile` says why".to_owned(),
        events: Vec::new(),
    }))
}

fn note(findings: &mut Vec<Finding>, condition: &str, events: Vec<EventId>, sentence: impl FnOnce(&str) -> String) {
    let count = match events.len() {
        0 => return,
        1 => "an event".to_owned(),
        n if i64::try_from(n).is_ok_and(|n| n >= NAMED) => format!("{n} events or more"),
        n => format!("{n} events"),
    };
    findings.push(Finding { condition: condition.to_owned(), sentence: sentence(&count), events });
}
