//! The Engine Room in a real browser, under its own content policy.

use fantoccini::Locator;
use fantoccini::key::Key;
use serde_json::json;

use crate::support::app::App;
use crate::support::browser::Browser;
use crate::support::visitor::with_kinde;

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_steps_through_the_deliveries_without_leaving_the_page() {
    let Some(browser) = Browser::open(1280, 1400).await else { return };
    let app = App::start().await;
    browser.client.goto(&app.url("/engine-room?step=0")).await.unwrap();
    browser.watch().await;
    assert_eq!(browser.ask("document.getElementById('where').dataset.at").await, json!("0"));

    browser.client.find(Locator::Id("step")).await.unwrap().click().await.unwrap();
    browser.until("document.getElementById('where').dataset.at === '1'").await;
    assert_eq!(browser.ask("document.activeElement.id").await, json!("step"), "the focus stays where it was");
    assert_eq!(browser.ask("location.search").await, json!("?step=1"), "the address can be shared");
    // Still the same document: what was noted on it is still there.
    assert_eq!(browser.troubles().await, json!([]));

    browser.client.find(Locator::Css("body")).await.unwrap().send_keys(&Key::Right.to_string()).await.unwrap();
    browser.until("document.getElementById('where').dataset.at === '2'").await;

    // The last step: what the whole room is about.
    browser.client.find(Locator::Id("to-9")).await.unwrap().click().await.unwrap();
    browser.until("document.getElementById('where').dataset.at === '9'").await;
    assert_eq!(browser.ask("document.getElementById('ns-balance').textContent").await, json!("2,950"));
    assert_eq!(browser.ask("document.getElementById('os-balance').textContent").await, json!("500"));
    assert_eq!(browser.troubles().await, json!([]));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_wider_than_a_phone_and_nothing_breaks_the_pages_own_policy() {
    let Some(browser) = Browser::open(390, 844).await else { return };
    let app = App::start().await;
    for path in
        ["/", "/engine-room", "/engine-room?script=UP.PAY.UP&stop=1-before-mark", "/engine-room?script=NONSENSE", "/nowhere"]
    {
        browser.client.goto(&app.url(path)).await.unwrap();
        browser.watch().await;
        let too_wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(too_wide, json!(0), "{path} scrolls sideways");
        assert_eq!(browser.ask("document.querySelectorAll('[style]').length").await, json!(0), "{path}");
        let foreign =
            browser.ask("performance.getEntriesByType('resource').filter(r => !r.name.startsWith(location.origin)).length").await;
        assert_eq!(foreign, json!(0), "{path} asks other hosts");
        assert_eq!(browser.troubles().await, json!([]), "{path}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_edited_with_forms_alone() {
    let Some(browser) = Browser::open(1280, 1400).await else { return };
    let app = App::start().await;
    browser.client.goto(&app.url("/engine-room?script=UP.PAY")).await.unwrap();
    browser.client.find(Locator::Css("button[value='add-OLD']")).await.unwrap().click().await.unwrap();
    browser.until("location.search.includes('script=UP.PAY.OLD')").await;
    assert_eq!(browser.ask("document.getElementById('os-balance').textContent").await, json!("500"));
    browser.close().await;
}

/// Browsers hold a form to the page's policy through every redirect of its answer: unless the tenant is on the list, signing
/// out ends at Kinde's door.
#[tokio::test(flavor = "multi_thread")]
async fn signing_in_managing_billing_and_signing_out_work_by_clicks() {
    let Some(browser) = Browser::open(390, 844).await else { return };
    let (app, kinde) = with_kinde().await;
    let click = async |css: &str| browser.client.find(Locator::Css(css)).await.unwrap().click().await.unwrap();
    browser.client.goto(&app.url("/")).await.unwrap();
    click(".doors a[href*='/login']").await;
    browser.until("location.pathname === '/reminders'").await;
    browser.client.goto(&app.url("/account/billing")).await.unwrap();
    browser.watch().await;
    let too_wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
    assert_eq!(too_wide, json!(0), "it scrolls sideways");
    click("form[action='/account/billing'] button").await;
    browser.until("location.pathname === '/portal'").await;
    assert!(browser.ask("location.href").await.as_str().unwrap().starts_with(&kinde.url));

    browser.client.goto(&app.url("/")).await.unwrap();
    browser.until("document.querySelector('.greeting') !== null").await;
    click("form[action='/logout'] button").await;
    browser.until("location.pathname === '/' && document.querySelector('.greeting') === null").await;
    assert_eq!(kinde.inside().logouts.len(), 1, "by way of Kinde");
    browser.client.back().await.unwrap();
    browser.until("document.querySelector('.greeting') === null").await;
    browser.close().await;
}
