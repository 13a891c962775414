//! The settings of Stripe, and what is wrong with them. None given means that there is no Stripe; some of them is a mistake.

use clap::Args;
use reqwest::Url;

use super::check::{WrongSetting, base_url, given, wrong};
use super::{Secret, is_loopback};

#[derive(Debug, Clone, Args)]
pub struct StripeSettings {
    /// Secret or restricted key of your Stripe account (sk_… or rk_…); test or live is read from it
    #[arg(long, global = true, env = "STRIPE_SECRET_KEY", hide_env_values = true, value_name = "KEY")]
    stripe_secret_key: Option<String>,
    /// Secrets of the webhook endpoint at Stripe (whsec_…), separated by commas while they are being changed
    #[arg(long, global = true, env = "STRIPE_WEBHOOK_SECRET", hide_env_values = true, value_name = "SECRETS")]
    stripe_webhook_secret: Option<String>,
    /// Id of the price that is Pro (price_…)
    #[arg(long, global = true, env = "STRIPE_PRICE_PRO", value_name = "PRICE")]
    stripe_price_pro: Option<String>,
    /// Id of the price of one pack of bottles; without it none are sold
    #[arg(long, global = true, env = "STRIPE_PRICE_PACK", value_name = "PRICE")]
    stripe_price_pack: Option<String>,
    /// Where a stand-in for Stripe answers
    ///
    /// [default: https://api.stripe.com]
    #[arg(long, global = true, env = "STRIPE_API_BASE", value_name = "URL")]
    stripe_api_base: Option<String>,
}

pub(super) const API_BASE: &str = "https://api.stripe.com";

/// One Stripe account in one of its modes.
#[derive(Debug, Clone)]
pub struct Stripe {
    pub secret_key: Secret,
    pub live: bool,
    pub webhook_secrets: Vec<Secret>,
    pub price_pro: String,
    pub price_pack: Option<String>,
    pub api_base: String,
}

impl StripeSettings {
    pub(super) fn check(&self) -> Result<Option<Stripe>, WrongSetting> {
        let key = given(self.stripe_secret_key.as_deref());
        let secrets = given(self.stripe_webhook_secret.as_deref());
        let (pro, pack) = (given(self.stripe_price_pro.as_deref()), given(self.stripe_price_pack.as_deref()));
        let base = given(self.stripe_api_base.as_deref());
        let Some(key) = key else {
            let others = [
                ("STRIPE_WEBHOOK_SECRET", secrets),
                ("STRIPE_PRICE_PRO", pro),
                ("STRIPE_PRICE_PACK", pack),
                ("STRIPE_API_BASE", base),
            ];
            return match others.into_iter().find(|(_, value)| value.is_some()) {
                Some((name, _)) => {
                    Err(wrong("STRIPE_SECRET_KEY", format!("is missing, but {name} is set; Stripe needs both, or neither")))
                }
                None => Ok(None),
            };
        };
        let live = mode(key)?;
        let secrets = secrets.ok_or_else(|| {
            wrong("STRIPE_WEBHOOK_SECRET", "is missing; without it no webhook of Stripe can be told from a forged one")
        })?;
        let pro = pro.ok_or_else(|| wrong("STRIPE_PRICE_PRO", "is missing; name the price that is Pro"))?;
        let price_pro = price("STRIPE_PRICE_PRO", pro)?;
        let price_pack = pack.map(|pack| price("STRIPE_PRICE_PACK", pack)).transpose()?;
        if price_pack.as_ref() == Some(&price_pro) {
            return Err(wrong("STRIPE_PRICE_PACK", "is the price of Pro too; a price means one thing"));
        }
        Ok(Some(Stripe {
            secret_key: Secret::new(key),
            live,
            webhook_secrets: webhook_secrets(secrets)?,
            price_pro,
            price_pack,
            api_base: base.map_or_else(|| Ok(API_BASE.to_owned()), |base| api_base(base, live))?,
        }))
    }
}

/// Whether a key is of the live mode. The key itself is never repeated.
fn mode(key: &str) -> Result<bool, WrongSetting> {
    let shape = "is no key of Stripe's; they begin with sk_test_, rk_test_, sk_live_ or rk_live_";
    let rest = key.strip_prefix("sk_").or_else(|| key.strip_prefix("rk_")).ok_or_else(|| wrong("STRIPE_SECRET_KEY", shape))?;
    let (live, rest) = match (rest.strip_prefix("live_"), rest.strip_prefix("test_")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        (None, None) => return Err(wrong("STRIPE_SECRET_KEY", shape)),
    };
    if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(wrong("STRIPE_SECRET_KEY", shape));
    }
    Ok(live)
}

fn webhook_secrets(text: &str) -> Result<Vec<Secret>, WrongSetting> {
    text.split(',')
        .map(|secret| {
            let secret = secret.trim();
            let is_one =
                secret.strip_prefix("whsec_").is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace));
            if is_one {
                Ok(Secret::new(secret))
            } else {
                Err(wrong("STRIPE_WEBHOOK_SECRET", "has an entry that is no endpoint's secret; they begin with whsec_"))
            }
        })
        .collect()
}

fn price(setting: &'static str, text: &str) -> Result<String, WrongSetting> {
    let is_id = (4..=200).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_id { Ok(text.to_owned()) } else { Err(wrong(setting, format!("`{text}` is no id of a price; they begin with price_"))) }
}

fn api_base(text: &str, live: bool) -> Result<String, WrongSetting> {
    let url: Url = base_url("STRIPE_API_BASE", text)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(wrong("STRIPE_API_BASE", "is plain http; only https is accepted, except on this machine itself"));
    }
    if live && is_loopback(&url) {
        return Err(wrong(
            "STRIPE_API_BASE",
            "is a stand-in on this machine, and STRIPE_SECRET_KEY is a live key; that key belongs to Stripe alone",
        ));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}
