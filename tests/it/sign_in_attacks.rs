//! Sign-ins that must not come about: each check has a forgery that only it refuses.

use serde_json::{Value, json};
use tower_sessions::session::Id;

use crate::support::app::{App, answer};
use crate::support::fake_kinde::{CLIENT_ID, FakeKinde};
use crate::support::tokens::{STRANGER, TENANT, b64, unsigned};
use crate::support::visitor::{Visitor, with_kinde};

async fn rows(app: &App) -> (i64, i64) {
    let sql = "select (select count(*) from sessions), (select count(*) from accounts)";
    sqlx::query_as(sql).fetch_one(&app.pool).await.unwrap()
}

#[track_caller]
fn asked(kinde: &FakeKinde) -> usize {
    kinde.inside().token_requests.len()
}

fn parameter(address: &str, name: &str) -> String {
    let url = reqwest::Url::parse(address).unwrap();
    url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
}

#[tokio::test]
async fn a_state_that_is_missing_foreign_doubled_or_reused_asks_kinde_nothing() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let (code, state) = (parameter(&back, "code"), parameter(&back, "state"));
    let other = Visitor::new(&app);
    let foreign = parameter(&other.come_back_from("/login").await, "state");
    for query in [
        format!("code={code}"),
        format!("code={code}&state="),
        format!("code={code}&state={foreign}"),
        format!("code={code}&state={}", state.to_uppercase()),
        format!("code={code}&state={}", &state[..state.len() - 1]),
        format!("code={code}&state={state}&state={foreign}"),
        format!("code=a&code={code}&state={foreign}"),
        "error=access_denied".to_owned(),
        String::new(),
    ] {
        let answer = visitor.copy().get(&format!("/callback?{query}")).await;
        assert_eq!((answer.status, asked(&kinde)), (400, 0), "{query}");
        assert!(answer.text.contains("This sign-in cannot be finished"), "{query}: {}", answer.text);
    }
    assert_eq!(rows(&app).await, (0, 0));

    let before = visitor.copy();
    assert_eq!(visitor.get(&back).await.status, 303);
    assert_eq!(asked(&kinde), 1);
    // Back button, and a copy of the cookie as it was.
    for browser in [&visitor, &before] {
        assert_eq!(browser.get(&back).await.status, 400);
    }
    assert_eq!(asked(&kinde), 1, "a state is used once, whatever the browser still has");
}

#[tokio::test]
async fn of_many_callbacks_with_one_state_one_goes_through() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let browsers: Vec<_> = (0..16).map(|_| visitor.copy()).collect();
    let answers = futures_util::future::join_all(browsers.iter().map(|browser| browser.get(&back))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 303).count(), 1);
    assert_eq!((asked(&kinde), rows(&app).await), (1, (1, 1)));
}

#[tokio::test]
async fn an_attackers_way_back_does_not_sign_a_victim_in() {
    let (app, kinde) = with_kinde().await;
    let (attacker, victim) = (Visitor::new(&app), Visitor::new(&app));
    let back = attacker.come_back_from("/login").await;
    assert_eq!(victim.get(&back).await.status, 400, "with no sign-in of their own");
    victim.come_back_from("/login").await;
    assert_eq!(victim.get(&back).await.status, 400, "nor with one under way");
    // The attacker's code under the victim's own state: its verifier is another.
    let own = victim.come_back_from("/login").await;
    let mixed = format!("/callback?code={}&state={}", parameter(&back, "code"), parameter(&own, "state"));
    let answer = victim.get(&mixed).await;
    assert_eq!((answer.status, asked(&kinde)), (400, 1));
    assert!(victim.cookie("bottle").is_none());
    assert_eq!(rows(&app).await, (0, 0));
}

#[tokio::test]
async fn a_sign_in_that_took_more_than_ten_minutes_is_over() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let sealed = visitor.cookie("bottle-login").unwrap();
    for (minutes, status) in [(11, 400), (-2, 400), (9, 303)] {
        visitor.keep("bottle-login", &crate::support::sealed::aged(&sealed, minutes * 60));
        assert_eq!(visitor.get(&back).await.status, status, "{minutes} minutes old");
    }
    assert_eq!(asked(&kinde), 1);
}

#[tokio::test]
async fn a_cookie_that_was_not_sealed_here_is_no_cookie() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let sealed = visitor.cookie("bottle-login").unwrap();
    let plain = json!([{ "transaction": { "state": parameter(&back, "state"), "nonce": "n", "verifier": "v" },
        "return_to": "/", "began_at": time::OffsetDateTime::now_utc().unix_timestamp() }]);
    let mut changed = sealed.clone();
    changed.replace_range(20..21, if &sealed[20..21] == "A" { "B" } else { "A" });
    for cookie in [plain.to_string().replace('"', "%22"), b64(plain.to_string()), changed, sealed[..40].to_owned()] {
        visitor.keep("bottle-login", &cookie);
        assert_eq!(visitor.get(&back).await.status, 400, "{cookie}");
    }
    assert_eq!(asked(&kinde), 0);
}

#[tokio::test]
async fn an_id_token_that_breaks_one_rule_signs_nobody_in() {
    let (app, kinde) = with_kinde().await;
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let url = kinde.url.clone();
    let wrong: Vec<(&str, Value)> = vec![
        ("iss", json!("https://other.kinde.com")),
        ("iss", json!(format!("{url}/"))),
        ("iss", Value::Null),
        ("aud", json!([url])),
        ("aud", json!("another-client")),
        ("aud", json!([])),
        ("aud", json!([CLIENT_ID, url, "another-client"])),
        ("aud", json!([CLIENT_ID, "https://other.kinde.com"])),
        ("aud", json!(7)),
        ("aud", Value::Null),
        ("azp", json!("another-client")),
        ("azp", Value::Null),
        ("azp", json!([CLIENT_ID])),
        ("exp", json!(now - 62)),
        ("exp", json!("never")),
        ("exp", json!(1.5e300)),
        ("exp", Value::Null),
        ("iat", json!(now + 90)),
        ("iat", json!("now")),
        ("iat", Value::Null),
        ("nbf", json!(now + 90)),
        ("nonce", json!("another")),
        ("nonce", json!("")),
        ("nonce", Value::Null),
        ("sub", json!("")),
        ("sub", json!("kp_\u{0}ada")),
        ("sub", json!("k".repeat(200))),
        ("sub", json!(7)),
        ("sub", Value::Null),
    ];
    for (claim, value) in wrong {
        let told = (claim, value.clone());
        kinde.inside().forge = Box::new(move |claims| {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(claim);
            } else {
                claims[claim] = value.clone();
            }
        });
        refused(&app, &kinde, &format!("{told:?}")).await;
    }
    let right: Vec<(&str, Value)> = vec![
        ("aud", json!(CLIENT_ID)),
        ("aud", json!([CLIENT_ID])),
        ("exp", json!(now - 40)),
        ("iat", json!(now + 40)),
        ("extra", json!({"x": 1})),
    ];
    for (claim, value) in right {
        kinde.inside().forge = Box::new(move |claims| claims[claim] = value.clone());
        Visitor::new(&app).sign_in().await;
    }
}

#[tokio::test]
async fn an_id_token_that_kinde_did_not_sign_signs_nobody_in() {
    let (app, kinde) = with_kinde().await;
    type Sign = Box<dyn Fn(String) -> String + Send>;
    let event =
        json!({ "type": "customer.plan_changed", "event_id": "event_1", "data": {}, "timestamp": "2026-10-21T10:00:00Z" });
    let wrong: Vec<(&str, Sign)> = vec![
        ("a stranger's key", Box::new(|claims| STRANGER.sign_event(claims))),
        ("a stranger's key under the tenant's id", Box::new(|claims| STRANGER.sign(&TENANT.header(), claims))),
        ("none", Box::new(|claims| format!("{}.", unsigned(&json!({ "alg": "none" }), claims)))),
        ("another algorithm", Box::new(|claims| TENANT.sign(&json!({ "alg": "PS256", "kid": TENANT.kid }), claims))),
        ("a webhook's token", Box::new(move |_| TENANT.sign_event(event.to_string()))),
        (
            "an access token",
            Box::new(|claims| {
                let mut claims: Value = serde_json::from_str(&claims).unwrap();
                claims["aud"] = json!([]);
                claims.as_object_mut().unwrap().remove("nonce");
                claims["scp"] = json!(["openid"]);
                TENANT.sign_event(claims.to_string())
            }),
        ),
        ("a claim twice", Box::new(|claims| TENANT.sign_event(claims.replacen('{', "{\"sub\":\"kp_eve\",", 1)))),
        ("no token", Box::new(|_| String::new())),
        ("no object", Box::new(|_| TENANT.sign_event("[]"))),
        (
            "changed after signing",
            Box::new(|claims| {
                let token = TENANT.sign_event(&claims);
                let parts: Vec<&str> = token.split('.').collect();
                format!("{}.{}.{}", parts[0], b64(claims.replace("kp_ada", "kp_eve")), parts[2])
            }),
        ),
    ];
    for (what, sign) in wrong {
        kinde.inside().sign = sign;
        refused(&app, &kinde, what).await;
    }
}

/// The whole way with a Kinde that lies: a page that says so, and nothing else comes of it.
async fn refused(app: &App, kinde: &FakeKinde, what: &str) {
    let visitor = Visitor::new(app);
    let (before, asked_before) = (rows(app).await, asked(kinde));
    let back = visitor.come_back_from("/login").await;
    let answer = visitor.get(&back).await;
    assert_eq!((answer.status, asked(kinde)), (502, asked_before + 1), "{what}: {}", answer.text);
    assert!(answer.text.contains("What came back is not from Kinde"), "{what}: {}", answer.text);
    assert!(visitor.cookie("bottle").is_none(), "{what}");
    assert_eq!(rows(app).await, before, "{what}");
}

#[tokio::test]
async fn an_answer_that_names_another_issuer_is_mixed_up_and_not_used() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().brings = vec![("iss", "https://other.kinde.com".to_owned())];
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    assert_eq!((visitor.get(&back).await.status, asked(&kinde)), (502, 0));
    kinde.inside().brings = vec![("iss", kinde.url.clone())];
    visitor.sign_in().await;
}

#[tokio::test]
async fn a_session_begins_under_a_new_id_and_no_planted_cookie_is_taken_over() {
    let (app, kinde) = with_kinde().await;
    let attacker = Visitor::new(&app);
    kinde.inside().who = json!({ "sub": "kp_mallory", "name": "Mallory" });
    attacker.sign_in().await;
    let planted = attacker.cookie("bottle").unwrap();
    kinde.inside().who = json!({ "sub": "kp_ada", "name": "Ada" });
    let nobodys = Id::default().to_string();
    for cookie in [planted.as_str(), &nobodys, "no id at all", ""] {
        let victim = Visitor::new(&app);
        victim.keep("bottle", cookie);
        victim.sign_in().await;
        let own = victim.cookie("bottle").unwrap();
        assert_ne!(own, cookie);
        let thief = Visitor::new(&app);
        thief.keep("bottle", cookie);
        assert!(!thief.get("/").await.text.contains("Good to see you"), "the planted id is nobody's now");
        assert!(victim.get("/").await.text.contains("Good to see you, Ada."));
        // Signing in again rotates too, and takes nothing along.
        victim.sign_in().await;
        assert_ne!(victim.cookie("bottle").unwrap(), own);
        thief.keep("bottle", &own);
        assert!(!thief.get("/").await.text.contains("Good to see you"));
    }
}

#[tokio::test]
async fn looking_ahead_begins_and_ends_no_sign_in() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let (cookie, sent) = (visitor.cookie("bottle-login"), kinde.inside().authorized.len());
    for header in
        [("sec-purpose", "prefetch"), ("sec-purpose", "prefetch;prerender"), ("purpose", "prefetch"), ("x-moz", "prefetch")]
    {
        for place in ["/login", &back] {
            let answer = visitor.get_with(place, header).await;
            assert_eq!(answer.status, 503, "{place} {header:?}");
            assert!(answer.headers.get("set-cookie").is_none() && answer.headers.get("location").is_none());
        }
    }
    for place in ["/login", &back] {
        let answer = visitor.head(place).await;
        assert!(answer.status == 204 && answer.headers.get("set-cookie").is_none(), "{place}: {answer:?}");
    }
    let authorized = kinde.inside().authorized.len();
    assert_eq!((visitor.cookie("bottle-login"), authorized, asked(&kinde)), (cookie, sent, 0));
    assert_eq!(visitor.get(&back).await.status, 303, "and then the person really comes");
}

#[tokio::test]
async fn whoever_asks_to_sign_in_a_thousand_times_leaves_no_row() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    for _ in 0..100 {
        let answers = futures_util::future::join_all((0..10).map(|_| visitor.get("/login"))).await;
        assert!(answers.iter().all(|answer| answer.status == 303));
    }
    assert_eq!((rows(&app).await, kinde.inside().discoveries), ((0, 0), 1));
}

#[tokio::test]
async fn a_link_to_sign_in_leads_back_to_us_and_nowhere_else() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    for wanted in ["https://evil.example", "//evil.example", "/\\evil.example", "/%5Cevil.example", "/\tx", "/login", "/callback"]
    {
        let login = reqwest::Url::parse_with_params(&app.url("/login"), [("return_to", wanted)]).unwrap();
        let back = visitor.come_back_from(login.as_str()).await;
        assert_eq!(visitor.get(&back).await.leads_to(), "/", "{wanted}");
    }
}

/// What would be a POST route tomorrow is one here too: the routes are read from the source.
#[tokio::test]
async fn no_post_route_takes_anything_that_does_not_come_from_our_own_pages() {
    let source = include_str!("../../src/web/routes.rs").split_whitespace().collect::<Vec<_>>().join(" ");
    let routes: Vec<(&str, &str)> = source
        .split(".route(")
        .skip(1)
        .map(|rest| {
            let rest = rest.trim_start().strip_prefix('"').expect("a route begins with its path");
            rest.split_once('"').unwrap()
        })
        .collect();
    assert!(routes.len() >= 11, "{routes:?}");
    let changing = ["post(", "put(", "patch(", "delete(", "any("];
    let posts: Vec<&str> = routes
        .iter()
        .filter(|(path, handlers)| changing.iter().any(|verb| handlers.contains(verb)) && !path.starts_with("/webhooks/"))
        .map(|(path, _)| *path)
        .collect();
    assert!(posts.contains(&"/logout") && posts.contains(&"/engine-room/every-order"), "{posts:?}");

    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let own = app.url("");
    let port = app.address.port();
    for path in posts {
        let path = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect::<Vec<_>>().join("/");
        for from in [
            vec![],
            vec![("origin", "https://evil.example")],
            vec![("origin", "null")],
            vec![("origin", "")],
            vec![("origin", kinde.url.as_str())],
            vec![("origin", "http://127.0.0.1")],
            vec![("origin", "garbage"), ("referer", own.as_str())],
            vec![("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
            vec![("sec-fetch-site", "same-site")],
            vec![("sec-fetch-site", "")],
        ] {
            let answer = visitor.post_with(&path, &from).await;
            assert_eq!(answer.status, 403, "{path} {from:?}: {}", answer.text);
            assert!(answer.text.contains("Nothing was changed"), "{path}: {}", answer.text);
        }
        let https = format!("https://127.0.0.1:{port}");
        assert_ne!(visitor.post_with(&path, &[("sec-fetch-site", "same-origin"), ("origin", &https)]).await.status, 403);
        assert_ne!(answer(app.http.post(app.url(&path)).header("origin", &own)).await.status, 403, "{path}");
    }
}
