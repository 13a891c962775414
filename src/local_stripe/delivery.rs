//! Carries events to the webhook endpoint: signed anew for every attempt, tried again until a 2xx comes, in no promised order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::server::Local;
use super::switches::{Order, Switches};
use super::world::{World, int, machine_now, text};

/// Between attempts. Stripe says three days with growing waits, and does not publish them; these are ours.
pub const WAITS: [Duration; 10] = [
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(12),
    Duration::from_hours(12),
    Duration::from_hours(12),
    Duration::from_hours(12),
];

const KEPT: usize = 1000;
const MOST_OF_AN_ANSWER: usize = 2048;

/// Every delivery, and where they go.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Mailbag {
    #[serde(skip)]
    pub url: Option<String>,
    deliveries: VecDeque<Delivery>,
    last: u64,
}

/// One copy of an event on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivery {
    pub n: u64,
    pub event: String,
    pub event_type: String,
    /// From 1.
    pub copy: u32,
    /// The same bytes at every attempt.
    pub body: String,
    pub attempts: Vec<Attempt>,
    pub state: State,
    /// The wait before the next attempt is waived.
    at_once: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Waiting,
    Delivered,
    GivenUp,
    /// Never sent, on purpose.
    Lost,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    pub at: i64,
    /// The header as it was sent.
    pub signature: String,
    pub status: Option<u16>,
    /// What came back, or why nothing did.
    pub answer: String,
    /// It was answered, and the answer was lost on purpose.
    pub dropped: bool,
}

impl Attempt {
    fn is_heard(&self) -> bool {
        !self.dropped && self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

impl Mailbag {
    pub fn goes_somewhere(&self) -> bool {
        self.url.is_some()
    }

    pub fn newest_first(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().rev()
    }

    pub fn find_mut(&mut self, n: u64) -> Option<&mut Delivery> {
        self.deliveries.iter_mut().find(|one| one.n == n)
    }

    /// Deliveries that are still to be made: what a start goes on with.
    pub fn waiting(&self) -> Vec<u64> {
        self.deliveries.iter().filter(|one| one.state == State::Waiting).map(|one| one.n).collect()
    }

    fn add(&mut self, event: &Value, copy: u32, state: State) -> u64 {
        self.last += 1;
        if self.deliveries.len() >= KEPT {
            // The oldest that nobody waits for; where all are waited for, the record grows.
            if let Some(done) = self.deliveries.iter().position(|one| one.state != State::Waiting) {
                self.deliveries.remove(done);
            }
        }
        self.deliveries.push_back(Delivery {
            n: self.last,
            event: text(event, "id").to_owned(),
            event_type: text(event, "type").to_owned(),
            copy,
            body: serde_json::to_string_pretty(event).unwrap_or_default(),
            attempts: Vec::new(),
            state,
            at_once: false,
        });
        self.last
    }

    pub fn waive_waits(&mut self) {
        self.deliveries.iter_mut().filter(|one| one.state == State::Waiting).for_each(|one| one.at_once = true);
    }
}

/// Makes deliveries of the events that are new, as the switches say.
pub fn address(world: &mut World) -> Vec<u64> {
    let events = std::mem::take(&mut world.new_events);
    let mut numbers = Vec::new();
    for event in events.iter().filter_map(|id| world.find(id).cloned()).collect::<Vec<_>>() {
        if int(&event, "pending_webhooks") == 0 {
            continue;
        }
        let lost = world.switches.lose > 0;
        world.switches.lose = world.switches.lose.saturating_sub(1);
        let copies = if lost { 1 } else { world.switches.copies };
        for copy in 1..=copies {
            let n = world.mail.add(&event, copy, if lost { State::Lost } else { State::Waiting });
            numbers.extend((!lost).then_some(n));
        }
    }
    numbers
}

/// One more delivery of an event, as by the button in Stripe's Dashboard.
pub fn resend(world: &mut World, id: &str) -> Option<u64> {
    let event = world.find(id).filter(|one| one["object"] == "event")?.clone();
    world.mail.goes_somewhere().then(|| world.mail.add(&event, 1, State::Waiting))
}

/// Sets them on their way.
pub fn send_out(local: &Arc<Local>, mut numbers: Vec<u64>, order: Order) {
    match order {
        Order::Together => {
            for n in numbers {
                let carrier = Arc::clone(local);
                local.tasks.spawn(async move { carry(&carrier, n, None).await });
            }
            return;
        }
        Order::AsCreated => {}
        Order::Reversed => numbers.reverse(),
        Order::Shuffled => numbers.shuffle(&mut rand::rng()),
    }
    let carrier = Arc::clone(local);
    local.tasks.spawn(async move {
        // What changed before this goes before this.
        let _turn = carrier.turns.lock().await;
        for n in numbers {
            let (tried, first) = oneshot::channel();
            let one = Arc::clone(&carrier);
            carrier.tasks.spawn(async move { carry(&one, n, Some(tried)).await });
            // An error means that there was nothing to try.
            let _ = first.await;
        }
    });
}

async fn carry(local: &Arc<Local>, n: u64, mut tried: Option<oneshot::Sender<()>>) {
    let mut since = Instant::now();
    let mut nudged = local.nudges.subscribe();
    loop {
        nudged.mark_unchanged();
        let Some(due) = local.look(|world| due(world, n)) else { return };
        let wait = async {
            match due {
                Due::Held => std::future::pending().await,
                Due::In(wait) => tokio::time::sleep_until(since + wait).await,
            }
        };
        tokio::select! {
            () = local.stop.cancelled() => return,
            _ = nudged.changed() => continue,
            () = wait => {}
        }
        let ready = local.look(|world| prepare(world, n));
        let Some(parcel) = ready else { return };
        let attempt = tokio::select! {
            () = local.stop.cancelled() => return,
            attempt = post(&local.http, parcel) => attempt,
        };
        local.look(|world| record(world, n, attempt));
        local.save_soon();
        if let Some(tried) = tried.take() {
            let _ = tried.send(());
        }
        since = Instant::now();
    }
}

enum Due {
    Held,
    In(Duration),
}

fn due(world: &mut World, n: u64) -> Option<Due> {
    let switches = world.switches.clone();
    let delivery = world.mail.find_mut(n).filter(|one| one.state == State::Waiting)?;
    if switches.hold {
        return Some(Due::Held);
    }
    let late = Duration::from_millis(switches.late_ms);
    let wait = delivery.attempts.len().checked_sub(1).and_then(|n| WAITS.get(n)).copied().unwrap_or(late);
    let wait = if delivery.at_once { Duration::ZERO } else { hurried(wait, switches.speed) };
    Some(Due::In(wait))
}

fn hurried(wait: Duration, speed: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() / speed).unwrap_or(Duration::MAX)
}

struct Parcel {
    to: String,
    body: String,
    signature: String,
    at: i64,
    within: Duration,
    dropped: bool,
}

fn prepare(world: &mut World, n: u64) -> Option<Parcel> {
    let Switches { tamper, age_secs, drop_answers, answer_within_ms, .. } = world.switches;
    let to = world.mail.url.clone()?;
    let secrets = world.secrets.clone();
    let delivery = world.mail.find_mut(n).filter(|one| one.state == State::Waiting)?;
    delivery.at_once = false;
    let at = machine_now().saturating_sub(age_secs);
    Some(Parcel {
        to,
        signature: secrets.header(at, &delivery.body, tamper),
        body: delivery.body.clone(),
        at: machine_now(),
        within: Duration::from_millis(answer_within_ms),
        dropped: u32::try_from(delivery.attempts.len()).is_ok_and(|made| made < drop_answers),
    })
}

async fn post(http: &reqwest::Client, parcel: Parcel) -> Attempt {
    let request = http
        .post(&parcel.to)
        .timeout(parcel.within)
        .header("content-type", "application/json; charset=utf-8")
        .header("user-agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
        .header("stripe-signature", &parcel.signature)
        .body(parcel.body);
    let (status, answer) = match request.send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            match response.text().await {
                Ok(text) => (Some(status), text.chars().take(MOST_OF_AN_ANSWER).collect()),
                Err(error) => (None, in_words(&error, parcel.within)),
            }
        }
        Err(error) => (None, in_words(&error, parcel.within)),
    };
    Attempt { at: parcel.at, signature: parcel.signature, dropped: parcel.dropped && status.is_some(), status, answer }
}

fn in_words(error: &reqwest::Error, within: Duration) -> String {
    if error.is_timeout() {
        return format!("no answer within {within:?}");
    }
    let root = std::iter::successors(std::error::Error::source(error), |&cause| cause.source()).last();
    root.map_or_else(|| error.to_string(), ToString::to_string)
}

fn record(world: &mut World, n: u64, attempt: Attempt) {
    let Some(delivery) = world.mail.find_mut(n) else { return };
    let heard = attempt.is_heard();
    delivery.attempts.push(attempt);
    if heard {
        delivery.state = State::Delivered;
        let event = delivery.event.clone();
        world.set(&event, json!({ "pending_webhooks": 0 }));
    } else if delivery.attempts.len() > WAITS.len() {
        delivery.state = State::GivenUp;
    }
}
