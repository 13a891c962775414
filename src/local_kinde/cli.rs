//! `bottle local-kinde`, and `bottle local-kinde send`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::Error;
use super::key::SigningKey;
use super::order::{self, Order};
use super::page::in_words;
use super::sender::{Attempt, Delivery, Sender};
use super::server::{self, Settings};

/// A stand-in for Kinde on this machine
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LocalKindeArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Where to listen: loopback only, port 0 takes a free one
    #[arg(long, env = "BOTTLE_LOCAL_KINDE_ADDR", default_value = "127.0.0.1:3001")]
    addr: String,
    /// The folder that keeps the signing key
    #[arg(long, default_value = STATE)]
    state: PathBuf,
    /// Where to post webhooks
    #[arg(long, default_value = WEBHOOKS)]
    webhook_url: String,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Sign an event and post it, on Kinde's retry schedule, until it gets its 200
    #[command(after_help = "Exit codes: 0 every event got its 200 (or was printed, or queued), 1 one did not, 2 bad usage.")]
    Send(SendArgs),
}

#[derive(Debug, clap::Args)]
struct SendArgs {
    #[command(flatten)]
    order: Order,
    /// Where to post
    #[arg(long, default_value = WEBHOOKS)]
    to: String,
    /// The folder that keeps the signing key
    #[arg(long, default_value = STATE)]
    state: PathBuf,
    /// Requests open at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// Let the local Kinde at this URL sign and send, so that its page lists the attempts
    #[arg(long, value_name = "URL", conflicts_with_all = ["to", "state", "concurrency", "print"])]
    via: Option<String>,
    /// Post nothing: print `<token> <webhook-id>`, one line per delivery
    #[arg(long)]
    print: bool,
}

const STATE: &str = ".bottle/local-kinde";
const WEBHOOKS: &str = "http://localhost:3000/webhooks/kinde";

/// Runs the command; bad usage is told on standard error and comes back as exit code 2.
///
/// # Errors
/// What no other way of asking would mend: the address is taken, the key cannot be read.
pub async fn run(args: LocalKindeArgs) -> Result<ExitCode, Error> {
    let done = match args.action {
        Some(Action::Send(send_args)) => send(send_args).await,
        None => serve(Settings { addr: args.addr, state: args.state, webhook_url: Some(args.webhook_url) }).await,
    };
    match done {
        Err(error @ (Error::Usage(_) | Error::WebhookUrl { .. } | Error::NotLoopback { .. })) => {
            eprintln!("error: {error}");
            Ok(ExitCode::from(2))
        }
        other => other,
    }
}

async fn serve(settings: Settings) -> Result<ExitCode, Error> {
    let to = settings.webhook_url.clone().unwrap_or_default();
    let running = server::start(settings).await?;
    say(&format!("local Kinde on {}, webhooks to {to}; Ctrl-C stops it", running.url()))?;
    tokio::signal::ctrl_c().await.map_err(|source| Error::Signal { source })?;
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}

async fn send(args: SendArgs) -> Result<ExitCode, Error> {
    if let Some(url) = &args.via {
        return send_via(url, &args.order).await;
    }
    server::check_webhook_url(&args.to)?;
    let (manner, events) = (args.order.manner()?, args.order.events()?);
    if !SigningKey::is_in(&args.state) {
        eprintln!("note: no key in {} yet, so one is made; a Bottle that trusts another will answer 401", args.state.display());
    }
    let deliveries = order::sign(events, &SigningKey::load_or_make(&args.state)?, &args.to)?;
    if args.print {
        let lines = |one: &Delivery| vec![format!("{} {}", one.token, one.webhook_id); manner.copies as usize];
        say(&deliveries.iter().flat_map(lines).collect::<Vec<_>>().join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sender = Sender::new(usize::from(args.concurrency))?;
    // A reader that has gone away is no reason to stop sending.
    let delivered = sender.deliver(deliveries, manner, |attempt| drop(say(&line(&attempt)))).await;
    Ok(if delivered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn send_via(url: &str, order: &Order) -> Result<ExitCode, Error> {
    // Looked at here too, so that bad usage is bad usage whoever sends.
    order.manner()?;
    order.events()?;
    server::check_webhook_url(url)?;
    let away = |source| Error::Away { url: url.to_owned(), source };
    let client = reqwest::Client::builder().no_proxy().build().map_err(|source| Error::Client { source })?;
    let to = format!("{}/local/send", url.trim_end_matches('/'));
    let response = client.post(to).json(order).send().await.map_err(away)?;
    let accepted = response.status() == reqwest::StatusCode::ACCEPTED;
    let answer = response.text().await.map_err(away)?;
    let queued = serde_json::from_str::<Value>(&answer).ok().and_then(|answer| answer["queued"].as_array().cloned());
    let Some(queued) = queued.filter(|_| accepted) else {
        return Err(Error::NotTaken { url: url.to_owned(), answer: answer.trim().to_owned() });
    };
    for one in queued {
        let text = |field: &str| one[field].as_str().unwrap_or("?").to_owned();
        say(&format!("{} {} queued", text("event_id"), text("type")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(attempt: &Attempt) -> String {
    let Attempt { event_type, event_id, copy, n, outcome, .. } = attempt;
    let next = match attempt.next_try {
        Some(at) => format!("; next try at {}", at.strftime("%H:%M:%S%.3f UTC")),
        None if outcome.is_delivered() => String::new(),
        None => "; given up".into(),
    };
    format!("{event_id} {event_type} copy {copy} attempt {n}: {}{next}", in_words(outcome))
}

/// `println!` panics when the reader is gone.
fn say(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| Error::Output { source })
}
