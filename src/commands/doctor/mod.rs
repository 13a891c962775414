//! `bottle doctor`: looks at everything a Bottle stands on, side by side, and says of each thing whether it is in order and, if
//! not, what to do. It changes nothing, never shows a secret, and waits for nobody longer than a while.
//!
//! `line` is what it says; the other files look at one neighbour each.

mod database;
mod kinde;
mod line;
mod machine;
mod mail;
mod ours;
mod stripe;
mod upkeep;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::{BoxFuture, join_all};

use crate::config::Config;
use crate::config::given::Settings;

use line::{Line, State};

/// For one neighbour. Each question has a shorter limit of its own; this is for what none of them foresees.
const WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of lines for a person
    #[arg(long)]
    json: bool,
}

pub async fn run(settings: &Settings, args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let lines = match settings.read() {
        Ok(config) => look(&config).await,
        Err(wrong) => {
            vec![Line::wrong("settings", wrong.to_string(), "mend that setting, and ask again: nothing else was looked at")]
        }
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&line::json(&lines))?);
    } else {
        say!("{}", line::text(&lines));
    }
    let is_wrong = lines.iter().any(|line| line.state == State::Wrong);
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn look(config: &Config) -> Vec<Line> {
    let neighbours: Vec<(&'static str, BoxFuture<'_, Vec<Line>>)> = vec![
        ("settings", Box::pin(async { ours::look(config) })),
        ("database", Box::pin(database::look(config))),
        ("kinde", Box::pin(kinde::look(config))),
        ("stripe", Box::pin(stripe::look(config))),
        ("mail", Box::pin(mail::look(config))),
        ("disk", Box::pin(async { machine::look(config) })),
    ];
    let bounded = neighbours.into_iter().map(|(name, looking)| async move {
        let silent =
            || vec![Line::wrong(name, "did not come to an end in time", "look whether it answers at all, and ask again")];
        tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| silent())
    });
    join_all(bounded).await.into_iter().flatten().collect()
}

/// An error with its causes. Whoever made it left addresses and secrets out.
fn chain(error: &dyn std::error::Error) -> String {
    let all: Vec<String> = std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect();
    all.join(": ")
}
