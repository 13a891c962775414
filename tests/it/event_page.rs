//! The page of one event, and that nobody but its owner finds it.

use reqwest::Method;
use serde_json::json;
use sqlx::Executor as _;

use crate::support::app::{App, Event, Setup, SignedIn, answer};

const AT: &str = "2026-10-21T10:00:00Z";

#[tokio::test]
async fn every_step_of_an_event_is_told() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let said = json!({"user_id": "kp_ada", "plan": {"key": "customer_pro_plan"}, "agreement_id": "agr_1", "email": "ada@example.com",
                      "user": {"id": "kp_ada", "first_name": "Ada"}});
    let event = Event::with(json!({"event_timestamp": AT, "data": said}));
    app.deliver(event.token.clone()).await;
    app.worked_off().await;
    app.deliver(event.token.clone()).await;
    app.deliver(event.but(json!({"data": {"user_id": "kp_ada", "plan": {"key": "customer_starter_plan"}}})).token).await;
    let id = app.number(&event.id).await;
    let page = app.get_as(&ada, &format!("/account/events/{id}")).await;
    assert_eq!(page.status, 200);
    for words in [
        "It happened, by the provider&#39;s clock.",
        "was stored, and only then was its sender told so.",
        "A copy arrived",
        "It was copy 3.",
        "It ran, and was applied.",
        "<code>plan set to pro, Pro allowance granted</code>",
        "1 other message came under the same id.",
        "A plan begins",
        "plan <code>customer_pro_plan</code>",
        "agreement <code>agr_1</code>",
        &format!("<code class=\"entry-key\">pro:{}:2026-10</code>", ada.person.account),
        "+490",
        "&#34;first_name&#34;: &#34;••••&#34;",
        "A replay would change nothing: already applied.",
    ] {
        let words = words.replace("A plan begins", "The plan changes");
        assert!(page.text.contains(&words), "the page does not say `{words}`:\n{}", page.text);
    }
    for secret in ["ada@example.com", ">Ada<", "&#34;Ada&#34;"] {
        assert!(!page.text.contains(secret), "{secret} is shown");
    }
    let file = app.get_as(&ada, &format!("/account/events/{id}/payload")).await;
    assert!(file.text.contains("\"first_name\": \"••••\"") && !file.text.contains("ada@example.com"), "{}", file.text);
}

#[tokio::test]
async fn a_pruned_event_still_has_its_page_and_its_dry_run() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let event = Event::upgrade("kp_ada", AT);
    app.deliver(event.token.clone()).await;
    app.worked_off().await;
    app.pool.execute("update inbox_events set body = null").await.unwrap();
    let id = app.number(&event.id).await;
    let page = app.get_as(&ada, &format!("/account/events/{id}")).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("Its text is no longer kept") && page.text.contains("A replay would change nothing: already applied.")
    );
    assert_eq!(app.get_as(&ada, &format!("/account/events/{id}/payload")).await.status, 404);
}

/// Status and body, whatever the request.
async fn ask(app: &App, who: Option<&SignedIn>, method: &Method, path: &str) -> (u16, String) {
    let mut request = app.http.request(method.clone(), app.url(path)).header("origin", app.url(""));
    if let Some(who) = who {
        request = request.header("cookie", &who.cookie);
    }
    if *method == Method::POST || *method == Method::PUT {
        request = request.form(&[("owner_id", "1"), ("account_id", "1"), ("status", "received"), ("attempts", "0"), ("id", "1")]);
    }
    let got = answer(request).await;
    (got.status, got.text)
}

#[tokio::test]
async fn nobody_sees_or_moves_what_is_not_theirs_by_any_route_or_method() {
    // S43 to S46: two people, every route, every method; an event of the other, one of nobody, one that is none.
    let mut app = App::start().await;
    let no_redirects = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    app.http = no_redirects;
    let (ada, bob) = (app.sign_in("kp_ada").await, app.sign_in("kp_bob").await);
    app.fill_log(&ada, "a", 1).await;
    app.fill_log(&bob, "b", 1).await;
    app.fill_log(&bob, "nobody", 1).await;
    app.pool.execute("update inbox_events set account_id = null where dedupe_key = 'event_nobody000001'").await.unwrap();
    let theirs = app.number("event_a000001").await;
    let own = app.number("event_b000001").await;
    let nobodys = app.number("event_nobody000001").await;
    let strange = [
        "0",
        "-1",
        "999999",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999",
        "1e3",
        "+1",
        "007",
        "x",
        "%00",
        "%ff",
        "1%20",
        "1;drop",
    ];
    let ids: Vec<String> = [theirs, nobodys].iter().map(i64::to_string).chain(strange.map(str::to_owned)).collect();
    let before = app.everything().await;

    for suffix in ["", "/replay", "/payload"] {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
            // What there is to learn from an id that is nobody's at all is all there is to learn from any.
            let unknown = ask(&app, Some(&bob), &method, &format!("/account/events/123456789{suffix}")).await;
            assert!([404, 405].contains(&unknown.0), "{method} {suffix}: {unknown:?}");
            for id in &ids {
                let got = ask(&app, Some(&bob), &method, &format!("/account/events/{id}{suffix}")).await;
                assert_eq!(got, unknown, "{method} {id}{suffix}");
            }
            let nobody = ask(&app, None, &method, &format!("/account/events/{theirs}{suffix}")).await;
            assert!([303, 401, 405].contains(&nobody.0), "{method} {suffix} without a session: {nobody:?}");
        }
    }
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
        for path in ["/account", "/account?id=event_a000001", "/account?account_id=1&owner_id=1", "/live"] {
            if path == "/live" && method == Method::GET {
                continue; // A stream, which has tests of its own.
            }
            let (_, text) = ask(&app, Some(&bob), &method, path).await;
            assert!(!text.contains("/account/events/1\"") || theirs != 1, "{method} {path}");
            assert!(
                !text.contains("event_a000001</code>") && !text.contains(&format!("/account/events/{theirs}\"")),
                "{method} {path}"
            );
            assert!(!text.contains(&format!("/account/events/{nobodys}\"")), "{method} {path}");
            let (status, _) = ask(&app, None, &method, path).await;
            assert!([303, 401, 405].contains(&status), "{method} {path} without a session: {status}");
        }
    }
    assert_eq!(app.everything().await, before, "nothing was changed by any of it");
    assert_eq!(ask(&app, Some(&bob), &Method::GET, &format!("/account/events/{own}")).await.0, 200, "his own is there");
    assert_eq!(ask(&app, Some(&bob), &Method::POST, &format!("/account/events/{own}/replay")).await.0, 303);
}
