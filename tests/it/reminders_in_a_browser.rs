//! The reminder pages in a real browser: live, harmless, narrow, and complete with forms alone.

use fantoccini::Locator;
use serde_json::json;

use crate::reminder_guards::hostile;
use crate::support::browser::Browser;
use crate::support::writer::{Fields, Writer};

async fn open(browser: &Browser, ada: &Writer, path: &str) {
    browser.client.goto(&ada.app.url("/health/live")).await.unwrap();
    browser.ask(&format!("document.cookie = '{}; path=/'", ada.who.cookie)).await;
    browser.client.goto(&ada.app.url(path)).await.unwrap();
    browser.watch().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_comes_due_in_the_open_page() {
    let Some(browser) = Browser::open(1280, 1400).await else { return };
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Take the cake out")).await;
    open(&browser, &ada, "/reminders").await;
    assert_eq!(browser.ask("document.title").await, json!("Reminders · Bottle"));
    browser.client.find(Locator::Id("f-text")).await.unwrap().send_keys("Half a senten").await.unwrap();

    ada.ring(id).await;
    browser.until("document.querySelector('#due .reminder-text')?.textContent === 'Take the cake out'").await;
    browser.until("document.title === '(1) Reminders · Bottle'").await;
    browser.until("document.querySelector('[data-live=due-said]').textContent.includes('Take the cake out')").await;
    assert_eq!(browser.ask("document.querySelector('[data-live=due-said]').getAttribute('role')").await, json!("status"));
    assert_eq!(browser.ask("document.getElementById('f-text').value").await, json!("Half a senten"), "typing goes on");
    assert_eq!(browser.ask("document.activeElement.id").await, json!("f-text"));

    browser.client.find(Locator::Css("#due .reminder-do button")).await.unwrap().click().await.unwrap();
    browser.until("document.getElementById('said')?.textContent.includes('Done.') ?? false").await;
    assert_eq!(browser.ask("document.title").await, json!("Reminders · Bottle"));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_schedules_with_the_zone_of_their_browser() {
    let Some(browser) = Browser::open(1280, 1400).await else { return };
    let ada = Writer::start().await;
    open(&browser, &ada, "/reminders").await;
    let own = browser.ask("Intl.DateTimeFormat().resolvedOptions().timeZone").await;
    browser.until("document.getElementById('f-zone').value !== ''").await;
    assert_eq!(browser.ask("document.getElementById('f-zone').value").await, own);
    assert_eq!(browser.ask("/^\\d{4}-\\d\\d-\\d\\d$/.test(document.getElementById('f-when').value)").await, json!(true));
    assert_eq!(browser.ask("document.getElementById('f-time').value.endsWith(':00')").await, json!(true));
    browser.client.find(Locator::Id("f-text")).await.unwrap().send_keys("Ring the bell").await.unwrap();
    // Twice, as impatient people do.
    browser.ask("(() => { const b = document.querySelector('.reminder-form button'); b.click(); b.click(); })()").await;
    browser.until("document.getElementById('said')?.textContent.includes('Ring the bell') ?? false").await;
    assert_eq!(ada.counts().await, (1, 1));
    assert_eq!(browser.troubles().await, serde_json::Value::Null, "a new page; its own troubles are watched below");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_anybody_writes_becomes_part_of_the_page() {
    let Some(browser) = Browser::open(390, 844).await else { return };
    let ada = Writer::start().await;
    ada.fill("done", 3).await;
    let payloads = hostile();
    for (at, payload) in payloads.iter().enumerate() {
        let sql = "insert into reminders (account_id, series, n, text, search, zone, local, month_day, repeat, due_at, status, \
                   rung, mail, mail_error, created_at, changed_at) values ($1, 70000000 + $2, 1, $3, lower($3), 'UTC', now()::timestamp, \
                   1, 'never', now(), 'due', 1, 'failed', $3, now(), now())";
        let query = sqlx::query(sql).bind(ada.who.person.account.0).bind(at as i64).bind(payload);
        query.execute(&ada.app.pool).await.unwrap();
    }
    let id: i64 = sqlx::query_scalar("select max(id) from reminders").fetch_one(&ada.app.pool).await.unwrap();
    let search = "/reminders?q=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E";
    for path in ["/reminders", search, &format!("/reminders/{id}"), "/reminders/calendar", "/reminders/1"] {
        open(&browser, &ada, path).await;
        let foreign = "document.querySelectorAll('main :is(script:not([src^=\"/static/\"]), img, iframe, style, base, meta, object, embed, [onerror], [onload], [style]), main a[href^=javascript]').length";
        assert_eq!(browser.ask(foreign).await, json!(0), "{path}");
        let too_wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(too_wide, json!(0), "{path} scrolls sideways");
        let hosts = "performance.getEntriesByType('resource').filter(r => !r.name.startsWith(location.origin)).length";
        assert_eq!(browser.ask(hosts).await, json!(0), "{path} asks other hosts");
        let unnamed =
            "[...document.querySelectorAll('input:not([type=hidden]), select')].filter(f => f.labels.length === 0).length";
        assert_eq!(browser.ask(unnamed).await, json!(0), "{path} has a field without a label");
        assert_eq!(browser.troubles().await, json!([]), "{path}");
    }
    browser.close().await;
}
