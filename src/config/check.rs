//! Reads the settings, and says of the first that is wrong what to do about it. Nothing that may be a secret is repeated.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use super::given::{ADDR, DATA, FREE_PLAN_KEYS, LOCAL_KINDE_ADDR, PRO_PLAN_KEYS, RETENTION_DAYS, Settings};
use super::{Alerts, Client, Config, Database, Kinde, M2m, MailServer, Nightly, Operators, People, Secret, Web, is_loopback};
use crate::domain::plan::PlanKeys;

#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct WrongSetting {
    setting: &'static str,
    problem: String,
}

impl WrongSetting {
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl Settings {
    /// Where this machine's own data is kept, for what needs no other setting.
    pub fn data_folder(&self) -> PathBuf {
        PathBuf::from(given(Some(&self.data)).unwrap_or(DATA))
    }

    /// # Errors
    /// The first setting that is wrong, by name, or that is unsafe where people are served.
    pub fn check(&self) -> Result<Config, WrongSetting> {
        let config = self.read()?;
        config.refusals().into_iter().next().map_or(Ok(config), Err)
    }

    /// As they are, safe or not.
    ///
    /// # Errors
    /// The first that cannot be read, by name.
    pub fn read(&self) -> Result<Config, WrongSetting> {
        let web = web(&self.addr, self.url.as_deref())?;
        let kinde = self.kinde()?;
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
        let stripe = self.stripe.check()?;
        if let Some(price) = stripe.as_ref().map(|s| &s.price_pro).filter(|price| plans.free.contains(*price)) {
            return Err(wrong("STRIPE_PRICE_PRO", format!("`{price}` is also in BOTTLE_FREE_PLAN_KEYS; a key means one plan")));
        }
        Ok(Config {
            database: Database {
                url: given(self.database_url.as_deref()).map(database_url).transpose()?,
                bin: given(self.pg_bin.as_deref()).map(PathBuf::from),
                data: self.data_folder(),
            },
            web,
            kinde,
            people: People {
                session_key: given(self.session_key.as_deref()).map(session_key).transpose()?,
                operators: Operators::read(self.operators.as_deref().unwrap_or_default()),
            },
            local_kinde_addr: given(Some(&self.local_kinde_addr)).unwrap_or(LOCAL_KINDE_ADDR).to_owned(),
            stripe,
            plans,
            mail: mail(given(self.smtp_url.as_deref()), given(self.mail_from.as_deref()))?,
            alerts: self.alerts()?,
            signals: self.signals.check()?,
            retention: retention(given(Some(&self.retention_days)).unwrap_or(RETENTION_DAYS))?,
            nightly: nightly(given(self.reconcile_at.as_deref()))?,
        })
    }

    fn alerts(&self) -> Result<Alerts, WrongSetting> {
        let webhook = match (given(self.alert_webhook_url.as_deref()), given(self.alert_webhook_secret.as_deref())) {
            (Some(url), Some(secret)) => Some((alert_url(url)?, Secret::new(secret))),
            (Some(_), None) => {
                return Err(wrong(
                    "ALERT_WEBHOOK_SECRET",
                    "is missing: whoever gets alerts has to be able to tell that they are ours",
                ));
            }
            (None, Some(_)) => return Err(wrong("ALERT_WEBHOOK_URL", "is missing; ALERT_WEBHOOK_SECRET alone alerts nobody")),
            (None, None) => None,
        };
        let email = given(self.alert_email.as_deref());
        if let Some(text) = email {
            if text.parse::<lettre::Address>().is_err() {
                return Err(wrong("ALERT_EMAIL", format!("`{text}` is no mail address")));
            }
            if given(self.smtp_url.as_deref()).is_none() {
                return Err(wrong("ALERT_EMAIL", "is set without SMTP_URL, which would send the mail"));
            }
        }
        Ok(Alerts { webhook, email: email.map(str::to_owned) })
    }

    fn kinde(&self) -> Result<Option<Kinde>, WrongSetting> {
        let issuer = given(self.kinde_issuer.as_deref());
        let (id, secret) = (given(self.kinde_client_id.as_deref()), given(self.kinde_client_secret.as_deref()));
        let (m2m_id, m2m_secret) = (given(self.kinde_m2m_client_id.as_deref()), given(self.kinde_m2m_client_secret.as_deref()));
        let Some(domain) = given(self.kinde_domain.as_deref()) else {
            let alone = [
                ("KINDE_ISSUER", issuer),
                ("KINDE_CLIENT_ID", id),
                ("KINDE_CLIENT_SECRET", secret),
                ("KINDE_M2M_CLIENT_ID", m2m_id),
                ("KINDE_M2M_CLIENT_SECRET", m2m_secret),
            ];
            return match alone.into_iter().find(|(_, value)| value.is_some()) {
                Some((setting, _)) => {
                    Err(wrong(setting, "is set without KINDE_DOMAIN; set that to https://<your subdomain>.kinde.com"))
                }
                None => Ok(None),
            };
        };
        let client = match (id, secret) {
            (Some(id), Some(secret)) => Some(Client { id: id.to_owned(), secret: Secret::new(secret) }),
            (Some(_), None) => return Err(wrong("KINDE_CLIENT_SECRET", "is missing; KINDE_CLIENT_ID alone lets nobody sign in")),
            (None, Some(_)) => return Err(wrong("KINDE_CLIENT_ID", "is missing; KINDE_CLIENT_SECRET alone lets nobody sign in")),
            (None, None) => None,
        };
        let m2m = match (m2m_id, m2m_secret) {
            (Some(id), Some(secret)) => Some(M2m { client_id: id.to_owned(), client_secret: Secret::new(secret) }),
            (Some(_), None) => return Err(wrong("KINDE_M2M_CLIENT_SECRET", "is missing; KINDE_M2M_CLIENT_ID needs it")),
            (None, Some(_)) => return Err(wrong("KINDE_M2M_CLIENT_ID", "is missing; KINDE_M2M_CLIENT_SECRET needs it")),
            (None, None) => None,
        };
        let issuer = issuer.map(|i| tenant("KINDE_ISSUER", i)).transpose()?;
        Ok(Some(Kinde { domain: tenant("KINDE_DOMAIN", domain)?, issuer, client, m2m }))
    }
}

pub(super) fn wrong(setting: &'static str, problem: impl Into<String>) -> WrongSetting {
    WrongSetting { setting, problem: problem.into() }
}

pub(super) fn given(value: Option<&str>) -> Option<&str> {
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

pub(super) fn base_url(setting: &'static str, text: &str) -> Result<Url, WrongSetting> {
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
        Ok(_) if text.starts_with("postgres://") || text.starts_with("postgresql://") => Ok(Secret::new(text)),
        _ => Err(wrong("DATABASE_URL", "cannot be read; write it like postgres://user:password@host:5432/database")),
    }
}

/// None of the texts is repeated: the server's address may hold a password.
fn mail(url: Option<&str>, from: Option<&str>) -> Result<Option<MailServer>, WrongSetting> {
    let (Some(text), Some(from)) = (url, from) else {
        return match (url, from) {
            (Some(_), None) => Err(wrong("MAIL_FROM", "is not set, and SMTP_URL is; set it like Bottle <bottle@bottle.example>")),
            _ => Ok(None),
        };
    };
    let like = "write it like smtps://user:password@mail.example or smtp://mail.example?tls=required";
    let url = Url::parse(text).map_err(|_| wrong("SMTP_URL", format!("cannot be read; {like}")))?;
    let tls = url.query_pairs().find(|(key, _)| key == "tls").map(|(_, value)| value.into_owned());
    match (url.scheme(), tls.as_deref()) {
        _ if url.host_str().is_none_or(str::is_empty) => return Err(wrong("SMTP_URL", format!("names no host; {like}"))),
        ("smtps", None) | ("smtp", Some("required")) => {}
        ("smtp", None) if is_loopback(&url) => {}
        ("smtp", None | Some("opportunistic")) => {
            return Err(wrong("SMTP_URL", format!("would send mail and password in the clear; {like}")));
        }
        _ => return Err(wrong("SMTP_URL", format!("is no address of a mail server; {like}"))),
    }
    if from.parse::<lettre::message::Mailbox>().is_err() {
        return Err(wrong("MAIL_FROM", format!("`{from}` is no mail address; write it like Bottle <bottle@bottle.example>")));
    }
    Ok(Some(MailServer { url: Secret::new(text), from: from.to_owned() }))
}

/// May hold a token in its path or query, so it is never repeated.
fn alert_url(text: &str) -> Result<Url, WrongSetting> {
    let like = "write it like https://alerts.example/hook";
    let url = Url::parse(text).map_err(|_| wrong("ALERT_WEBHOOK_URL", format!("cannot be read; {like}")))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(wrong("ALERT_WEBHOOK_URL", format!("is not https; {like}"))),
    }
}

/// Providers tell of an event, and let it be asked for again, for 30 days.
const RETENTION_DAYS_MIN: u32 = 35;

fn nightly(text: Option<&str>) -> Result<Nightly, WrongSetting> {
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':').filter(|(_, minute)| minute.len() == 2)?;
        let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
        (hour < 24 && minute < 60).then_some(hour * 60 + minute)
    };
    match text {
        None => Ok(Nightly::Unsaid),
        Some("off") => Ok(Nightly::Off),
        Some(text) => minute(text)
            .map(Nightly::At)
            .ok_or_else(|| wrong("BOTTLE_RECONCILE_AT", format!("`{text}` is neither a time like 03:20 nor `off`"))),
    }
}

fn retention(text: &str) -> Result<Duration, WrongSetting> {
    match text.parse::<u32>() {
        Ok(days) if days >= RETENTION_DAYS_MIN => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        _ => Err(wrong("BOTTLE_RETENTION_DAYS", format!("`{text}` is not a number of days from {RETENTION_DAYS_MIN} up"))),
    }
}

/// Shorter than that is likely to be a word somebody thought of, and can be guessed from what it sealed.
const SESSION_KEY_BYTES_MIN: usize = 32;

fn session_key(text: &str) -> Result<Secret, WrongSetting> {
    if text.len() < SESSION_KEY_BYTES_MIN {
        return Err(wrong(
            "BOTTLE_SESSION_KEY",
            format!("is shorter than {SESSION_KEY_BYTES_MIN} bytes; make one with `openssl rand -base64 48`"),
        ));
    }
    Ok(Secret::new(text))
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
        let names = "addr url data kinde-domain kinde-issuer kinde-client-id kinde-client-secret kinde-m2m-client-id kinde-m2m-client-secret session-key operators \
                     local-kinde-addr database-url pg-bin retention-days smtp-url mail-from stripe-secret-key stripe-webhook-secret \
                     stripe-price-pro stripe-price-pack stripe-api-base alert-webhook-url alert-webhook-secret alert-email \
                     metrics-addr otlp-endpoint otlp-headers otlp-protocol otel-service-name";
        let empty: Vec<String> = names.split_whitespace().map(|name| format!("--{name}=")).collect();
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
    fn a_machine_to_machine_application_belongs_to_a_tenant_and_its_secret_is_never_shown() {
        let app = ["--kinde-m2m-client-id", "app", "--kinde-m2m-client-secret", "hunter2"];
        assert!(check(&app).unwrap_err().starts_with("KINDE_M2M_CLIENT_ID: is set without KINDE_DOMAIN"));
        let config = check(&[&app[..], &["--kinde-domain", "https://x.kinde.com"]].concat()).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
        assert_eq!(config.kinde.unwrap().m2m.unwrap().client_secret.reveal(), "hunter2");
    }

    #[test]
    fn mail_needs_a_server_that_can_be_trusted_with_it_and_a_sender() {
        let with = |url: &str, from: &str| check(&["--smtp-url", url, "--mail-from", from]);
        for url in ["smtps://me:hunter2@mail.example", "smtp://mail.example:587?tls=required", "smtp://127.0.0.1:2525"] {
            assert!(with(url, "Bottle <bottle@bottle.example>").unwrap().mail.is_some(), "{url}");
        }
        assert!(check(&["--mail-from", "bottle@bottle.example"]).unwrap().mail.is_none());
        for (url, from, start) in [
            ("smtps://me:hunter2@mail.example", "", "MAIL_FROM: is not set"),
            ("smtps://me:hunter2@mail.example", "somebody", "MAIL_FROM: `somebody` is no mail address"),
            ("smtp://me:hunter2@mail.example", "a@b.example", "SMTP_URL: would send mail and password in the clear"),
            ("smtp://me:hunter2@mail.example?tls=opportunistic", "a@b.example", "SMTP_URL: would send"),
            ("https://me:hunter2@mail.example", "a@b.example", "SMTP_URL: is no address of a mail server"),
            ("hunter2", "a@b.example", "SMTP_URL: cannot be read"),
        ] {
            let error = with(url, from).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
        }
    }

    const STRIPE: [&str; 6] = [
        "--stripe-secret-key",
        "rk_test_hunter2",
        "--stripe-webhook-secret",
        "whsec_one, whsec_two",
        "--stripe-price-pro",
        "price_pro",
    ];

    #[test]
    fn stripe_is_whole_or_absent_and_its_mode_is_the_keys() {
        assert!(check(&[]).unwrap().stripe.is_none());
        let config = check(&STRIPE).unwrap();
        assert!(!format!("{config:?}").contains("hunter2") && !format!("{config:?}").contains("whsec_"), "{config:?}");
        let stripe = config.stripe.unwrap();
        assert!(!stripe.live && stripe.api_base == "https://api.stripe.com");
        assert_eq!(stripe.webhook_secrets.iter().map(Secret::reveal).collect::<Vec<_>>(), ["whsec_one", "whsec_two"]);
        let live = check(&["--stripe-secret-key", "sk_live_x", STRIPE[2], STRIPE[3], STRIPE[4], STRIPE[5]]).unwrap();
        assert!(live.stripe.unwrap().live);
    }

    #[test]
    fn half_of_stripe_is_a_mistake_that_is_named() {
        let [key, test_key, secret, secrets, pro, price] = STRIPE;
        for (args, start) in [
            (vec![secret, secrets], "STRIPE_SECRET_KEY: is missing, but STRIPE_WEBHOOK_SECRET"),
            (vec![pro, price], "STRIPE_SECRET_KEY: is missing, but STRIPE_PRICE_PRO"),
            (vec!["--stripe-api-base", "https://x"], "STRIPE_SECRET_KEY: is missing, but STRIPE_API_BASE"),
            (vec![key, test_key], "STRIPE_WEBHOOK_SECRET: is missing"),
            (vec![key, test_key, secret, secrets], "STRIPE_PRICE_PRO: is missing"),
            (vec![key, "pk_test_hunter2", secret, secrets, pro, price], "STRIPE_SECRET_KEY: is no key"),
            (vec![key, "sk_test_", secret, secrets, pro, price], "STRIPE_SECRET_KEY: is no key"),
            (vec![key, "sk_hunter2", secret, secrets, pro, price], "STRIPE_SECRET_KEY: is no key"),
            (vec![key, "sk_test_hunter2 2", secret, secrets, pro, price], "STRIPE_SECRET_KEY: is no key"),
            (vec![key, test_key, secret, "hunter2", pro, price], "STRIPE_WEBHOOK_SECRET: has an entry"),
            (vec![key, test_key, secret, "whsec_", pro, price], "STRIPE_WEBHOOK_SECRET: has an entry"),
            (vec![key, test_key, secret, "whsec_one,", pro, price], "STRIPE_WEBHOOK_SECRET: has an entry"),
            (vec![key, test_key, secret, "whsec_hunter2 x", pro, price], "STRIPE_WEBHOOK_SECRET: has an entry"),
            (vec![key, test_key, secret, secrets, pro, "a price"], "STRIPE_PRICE_PRO: `a price`"),
            ([&STRIPE[..], &["--stripe-price-pack", "price_pro"]].concat(), "STRIPE_PRICE_PACK: is the price of Pro"),
            ([&STRIPE[..], &["--stripe-api-base", "http://stripe.example"]].concat(), "STRIPE_API_BASE: is plain http"),
            ([&STRIPE[..], &["--free-plan-keys", "price_pro"]].concat(), "STRIPE_PRICE_PRO: `price_pro` is also"),
            (
                vec![key, "sk_live_hunter2", secret, secrets, pro, price, "--stripe-api-base", "http://localhost:1"],
                "STRIPE_API_BASE: is a stand-in",
            ),
        ] {
            let error = check(&args).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{args:?}: {error}");
        }
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
            (["--alert-webhook-url", "https://a.example/hunter2"], "ALERT_WEBHOOK_SECRET: is missing"),
            (["--alert-webhook-secret", "hunter2"], "ALERT_WEBHOOK_URL: is missing"),
            (["--alert-email", "me@a.example"], "ALERT_EMAIL: is set without SMTP_URL"),
            (["--retention-days", "34"], "BOTTLE_RETENTION_DAYS: `34`"),
            (["--retention-days", "x"], "BOTTLE_RETENTION_DAYS: `x`"),
            (["--reconcile-at", "24:00"], "BOTTLE_RECONCILE_AT: `24:00`"),
            (["--reconcile-at", "3"], "BOTTLE_RECONCILE_AT: `3`"),
            (["--pro-plan-keys", " , "], "BOTTLE_PRO_PLAN_KEYS: is empty"),
            (["--pro-plan-keys", "customer_free_plan"], "BOTTLE_FREE_PLAN_KEYS: `customer_free_plan`"),
        ] {
            let error = check(&args).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn signing_in_needs_the_domain_the_client_id_and_the_secret() {
        let domain = ["--kinde-domain", "https://x.kinde.com"];
        let (id, secret) = (["--kinde-client-id", "bottle"], ["--kinde-client-secret", "hunter2"]);
        assert!(check(&domain).unwrap().kinde.unwrap().client.is_none());
        let whole = check(&[domain, id, secret].concat()).unwrap();
        assert!(!format!("{whole:?}").contains("hunter2"), "{whole:?}");
        let client = whole.kinde.unwrap().client.unwrap();
        assert_eq!((client.id.as_str(), client.secret.reveal()), ("bottle", "hunter2"));
        for (args, start) in [
            ([domain, id].concat(), "KINDE_CLIENT_SECRET: is missing"),
            ([domain, secret].concat(), "KINDE_CLIENT_ID: is missing"),
            (id.to_vec(), "KINDE_CLIENT_ID: is set without KINDE_DOMAIN"),
            (secret.to_vec(), "KINDE_CLIENT_SECRET: is set without KINDE_DOMAIN"),
            (vec!["--session-key", "hunter2hunter2"], "BOTTLE_SESSION_KEY: is shorter"),
        ] {
            let error = check(&args).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
        }
        let key = "0123456789abcdefghijklmnopqrstuv";
        let people = check(&["--session-key", key]).unwrap().people;
        assert_eq!(people.session_key.unwrap().reveal(), key);
    }
}
