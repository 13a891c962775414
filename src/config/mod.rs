//! Settings: from flags, the environment and `.env`, checked whole before anything starts.
//!
//! One struct a concern. `given` has the settings as they come, `check` reads them; those of Stripe are in `stripe`, both;
//! `production` knows which of them are unsafe where people are served. A wrong
//! setting stops the start with one line that names it and says what to do.

pub mod check;
pub mod given;
mod production;
pub mod signals;
pub mod stripe;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use crate::domain::ids::KindeUserId;
use crate::domain::plan::PlanKeys;

/// Settings that were checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub database: Database,
    pub web: Web,
    pub kinde: Option<Kinde>,
    pub people: People,
    pub local_kinde_addr: String,
    /// None: nobody pays through Stripe.
    pub stripe: Option<stripe::Stripe>,
    pub plans: PlanKeys,
    /// None: no mail is sent.
    pub mail: Option<MailServer>,
    pub alerts: Alerts,
    /// Where metrics and traces go.
    pub signals: signals::Signals,
    /// How long bodies and receipts of settled events are kept.
    pub retention: Duration,
    pub nightly: Nightly,
}

/// When providers are asked each night whether they agree with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nightly {
    Off,
    /// In minutes after midnight, UTC.
    At(u16),
    /// At a minute of this installation's own.
    Unsaid,
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
    /// None: its webhooks are received, and nobody can sign in.
    pub client: Option<Client>,
    /// None: its Management API is not asked.
    pub m2m: Option<M2m>,
}

/// What this application is at Kinde.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: String,
    pub secret: Secret,
}

/// A machine-to-machine application at Kinde.
#[derive(Debug, Clone)]
pub struct M2m {
    pub client_id: String,
    pub client_secret: Secret,
}

/// What concerns the people who sign in.
#[derive(Debug, Clone)]
pub struct People {
    /// What seals their sign-ins, if it was given.
    pub session_key: Option<Secret>,
    pub operators: Operators,
}

/// Who may see the operators' pages: e-mail addresses, in lower case, and Kinde user ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operators(BTreeSet<String>);

impl Operators {
    /// Separated by commas.
    pub fn read(list: &str) -> Self {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        // Ids are case-sensitive, addresses are not.
        Self(names.map(|name| if name.contains('@') { name.to_lowercase() } else { name.to_owned() }).collect())
    }

    /// `verified` is an address only if Kinde has checked that it is theirs: anybody can type somebody else's.
    pub fn include(&self, user: &KindeUserId, verified: Option<&str>) -> bool {
        self.0.contains(&user.0) || verified.is_some_and(|email| email.contains('@') && self.0.contains(&email.to_lowercase()))
    }
}

#[derive(Debug, Clone)]
pub struct MailServer {
    pub url: Secret,
    pub from: String,
}

/// Where alerts go besides the log.
#[derive(Debug, Clone, Default)]
pub struct Alerts {
    pub webhook: Option<(Url, Secret)>,
    pub email: Option<String>,
}

/// A value that is never shown.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
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

    /// Base URL of this Bottle, without a trailing slash.
    pub fn base_url(&self) -> &str {
        self.web.url.as_str().trim_end_matches('/')
    }

    pub fn webhook_url(&self, provider: &str) -> String {
        format!("{}/webhooks/{provider}", self.base_url())
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_named_by_id_or_by_an_address_that_was_verified() {
        let operators = Operators::read(" Olga@Example.com, kp_AbC ,,");
        let (olga, other) = (KindeUserId("kp_1".into()), KindeUserId("kp_AbC".into()));
        assert!(operators.include(&olga, Some("olga@EXAMPLE.com")) && operators.include(&other, None));
        assert!(!operators.include(&olga, None) && !operators.include(&olga, Some("ada@example.com")));
        // An address that reads like an id is none, and neither is an id in other letters.
        assert!(!operators.include(&olga, Some("kp_AbC")) && !operators.include(&KindeUserId("kp_abc".into()), None));
        assert!(
            !Operators::default().include(&olga, Some(""))
                && !Operators::read(" , ").include(&KindeUserId(String::new()), Some(""))
        );
    }
}
