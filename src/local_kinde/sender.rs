//! Carries deliveries as Kinde does: a bare token in the body, one `webhook-id` on every attempt, and a fixed schedule of tries
//! until it hears exactly 200. No order is promised between events: each goes its own way.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Error;

/// The waits between attempts; the first is made at once. The next 12 hours after these would end past the 36 at which Kinde
/// stops, so an event is tried nine times.
pub const WAITS: [Duration; 8] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(4),
    Duration::from_hours(12),
    Duration::from_hours(12),
];

/// How long an answer may take. Kinde's own limit is not published; this one is a guess on the patient side.
pub const KINDE_WAITS: Duration = Duration::from_secs(15);

/// One event, signed, on its way to one endpoint.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub to: String,
    pub webhook_id: String,
    pub event_type: String,
    pub event_id: String,
    pub token: String,
}

/// How to carry it.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Identical deliveries, side by side, each with its own retries.
    pub copies: u32,
    /// Before the first attempt.
    pub late: Duration,
    /// The answers to this many first attempts count as lost.
    pub drop_answers: u32,
    /// Attempts per copy at most.
    pub attempts: u32,
    /// Divides `late` and the schedule's waits. It does not hurry the receiver: `answer_within` is real time.
    pub speed: f64,
    pub answer_within: Duration,
}

/// One attempt, as it is kept on record.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub event_type: String,
    pub event_id: String,
    pub webhook_id: String,
    /// From 1.
    pub copy: u32,
    /// From 1, per copy.
    pub n: u32,
    pub at: Timestamp,
    pub outcome: Outcome,
    /// None: delivered, or given up.
    pub next_try: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A long body is cut.
    Answered { status: u16, body: String },
    /// Answered, and the answer lost on purpose.
    AnswerDropped { status: u16, body: String },
    /// No answer: refused, broken off, or too slow.
    Failed { why: String },
}

impl Outcome {
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Answered { status: 200, .. })
    }
}

const MOST_OF_A_BODY: usize = 2048;

#[derive(Clone)]
pub struct Sender {
    http: reqwest::Client,
    open: Arc<Semaphore>,
}

impl Sender {
    /// At most `concurrency` requests are open at a time.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn new(concurrency: usize) -> Result<Self, Error> {
        // No proxy: the receiver is usually on this machine. No redirects: whether Kinde follows them is not known, and a receiver
        // that leans on it should find out here.
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self { http: http.map_err(|source| Error::Client { source })?, open: Arc::new(Semaphore::new(concurrency.max(1))) })
    }

    /// Carries every copy of every delivery until each has its 200 or is given up; tells `record` of each attempt when it has
    /// ended. Dropped, it stops at once.
    ///
    /// Returns whether every copy got its 200.
    pub async fn deliver<R>(&self, deliveries: Vec<Delivery>, manner: Manner, record: R) -> bool
    where
        R: Fn(Attempt) + Clone + Send + 'static,
    {
        let mut journeys = JoinSet::new();
        for delivery in deliveries.into_iter().map(Arc::new) {
            for copy in 1..=manner.copies {
                let (sender, delivery, record) = (self.clone(), Arc::clone(&delivery), record.clone());
                journeys.spawn(async move { sender.carry(&delivery, copy, manner, record).await });
            }
        }
        journeys.join_all().await.into_iter().all(|delivered| delivered)
    }

    async fn carry<R: Fn(Attempt)>(&self, delivery: &Delivery, copy: u32, manner: Manner, record: R) -> bool {
        tokio::time::sleep(hurried(manner.late, manner.speed)).await;
        for n in 1.. {
            let at = Timestamp::now();
            let outcome = self.attempt(delivery, n, manner).await;
            let delivered = outcome.is_delivered();
            let wait =
                if delivered || n >= manner.attempts { None } else { wait_after(n).map(|wait| hurried(wait, manner.speed)) };
            record(Attempt {
                event_type: delivery.event_type.clone(),
                event_id: delivery.event_id.clone(),
                webhook_id: delivery.webhook_id.clone(),
                copy,
                n,
                at,
                outcome,
                next_try: wait.and_then(|wait| Timestamp::now().checked_add(wait).ok()),
            });
            let Some(wait) = wait else { return delivered };
            tokio::time::sleep(wait).await;
        }
        false
    }

    /// Attempt `n`, once a place among the open requests is free.
    pub async fn attempt(&self, delivery: &Delivery, n: u32, manner: Manner) -> Outcome {
        let _permit = self.open.acquire().await.expect("the semaphore is never closed");
        let request = self
            .http
            .post(&delivery.to)
            .timeout(manner.answer_within)
            .header(CONTENT_TYPE, "application/jwt")
            .header("webhook-id", &delivery.webhook_id)
            .body(delivery.token.clone());
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Outcome::Failed { why: in_words(&error, manner.answer_within) },
        };
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while body.len() < MOST_OF_A_BODY {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Outcome::Failed { why: in_words(&error, manner.answer_within) },
            }
        }
        body.truncate(MOST_OF_A_BODY);
        let body = String::from_utf8_lossy(&body).into_owned();
        if n <= manner.drop_answers { Outcome::AnswerDropped { status, body } } else { Outcome::Answered { status, body } }
    }
}

/// The wait after attempt `n` has failed; none after the last.
pub fn wait_after(n: u32) -> Option<Duration> {
    usize::try_from(n).ok().and_then(|n| WAITS.get(n.checked_sub(1)?)).copied()
}

/// A wait at a speed.
pub fn hurried(wait: Duration, speed: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() / speed).unwrap_or(Duration::MAX)
}

fn in_words(error: &reqwest::Error, answer_within: Duration) -> String {
    if error.is_timeout() {
        return format!("no answer within {answer_within:?}");
    }
    let root = std::iter::successors(error.source(), |&cause| cause.source()).last();
    root.map_or_else(|| error.to_string(), ToString::to_string)
}
