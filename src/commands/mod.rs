//! The door frame: the command line, and what each command puts together. The only room that knows them all.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::given::Settings;

/// For a person to read. That nobody does (`bottle | head -1`) is no reason to stop, and `println!` would panic.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, $($text)*).and_then(|()| out.flush());
    }};
}

mod check;
mod database;
mod doctor;
mod engine_room;
mod events;
mod migrate;
mod parts;
mod reconcile;
mod replay;
mod serve;
mod session_key;
mod signals;
mod test_alert;

/// Billing state that stays correct however events repeat, arrive late, or fail half-way.
///
/// Without a command, `bottle serve` runs. Settings come from flags, the environment and a file `.env`, in this order.
#[derive(Debug, Parser)]
#[command(name = "bottle", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

const EXIT_CODES: &str = "\
Exit codes: 2 for wrong usage or a file .env that cannot be read, and of
  serve, web, worker  0 stopped by Ctrl-C or SIGTERM, 1 it could not start
  migrate             0 the database is current, 1 it is not
  doctor              0 nothing is wrong, 1 something is
  check               0 everything is as the facts give it, 1 something is not
  replay              0 every event reached a verdict, 1 one did not, is dead or is not stored
  reconcile           0 compared, 1 --check found a difference, or it went wrong
  engine-room         0 done, 1 it went wrong or a schedule ended wrong
  test-alert          0 every channel took it, 1 one did not, or none is set up
  local-kinde         0 stopped by Ctrl-C, 1 it could not start
  local-stripe        0 stopped by Ctrl-C, 1 it could not start
  local-kinde send    0 every event got its 200 (or was printed, or queued), 1 one did not";

#[derive(Debug, Subcommand)]
enum Command {
    /// Web pages, webhook endpoint and worker in one process (the default)
    ///
    /// Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 it could not start, 2 wrong usage.
    Serve,
    /// Web pages and webhook endpoint without a worker
    ///
    /// Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 it could not start, 2 wrong usage.
    Web,
    /// A worker without web pages; any number of them may run
    ///
    /// Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 it could not start, 2 wrong usage.
    Worker,
    /// Bring the database up to date, as the role that owns it, and end
    ///
    /// Only needed where the program itself runs as a role that may not (docs/roles.sql); elsewhere each start does it.
    ///
    /// Exit codes: 0 the database is current, 1 it is not, 2 wrong usage.
    Migrate,
    /// Look at settings, database, providers, mail and machine, and say what is wrong and what to do
    ///
    /// Changes nothing, shows no secret, and ends within half a minute whatever does not answer.
    ///
    /// Exit codes: 0 nothing is wrong (warnings count as nothing), 1 something is, 2 wrong usage.
    Doctor(doctor::DoctorArgs),
    /// The latest events: what became of each, and where that left the accounts
    ///
    /// Exit codes: 0 done, 1 it went wrong, 2 wrong usage.
    Events(events::EventsArgs),
    /// Fold every account afresh and compare plans, bottles and money with what is stored
    ///
    /// Exit codes: 0 everything is as the facts give it, 1 something is not, or it went wrong, 2 wrong usage.
    Check,
    /// Put stored events back in the queue and see them run again
    ///
    /// Exit codes: 0 every event reached a verdict, 1 one did not, is dead or is not stored, 2 wrong usage.
    Replay(replay::ReplayArgs),
    /// Compare plans, events and money with what the providers say is true now
    ///
    /// Only looks, unless --apply is given: then events that never came are fetched, and plans that are out of date are asked
    /// about again through the inbox. Money is never changed. A worker does the same each night (BOTTLE_RECONCILE_AT). A run that
    /// was cut short goes on where it was when the same is asked for again within a day.
    ///
    /// Exit codes: 0 compared, 1 --check found a difference, or it went wrong, 2 wrong usage.
    Reconcile(reconcile::ReconcileArgs),
    /// Nine deliveries through the real pipeline, beside the handler most people write
    ///
    /// Exit codes: 0 done, 1 it went wrong or a schedule ended wrong, 2 wrong usage.
    EngineRoom(engine_room::EngineRoomArgs),
    /// Send a test over each channel that alerts go to
    ///
    /// Exit codes: 0 every channel took it, 1 one did not or none is set up, 2 wrong usage.
    TestAlert,
    /// The local Kinde: run it alone, or send signed events with it
    ///
    /// Exit codes: 0 stopped by Ctrl-C, 1 it could not start, 2 wrong usage.
    LocalKinde(Box<crate::local_kinde::cli::LocalKindeArgs>),
    /// The local Stripe: its API, its pages and its signed webhooks on this machine
    ///
    /// Exit codes: 0 stopped by Ctrl-C, 1 it could not start, 2 wrong usage.
    LocalStripe(Box<crate::local_stripe::cli::LocalStripeArgs>),
}

impl Cli {
    /// What to log, as it was given.
    pub fn log(&self) -> Option<&str> {
        self.settings.log.as_deref()
    }

    /// # Errors
    /// For a person: the chain says what failed and what to do.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command.unwrap_or(Command::Serve) {
            Command::Serve => serve::run(self.settings.check()?, serve::Roles { web: true, worker: true }).await,
            Command::Web => serve::run(self.settings.check()?, serve::Roles { web: true, worker: false }).await,
            Command::Worker => serve::run(self.settings.check()?, serve::Roles { web: false, worker: true }).await,
            Command::Migrate => migrate::run(self.settings.check()?).await,
            Command::Doctor(args) => doctor::run(&self.settings, args).await,
            Command::Events(args) => events::run(self.settings.check()?, args).await,
            Command::Check => check::run(self.settings.check()?).await,
            Command::Replay(args) => replay::run(self.settings.check()?, args).await,
            Command::Reconcile(args) => reconcile::run(self.settings.check()?, args).await,
            Command::EngineRoom(args) => engine_room::run(self.settings.check()?, args).await,
            Command::TestAlert => test_alert::run(&self.settings.check()?).await,
            Command::LocalKinde(args) => {
                let config = self.settings.check()?;
                let beside = crate::local_kinde::cli::Beside {
                    addr: config.local_kinde_addr.clone(),
                    app_url: config.web.url.as_str().trim_end_matches('/').to_owned(),
                    webhook_url: config.webhook_url("kinde"),
                    state: config.database.data.join("local-kinde"),
                };
                Ok(crate::local_kinde::cli::run(*args, beside).await?)
            }
            // It is asked for the settings of Stripe, so none of them is checked before.
            Command::LocalStripe(args) => {
                Ok(crate::local_stripe::cli::run(*args, self.settings.data_folder().join("local-stripe")).await?)
            }
        }
    }
}

/// `1 event`, `2 events`.
fn counted(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
