//! Settings as they are given: the flags and the variables of the environment, with the words `--help` says about each.

use clap::Args;

use super::signals::SignalSettings;
use super::stripe::StripeSettings;

/// Settings as they were given. An empty value counts as not given.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// PostgreSQL to use; without it Bottle runs a private one under BOTTLE_DATA
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) database_url: Option<String>,
    /// Folder with initdb and postgres, if they are not found by themselves
    #[arg(long, global = true, env = "BOTTLE_PG_BIN", value_name = "DIR")]
    pub(super) pg_bin: Option<String>,
    /// Where the private PostgreSQL and the local providers keep their data
    #[arg(long, global = true, env = "BOTTLE_DATA", value_name = "DIR", default_value = DATA)]
    pub(super) data: String,
    /// Where to listen
    #[arg(long, global = true, env = "BOTTLE_ADDR", value_name = "IP:PORT", default_value = ADDR)]
    pub(super) addr: String,
    /// The address people and providers use; https means production
    ///
    /// [default: http://localhost and the port of BOTTLE_ADDR]
    #[arg(long, global = true, env = "BOTTLE_URL", value_name = "URL")]
    pub(super) url: Option<String>,
    /// Base URL of your Kinde tenant, e.g. https://example.kinde.com
    #[arg(long, global = true, env = "KINDE_DOMAIN", value_name = "URL")]
    pub(super) kinde_domain: Option<String>,
    /// Your Kinde custom domain, if you have one
    #[arg(long, global = true, env = "KINDE_ISSUER", value_name = "URL")]
    pub(super) kinde_issuer: Option<String>,
    /// Client id of this application at Kinde: with its secret, people can sign in
    #[arg(long, global = true, env = "KINDE_CLIENT_ID", value_name = "ID")]
    pub(super) kinde_client_id: Option<String>,
    /// Client secret of this application at Kinde
    #[arg(long, global = true, env = "KINDE_CLIENT_SECRET", hide_env_values = true, value_name = "SECRET")]
    pub(super) kinde_client_secret: Option<String>,
    /// Client id of your machine-to-machine application at Kinde: with it Kinde is asked to confirm each billing event
    #[arg(long, global = true, env = "KINDE_M2M_CLIENT_ID", value_name = "ID")]
    pub(super) kinde_m2m_client_id: Option<String>,
    /// Its client secret
    #[arg(long, global = true, env = "KINDE_M2M_CLIENT_SECRET", hide_env_values = true, value_name = "SECRET")]
    pub(super) kinde_m2m_client_secret: Option<String>,
    /// At least 32 random bytes as text, which seal what is kept of a sign-in; the same for every process of this Bottle
    ///
    /// Needed in production (make one with `openssl rand -base64 48`). Elsewhere one is made and kept in BOTTLE_DATA. A new one
    /// breaks off the sign-ins under way and has people sign in again before they can manage their billing.
    #[arg(long, global = true, env = "BOTTLE_SESSION_KEY", hide_env_values = true, value_name = "TEXT")]
    pub(super) session_key: Option<String>,
    /// Who operates this Bottle and sees /ops: e-mail addresses that Kinde has verified, or Kinde user ids, separated by commas
    #[arg(long, global = true, env = "BOTTLE_OPERATORS", value_name = "LIST")]
    pub(super) operators: Option<String>,
    /// Where the local Kinde listens; it runs only while no Kinde is configured
    #[arg(long, global = true, env = "BOTTLE_LOCAL_KINDE_ADDR", value_name = "IP:PORT", default_value = LOCAL_KINDE_ADDR)]
    pub(super) local_kinde_addr: String,
    /// Plan keys that mean Pro, separated by commas
    #[arg(long, global = true, env = "BOTTLE_PRO_PLAN_KEYS", value_name = "KEYS", default_value = PRO_PLAN_KEYS)]
    pub(super) pro_plan_keys: String,
    /// Plan keys that mean Free, separated by commas
    #[arg(
        long,
        global = true,
        env = "BOTTLE_FREE_PLAN_KEYS",
        value_name = "KEYS",
        default_value = FREE_PLAN_KEYS
    )]
    pub(super) free_plan_keys: String,
    #[command(flatten)]
    pub(super) stripe: StripeSettings,
    /// Mail server for reminders, e.g. smtps://user:password@mail.example; without it they are shown on their pages only
    #[arg(long, global = true, env = "SMTP_URL", hide_env_values = true, value_name = "URL")]
    pub(super) smtp_url: Option<String>,
    /// Whom mail is from, e.g. Bottle <bottle@bottle.example>
    #[arg(long, global = true, env = "MAIL_FROM", value_name = "ADDRESS")]
    pub(super) mail_from: Option<String>,
    /// Where alerts are posted to as signed JSON (Standard Webhooks)
    #[arg(long, global = true, env = "ALERT_WEBHOOK_URL", hide_env_values = true, value_name = "URL")]
    pub(super) alert_webhook_url: Option<String>,
    /// What they are signed with: whsec_ and the base64 of 24 to 64 random bytes
    #[arg(long, global = true, env = "ALERT_WEBHOOK_SECRET", hide_env_values = true, value_name = "SECRET")]
    pub(super) alert_webhook_secret: Option<String>,
    /// Who gets alerts by e-mail; needs SMTP_URL and MAIL_FROM
    #[arg(long, global = true, env = "ALERT_EMAIL", value_name = "ADDRESS")]
    pub(super) alert_email: Option<String>,
    #[command(flatten)]
    pub(super) signals: SignalSettings,
    /// Bodies and receipts of settled events are forgotten after this many days; keys, facts and ledgers never
    #[arg(long, global = true, env = "BOTTLE_RETENTION_DAYS", value_name = "DAYS", default_value = RETENTION_DAYS)]
    pub(super) retention_days: String,
    /// When, by UTC, providers are asked each night whether they agree with us: a time like 03:20, or `off`
    ///
    /// [default: a minute between 03:00 and 04:00 that is always the same for one tenant]
    #[arg(long, global = true, env = "BOTTLE_RECONCILE_AT", value_name = "HH:MM")]
    pub(super) reconcile_at: Option<String>,
    /// What to log, e.g. debug, or bottle::worker=debug,warn
    #[arg(long, global = true, env = "BOTTLE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

pub(super) const ADDR: &str = "127.0.0.1:3000";
pub(super) const LOCAL_KINDE_ADDR: &str = "127.0.0.1:3001";
pub(super) const DATA: &str = ".bottle";
pub(super) const RETENTION_DAYS: &str = "400";
pub(super) const PRO_PLAN_KEYS: &str = "customer_pro_plan";
pub(super) const FREE_PLAN_KEYS: &str = "customer_starter_plan,customer_free_plan";
