//! The stream that keeps open pages true.

use std::time::{Duration, Instant};

use bottle::web::live::STREAMS_EACH;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::support::app::{App, Event, Setup, SignedIn, eventually};
use crate::support::browser::Browser;

const AT: &str = "2026-10-21T10:00:00Z";

async fn open(app: &App, who: &SignedIn) -> reqwest::Response {
    app.http.get(app.url("/live")).header("cookie", &who.cookie).header("accept", "text/event-stream").send().await.unwrap()
}

/// The next version that is told; none when the stream ends.
async fn told(stream: &mut reqwest::Response) -> Option<String> {
    let mut text = String::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text += str::from_utf8(&chunk).unwrap();
        if text.contains("\n\n") && text.contains("data: ") {
            let data = text.split("data: ").nth(1).unwrap();
            return Some(data.lines().next().unwrap().to_owned());
        }
    }
    None
}

#[tokio::test]
async fn a_change_is_told_within_two_seconds_and_only_to_whom_it_concerns() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let (ada, bob) = (app.sign_in("kp_ada").await, app.sign_in("kp_bob").await);
    let mut hers = open(&app, &ada).await;
    let mut his = open(&app, &bob).await;
    assert_eq!(hers.headers()["content-type"], "text/event-stream");
    let first = timeout(Duration::from_secs(3), told(&mut hers)).await.unwrap().unwrap();
    timeout(Duration::from_secs(3), told(&mut his)).await.unwrap().unwrap();
    let page = app.get_as(&ada, "/account").await.text;
    assert!(page.contains(&format!("data-version=\"{first}\"")), "a page is of the version that is told: {first}");

    let event = Event::upgrade("kp_ada", AT);
    app.deliver(event.token.clone()).await;
    app.worked_off().await;
    let applied = Instant::now();
    let second = timeout(Duration::from_secs(5), told(&mut hers)).await.unwrap().unwrap();
    assert!(applied.elapsed() < Duration::from_secs(2), "{:?}", applied.elapsed());
    assert_ne!(first, second);

    // A copy changes what the page says, and nothing else.
    sleep(Duration::from_millis(1_200)).await;
    app.deliver(event.token).await;
    assert!(timeout(Duration::from_secs(3), told(&mut hers)).await.unwrap().is_some());
    assert!(timeout(Duration::from_millis(1_500), told(&mut his)).await.is_err(), "nothing of his changed");
}

#[tokio::test]
async fn a_stop_ends_the_streams_at_once() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    let mut stream = open(&app, &ada).await;
    told(&mut stream).await.unwrap();
    let began = Instant::now();
    app.stop();
    assert_eq!(timeout(Duration::from_secs(3), told(&mut stream)).await.unwrap(), None);
    eventually("the server stops", async || app.has_stopped()).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_person_has_so_many_streams_and_a_closed_one_makes_room() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("kp_ada").await, app.sign_in("kp_bob").await);
    let mut streams = Vec::new();
    for _ in 0..STREAMS_EACH {
        let stream = open(&app, &ada).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    assert_eq!(open(&app, &ada).await.status(), 503);
    assert_eq!(open(&app, &bob).await.status(), 200, "others have their own");
    streams.pop();
    eventually("the place is free again", async || open(&app, &ada).await.status() == 200).await;
}

#[tokio::test]
async fn nobody_who_is_not_signed_in_has_one() {
    let app = App::start().await;
    assert_eq!(app.get("/live").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_changes_by_itself_and_what_is_being_typed_stays() {
    let Some(browser) = Browser::open(1280, 1400).await else { return };
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    browser.sign_in(&app, &ada).await;
    browser.client.goto(&app.url("/account")).await.unwrap();
    browser.watch().await;
    browser.until("document.querySelector('[data-live-word]').textContent.includes('up to date')").await;
    let field = browser.client.find(fantoccini::Locator::Id("f-id")).await.unwrap();
    field.send_keys("event_12").await.unwrap();

    let event = Event::upgrade("kp_ada", AT);
    app.deliver(event.token.clone()).await;
    browser.until("document.getElementById('plan-h').textContent === 'Pro'").await;
    browser.until("document.querySelectorAll('.event').length === 1").await;
    assert_eq!(browser.ask("document.getElementById('f-id').value").await, json!("event_12"));
    assert_eq!(browser.ask("document.activeElement.id").await, json!("f-id"));
    assert_eq!(browser.ask("document.getElementById('live-said').textContent").await, json!("The page was updated."));

    // The focus stays on the button of the card that is drawn anew.
    browser.ask("document.querySelector('.event button').focus()").await;
    app.deliver(event.token).await;
    browser.until("document.querySelector('.event-when').textContent.includes('2 copies')").await;
    assert_eq!(browser.ask("document.activeElement.textContent").await, json!("Replay"));
    assert_eq!(browser.troubles().await, json!([]));

    // Paused, it says so and has no stream.
    browser.client.find(fantoccini::Locator::Css("[data-live-pause]")).await.unwrap().click().await.unwrap();
    browser.until("document.querySelector('[data-live-word]').textContent.includes('Paused')").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_billing_pages_fit_a_phone_and_keep_to_their_policy() {
    let Some(browser) = Browser::open(390, 844).await else { return };
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let event = Event::with(
        json!({"event_timestamp": AT, "data": {"user_id": "kp_ada", "plan": {"key": "<script>alert(1)</script>".repeat(8)}}}),
    );
    app.deliver(event.token.clone()).await;
    app.deliver(Event::upgrade("kp_ada", AT).token).await;
    app.worked_off().await;
    browser.sign_in(&app, &ada).await;
    for path in
        ["/account".to_owned(), format!("/account/events/{}", app.number(&event.id).await), "/account?status=gone".to_owned()]
    {
        browser.client.goto(&app.url(&path)).await.unwrap();
        browser.watch().await;
        let too_wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(too_wide, json!(0), "{path} scrolls sideways");
        assert_eq!(browser.ask("document.querySelectorAll('[style]').length").await, json!(0), "{path}");
        assert_eq!(browser.troubles().await, json!([]), "{path}");
    }
    browser.close().await;
}
