//! Logs: to a person's terminal as text, elsewhere as JSON lines. A message reads alone; every line about an event has its id.
//!
//! The fields that mean the same everywhere: `event` is the provider's id of one, `events` are several of these, `event_id` and
//! `event_ids` are rows of the inbox, `account` is a row of accounts, `alert` names what a person has to look at, `error` says
//! what went wrong.

use std::io::IsTerminal;

use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use super::labels::Level;
use super::metrics;

const USUAL: &str = "info,sqlx=warn,hyper=warn";

#[derive(Debug, thiserror::Error)]
#[error("BOTTLE_LOG: `{filter}` is no filter; write it like debug, or bottle::worker=debug,warn")]
pub struct NotAFilter {
    filter: String,
}

/// Starts logging to standard error. `filter` is such as `debug` or `bottle::worker=debug,warn`; a blank one counts as none.
///
/// # Errors
/// The filter cannot be read.
pub fn start(filter: Option<&str>) -> Result<(), NotAFilter> {
    let filter = filter.map(str::trim).filter(|f| !f.is_empty()).unwrap_or(USUAL);
    let filter = EnvFilter::try_new(filter).map_err(|_| NotAFilter { filter: filter.to_owned() })?;
    let logs = tracing_subscriber::registry().with(filter).with(Counted);
    // By default a line that cannot be written is reported on standard error, which panics if that is what has gone away: then
    // no delivery could be answered any more because nobody reads the log.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        logs.with(lines.with_target(false)).init();
    } else {
        logs.with(lines.json().flatten_event(true).with_current_span(false).with_span_list(false)).init();
    }
    Ok(())
}

/// Counts the lines, so that errors are seen where nobody reads.
struct Counted;

impl<S: Subscriber> Layer<S> for Counted {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match *event.metadata().level() {
            tracing::Level::ERROR => metrics::log_line(Level::Error),
            tracing::Level::WARN => metrics::log_line(Level::Warn),
            tracing::Level::INFO => metrics::log_line(Level::Info),
            _ => {}
        }
    }
}
