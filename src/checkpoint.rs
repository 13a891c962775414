//! The named steps of the pipeline, and the observer that is called at each.
//!
//! Live, nobody observes and a step costs nothing. The Engine Room draws its traces and simulates its stops here; tests
//! interleave two workers, kill the real process and make handlers fail.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use crate::domain::ids::EventKey;

/// In the order in which a delivery meets them, then a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Genuine, and not stored yet.
    BeforeStore,
    /// Committed, and not answered yet.
    Stored,
    /// The claim is committed; the provider has not been asked.
    Claimed,
    /// Facts are at hand; no transaction is open.
    Resolved,
    /// In the handler's transaction: the lease is still ours.
    Held,
    /// The account is locked and read.
    Locked,
    /// Facts and plan are written, the allowance is not.
    HalfWay,
    /// Every effect is written, the event is not marked.
    BeforeMark,
    /// Marked, and not committed.
    Marked,
    /// Committed.
    Committed,
    /// An account with due reminders is locked, nothing is written.
    Ringing,
    /// Reminders, letters, next occurrences and bottles are written, and not committed.
    Rung,
    /// Letters are claimed, and not sent.
    Taken,
    /// The mail server has a letter, and it is not marked.
    Sent,
}

impl Step {
    /// What a delivery meets.
    pub const ALL: [Self; 10] = [
        Self::BeforeStore,
        Self::Stored,
        Self::Claimed,
        Self::Resolved,
        Self::Held,
        Self::Locked,
        Self::HalfWay,
        Self::BeforeMark,
        Self::Marked,
        Self::Committed,
    ];

    /// What a reminder meets when its time comes.
    pub const OF_REMINDERS: [Self; 4] = [Self::Ringing, Self::Rung, Self::Taken, Self::Sent];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeStore => "before-store",
            Self::Stored => "stored",
            Self::Claimed => "claimed",
            Self::Resolved => "resolved",
            Self::Held => "held",
            Self::Locked => "locked",
            Self::HalfWay => "half-way",
            Self::BeforeMark => "before-mark",
            Self::Marked => "marked",
            Self::Committed => "committed",
            Self::Ringing => "ringing",
            Self::Rung => "rung",
            Self::Taken => "taken",
            Self::Sent => "sent",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter().chain(Self::OF_REMINDERS);
        all.find(|s| s.as_str() == text).ok_or_else(|| format!("`{text}` is no step of the pipeline"))
    }
}

/// What an observer lets happen next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// As if the process had died here: nothing more is written, nobody is told.
    #[error("stopped at a checkpoint")]
    Stop,
    /// As if the handler had failed here.
    #[error("{0}")]
    Fault(String),
}

pub type Pause<'a> = Pin<Box<dyn Future<Output = Result<(), Break>> + Send + 'a>>;

pub trait Observer: Send + Sync {
    /// Called at a step with the provider's ids of the events that take it together.
    fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a>;
}

/// The handle that the pipeline carries.
#[derive(Clone, Default)]
pub struct Checkpoints(Option<Arc<dyn Observer>>);

impl Checkpoints {
    pub fn observed_by(observer: Arc<dyn Observer>) -> Self {
        Self(Some(observer))
    }

    pub async fn reach(&self, step: Step, events: &[&EventKey]) -> Result<(), Break> {
        match &self.0 {
            None => Ok(()),
            Some(observer) => observer.at(step, events).await,
        }
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoints(observed: {})", self.0.is_some())
    }
}

/// Debug builds only: the process kills itself at a step, as a test asked it to.
#[cfg(debug_assertions)]
pub mod dying {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{Observer, Pause, Step};
    use crate::domain::ids::EventKey;

    struct Dying {
        step: Step,
        when: When,
    }

    enum When {
        Visit { left: AtomicUsize },
        Event(String),
    }

    /// `BOTTLE_DIE_AT=half-way:3` dies at the third visit of that step, `half-way@event_…` whenever that event takes it.
    pub fn from_env() -> Option<Arc<dyn Observer>> {
        let wish = std::env::var("BOTTLE_DIE_AT").ok()?;
        let (step, when) = match wish.split_once('@') {
            Some((step, event)) => (step, When::Event(event.to_owned())),
            None => {
                let (step, visit) = wish.split_once(':').expect("BOTTLE_DIE_AT says when");
                let visit = visit.parse().ok().filter(|visit| *visit > 0).expect("BOTTLE_DIE_AT counts visits from 1");
                (step, When::Visit { left: AtomicUsize::new(visit) })
            }
        };
        Some(Arc::new(Dying { step: step.parse().expect("BOTTLE_DIE_AT names a step of the pipeline"), when }))
    }

    impl Observer for Dying {
        fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
            let now = step == self.step
                && match &self.when {
                    When::Visit { left } => left.fetch_sub(1, Ordering::SeqCst) == 1,
                    When::Event(key) => events.iter().any(|event| event.as_str() == key),
                };
            if now {
                // SIGKILL: no destructor runs, nothing is flushed.
                let _ = kill_process(getpid(), Signal::KILL);
            }
            Box::pin(std::future::ready(Ok(())))
        }
    }
}
