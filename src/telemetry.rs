//! Logs: to a person's terminal as text, elsewhere as JSON lines. A message reads alone; every line about an event has its id.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

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
    // By default a line that cannot be written is reported on standard error, which panics if that is what has gone away: then
    // no delivery could be answered any more because nobody reads the log.
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        logs.with_target(false).init();
    } else {
        logs.json().flatten_event(true).with_current_span(false).init();
    }
    Ok(())
}
