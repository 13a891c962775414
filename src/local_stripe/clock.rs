//! What time brings. Whatever is due is done at its own moment and in its order, however far the clock is moved at once.

use super::invoices;
use super::subscriptions::{self, Why};
use super::world::{World, int, text};
use super::{checkout, refusal::Refusal};

const DAY: i64 = 24 * 3600;

/// Longer is surely a slip, and every month of it would be billed.
const LONGEST_MOVE: i64 = 5 * 366 * DAY;

/// In the order in which things of one moment happen: who leaves is not billed once more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    EndSubscription(String),
    AnnounceTrialEnd(String),
    ComeRound(String),
    ExpireSubscription(String),
    FinalizeInvoice(String),
    RetryInvoice(String),
    ExpireSession(String),
}

/// Moves the clock on, and does what falls due on the way.
pub fn advance(world: &mut World, secs: i64) -> Result<(), Refusal> {
    if !(0..=LONGEST_MOVE).contains(&secs) {
        return Err(Refusal::invalid(format!(
            "The clock goes forward, by at most {LONGEST_MOVE} seconds at once, not by {secs}."
        )));
    }
    let until = world.now() + secs;
    while let Some((at, due)) = next(world).filter(|(at, _)| *at <= until) {
        world.at_moment(at.max(world.now()), |world| happen(world, &due));
    }
    if secs > 0 {
        world.set_clock(until);
    }
    world.forget_old();
    Ok(())
}

/// The next thing to happen, and when.
fn next(world: &World) -> Option<(i64, Due)> {
    let mut all: Vec<(i64, Due)> = Vec::new();
    for one in world.all("subscription") {
        let id = text(one, "id").to_owned();
        match text(one, "status") {
            "incomplete" => all.push((int(one, "created") + 23 * 3600, Due::ExpireSubscription(id))),
            "active" | "trialing" | "past_due" | "unpaid" => {
                if let Some(at) = one["cancel_at"].as_i64().filter(|_| one["cancel_at_period_end"] != true) {
                    all.push((at, Due::EndSubscription(id.clone())));
                }
                if text(one, "status") == "trialing" && !world.announced.contains(&id) {
                    all.push((int(one, "trial_end") - 3 * DAY, Due::AnnounceTrialEnd(id.clone())));
                }
                all.push((subscriptions::ends(one), Due::ComeRound(id)));
            }
            _ => {}
        }
    }
    for one in world.all("invoice") {
        let id = text(one, "id").to_owned();
        match (text(one, "status"), one["automatically_finalizes_at"].as_i64(), one["next_payment_attempt"].as_i64()) {
            ("draft", Some(at), _) => all.push((at, Due::FinalizeInvoice(id))),
            ("open", _, Some(at)) => all.push((at, Due::RetryInvoice(id))),
            _ => {}
        }
    }
    for one in world.all("checkout.session").into_iter().filter(|one| text(one, "status") == "open") {
        all.push((int(one, "expires_at"), Due::ExpireSession(text(one, "id").to_owned())));
    }
    all.into_iter().min()
}

fn happen(world: &mut World, due: &Due) {
    match due {
        Due::EndSubscription(id) => subscriptions::end(world, id, Why::Requested),
        Due::AnnounceTrialEnd(id) => {
            world.announced.insert(id.clone());
            world.tell("customer.subscription.trial_will_end", id);
        }
        Due::ComeRound(id) => subscriptions::come_round(world, id),
        Due::ExpireSubscription(id) => subscriptions::expire(world, id),
        Due::FinalizeInvoice(id) => {
            invoices::finalize(world, id);
            if text(&world.copy(id), "status") == "open" {
                invoices::attempt(world, id, None);
            }
        }
        Due::RetryInvoice(id) => {
            invoices::attempt(world, id, None);
        }
        Due::ExpireSession(id) => {
            // It is open, so it can expire.
            let _ = checkout::expire(world, id);
        }
    }
}
