//! How the page looks that people come back to from a checkout: what is known by now, and what there is to do meanwhile.

use std::time::Duration;

use askama::Template;
use time::OffsetDateTime;

use super::assets;
use super::page::Frame;
use super::person::Person;
use super::when::{When, Zone};
use crate::billing::purchase::Progress;
use crate::checkouts::{Checkout, OPEN_FOR};
use crate::domain::plan::{PACK_BOTTLES, Plan};
use crate::engine_room::report::thousands;
use crate::providers::Ware;

/// Word of a payment takes seconds. After this one need not sit and wait.
const USUALLY_WITHIN: Duration = Duration::from_secs(2 * 60);
/// How often, and for how long, a browser without scripts loads the page anew.
const RELOAD_EVERY_SECS: u8 = 5;
const RELOADS_FOR: Duration = Duration::from_secs(10 * 60);

pub struct Read {
    pub checkout: Checkout,
    pub zone: Zone,
    pub plan: Plan,
    pub progress: Progress,
    pub now: OffsetDateTime,
    pub version: String,
}

#[derive(Template)]
#[template(path = "checkout.html")]
struct CheckoutPage<'a> {
    frame: Frame,
    js: String,
    version: &'a str,
    here: String,
    provider: &'a str,
    what: String,
    begun: When,
    said: Said,
    /// While something may still come.
    reload_secs: Option<u8>,
}

/// What the page says.
struct Said {
    /// `good`, `wait` or `bad`.
    tone: &'static str,
    /// A path in a box of 16 by 16, beside the word.
    shape: &'static str,
    word: &'static str,
    heading: String,
    sentence: String,
    event: Option<i64>,
}

const DONE: &str = "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.2 2.2L11.2 6";
const CLOCK: &str = "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M8 4.5V8l2.5 1.5";
const HOLD: &str = "M2 2h12v12H2zM6.2 5.5v5M9.8 5.5v5";
const CROSS: &str = "M8 1.6 15 14.2H1zM8 6v4M8 12v.1";

pub(super) fn render(person: &Person, provider: &str, read: &Read) -> Result<String, askama::Error> {
    let checkout = &read.checkout;
    let age = read.now - checkout.begun_at;
    let said = said(read, provider, age);
    let goes_on = said.tone == "wait" && matches!(read.progress, Progress::Waiting | Progress::UnderWay) && age < RELOADS_FOR;
    CheckoutPage {
        frame: Frame::new(format!("{} · Bottle", said.heading), "account").of(Some(person)),
        js: assets::url("live.js"),
        version: &read.version,
        here: super::set_out::address(checkout),
        provider,
        what: what(checkout.ware),
        begun: read.zone.when(checkout.begun_at),
        said,
        reload_secs: goes_on.then_some(RELOAD_EVERY_SECS),
    }
    .render()
}

pub(super) fn what(ware: Ware) -> String {
    match ware {
        Ware::Pro => "Pro".to_owned(),
        Ware::Pack => format!("a pack of {PACK_BOTTLES} bottles"),
    }
}

fn said(read: &Read, provider: &str, age: time::Duration) -> Said {
    let of = |tone, shape, word, heading: String, sentence: String| Said { tone, shape, word, heading, sentence, event: None };
    let what = what(read.checkout.ware);
    match &read.progress {
        Progress::Waiting if age > OPEN_FOR => of(
            "",
            HOLD,
            "Not finished",
            "This checkout was not finished".to_owned(),
            format!(
                "{provider} has not told us of a payment for {what}, and the checkout is closed by now. If you did pay, tell whoever runs this Bottle."
            ),
        ),
        Progress::Waiting if age > USUALLY_WITHIN => of(
            "wait",
            CLOCK,
            "Waiting",
            format!("We are still waiting for {provider}’s word"),
            format!(
                "It usually comes within seconds. You need not wait here: if you have paid for {what}, it is yours as soon as {provider} tells us, and your account shows it. If you have not paid, nothing was bought."
            ),
        ),
        Progress::Waiting => of(
            "wait",
            CLOCK,
            "Waiting",
            format!("We are waiting for {provider}’s word"),
            format!(
                "You set out to buy {what}. It is yours as soon as {provider} tells us that it is paid, most often within seconds. This page then says so."
            ),
        ),
        Progress::UnderWay => of(
            "wait",
            CLOCK,
            "In progress",
            format!("{provider} has told us"),
            format!("Word of {what} has arrived and is being worked through. This takes a moment."),
        ),
        Progress::Stuck(event) => Said {
            event: Some(event.0),
            ..of(
                "bad",
                CROSS,
                "Needs a look",
                "Word came, and could not be used yet".to_owned(),
                format!(
                    "{provider} told us something about {what} that could not be worked through. Nothing of it is lost; its page says why."
                ),
            )
        },
        Progress::Awaited => of(
            "wait",
            HOLD,
            "On its way",
            format!("Your order is known; {provider} waits for your bank"),
            format!(
                "You chose a way to pay that takes the bank some days. You need not wait here: {what} is yours as soon as the money has arrived, and your account shows it. Until then everything stays as it is."
            ),
        ),
        Progress::Failed => of(
            "bad",
            CROSS,
            "Not paid",
            "The payment did not come".to_owned(),
            format!(
                "Your bank did not pay, so {what} was not bought. Everything else stays as it is, and you can buy it another way from your account."
            ),
        ),
        Progress::Packed { bottles, period } => of(
            "good",
            DONE,
            "Bought",
            format!("{} bottles were added", thousands(*bottles)),
            format!("The pack is paid, and its {} bottles are there for {}.", thousands(*bottles), period.in_words()),
        ),
        Progress::Begun if read.plan == Plan::Pro => {
            of("good", DONE, "Bought", "You are on Pro".to_owned(), format!("{provider} told us, and Pro is yours."))
        }
        Progress::Begun => of(
            "",
            HOLD,
            "Over",
            "This Pro has ended".to_owned(),
            "It was bought, and it is over by now: your plan is Free. What happened since is in your account.".to_owned(),
        ),
    }
}
