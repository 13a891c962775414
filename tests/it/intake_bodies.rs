//! Bodies of every size, age and oddity, and the headers they come under.

use std::time::Duration;

use axum::body::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::json;

use crate::support::app::{Answer, App, Event, Setup, answer, try_answer};
use crate::support::tokens::TENANT;

const CAP: usize = 256 * 1024;

/// A genuine token of exactly this many bytes.
fn token_of(len: usize) -> (String, String) {
    let (id, at) = (Event::new().id, "2026-10-21T10:00:00Z");
    let sized = |filler: usize| {
        let data = json!({"filler": "x".repeat(filler)});
        Event::with(json!({"event_id": id, "timestamp": at, "event_timestamp": at, "data": data})).token
    };
    // Four characters say three bytes, so one length in four cannot be had: white space around a token is allowed.
    let mut filler = (len - sized(0).len()) * 3 / 4;
    let mut token = sized(filler);
    while token.len() > len {
        filler -= 1;
        token = sized(filler);
    }
    assert!(len - token.len() < 4, "{} of {len}", token.len());
    token.push_str(&"\n".repeat(len - token.len()));
    (id, token)
}

async fn without_length(app: &App, body: &str) -> reqwest::Result<Answer> {
    let pieces: Vec<_> = body.as_bytes().chunks(9000).map(|piece| Frame::data(Bytes::copy_from_slice(piece))).collect();
    let body = reqwest::Body::wrap(StreamBody::new(stream::iter(pieces.into_iter().map(Ok::<_, std::convert::Infallible>))));
    try_answer(app.http.post(app.url("/webhooks/kinde")).body(body)).await
}

// T14, S53
#[tokio::test]
async fn a_body_up_to_the_cap_is_taken_and_a_longer_one_is_not() {
    let app = App::start().await;
    for len in [CAP - 1, CAP] {
        let (id, token) = token_of(len);
        app.deliver(token.clone()).await.says_stored(&id, false);
        without_length(&app, &token).await.unwrap().says_stored(&id, true);
        let (_, seen, body) = app.row(&id).await.unwrap();
        assert_eq!((seen, body.len()), (2, len));
        assert!(body == token.as_bytes());
    }
    let before = app.counts().await;
    for len in [CAP + 1, CAP + 1000, 4 * CAP] {
        let (_, token) = token_of(len);
        // Each time: a sender that is cut off while it still sends may not live to read why.
        for _ in 0..20 {
            let refused = app.deliver(token.clone()).await;
            assert_eq!((refused.status, refused.text.as_str()), (413, r#"{"error":"the body is larger than a webhook can be"}"#));
            assert_eq!(without_length(&app, &token).await.unwrap().status, 413, "{len} in pieces");
        }
    }
    assert_eq!(app.counts().await, before);
}

// T14
#[tokio::test]
async fn the_content_type_is_not_looked_at() {
    let app = App::start().await;
    let types = [
        "application/json",
        "application/jwt",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "not a type at all",
    ];
    for content_type in types {
        let event = Event::new();
        let post = app.http.post(app.url("/webhooks/kinde")).header("content-type", content_type);
        answer(post.body(event.token.clone())).await.says_stored(&event.id, false);
        assert_eq!(app.row(&event.id).await.unwrap().2, event.token.as_bytes());
    }
    let event = Event::new();
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    assert_eq!(app.counts().await, (7, 7, 0));
}

// T5
#[tokio::test]
async fn neither_an_old_event_nor_one_of_a_wrong_clock_is_refused() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let hour = Duration::from_secs(3600);
    let now = jiff::Timestamp::now();
    for at in [now - 35 * hour, now - 24 * 400 * hour, now - hour / 6, now + hour / 6, now + 40 * hour] {
        let at = at.to_string();
        let event = Event::with(json!({"timestamp": at, "event_timestamp": at}));
        app.deliver(event.token.clone()).await.says_stored(&event.id, false);
        app.deliver(event.token.clone()).await.says_stored(&event.id, true);
    }
    app.worked_off().await;
    let statuses = "select status from inbox_events order by id";
    let statuses: Vec<String> = sqlx::query_scalar(statuses).fetch_all(&app.pool).await.unwrap();
    assert_eq!(statuses, ["applied", "applied", "applied", "applied", "parked"]);
}

// T12
#[tokio::test]
async fn json_that_breaks_other_readers_is_stored_byte_for_byte_and_worked_to_a_verdict() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let nested = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let odd: [(&str, &[u8]); 8] = [
        ("a zero character", br#""\u0000""#),
        ("half a surrogate pair", br#""\ud800""#),
        ("bytes that are no text", b"\"\xff\xfe\""),
        ("a number beyond every float", b"1e400000"),
        ("twenty thousand nested arrays", nested.as_bytes()),
        ("a number that grows when it is stored as one", b"1e131071"),
        ("a field that stands there twice", br#"{"a":1,"a":2}"#),
        ("a name of half a surrogate pair", br#"{"\ud800":1}"#),
    ];
    for (what, value) in odd {
        for kind in ["customer.plan_changed", "customer.meter_usage_updated"] {
            let event = Event::with(
                json!({"type": kind, "data": {"user_id": "kp_odd", "plan": {"key": "customer_pro_plan"}, "odd": "@"}}),
            );
            let claims = event.claims.to_string().into_bytes();
            let at = claims.windows(3).position(|window| window == br#""@""#).unwrap();
            let token = TENANT.sign_event([&claims[..at], value, &claims[at + 3..]].concat());
            let first = app.deliver(token.clone()).await;
            assert_eq!(first.status, 200, "{what}: {}", first.text);
            first.says_stored(&event.id, false);
            app.deliver(token.clone()).await.says_stored(&event.id, true);
            app.worked_off().await;
            let (status, seen, body) = app.row(&event.id).await.unwrap();
            let verdict = if kind == "customer.plan_changed" { "applied" } else { "ignored" };
            assert_eq!((status.as_str(), seen), (verdict, 2), "{what}");
            assert!(body == token.as_bytes(), "{what}");
        }
    }
    assert_eq!(app.counts().await, (16, 32, 0), "no copy is taken for a conflict");
}

#[tokio::test]
async fn a_billing_event_that_cannot_be_read_is_answered_200_all_the_same() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let event = Event::with(json!({"data": {"user_id": 7, "plan": []}}));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    let dead = "select count(*) from inbox_events where status in ('failed', 'dead') and attempts > 0 and last_error is not null";
    crate::support::app::eventually("the worker finds it unreadable", async || {
        sqlx::query_scalar::<_, i64>(dead).fetch_one(&app.pool).await.unwrap() == 1
    })
    .await;
    app.deliver(event.token.clone()).await.says_stored(&event.id, true);
}

#[tokio::test]
async fn the_header_outside_the_signature_is_kept_as_far_as_it_can_be() {
    let app = App::start().await;
    let long = "x".repeat(5000);
    let headers: [(&[u8], Option<&str>); 5] = [
        (b"msg_plain", Some("msg_plain")),
        (b"'; drop table receipts; --", Some("'; drop table receipts; --")),
        (long.as_bytes(), Some(&long[..200])),
        (b"\xff\xfe", None),
        (b"", Some("")),
    ];
    for (header, kept) in headers {
        let event = Event::new();
        let header = reqwest::header::HeaderValue::from_bytes(header).unwrap();
        let post = app.http.post(app.url("/webhooks/kinde")).header("webhook-id", header);
        answer(post.body(event.token.clone())).await.says_stored(&event.id, false);
        assert_eq!(app.receipts(&event.id).await, [(kept.map(str::to_owned), false)]);
    }
}
