//! The binary: reads the command line, runs the command, prints what went wrong.

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
    if let Err(error) = bottle::telemetry::start(cli.log()) {
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
        eprintln!("bottle: {error:#}");
        ExitCode::FAILURE
    })
}

/// The library repeats the whole line, which may hold a secret: only the name before its `=` is told.
fn what_is_wrong(error: &dotenvy::Error) -> String {
    let dotenvy::Error::LineParse(line, _) = error else { return error.to_string() };
    let name = line.split('=').next().unwrap_or_default().trim().trim_start_matches("export ");
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match is_name && line.contains('=') {
        true => format!("the value of {name} needs quotes around it"),
        false => "a line in it is not of the form NAME=value".to_owned(),
    }
}
