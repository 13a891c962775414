//! Asking a provider that may not want to be asked just now. Here, other than in a worker, nobody's lease runs out: whoever is
//! told to come again later waits.

use std::time::Duration;

use rand::RngExt;
use tokio::time::sleep;

use super::{Error, Progress, Reconciler};
use crate::domain::event::Source;
use crate::providers::Provider;
use crate::providers::listing::ListError;

const WAIT_MIN: Duration = Duration::from_millis(100);

impl Reconciler {
    /// The answer, however often it has to be asked for.
    pub(super) async fn patiently<T, F>(&self, source: Source, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, ListError>>,
    {
        let provider = self.providers.of(source).map_or("the provider", Provider::name);
        let mut waited = Duration::ZERO;
        loop {
            let why = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(ListError::Unavailable { why, again_in }) if waited < self.patience => (why, again_in.max(WAIT_MIN)),
                Err(why) => return Err(Error::Provider { provider, why }),
            };
            let (why, again_in) = why;
            tracing::info!(provider, why, secs = again_in.as_secs_f64(), "reconcile waits for the provider");
            self.progress.send_modify(|progress: &mut Progress| progress.waits = Some(format!("waiting for {provider}: {why}")));
            // Those who ask side by side do not all come back at one moment.
            let pause = again_in.mul_f64(1.0 + rand::rng().random::<f64>() * 0.1);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => return Err(Error::Stopped),
            }
            waited += pause;
            self.progress.send_modify(|progress| progress.waits = None);
        }
    }
}
