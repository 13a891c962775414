//! The binary: reads the command line, runs the command, prints what went wrong.

use std::io::Write as _;
use std::process::ExitCode;

use bottle::commands::Cli;
use clap::Parser;

fn main() -> ExitCode {
    // Before anything reads the environment; a missing file is fine, a broken one is not.
    if let Err(error) = dotenvy::dotenv()
        && !error.not_found()
    {
        eprintln!("bottle: .env cannot be read: {}", what_is_wrong(&error));
        return ExitCode::from(2);
    }
    let cli = Cli::parse();
    if let Err(error) = bottle::telemetry::logs::start(cli.log()) {
        eprintln!("bottle: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("bottle: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(cli.run());
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result.unwrap_or_else(|error| {
        // That nobody reads it is no reason to panic.
        let _ = writeln!(std::io::stderr(), "bottle: {error:#}");
        ExitCode::FAILURE
    })
}

/// The library repeats what it could not read, which may be a secret. So only where that is is told.
fn what_is_wrong(error: &dotenvy::Error) -> String {
    if !matches!(error, dotenvy::Error::LineParse(..)) {
        return error.to_string();
    }
    let read = dotenvy::dotenv_iter().into_iter().flatten().map_while(Result::ok);
    let place = read.last().map_or_else(|| "the first setting in it".to_owned(), |(name, _)| format!("the setting after {name}"));
    format!("{place} is not of the form NAME=value (a value with spaces needs quotes)")
}
