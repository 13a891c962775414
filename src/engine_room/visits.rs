//! What the visitors of one process share: the stand, the latest runs, and the run of every order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use tokio::sync::OnceCell;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::every_order::Shared;
use super::run;
use super::scenario::Script;
use super::stand::Stand;
use super::{EveryOrder, RoomError, Run};

/// Runs kept, so that looking at one step after another runs a script once.
const RUNS_KEPT: usize = 32;

pub struct Visits {
    options: PgConnectOptions,
    stand: OnceCell<Arc<Stand>>,
    recent: Mutex<VecDeque<Arc<Run>>>,
    every_order: Arc<Shared>,
}

impl Visits {
    pub fn new(options: PgConnectOptions) -> Self {
        Self { options, stand: OnceCell::new(), recent: Mutex::default(), every_order: Arc::default() }
    }

    /// The run of this script: the one just made, or a new one.
    pub async fn run(&self, script: &Script) -> Result<Arc<Run>, RoomError> {
        if let Some(run) = self.kept(script) {
            return Ok(run);
        }
        let stand = self.stand().await?;
        // What happens here is no live event: the log does not speak of it.
        let run = Arc::new(run::run(&stand, script).with_subscriber(NoSubscriber::new()).await?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(RUNS_KEPT - 1);
        recent.push_front(Arc::clone(&run));
        Ok(run)
    }

    pub fn every_order(&self) -> EveryOrder {
        self.every_order.state()
    }

    /// Starts the run of every order, unless it runs or has been made.
    pub async fn start_every_order(&self) -> Result<(), RoomError> {
        self.every_order.start(self.stand().await?);
        Ok(())
    }

    fn kept(&self, script: &Script) -> Option<Arc<Run>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|run| run.script == *script).cloned()
    }

    async fn stand(&self) -> Result<Arc<Stand>, RoomError> {
        self.stand.get_or_try_init(|| async { Ok(Arc::new(Stand::build(&self.options).await?)) }).await.cloned()
    }
}
