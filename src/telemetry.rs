//! Logs: to a person's terminal as text, elsewhere as JSON lines. A message reads alone; every line about an event has its id.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. `BOTTLE_LOG` takes a filter such as `debug` or `bottle::worker=debug,warn`.
pub fn start() {
    let filter = EnvFilter::try_from_env("BOTTLE_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn,hyper=warn"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        logs.with_target(false).init();
    } else {
        logs.json().flatten_event(true).with_current_span(false).init();
    }
}
