//! What a sender is told, and what the database then holds: the whole table of answers.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use bottle::checkpoint::{Checkpoints, Observer, Pause, Step};
use bottle::domain::ids::EventKey;
use bottle::jwks::Jwks;
use bottle::outbound::Client;
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::app::{Answer, App, Event, Setup, answer};
use crate::support::tokens::{STRANGER, TENANT, b64};

#[tokio::test]
async fn a_genuine_delivery_is_stored_with_its_receipt_before_it_is_answered() {
    let app = App::start().await;
    let event = Event::new();
    app.deliver_as("msg_1", event.token.clone()).await.says_stored(&event.id, false);

    let sql = "select concat_ws(' ', source, type, webhook_id, status, attempts, claims, seen_count), received_at = due_at, occurred_ns, \
               (extract(epoch from occurred_at) * 1000000)::bigint from inbox_events where reason is null and dedupe_key = $1";
    let (words, due_at_once, ns, micros): (String, bool, i64, i64) =
        sqlx::query_as(sql).bind(&event.id).fetch_one(&app.pool).await.unwrap();
    let happened = event.claims["event_timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!((words.as_str(), due_at_once), ("kinde customer.plan_changed msg_1 received 0 0 1", true));
    assert_eq!((i128::from(ns), micros), (happened.as_nanosecond(), happened.as_microsecond()));
    assert!(app.row(&event.id).await.unwrap().2 == event.token.as_bytes());
    assert_eq!(app.receipts(&event.id).await, [(Some("msg_1".to_owned()), false)]);
    assert_eq!(app.counts().await, (1, 1, 0));
}

#[tokio::test]
async fn an_event_of_an_unknown_type_is_stored_and_ignored_later() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let event = Event::with(json!({"type": "moon.phase_changed"}));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    app.worked_off().await;
    assert_eq!(app.row(&event.id).await.unwrap().0, "ignored");
    app.deliver(event.token.clone()).await.says_stored(&event.id, true);
}

#[track_caller]
fn is_refused(answer: &Answer, status: u16, what: &str) {
    assert_eq!((answer.status, answer.headers.get("retry-after")), (status, None), "{what}: {}", answer.text);
    assert!(answer.text.starts_with(r#"{"error":""#) && answer.text.len() < 100, "{what}: {}", answer.text);
}

#[tokio::test]
async fn what_is_not_genuine_is_answered_401_and_leaves_nothing() {
    let app = App::start().await;
    let event = Event::new();
    let (claims, token) = (event.claims.to_string(), &event.token);
    let stripe = json!({"id": "evt_1", "object": "event", "type": "invoice.paid", "livemode": false, "data": {"object": {}}});
    let unsigned = format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(&claims));
    let twice = claims.replacen('{', &format!(r#"{{"event_id":"event_{}","#, "0".repeat(32)), 1);
    let about_a_user = Event::with(json!({"sub": "kp_1"}));
    let elsewhere = Event::with(json!({"iss": "https://other.kinde.com"}));
    let bodies: [(&str, Vec<u8>); 14] = [
        ("nothing", Vec::new()),
        ("the claims alone", claims.clone().into_bytes()),
        ("a Stripe event", stripe.to_string().into_bytes()),
        ("a stranger's signature", STRANGER.sign_event(&claims).into_bytes()),
        ("a stranger's, naming our key", STRANGER.sign(&TENANT.header(), &claims).into_bytes()),
        ("no signature", unsigned.into_bytes()),
        ("other claims under a genuine signature", token.replacen(&b64(&claims), &b64(claims.replace("pro", "pry")), 1).into()),
        ("half a token", token.as_bytes()[..token.len() / 2].to_vec()),
        ("two tokens", format!("{token} {token}").into_bytes()),
        ("a token in JSON", json!({"token": token}).to_string().into_bytes()),
        ("an id that stands there twice", TENANT.sign_event(twice).into_bytes()),
        ("a user's token", about_a_user.token.into_bytes()),
        ("another tenant's event", elsewhere.token.into_bytes()),
        ("ten thousand dots", vec![b'.'; 10_000]),
    ];
    for (what, body) in bodies {
        is_refused(&app.deliver(body).await, 401, what);
    }
    // S57: nothing is ever unpacked.
    let packed = app.http.post(app.url("/webhooks/kinde")).header("content-encoding", "gzip").body(vec![0x1f, 0x8b, 8, 0]);
    is_refused(&answer(packed).await, 401, "a packed body");
    assert_eq!(app.counts().await, (0, 0, 0));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
}

#[tokio::test]
async fn what_is_not_a_post_to_a_known_provider_is_refused_by_its_own_status() {
    let app = App::start().await;
    let event = Event::new();
    for provider in ["paypal", "Kinde", "kinde%00", "bottle", "script"] {
        let url = app.url(&format!("/webhooks/{provider}"));
        is_refused(&answer(app.http.post(url).body(event.token.clone())).await, 404, provider);
    }
    for path in ["/webhooks", "/webhooks/", "/webhooks/kinde/", "/webhooks/kinde/x", "/Webhooks/kinde"] {
        assert_eq!(answer(app.http.post(app.url(path)).body(event.token.clone())).await.status, 404, "{path}");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let refused = answer(app.http.request(method.clone(), app.url("/webhooks/kinde")).body(event.token.clone())).await;
        is_refused(&refused, 405, method.as_str());
        assert_eq!(refused.headers["allow"], "POST");
    }
    assert_eq!(app.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn a_provider_that_is_not_configured_is_answered_501_with_nothing_read_or_written() {
    let app = Setup { jwks: None, ..Setup::default() }.start().await;
    // No database is asked either.
    app.intake_pool.close().await;
    for provider in ["kinde", "stripe"] {
        is_refused(
            &answer(app.http.post(app.url(&format!("/webhooks/{provider}"))).body(Event::new().token)).await,
            501,
            provider,
        );
        // The body that is announced never comes, and nobody waits for it.
        let head = format!("POST /webhooks/{provider} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
        let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, head.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        socket.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 501");
    }
    assert_eq!(app.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn without_keys_nobody_can_tell_and_with_keys_a_strange_one_is_not_genuine() {
    let told = Arc::new(Mutex::new((StatusCode::SERVICE_UNAVAILABLE, String::new())));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let answers = Arc::clone(&told);
    let issuer = axum::Router::new().fallback(move || async move { answers.lock().unwrap().clone().into_response() });
    tokio::spawn(async move { axum::serve(listener, issuer).await });
    let (began, later) = (tokio::time::Instant::now(), Arc::new(std::sync::atomic::AtomicU64::new(0)));
    let hand = Arc::clone(&later);
    let clock = move || began + std::time::Duration::from_secs(hand.load(std::sync::atomic::Ordering::SeqCst));
    let app = Setup { jwks: Some(Jwks::with_clock("/jwks", client, clock)), ..Setup::default() }.start().await;

    let event = Event::new();
    let stranger = STRANGER.sign_event(event.claims.to_string());
    for useless in ["", "{}", r#"{"keys":[]}"#, "<html>"] {
        *told.lock().unwrap() = (if useless.is_empty() { StatusCode::BAD_GATEWAY } else { StatusCode::OK }, useless.to_owned());
        app.deliver(event.token.clone()).await.says_come_again();
        app.deliver(stranger.clone()).await.says_come_again();
        // What cannot be a token needs no key to be refused.
        is_refused(&app.deliver("a.b.c").await, 401, "no token");
        later.fetch_add(100, std::sync::atomic::Ordering::SeqCst);
    }
    assert_eq!(app.counts().await, (0, 0, 0));

    *told.lock().unwrap() = (StatusCode::OK, json!({"keys": [TENANT.jwk()]}).to_string());
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    is_refused(&app.deliver(stranger.clone()).await, 401, "an unknown key");
    // Good keys outlive an issuer that fails, and a strange key stays strange.
    *told.lock().unwrap() = (StatusCode::INTERNAL_SERVER_ERROR, String::new());
    later.fetch_add(5000, std::sync::atomic::Ordering::SeqCst);
    app.deliver(event.token.clone()).await.says_stored(&event.id, true);
    is_refused(&app.deliver(stranger).await, 401, "an unknown key, its issuer away");
    assert_eq!(app.counts().await, (1, 2, 0));
}

#[tokio::test]
async fn an_issuer_that_never_answers_costs_a_sender_no_more_than_the_limit() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = Client::new(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let app = Setup { jwks: Some(Jwks::new("/jwks", client)), ..Setup::default() }.start().await;
    app.deliver(Event::new().token).await.says_come_again();
    assert_eq!(app.counts().await, (0, 0, 0));
}

const ALWAYS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; base-uri 'none'; \
         frame-ancestors 'none'; form-action 'self'",
    ),
];

// S50, S72
#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let client = Client::new("http://127.0.0.1:9").unwrap();
    let panics = Jwks::with_clock("/jwks", client, || panic!("a clock that panics"));
    let broken = Setup { https: true, jwks: Some(panics), ..Setup::default() }.start().await;
    let app = Setup { https: true, ..Setup::default() }.start().await;
    let event = Event::new();

    let panicked = broken.deliver(event.token.clone()).await;
    assert!(!panicked.text.contains("clock"), "{}", panicked.text);
    let post = |path: &str, body: Vec<u8>| app.http.post(app.url(path)).body(body);
    let answers = [
        (200, app.deliver(event.token.clone()).await),
        (401, app.deliver("x").await),
        (404, answer(post("/webhooks/paypal", Vec::new())).await),
        (405, app.get("/webhooks/kinde").await),
        (413, answer(post("/webhooks/kinde", vec![b'x'; 300 * 1024])).await),
        (501, answer(post("/webhooks/stripe", b"{}".to_vec())).await),
        (500, panicked),
        (404, app.get("/nothing/here").await),
        (405, answer(post("/health/live", Vec::new()).header("sec-fetch-site", "same-origin")).await),
        (403, answer(post("/logout", Vec::new()).header("sec-fetch-site", "cross-site")).await),
        (200, app.get("/health/live").await),
        (200, app.get("/health/ready").await),
        (503, {
            broken.web_pool.close().await;
            broken.get("/health/ready").await
        }),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.text);
        for (name, value) in ALWAYS {
            assert_eq!(answer.headers.get(name).map(|v| v.to_str().unwrap()), Some(value), "{status}: {name}");
        }
        assert_eq!(answer.headers["strict-transport-security"], "max-age=63072000; includeSubDomains");
    }
    // Without https a browser is not told to insist on it.
    assert_eq!(App::start().await.get("/health/live").await.headers.get("strict-transport-security"), None);
    assert_eq!(broken.counts().await, (0, 0, 0));
}

struct PanicsOver(Mutex<Option<String>>);

impl Observer for PanicsOver {
    fn at<'a>(&'a self, _: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
        let bad = self.0.lock().unwrap().take_if(|bad| events.iter().any(|event| event.as_str() == *bad));
        assert!(bad.is_none(), "a store that panics");
        Box::pin(std::future::ready(Ok(())))
    }
}

// S72
#[tokio::test]
async fn a_panic_while_storing_is_one_503_and_the_next_delivery_is_stored() {
    let event = Event::new();
    let panics = Arc::new(PanicsOver(Mutex::default()));
    let app = Setup { checkpoints: Checkpoints::observed_by(panics.clone()), ..Setup::default() }.start().await;
    for _ in 0..5 {
        *panics.0.lock().unwrap() = Some(event.id.clone());
        app.deliver(event.token.clone()).await.says_come_again();
    }
    assert_eq!(app.counts().await, (0, 0, 0));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
}
