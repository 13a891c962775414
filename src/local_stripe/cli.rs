//! `bottle local-stripe`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::Error;
use super::server::{self, Running, Settings};

/// A stand-in for Stripe on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct LocalStripeArgs {
    /// Where to listen: loopback only, port 0 takes a free one
    #[arg(long, env = "BOTTLE_LOCAL_STRIPE_ADDR", default_value = "127.0.0.1:3002")]
    addr: String,
    /// The folder that keeps keys, customers and everything else over a restart [default: local-stripe in BOTTLE_DATA]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Keep nothing: every start begins anew
    #[arg(long, conflicts_with = "state")]
    forget: bool,
    /// Where to post webhooks
    #[arg(long, default_value = "http://localhost:3000/webhooks/stripe")]
    webhook_url: String,
    /// A secret key it takes, sk_… (may be repeated) [default: one it made]
    #[arg(long)]
    secret_key: Vec<String>,
    /// A restricted key, such as rk_test_a=customers:read,checkout_sessions (may be repeated)
    #[arg(long)]
    restricted_key: Vec<String>,
    /// A webhook secret it signs with, whsec_… (may be repeated, the newest first) [default: one it made]
    #[arg(long)]
    webhook_secret: Vec<String>,
    /// Keep the balance in this currency [default: each payment's own]
    #[arg(long)]
    settlement_currency: Option<String>,
    /// The version of the API that webhooks are written in [default: the newest]
    #[arg(long)]
    endpoint_version: Option<String>,
    /// How fast the waits between attempts pass: 60 is a minute a second
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
}

const HELP: &str = "\
Its page, with switches and everything that was sent, is at the address itself. A test turns the same switches by JSON under
/local: POST /local/switches, /local/faults, /local/clock, /local/payments/decline; GET /local/calls, /local/deliveries.

Exit codes: 0 stopped by Ctrl-C, 1 it could not start, 2 wrong usage.";

/// Runs until Ctrl-C, keeping its state in `state` unless the arguments say otherwise; bad usage is told on standard error and comes back as exit code 2.
///
/// # Errors
/// What no other way of asking would mend: the address is taken, the state cannot be read.
pub async fn run(args: LocalStripeArgs, state: PathBuf) -> Result<ExitCode, Error> {
    let settings = Settings {
        addr: args.addr,
        state: (!args.forget).then(|| args.state.unwrap_or(state)),
        webhook_url: Some(args.webhook_url.clone()),
        secret_keys: args.secret_key,
        restricted_keys: args.restricted_key,
        webhook_secrets: args.webhook_secret,
        settlement_currency: args.settlement_currency,
        endpoint_version: args.endpoint_version,
        speed: args.speed,
        begin_secs_ago: 0,
    };
    let running = match server::start(settings).await {
        Err(
            error @ (Error::NotLoopback { .. }
            | Error::NotAnAddress { .. }
            | Error::WebhookUrl { .. }
            | Error::Key { .. }
            | Error::Version { .. }
            | Error::Currency { .. }),
        ) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(2));
        }
        started => started?,
    };
    say(&what_to_set(&running, &args.webhook_url))?;
    tokio::signal::ctrl_c().await.map_err(|source| Error::Signal { source })?;
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}

fn what_to_set(running: &Running, webhook_url: &str) -> String {
    format!(
        "local Stripe on {url}, webhooks to {webhook_url}; Ctrl-C stops it. Give Bottle these:\n\n\
         STRIPE_SECRET_KEY={key}\nSTRIPE_WEBHOOK_SECRET={secrets}\nSTRIPE_API_BASE={url}\nSTRIPE_PRICE_PRO={pro}\nSTRIPE_PRICE_PACK={pack}\n",
        url = running.url(),
        key = running.secret_key(),
        secrets = running.webhook_secrets().join(","),
        pro = running.price_pro(),
        pack = running.price_pack(),
    )
}

/// `println!` panics when the reader is gone.
fn say(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| Error::Output { source })
}
