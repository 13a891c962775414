//! What a production must not run with, and what is let pass there with a warning. A production is whatever people reach by https.
//!
//! A start stops at the first refusal; `bottle doctor` tells all of them. Settings of the database (`fsync` and its kin) are not
//! known here: they are looked at when it is reached. Whoever adds a setting says in the table below what makes it unsafe.

use reqwest::Url;

use super::check::{WrongSetting, wrong};
use super::{Config, Secret, is_loopback};

/// Begins the keys and prices that the local Stripe prints.
const LOCAL_STRIPE: [&str; 4] = ["sk_test_local", "rk_test_local", "whsec_local", "price_1Local"];
/// From the manuals of Stripe and of Standard Webhooks.
const PRINTED: [&str; 3] =
    ["sk_test_4eC39HqLyjWDarjtT1zdp7dc", "sk_test_BQokikJOvBiI2HlWgH4olfQ2", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];
/// Words of somebody who meant to come back. Random text has them less than once in ten million.
const PLACEHOLDERS: [&str; 7] = ["change", "example", "sample", "secret", "password", "replace", "placeholder"];
/// Random text of 32 characters has hardly ever fewer different ones, even of hexadecimal digits.
const DIFFERENT_MIN: usize = 9;

impl Config {
    /// What stops a start, in the order of the settings.
    pub fn refusals(&self) -> Vec<WrongSetting> {
        if !self.is_production() {
            return self.public_http().into_iter().collect();
        }
        let mut all = Vec::new();
        self.refuse_kinde(&mut all);
        self.refuse_stripe(&mut all);
        if let Some(key) = &self.people.session_key
            && let Some(problem) = weak_key(key.reveal())
        {
            all.push(wrong("BOTTLE_SESSION_KEY", problem));
        }
        if let Some((url, secret)) = &self.alerts.webhook {
            if url.scheme() != "https" {
                all.push(wrong("ALERT_WEBHOOK_URL", "is not https; alerts of a production are told under seal only"));
            }
            refuse_sample(&mut all, "ALERT_WEBHOOK_SECRET", secret);
        }
        all
    }

    /// What a production starts with all the same.
    pub fn doubts(&self) -> Vec<WrongSetting> {
        if !self.is_production() {
            return Vec::new();
        }
        let mut all = Vec::new();
        match &self.database.url {
            None => all.push(wrong(
                "DATABASE_URL",
                "is not set, so a private PostgreSQL on this machine is used; back up BOTTLE_DATA, and know that no process on another machine can join",
            )),
            Some(url) if is_open_to_listeners(url) => all.push(wrong(
                "DATABASE_URL",
                "leads to another network without demanding TLS; add ?sslmode=verify-full, or keep that way private",
            )),
            Some(_) => {}
        }
        if self.stripe.as_ref().is_some_and(|stripe| !stripe.live) {
            all.push(wrong("STRIPE_SECRET_KEY", "is of Stripe's test mode: nobody pays real money here"));
        }
        if self.mail.as_ref().is_some_and(|mail| is_plain_smtp(mail.url.reveal())) {
            all.push(wrong("SMTP_URL", "has no TLS; that is fine while the mail server runs on this very machine"));
        }
        all
    }

    /// Cookies and sign-ins in the clear, for anybody on the way to read.
    fn public_http(&self) -> Option<WrongSetting> {
        let url = &self.web.url;
        is_public(url.host_str().unwrap_or_default()).then(|| {
            wrong(
                "BOTTLE_URL",
                format!("`{url}` is plain http for a public host; put a proxy with TLS before Bottle and write https://"),
            )
        })
    }

    fn refuse_kinde(&self, all: &mut Vec<WrongSetting>) {
        let Some(kinde) = &self.kinde else { return };
        let tenant = [("KINDE_DOMAIN", Some(&kinde.domain)), ("KINDE_ISSUER", kinde.issuer.as_ref())];
        for (setting, address) in tenant {
            if address.is_some_and(|address| is_stand_in(address)) {
                all.push(wrong(
                    setting,
                    "is a stand-in on this machine or plain http; production needs a tenant at Kinde, by https",
                ));
            }
        }
        if let Some(client) = &kinde.client {
            refuse_sample(all, "KINDE_CLIENT_SECRET", &client.secret);
        }
        if let Some(m2m) = &kinde.m2m {
            refuse_sample(all, "KINDE_M2M_CLIENT_SECRET", &m2m.client_secret);
        }
    }

    fn refuse_stripe(&self, all: &mut Vec<WrongSetting>) {
        let Some(stripe) = &self.stripe else { return };
        if stripe.api_base != super::stripe::API_BASE {
            all.push(wrong("STRIPE_API_BASE", "leads to a stand-in; leave it out: a production asks Stripe itself"));
        }
        refuse_sample(all, "STRIPE_SECRET_KEY", &stripe.secret_key);
        for secret in &stripe.webhook_secrets {
            refuse_sample(all, "STRIPE_WEBHOOK_SECRET", secret);
        }
        let prices = [("STRIPE_PRICE_PRO", Some(&stripe.price_pro)), ("STRIPE_PRICE_PACK", stripe.price_pack.as_ref())];
        for (setting, price) in prices {
            if price.is_some_and(|price| is_local_stripes(price)) {
                all.push(wrong(setting, "is a price of the local Stripe; name one of your own account"));
            }
        }
    }
}

fn refuse_sample(all: &mut Vec<WrongSetting>, setting: &'static str, secret: &Secret) {
    let text = secret.reveal();
    if is_local_stripes(text) {
        all.push(wrong(setting, "is one that the local Stripe printed; put in that of your own account"));
    } else if is_sample(text) {
        all.push(wrong(setting, "is a sample from an example or a manual; put in your own"));
    }
}

fn is_local_stripes(text: &str) -> bool {
    LOCAL_STRIPE.iter().any(|start| text.starts_with(start))
}

fn is_sample(text: &str) -> bool {
    let lower = text.to_lowercase();
    PRINTED.contains(&text) || PLACEHOLDERS.iter().any(|word| lower.contains(word)) || text.starts_with('<')
}

/// Whoever guesses the key opens what it sealed.
fn weak_key(key: &str) -> Option<&'static str> {
    if is_sample(key) {
        return Some("is a sample from an example or a manual; make one with `openssl rand -base64 48`");
    }
    let different = key.chars().collect::<std::collections::BTreeSet<_>>().len();
    let repeats = (1..=key.len() / 2).any(|n| key.as_bytes().chunks(n).all(|part| key.as_bytes().starts_with(part)));
    (different < DIFFERENT_MIN || repeats).then_some("is no random text; make one with `openssl rand -base64 48`")
}

fn is_stand_in(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.scheme() != "https" || is_loopback(&url))
}

fn is_plain_smtp(url: &str) -> bool {
    Url::parse(url)
        .is_ok_and(|url| url.scheme() == "smtp" && !url.query_pairs().any(|(key, value)| key == "tls" && value == "required"))
}

fn is_open_to_listeners(url: &Secret) -> bool {
    use sqlx::postgres::PgSslMode;
    let Ok(options) = url.reveal().parse::<sqlx::postgres::PgConnectOptions>() else { return false };
    let sealed = matches!(options.get_ssl_mode(), PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    !sealed && options.get_socket().is_none() && is_public(options.get_host())
}

/// A name or address that lies neither on this machine nor, by its look, in a private network.
fn is_public(host: &str) -> bool {
    const PRIVATE: [&str; 7] = ["localhost", "local", "lan", "internal", "home.arpa", "test", "svc"];
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_lowercase();
    match host.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(ip)) => !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()),
        Ok(std::net::IpAddr::V6(ip)) => {
            !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
        // A name without a dot is one of this network's: a container's, or a neighbour's.
        Err(_) => host.contains('.') && !PRIVATE.iter().any(|end| host.ends_with(&format!(".{end}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::super::given::Settings;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    /// A production in which nothing is wrong, as settings.
    const GOOD: [(&str, &str); 19] = [
        ("BOTTLE_URL", "https://bottle.example.com"),
        ("DATABASE_URL", "postgres://bottle_run:hunter2@db.internal/bottle"),
        ("KINDE_DOMAIN", "https://acme.kinde.com"),
        ("KINDE_ISSUER", "https://login.acme.com"),
        ("KINDE_CLIENT_ID", "abc"),
        ("KINDE_CLIENT_SECRET", "hunter2-hV7pQ2xW"),
        ("KINDE_M2M_CLIENT_ID", "def"),
        ("KINDE_M2M_CLIENT_SECRET", "hunter2-Zk81mQrT"),
        ("BOTTLE_SESSION_KEY", "hunter2/8Uq3vXr1WmZpK0sYb5nTgLhJdF7aCeR9"),
        ("STRIPE_SECRET_KEY", "rk_live_hunter2Fq8Zb1"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_hunter2aQ9"),
        ("STRIPE_PRICE_PRO", "price_1QAbCd"),
        ("STRIPE_PRICE_PACK", "price_1QEfGh"),
        ("SMTP_URL", "smtps://me:hunter2@mail.acme.com"),
        ("MAIL_FROM", "Bottle <bottle@acme.com>"),
        ("ALERT_WEBHOOK_URL", "https://alerts.acme.com/hook"),
        ("ALERT_WEBHOOK_SECRET", "whsec_hunter2Nq3vXr1WmZpK0sYb5nTgLhJ="),
        ("ALERT_EMAIL", "oncall@acme.com"),
        ("BOTTLE_OPERATORS", "olga@acme.com"),
    ];

    enum Want {
        Refused,
        /// In production or not.
        Everywhere,
        Warned,
        Fine,
    }
    use Want::{Everywhere, Fine, Refused, Warned};

    /// Setting by setting: what makes it unsafe, and what is said then.
    const TABLE: &[(&str, &str, Want, &str)] = &[
        ("BOTTLE_URL", "http://bottle.example.com", Refused, "is plain http for a public host"),
        ("BOTTLE_URL", "http://93.184.215.14:3000", Refused, "is plain http for a public host"),
        ("BOTTLE_URL", "http://[2606:2800::1]", Refused, "is plain http for a public host"),
        ("BOTTLE_URL", "http://192.168.1.7:3000", Fine, ""),
        ("BOTTLE_URL", "http://bottle:3000", Fine, ""),
        ("BOTTLE_URL", "http://bottle.lan", Fine, ""),
        ("DATABASE_URL", "", Warned, "a private PostgreSQL"),
        ("DATABASE_URL", "postgres://u:hunter2@db.acme.com/bottle", Warned, "without demanding TLS"),
        ("DATABASE_URL", "postgres://u:hunter2@db.acme.com/bottle?sslmode=verify-full", Fine, ""),
        ("DATABASE_URL", "postgres://u:hunter2@postgres/bottle", Fine, ""),
        ("KINDE_DOMAIN", "http://localhost:3001", Refused, "is a stand-in on this machine"),
        ("KINDE_DOMAIN", "https://127.0.0.1:3001", Refused, "is a stand-in on this machine"),
        ("KINDE_ISSUER", "http://localhost:3001", Refused, "is a stand-in on this machine"),
        ("KINDE_CLIENT_SECRET", "change-me-hunter2", Refused, "is a sample"),
        ("KINDE_M2M_CLIENT_SECRET", "<your hunter2>", Refused, "is a sample"),
        ("BOTTLE_SESSION_KEY", "hunter2hunter2hunter2hunter2hunter2", Refused, "is no random text"),
        ("BOTTLE_SESSION_KEY", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Refused, "is no random text"),
        ("BOTTLE_SESSION_KEY", "0123456789abcdef0123456789abcdef", Refused, "is no random text"),
        ("BOTTLE_SESSION_KEY", "please-change-this-hunter2-key-0123456789", Refused, "is a sample"),
        ("BOTTLE_SESSION_KEY", "short-hunter2", Everywhere, "is shorter than 32 bytes"),
        ("STRIPE_SECRET_KEY", "sk_test_hunter2", Warned, "is of Stripe's test mode"),
        ("STRIPE_SECRET_KEY", "sk_test_localHunter2aaaa", Refused, "is one that the local Stripe printed"),
        ("STRIPE_SECRET_KEY", "sk_test_4eC39HqLyjWDarjtT1zdp7dc", Refused, "is a sample"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_hunter2aQ9,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Refused, "is a sample"),
        ("STRIPE_PRICE_PRO", "price_1LocalProMonthUsd", Refused, "is a price of the local Stripe"),
        ("STRIPE_PRICE_PACK", "price_1LocalPackUsd", Refused, "is a price of the local Stripe"),
        ("STRIPE_API_BASE", "https://stripe.acme.com", Refused, "leads to a stand-in"),
        ("STRIPE_API_BASE", "https://api.stripe.com", Fine, ""),
        ("SMTP_URL", "smtp://mail.acme.com", Everywhere, "would send mail and password in the clear"),
        ("SMTP_URL", "smtp://127.0.0.1:25", Warned, "has no TLS"),
        ("SMTP_URL", "smtp://mail.acme.com?tls=required", Fine, ""),
        ("ALERT_WEBHOOK_URL", "http://localhost:9/hook", Refused, "is not https"),
        ("ALERT_WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Refused, "is a sample"),
    ];

    /// Settings that no value makes unsafe, and why.
    const HARMLESS: &[(&str, &str)] = &[
        ("BOTTLE_ADDR", "any address may be listened on: what comes without the proxy's TLS gets no cookie, as those are Secure"),
        ("BOTTLE_PG_BIN", "only says where programs are"),
        ("BOTTLE_DATA", "only says where files are; its folder is made for one user alone"),
        ("BOTTLE_LOCAL_KINDE_ADDR", "the local Kinde never runs in production, and elsewhere on loopback only"),
        ("BOTTLE_OPERATORS", "names people; an address counts only if Kinde has verified it"),
        ("BOTTLE_PRO_PLAN_KEYS", "a key that does not exist parks events and is told of"),
        ("BOTTLE_FREE_PLAN_KEYS", "as above"),
        ("BOTTLE_RECONCILE_AT", "a time of day, or off; the doctor and an alert tell of nights that did not happen"),
        ("BOTTLE_METRICS_ADDR", "shows counts and no names; an address that others may reach is warned of when it is taken"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "plain http is refused everywhere but to this machine and its private network"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "go where traces go, and into no log"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "has one value"),
        ("OTEL_SERVICE_NAME", "is a name"),
        ("BOTTLE_RETENTION_DAYS", "has a least value everywhere"),
        ("BOTTLE_LOG", "bodies, tokens and secrets are written to no log"),
        ("KINDE_CLIENT_ID", "is public"),
        ("KINDE_M2M_CLIENT_ID", "is worth nothing without its secret"),
        ("MAIL_FROM", "is public"),
        ("ALERT_EMAIL", "needs a mail server, which is looked at"),
    ];

    fn start(changes: &[(&str, &str)]) -> Result<Config, String> {
        let flag = |name: &str, value: &str| {
            let name = name.strip_prefix("BOTTLE_").unwrap_or(name).to_lowercase().replace('_', "-");
            format!("--{name}={value}")
        };
        let kept = GOOD.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let flags = kept.chain(changes).map(|(name, value)| flag(name, value));
        let line = Line::parse_from(std::iter::once("bottle".to_owned()).chain(flags));
        line.settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_production_in_which_nothing_is_unsafe_starts_without_a_word() {
        let config = start(&[]).unwrap();
        assert!(config.is_production() && config.refusals().is_empty() && config.doubts().is_empty(), "{:?}", config.doubts());
    }

    #[test]
    fn what_is_unsafe_in_production_is_refused_or_warned_of_by_name_and_no_secret_is_repeated() {
        for (setting, value, want, words) in TABLE {
            let (said, warned) = match start(&[(setting, value)]) {
                Err(error) => (error, Vec::new()),
                Ok(config) => (String::new(), config.doubts().iter().map(ToString::to_string).collect()),
            };
            let starts = |text: &String| text.starts_with(&format!("{setting}: ")) && text.contains(words);
            let as_wanted = match want {
                Refused | Everywhere => starts(&said) && said.lines().count() == 1,
                Warned => said.is_empty() && warned.len() == 1 && starts(&warned[0]),
                Fine => said.is_empty() && warned.is_empty(),
            };
            assert!(as_wanted, "{setting}={value}: refused `{said}`, warned {warned:?}");
            assert!(!format!("{said}{warned:?}").contains("hunter2"), "{setting}: {said} {warned:?}");
        }
    }

    #[test]
    fn elsewhere_none_of_it_stops_a_start() {
        for (setting, value, want, _) in TABLE {
            let here = ("BOTTLE_URL", "http://localhost:3000");
            let said = start(
                &[here, (setting, value)]
                    .into_iter()
                    .filter(|(name, v)| *name != "BOTTLE_URL" || *v == here.1)
                    .collect::<Vec<_>>(),
            );
            match want {
                Everywhere => assert!(said.unwrap_err().starts_with(setting)),
                _ => assert!(said.unwrap().doubts().is_empty(), "{setting}={value}"),
            }
        }
    }

    #[test]
    fn each_setting_is_in_the_table_or_says_why_nothing_can_be_wrong_with_it() {
        let known: BTreeSet<&str> = TABLE.iter().map(|row| row.0).chain(HARMLESS.iter().map(|row| row.0)).collect();
        let command = Line::command();
        let settings: BTreeSet<&str> = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
        assert!(settings.len() > 20, "{settings:?}");
        assert_eq!(settings, known, "left: settings; right: what was thought about");
    }
}
