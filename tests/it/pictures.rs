//! The pictures of the README, taken from the running program: `cargo test --test it pictures -- --ignored`.

use std::path::Path;

use jiff::ToSpan as _;

use crate::support::browser::Browser;
use crate::support::newcomer::Newcomer;
use crate::support::writer::Fields;

const BYTES_MAX: usize = 200 * 1024;

async fn take(at: &Newcomer, name: &str, height: u32) {
    at.browser.look_as(1280, height, "light").await;
    at.browser.ask("(document.activeElement.blur(), scrollTo(0, 0))").await;
    let picture = at.browser.client.screenshot().await.unwrap();
    assert!(picture.len() < BYTES_MAX, "{name} has {} bytes", picture.len());
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name), picture).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it writes into docs"]
async fn the_pictures_of_the_readme_are_taken() {
    let Some(browser) = Browser::open(1280, 1000).await else { return };
    let ada = Newcomer::start(browser, true).await;
    ada.browser.hide_scrollbars().await;
    ada.learns_adas_past().await;
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let all = [
        ("Ring the dentist", 1, "09:00", "never"),
        ("Put the bins out", 1, "19:30", "weekly"),
        ("Pay the rent", 3, "08:00", "monthly"),
        ("Stretch for ten minutes", 1, "11:00", "weekdays"),
        ("Book the train to Lisbon", 12, "18:00", "never"),
    ];
    let fields = all.map(|(text, days, time, repeat)| {
        let date = today.saturating_add(days.days()).to_string();
        Fields::about(text).with("date", &date).with("time", time).with("repeat", repeat)
    });
    ada.schedules(fields.into()).await;
    ada.goto("/account").await;
    ada.comes("document.querySelector('[data-live-word]').textContent.includes('keeps itself')").await;
    take(&ada, "account.png", 1080).await;

    ada.time_comes("Ring the dentist").await;
    ada.goto("/reminders").await;
    ada.comes("document.querySelector('#due .reminder') !== null").await;
    take(&ada, "reminders.png", 900).await;

    ada.sign_out().await;
    ada.goto("/engine-room").await;
    take(&ada, "engine-room.png", 1010).await;
    ada.browser.close().await;
}
