//! Settings: from flags, the environment and `.env`, checked whole before anything starts.
//!
//! One struct a concern. A wrong setting stops the start with one line that names it and says what to do.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::Url;

use crate::domain::plan::PlanKeys;

/// Settings as they were given. An empty value counts as not given.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// PostgreSQL to use; without it Bottle runs a private one under BOTTLE_DATA
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    /// Folder with initdb and postgres, if they are not found by themselves
    #[arg(long, global = true, env = "BOTTLE_PG_BIN", value_name = "DIR")]
    pg_bin: Option<String>,
    /// Where the private PostgreSQL and the local Kinde keep their data
    #[arg(long, global = true, env = "BOTTLE_DATA", value_name = "DIR", default_value = DATA)]
    data: String,
    /// Where to listen
    #[arg(long, global = true, env = "BOTTLE_ADDR", value_name = "IP:PORT", default_value = ADDR)]
    addr: String,
    /// The address people and providers use; https means production
    ///
    /// [default: http://localhost and the port of BOTTLE_ADDR]
    #[arg(long, global = true, env = "BOTTLE_URL", value_name = "URL")]
    url: Option<String>,
    /// Base URL of your Kinde tenant, e.g. https://example.kinde.com
    #[arg(long, global = true, env = "KINDE_DOMAIN", value_name = "URL")]
    kinde_domain: Option<String>,
    /// Your Kinde custom domain, if you have one
    #[arg(long, global = true, env = "KINDE_ISSUER", value_name = "URL")]
    kinde_issuer: Option<String>,
    /// Where the local Kinde listens; it runs only while no Kinde is configured
    #[arg(long, global = true, env = "BOTTLE_LOCAL_KINDE_ADDR", value_name = "IP:PORT", default_value = LOCAL_KINDE_ADDR)]
    local_kinde_addr: String,
    /// Plan keys that mean Pro, separated by commas
    #[arg(long, global = true, env = "BOTTLE_PRO_PLAN_KEYS", value_name = "KEYS", default_value = PRO_PLAN_KEYS)]
    pro_plan_keys: String,
    /// Plan keys that mean Free, separated by commas
    #[arg(
        long,
        global = true,
        env = "BOTTLE_FREE_PLAN_KEYS",
        value_name = "KEYS",
        default_value = FREE_PLAN_KEYS
    )]
    free_plan_keys: String,
    /// Bodies and receipts of settled events are forgotten after this many days; keys, facts and ledgers never
    #[arg(long, global = true, env = "BOTTLE_RETENTION_DAYS", value_name = "DAYS", default_value = RETENTION_DAYS)]
    retention_days: String,
    /// What to log, e.g. debug, or bottle::worker=debug,warn
    #[arg(long, global = true, env = "BOTTLE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

const ADDR: &str = "127.0.0.1:3000";
const LOCAL_KINDE_ADDR: &str = "127.0.0.1:3001";
const DATA: &str = ".bottle";
const RETENTION_DAYS: &str = "400";
/// Providers tell of an event, and let it be asked for again, for 30 days.
const RETENTION_DAYS_MIN: u32 = 35;
const PRO_PLAN_KEYS: &str = "customer_pro_plan";
const FREE_PLAN_KEYS: &str = "customer_starter_plan,customer_free_plan";

/// Settings that were checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub database: Database,
    pub web: Web,
    pub kinde: Option<Kinde>,
    pub local_kinde_addr: String,
    pub plans: PlanKeys,
    /// How long bodies and receipts of settled events are kept.
    pub retention: Duration,
}

#[derive(Debug, Clone)]
pub struct Database {
    pub url: Option<Secret>,
    pub bin: Option<PathBuf>,
    pub data: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Web {
    pub addr: SocketAddr,
    pub url: Url,
    /// None was given: it has the port we listen on.
    url_follows_addr: bool,
}

#[derive(Debug, Clone)]
pub struct Kinde {
    /// Base URL without a trailing slash.
    pub domain: String,
    pub issuer: Option<String>,
}

/// A value that is never shown.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct WrongSetting {
    setting: &'static str,
    problem: String,
}

impl Settings {
    /// # Errors
    /// The first setting that is wrong, by name.
    pub fn check(&self) -> Result<Config, WrongSetting> {
        let web = web(&self.addr, self.url.as_deref())?;
        let kinde = match (given(self.kinde_domain.as_deref()), given(self.kinde_issuer.as_deref())) {
            (Some(domain), issuer) => Some(Kinde {
                domain: tenant("KINDE_DOMAIN", domain)?,
                issuer: issuer.map(|i| tenant("KINDE_ISSUER", i)).transpose()?,
            }),
            (None, Some(_)) => {
                return Err(wrong("KINDE_ISSUER", "is set without KINDE_DOMAIN; set that to https://<your subdomain>.kinde.com"));
            }
            (None, None) => None,
        };
        let plans = PlanKeys {
            pro: keys("BOTTLE_PRO_PLAN_KEYS", given(Some(&self.pro_plan_keys)).unwrap_or(PRO_PLAN_KEYS))?,
            free: keys("BOTTLE_FREE_PLAN_KEYS", given(Some(&self.free_plan_keys)).unwrap_or(FREE_PLAN_KEYS))?,
        };
        if let Some(both) = plans.pro.intersection(&plans.free).next() {
            return Err(wrong(
                "BOTTLE_FREE_PLAN_KEYS",
                format!("`{both}` is also in BOTTLE_PRO_PLAN_KEYS; a key means one plan"),
            ));
        }
        Ok(Config {
            database: Database {
                url: given(self.database_url.as_deref()).map(database_url).transpose()?,
                bin: given(self.pg_bin.as_deref()).map(PathBuf::from),
                data: PathBuf::from(given(Some(&self.data)).unwrap_or(DATA)),
            },
            web,
            kinde,
            local_kinde_addr: given(Some(&self.local_kinde_addr)).unwrap_or(LOCAL_KINDE_ADDR).to_owned(),
            plans,
            retention: retention(given(Some(&self.retention_days)).unwrap_or(RETENTION_DAYS))?,
        })
    }
}

impl Config {
    /// People reach us by https: unsafe settings are refused.
    pub fn is_production(&self) -> bool {
        self.web.url.scheme() == "https"
    }

    /// The address that was really taken: a port of 0 has become a number.
    pub fn listens_on(&mut self, addr: SocketAddr) {
        if self.web.url_follows_addr {
            // Fails for addresses without a port only, and ours has one.
            let _ = self.web.url.set_port(Some(addr.port()));
        }
    }

    /// The local Kinde runs only where no Kinde is configured and only this machine can reach us.
    pub fn wants_local_kinde(&self) -> bool {
        self.kinde.is_none() && !self.is_production() && is_loopback(&self.web.url) && self.web.addr.ip().is_loopback()
    }

    pub fn webhook_url(&self, provider: &str) -> String {
        format!("{}/webhooks/{provider}", self.web.url.as_str().trim_end_matches('/'))
    }
}

fn wrong(setting: &'static str, problem: impl Into<String>) -> WrongSetting {
    WrongSetting { setting, problem: problem.into() }
}

fn given(value: Option<&str>) -> Option<&str> {
    value.map(str::trim).filter(|v| !v.is_empty())
}

fn web(addr: &str, url: Option<&str>) -> Result<Web, WrongSetting> {
    let addr = listen(addr)?;
    let url = given(url).map(|url| base_url("BOTTLE_URL", url)).transpose()?;
    let follows = url.is_none();
    let url = match url {
        Some(url) => url,
        None => base_url("BOTTLE_URL", &format!("http://localhost:{}", addr.port()))?,
    };
    Ok(Web { addr, url, url_follows_addr: follows })
}

fn listen(text: &str) -> Result<SocketAddr, WrongSetting> {
    let text = given(Some(text)).unwrap_or(ADDR);
    text.parse().map_err(|_| wrong("BOTTLE_ADDR", format!("`{text}` is no address to listen on; write it like {ADDR}")))
}

fn base_url(setting: &'static str, text: &str) -> Result<Url, WrongSetting> {
    if text.contains('@') {
        // What stands before it may be a password, so the text is not repeated.
        return Err(wrong(setting, "has a user or password in it; leave them out"));
    }
    let url = Url::parse(text.trim())
        .map_err(|e| wrong(setting, format!("`{text}` is no URL ({e}); write it like https://bottle.example")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong(setting, format!("`{text}` is neither http nor https")));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(setting, format!("`{text}` has more than scheme, host and port; leave the rest out")));
    }
    Ok(url)
}

fn tenant(setting: &'static str, text: &str) -> Result<String, WrongSetting> {
    let url = base_url(setting, text)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(wrong(setting, "is plain http; only https is accepted, except on this machine itself"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn database_url(text: &str) -> Result<Secret, WrongSetting> {
    // The text may hold a password, so it is never repeated.
    match text.parse::<sqlx::postgres::PgConnectOptions>() {
        Ok(_) if text.starts_with("postgres://") || text.starts_with("postgresql://") => Ok(Secret(text.to_owned())),
        _ => Err(wrong("DATABASE_URL", "cannot be read; write it like postgres://user:password@host:5432/database")),
    }
}

fn retention(text: &str) -> Result<Duration, WrongSetting> {
    match text.parse::<u32>() {
        Ok(days) if days >= RETENTION_DAYS_MIN => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        _ => Err(wrong("BOTTLE_RETENTION_DAYS", format!("`{text}` is not a number of days from {RETENTION_DAYS_MIN} up"))),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn keys(setting: &'static str, text: &str) -> Result<BTreeSet<String>, WrongSetting> {
    let keys: BTreeSet<String> = text.split(',').map(str::trim).filter(|k| !k.is_empty()).map(str::to_owned).collect();
    if keys.is_empty() {
        return Err(wrong(setting, "is empty; name at least one plan key"));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn check(args: &[&str]) -> Result<Config, String> {
        let line = Line::parse_from(std::iter::once(&"bottle").chain(args));
        line.settings.check().map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_given_means_this_machine_with_a_local_kinde() {
        let config = check(&[]).unwrap();
        assert!(config.wants_local_kinde() && !config.is_production());
        assert_eq!(config.webhook_url("kinde"), "http://localhost:3000/webhooks/kinde");
    }

    #[test]
    fn an_empty_setting_counts_as_not_given() {
        let names = [
            "addr",
            "url",
            "data",
            "kinde-domain",
            "kinde-issuer",
            "local-kinde-addr",
            "database-url",
            "pg-bin",
            "retention-days",
        ];
        let empty = names.map(|name| format!("--{name}="));
        let keys = ["--pro-plan-keys= ", "--free-plan-keys="].map(str::to_owned);
        let args: Vec<&str> = empty.iter().chain(&keys).map(String::as_str).collect();
        assert_eq!(format!("{:?}", check(&args).unwrap()), format!("{:?}", check(&[]).unwrap()));
    }

    #[test]
    fn without_an_address_for_people_it_is_this_machine_at_the_port_we_listen_on() {
        let mut config = check(&["--addr", "127.0.0.1:8080"]).unwrap();
        assert_eq!(config.webhook_url("kinde"), "http://localhost:8080/webhooks/kinde");
        config.listens_on("127.0.0.1:40123".parse().unwrap());
        assert_eq!(config.webhook_url("kinde"), "http://localhost:40123/webhooks/kinde");
        let mut config = check(&["--url", "http://localhost"]).unwrap();
        config.listens_on("127.0.0.1:40123".parse().unwrap());
        assert_eq!(config.webhook_url("kinde"), "http://localhost/webhooks/kinde");
    }

    #[test]
    fn a_configured_kinde_or_an_https_address_leaves_no_local_one() {
        assert!(!check(&["--kinde-domain", "https://x.kinde.com"]).unwrap().wants_local_kinde());
        assert!(!check(&["--url", "https://bottle.example"]).unwrap().wants_local_kinde());
        assert!(!check(&["--addr", "0.0.0.0:3000"]).unwrap().wants_local_kinde());
    }

    #[test]
    fn a_wrong_setting_is_named_and_no_secret_repeated() {
        for (args, start) in [
            (["--addr", "here"], "BOTTLE_ADDR: `here`"),
            (["--url", "ftp://x"], "BOTTLE_URL: `ftp://x` is neither"),
            (["--url", "https://x/y"], "BOTTLE_URL: `https://x/y` has more"),
            (["--kinde-domain", "http://x.kinde.com"], "KINDE_DOMAIN: is plain http"),
            (["--kinde-issuer", "https://id.x.com"], "KINDE_ISSUER: is set without"),
            (["--database-url", "mysql://u:hunter2@h/d"], "DATABASE_URL: cannot be read"),
            (["--url", "https://me:hunter2@x"], "BOTTLE_URL: has a user or password"),
            (["--kinde-domain", "https://:hunter2@x"], "KINDE_DOMAIN: has a user or password"),
            (["--retention-days", "34"], "BOTTLE_RETENTION_DAYS: `34`"),
            (["--retention-days", "x"], "BOTTLE_RETENTION_DAYS: `x`"),
            (["--pro-plan-keys", " , "], "BOTTLE_PRO_PLAN_KEYS: is empty"),
            (["--pro-plan-keys", "customer_free_plan"], "BOTTLE_FREE_PLAN_KEYS: `customer_free_plan`"),
        ] {
            let error = check(&args).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
        }
    }
}
