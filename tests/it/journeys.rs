//! From signing up to signing out, by clicks, at the real program and its local Kinde: with JavaScript, and without.

use serde_json::json;

use crate::support::browser::Browser;
use crate::support::newcomer::Newcomer;

const TEXT: &str = "Water the ficus before the long weekend";

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_upgrades_is_reminded_replays_and_signs_out_while_pages_change_by_themselves() {
    let Some(browser) = Browser::open(1280, 1000).await else { return };
    let grace = Newcomer::start(browser, true).await;
    whole_journey(&grace).await;
    // That the log was empty would say nothing if breaches were not in it.
    grace.goto("/").await;
    let inline = "(() => { const s = document.createElement('script'); s.textContent = '1'; document.body.append(s); })()";
    grace.browser.ask(inline).await;
    let complaints = grace.browser.complaints().await;
    assert!(complaints.iter().any(|line| line.contains("Content Security Policy")), "{complaints:?}");
    grace.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_done_without_javascript() {
    let Some(browser) = Browser::without_javascript(390, 844).await else { return };
    let grace = Newcomer::start(browser, false).await;
    whole_journey(&grace).await;
    grace.goto("/engine-room?step=0").await;
    grace.click("#step").await;
    grace.browser.until("document.getElementById('where').dataset.at === '1'").await;
    assert_eq!(grace.browser.complaints().await, [] as [String; 0]);
    grace.browser.close().await;
}

async fn whole_journey(grace: &Newcomer) {
    grace.sign_up("Grace", "Hopper", "grace@example.com").await;
    assert!(grace.text("#upcoming").await.contains("Nothing to remember yet"));
    upgrades(grace).await;
    is_reminded(grace).await;
    replays_one_of_her_own(grace).await;
    grace.sign_out().await;
    nothing_private_is_behind(grace).await;
    ada_replays_an_older_plan_change(grace).await;
    grace.sign_out().await;
    assert_eq!(grace.browser.complaints().await, [] as [String; 0], "what the browser complained of on the way");
}

/// Deliveries are held meanwhile, so that the page is sure to be open before the first event comes.
async fn upgrades(grace: &Newcomer) {
    grace.click(".top nav a[href='/account']").await;
    grace.arrives("/account").await;
    let word = grace.text("[data-live-word]").await;
    if grace.scripted {
        grace.browser.until("document.querySelector('[data-live-word]').textContent.includes('keeps itself up to date')").await;
    } else {
        assert!(word.contains("how things were when it was loaded"), "no script ran: {word}");
        assert!(grace.is("document.querySelector('[data-live-pause]').hidden").await);
    }
    assert_eq!(grace.text("#plan-h").await, "Free");

    grace.hold_deliveries(true).await;
    grace.click("#manage a").await;
    grace.arrives_at_kinde("/local/checkout").await;
    grace.click("button[value=customer_pro_plan]").await;
    grace.arrives("/account").await;
    assert_eq!(grace.text("#plan-h").await, "Free", "nothing has been told yet");
    assert!(grace.is("document.querySelectorAll('.event').length === 0").await);
    grace.hold_deliveries(false).await;
    grace.comes("document.getElementById('plan-h').textContent === 'Pro'").await;
    grace.comes("document.querySelectorAll('.event').length === 3").await;
    grace.comes("document.querySelector('.bottles-left').textContent === '500'").await;
}

async fn is_reminded(grace: &Newcomer) {
    grace.click(".top nav a[href='/reminders']").await;
    grace.arrives("/reminders").await;
    if grace.scripted {
        grace.browser.until("document.getElementById('f-zone').value !== ''").await;
    } else {
        let next_year = jiff::Zoned::now().year() + 1;
        grace.set("#f-when", &format!("{next_year}-03-01")).await;
        grace.set("#f-time", "09:30").await;
        grace.set("#f-zone", "Europe/Berlin").await;
    }
    grace.fill("#f-text", TEXT).await;
    grace.click(".reminder-form button[type=submit]").await;
    grace.browser.until("document.getElementById('said') !== null").await;
    assert!(grace.text("#said").await.contains(TEXT));
    assert_eq!(grace.text("#upcoming .reminder-text").await, TEXT);
    assert_eq!(grace.text(".bottles-here b").await, "499");

    grace.time_comes(TEXT).await;
    grace.comes(&format!("document.querySelector('#due .reminder-text')?.textContent === {}", json!(TEXT))).await;
    if grace.scripted {
        grace.browser.until("document.title === '(1) Reminders · Bottle'").await;
    }
    grace.click("#due .reminder-do button").await;
    grace.browser.until("document.getElementById('said')?.textContent.includes('Done.') ?? false").await;
    assert!(grace.is("document.querySelector('#due .reminder') === null").await);
}

async fn replays_one_of_her_own(grace: &Newcomer) {
    grace.click(".top nav a[href='/account']").await;
    grace.arrives("/account").await;
    let before = grace.text(".bottles-left").await;
    grace.click(".event form[action$='/replay'] button").await;
    grace.browser.until("location.pathname.startsWith('/account/events/')").await;
    grace.comes("document.querySelector('.steps-list')?.textContent.includes('as the replay asked') ?? false").await;
    grace.click(".eyebrow a").await;
    grace.arrives("/account").await;
    assert_eq!((grace.text("#plan-h").await.as_str(), grace.text(".bottles-left").await), ("Pro", before));
}

/// Nor are the pages that Back leads to shown from memory.
async fn nothing_private_is_behind(grace: &Newcomer) {
    for back in 1..=6 {
        grace.browser.client.back().await.unwrap();
        grace.browser.until("document.readyState === 'complete'").await;
        let shown = grace.browser.client.source().await.unwrap();
        for private in [TEXT, "who-name", "bottles-left", "class=\"card event\""] {
            assert!(!shown.contains(private), "{back} back: {private} in {shown}");
        }
    }
}

async fn ada_replays_an_older_plan_change(grace: &Newcomer) {
    grace.learns_adas_past().await;
    // The first event about Starter, which she left long ago.
    let starter = "select e.id from inbox_events e join facts f on f.event_id = e.id where f.plan_key = 'customer_starter_plan' order by e.occurred_at limit 1";
    let starter: i64 = sqlx::query_scalar(starter).fetch_one(&grace.pool).await.unwrap();
    grace.click(&format!(".event form[action='/account/events/{starter}/replay'] button")).await;
    grace.arrives(&format!("/account/events/{starter}")).await;
    grace.comes("document.querySelector('.steps-list')?.textContent.includes('as the replay asked') ?? false").await;
    grace
        .comes("document.querySelector('.account .small code').textContent.startsWith('ignored: a newer plan change is already stored')")
        .await;
    grace.click(".eyebrow a").await;
    grace.arrives("/account").await;
    assert_eq!(grace.text("#plan-h").await, "Pro");
}

/// As somebody does who has caught a message on its way: the same signed bytes, under another delivery's name.
#[tokio::test(flavor = "multi_thread")]
async fn a_signed_duplicate_is_counted_and_changes_nothing() {
    let Some(browser) = Browser::open(1280, 1000).await else { return };
    let grace = Newcomer::start(browser, true).await;
    grace.sign_up("Grace", "Hopper", "grace@example.com").await;
    grace.goto("/account").await;
    grace.click("#manage a").await;
    grace.arrives_at_kinde("/local/checkout").await;
    grace.click("button[value=customer_pro_plan]").await;
    grace.arrives("/account").await;
    grace.comes("document.querySelector('.bottles-left').textContent === '500'").await;
    grace.comes("!document.querySelector('[data-live=log]').textContent.includes('under way')").await;
    let stored =
        "select (select count(*) from ledger), (select sum(delta)::bigint from ledger), (select count(*) from event_runs)";
    let before: (i64, i64, i64) = sqlx::query_as(stored).fetch_one(&grace.pool).await.unwrap();

    let caught = grace.captured("customer.payment_succeeded");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = http.post(grace.bottle.webhooks()).header("webhook-id", format!("{}-again", caught.webhook_id));
    let answer = post.header("content-type", "application/jwt").body(caught.token).send().await.unwrap();
    assert_eq!(answer.status(), 200);

    grace
        .comes("[...document.querySelectorAll('.event-when')].filter(e => e.textContent.includes('2 copies')).length === 1")
        .await;
    assert_eq!(grace.text(".bottles-left").await, "500");
    assert!(grace.is("document.querySelectorAll('.event').length === 3").await);
    let after: (i64, i64, i64) = sqlx::query_as(stored).fetch_one(&grace.pool).await.unwrap();
    assert_eq!(before, after, "entries, their sum, and runs: a copy adds to none of them");
    grace.browser.close().await;
}
