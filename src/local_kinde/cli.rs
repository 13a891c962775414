//! `bottle local-kinde`, and `bottle local-kinde send`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::Error;
use super::app::App;
use super::key::SigningKey;
use super::order::{self, Order};
use super::pages::words::in_words;
use super::sender::{Attempt, Delivery, Outcome, Sender};
use super::server::{self, Settings};

/// A stand-in for Kinde on this machine
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LocalKindeArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The folder that keeps the signing key and the state [default: where `bottle serve` keeps its own]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Where to post webhooks [default: to the Bottle that these settings describe]
    #[arg(long)]
    webhook_url: Option<String>,
    /// The app that signs people in here; its callback is /callback [default: the Bottle that these settings describe]
    #[arg(long)]
    app_url: Option<String>,
    /// A callback URL to allow besides; may be given more than once
    #[arg(long, value_name = "URL")]
    redirect_uri: Vec<String>,
    /// A logout redirect URL to allow besides; may be given more than once
    #[arg(long, value_name = "URL")]
    logout_redirect: Vec<String>,
    /// The app's client id, and so on [default: made by chance once, and printed]
    #[arg(long = "client-id", value_name = "ID")]
    app_client_id: Option<String>,
    #[arg(long = "client-secret", value_name = "SECRET")]
    app_client_secret: Option<String>,
    #[arg(long = "m2m-client-id", value_name = "ID")]
    app_m2m_client_id: Option<String>,
    #[arg(long = "m2m-client-secret", value_name = "SECRET")]
    app_m2m_client_secret: Option<String>,
}

/// Where this Kinde is, and the Bottle that it is for, as the settings say.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Of this Kinde: loopback only, port 0 takes a free one.
    pub addr: String,
    /// `http://localhost:3000`
    pub app_url: String,
    pub webhook_url: String,
    /// The folder of `bottle serve`'s own local Kinde.
    pub state: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Sign an event and post it, on Kinde's retry schedule, until it gets its 200
    #[command(
        after_help = "Without --to, --state or --print the running local Kinde sends, and what the event says happens there too.\n\nExit codes: 0 every event got its 200 (or was printed, or queued), 1 one did not, 2 bad usage."
    )]
    Send(SendArgs),
}

#[derive(Debug, clap::Args)]
struct SendArgs {
    #[command(flatten)]
    order: Order,
    /// Post there directly, signed here, instead of through the running local Kinde
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Sign here with the key in this folder [default: where `bottle serve` keeps its own]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Requests open at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// The running local Kinde that is to sign and send, so that what the event says is true there
    /// [default: the one at BOTTLE_LOCAL_KINDE_ADDR]
    #[arg(long, value_name = "URL", conflicts_with_all = ["to", "state", "concurrency", "print"])]
    via: Option<String>,
    /// Post nothing: print `<token> <webhook-id>`, one line per delivery
    #[arg(long)]
    print: bool,
}

/// Runs the command; bad usage is told on standard error and comes back as exit code 2.
///
/// # Errors
/// What no other way of asking would mend: the address is taken, the key cannot be read.
pub async fn run(args: LocalKindeArgs, beside: Beside) -> Result<ExitCode, Error> {
    let done = match args.action {
        Some(Action::Send(send_args)) => send(send_args, beside).await,
        None => serve(settings(args, beside)).await,
    };
    match done {
        Err(error @ (Error::Usage(_) | Error::WebhookUrl { .. } | Error::NotLoopback { .. })) => {
            eprintln!("error: {error}");
            Ok(ExitCode::from(2))
        }
        other => other,
    }
}

fn settings(args: LocalKindeArgs, beside: Beside) -> Settings {
    let mut app = App::at(args.app_url.as_ref().unwrap_or(&beside.app_url));
    app.redirect_uris.extend(args.redirect_uri);
    app.logout_redirects.extend(args.logout_redirect);
    app.client_id = args.app_client_id;
    app.client_secret = args.app_client_secret;
    app.m2m_client_id = args.app_m2m_client_id;
    app.m2m_client_secret = args.app_m2m_client_secret;
    Settings {
        addr: beside.addr,
        state: args.state.unwrap_or(beside.state),
        webhook_url: Some(args.webhook_url.unwrap_or(beside.webhook_url)),
        app,
    }
}

async fn serve(settings: Settings) -> Result<ExitCode, Error> {
    let to = settings.webhook_url.clone().unwrap_or_default();
    let running = server::start(settings).await?;
    say(&format!("local Kinde on {}, webhooks to {to}; Ctrl-C stops it", running.url()))?;
    say("For an app to use it:")?;
    for (name, value) in [
        ("KINDE_DOMAIN", running.url()),
        ("KINDE_CLIENT_ID", running.client_id()),
        ("KINDE_CLIENT_SECRET", running.client_secret()),
        ("KINDE_M2M_CLIENT_ID", running.m2m_client_id()),
        ("KINDE_M2M_CLIENT_SECRET", running.m2m_client_secret()),
    ] {
        say(&format!("{name}={value}"))?;
    }
    tokio::signal::ctrl_c().await.map_err(|source| Error::Signal { source })?;
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}

async fn send(args: SendArgs, beside: Beside) -> Result<ExitCode, Error> {
    if args.to.is_none() && args.state.is_none() && !args.print {
        let url = args.via.unwrap_or_else(|| format!("http://{}", beside.addr));
        return send_via(&url, &args.order).await;
    }
    let to = args.to.unwrap_or(beside.webhook_url);
    let state = args.state.unwrap_or(beside.state);
    server::check_webhook_url(&to)?;
    let (manner, events) = (args.order.manner()?, args.order.events()?);
    if !SigningKey::is_in(&state) {
        eprintln!("note: no key in {} yet, so one is made; a Bottle that trusts another will answer 401", state.display());
    }
    let deliveries = order::sign(events, &SigningKey::load_or_make(&state)?, &to)?;
    if args.print {
        let lines = |one: &Delivery| vec![format!("{} {}", one.token, one.webhook_id); manner.copies as usize];
        say(&deliveries.iter().flat_map(lines).collect::<Vec<_>>().join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sender = Sender::new(usize::from(args.concurrency))?;
    // A reader that has gone away is no reason to stop sending.
    let delivered = sender.deliver(deliveries, manner, move |attempt| drop(say(&line(&attempt, &to)))).await;
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

fn line(attempt: &Attempt, to: &str) -> String {
    let Attempt { event_type, event_id, copy, n, outcome, .. } = attempt;
    let next = match attempt.next_try {
        Some(at) => format!("; next try at {}", at.strftime("%H:%M:%S%.3f UTC")),
        None if outcome.is_delivered() => String::new(),
        None => "; given up".into(),
    };
    let from = if matches!(outcome, Outcome::Failed { .. }) { format!(" (from {to})") } else { String::new() };
    format!("{event_id} {event_type} copy {copy} attempt {n}: {}{from}{next}", in_words(outcome))
}

/// `println!` panics when the reader is gone.
fn say(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| Error::Output { source })
}
