//! The binary: reads the command line, runs the command, prints what went wrong.

use std::process::ExitCode;

use bottle::commands::Cli;
use clap::Parser;

fn main() -> ExitCode {
    // Before anything reads the environment; a missing file is fine, a broken one is not.
    if let Err(error) = dotenvy::dotenv()
        && !error.not_found()
    {
        eprintln!("bottle: .env cannot be read: {error}");
        return ExitCode::from(2);
    }
    let cli = Cli::parse();
    bottle::telemetry::start();
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
