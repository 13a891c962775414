//! Sends what is due, notes what came of it, and waits for the next. What is owed stands in the state, so a dispatcher that
//! starts after a stop goes on where the one before it was.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::journeys::{self, Due, Try};
use super::local::Local;
use super::moment::At;
use super::plans;

pub async fn run(local: Arc<Local>, stop: CancellationToken) {
    let mut tries = JoinSet::new();
    let mut under_way = HashSet::new();
    loop {
        let now = At::now();
        end_periods(&local, now);
        let (due, next) = local.store.read(|state| {
            let (due, next) = journeys::due(state, now, &under_way);
            (due, next.into_iter().chain(plans::next_end(state)).min())
        });
        for one in due {
            under_way.insert(one.journey);
            tries.spawn(attempt(Arc::clone(&local), one));
        }
        // A moment more than it takes: a timer may fire a little early by the other clock.
        let wait = next.map_or(IDLE, |next| next.away_from(now) + Duration::from_millis(1)).min(IDLE);
        tokio::select! {
            // What is open then is tried again after the next start.
            () = stop.cancelled() => return,
            () = local.wake.notified() => {}
            Some(Ok((journey, done))) = tries.join_next(), if !tries.is_empty() => {
                under_way.remove(&journey);
                local.store.change(|state| journeys::note(state, journey, done, At::now()));
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Nothing is due for so long at most, or it is looked at again: the machine's clock may be set.
const IDLE: Duration = Duration::from_secs(30);

async fn attempt(local: Arc<Local>, due: Due) -> (u64, Try) {
    let at = At::now();
    let outcome = local.sender.attempt(&due.delivery, due.n, due.manner).await;
    (due.journey, Try { n: due.n, at, outcome })
}

fn end_periods(local: &Local, now: At) {
    if local.store.read(plans::next_end).is_none_or(|end| end > now) {
        return;
    }
    let told = local.store.change(|state| {
        let told = plans::end_periods(state, now);
        local.tell(state, &told, now)
    });
    if let Err(error) = told {
        tracing::error!(%error, "the local Kinde could not tell that a period ended");
    }
}
