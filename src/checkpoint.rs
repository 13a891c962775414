//! The named steps of the pipeline, and the observer that is called at each.
//!
//! Live, nobody observes and a step costs nothing. The Engine Room draws its traces and simulates its stops here; tests
//! interleave two workers, kill the real process and make handlers fail.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use crate::domain::ids::EventKey;

/// In the order in which a delivery meets them.
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
}

impl Step {
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
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| format!("`{text}` is no step of the pipeline"))
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
        visits_left: AtomicUsize,
    }

    /// `BOTTLE_DIE_AT=half-way:3` dies at the third visit of that step.
    pub fn from_env() -> Option<Arc<dyn Observer>> {
        let wish = std::env::var("BOTTLE_DIE_AT").ok()?;
        let (step, visit) = wish.split_once(':').unwrap_or((&wish, "1"));
        let step = step.parse().expect("BOTTLE_DIE_AT names a step of the pipeline");
        let visit = visit.parse().ok().filter(|visit| *visit > 0).expect("BOTTLE_DIE_AT counts visits from 1");
        Some(Arc::new(Dying { step, visits_left: AtomicUsize::new(visit) }))
    }

    impl Observer for Dying {
        fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> Pause<'a> {
            if step == self.step && self.visits_left.fetch_sub(1, Ordering::SeqCst) == 1 {
                // SIGKILL: no destructor runs, nothing is flushed.
                let _ = kill_process(getpid(), Signal::KILL);
            }
            Box::pin(std::future::ready(Ok(())))
        }
    }
}
