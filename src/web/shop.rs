//! What can be bought and managed from the account page: whatever each provider sells that is set up here. Which ones these are is
//! the providers' affair; here each is a name and a step.

use uuid::Uuid;

use crate::domain::event::Source;
use crate::domain::ids::CustomerId;
use crate::domain::plan::{PACK_BOTTLES, Plan};
use crate::providers::{Provider, Providers, Step, Ware};

/// What is known of a person here.
pub struct Buyer<'a> {
    pub plan: Plan,
    /// By whose word they have Pro; empty also where that would cost too much to find out.
    pub pro_through: &'a [Source],
    /// What they are known as at each provider.
    pub known_as: &'a [(Source, CustomerId)],
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shop {
    pub offers: Vec<Offer>,
    pub doors: Vec<Door>,
    /// What a person has to know to choose, or why there is nothing to choose.
    pub said: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    pub words: String,
    pub step: Go,
    /// What matters most on the page.
    pub first: bool,
}

/// The step to a checkout.
#[derive(Debug, PartialEq, Eq)]
pub enum Go {
    Link { plan: &'static str },
    Form { provider: &'static str, ware: &'static str, intent: String },
}

/// The way to a page where things are managed.
#[derive(Debug, PartialEq, Eq)]
pub struct Door {
    pub words: String,
    /// None: it is reached with the person's own token, through a door of its own.
    pub provider: Option<&'static str>,
    pub intent: String,
}

impl Shop {
    pub fn new(providers: &Providers, buyer: &Buyer<'_>) -> Self {
        let mut shop = Self::default();
        let pro: Vec<&str> = sellers(providers, Ware::Pro);
        let packs = sellers(providers, Ware::Pack);
        for ware in Ware::ALL {
            // Whoever has Pro is never urged to buy it twice.
            if ware == Ware::Pro && buyer.plan == Plan::Pro {
                continue;
            }
            let several = if ware == Ware::Pro { pro.len() > 1 } else { packs.len() > 1 };
            for (source, provider) in providers.all() {
                let Some(step) = provider.sells(ware) else { continue };
                let Some(step) = go(step, source, ware) else { continue };
                let what = match ware {
                    Ware::Pro => "Upgrade to Pro".to_owned(),
                    Ware::Pack => format!("Buy a pack of {PACK_BOTTLES} bottles"),
                };
                let words = if several { format!("{what} at {}", provider.name()) } else { what };
                shop.offers.push(Offer { words, step, first: shop.offers.is_empty() && ware == Ware::Pro });
            }
        }
        for (source, provider) in providers.all() {
            let is_known = buyer.known_as.iter().any(|(known, _)| *known == source);
            let own_token = match provider.manages() {
                Some(Step::OwnToken) => true,
                Some(Step::Ask) if is_known => false,
                _ => continue,
            };
            shop.doors.push(Door {
                words: format!("Manage billing at {}", provider.name()),
                provider: (!own_token).then_some(source.as_str()),
                intent: fresh(),
            });
        }
        let through = buyer.pro_through.iter().filter_map(|source| providers.of(*source)).map(Provider::name).collect::<Vec<_>>();
        shop.said.extend(about_pro(buyer.plan, &pro, &through));
        if !packs.is_empty() {
            shop.said.push(format!("A pack adds {PACK_BOTTLES} bottles to the month in which it is paid, on any plan."));
        }
        shop
    }
}

fn sellers(providers: &Providers, ware: Ware) -> Vec<&'static str> {
    providers.all().filter(|(_, provider)| provider.sells(ware).is_some()).map(|(_, provider)| provider.name()).collect()
}

fn about_pro(plan: Plan, sellers: &[&str], through: &[&str]) -> Option<String> {
    match (plan, sellers, through) {
        (Plan::Free, [_, _, ..], _) => {
            Some(format!("Pro gives you the same at {}, at the price that they ask: choose one.", sellers.join(" and at ")))
        }
        (Plan::Pro, _, [_, _, ..]) => Some(format!(
            "You have Pro at {}, and pay for it at each. One is enough: cancel the other where you manage it.",
            through.join(" and at ")
        )),
        (Plan::Pro, [_, _, ..], [one]) => {
            Some(format!("You have Pro through {one}. It is the same wherever it is bought, so there is nothing to buy twice."))
        }
        _ => None,
    }
}

fn go(step: Step, source: Source, ware: Ware) -> Option<Go> {
    match step {
        Step::SignIn => Some(Go::Link { plan: ware.as_str() }),
        Step::Ask => Some(Go::Form { provider: source.as_str(), ware: ware.as_str(), intent: fresh() }),
        Step::OwnToken => None,
    }
}

/// Names a click. Two clicks on one button are one, since the page is the same.
fn fresh() -> String {
    Uuid::new_v4().to_string()
}
