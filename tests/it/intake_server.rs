//! The server under intake: limits on heads and time, and what a connection may and may not do.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::{App, Event, eventually};

/// What comes back until the server closes, which it is expected to do.
async fn said(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut bytes)).await;
    assert!(closed.is_ok(), "still open after {:?}", String::from_utf8_lossy(&bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn connect(app: &App) -> TcpStream {
    TcpStream::connect(app.address).await.unwrap()
}

/// Sends exactly these bytes and hears the server out.
async fn exchange(app: &App, bytes: impl AsRef<[u8]>) -> String {
    let mut socket = connect(app).await;
    // It may close before it has taken everything.
    let _ = socket.write_all(bytes.as_ref()).await;
    said(&mut socket).await
}

fn statuses(said: &str) -> Vec<&str> {
    said.match_indices("HTTP/1.").map(|(at, _)| said[at..].get(9..12).unwrap_or("?")).collect()
}

fn post(event: &Event, more: &str) -> String {
    format!(
        "POST /webhooks/kinde HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {}\r\n\r\n{}",
        event.token.len(),
        event.token
    )
}

const CLOSE: &str = "Connection: close\r\n";

// S54
#[tokio::test]
async fn a_head_has_at_most_a_hundred_fields_and_32_kib() {
    let app = App::start().await;
    let fields = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    // Host, Connection and Content-Length make three more.
    for (count, status) in [(97, "200"), (98, "431"), (5000, "431")] {
        assert_eq!(statuses(&exchange(&app, post(&Event::new(), &(fields(count) + CLOSE))).await), [status], "{count}");
    }
    for (len, status) in [(31_000, "200"), (33_000, "431"), (1 << 20, "431")] {
        let long = format!("X: {}\r\n{CLOSE}", "y".repeat(len));
        let answer = exchange(&app, post(&Event::new(), &long)).await;
        // Who is cut off while it still sends may not get to read the answer.
        assert!(statuses(&answer) == [status] || (len > 1 << 19 && answer.is_empty()), "{len}: {answer}");
    }
    let address = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n", "x".repeat(40_000));
    assert!(matches!(statuses(&exchange(&app, address).await)[..], ["414" | "431"]));
    assert_eq!(app.counts().await, (2, 2, 0));
}

// S54
#[tokio::test]
async fn a_sender_that_dribbles_is_cut_off() {
    let app = App::start().await;
    let dribbled = async |first: &str, then: &str, every: Duration| {
        let began = Instant::now();
        let (mut socket, mut bytes) = (connect(&app).await, Vec::new());
        socket.write_all(first.as_bytes()).await.unwrap();
        let (mut reading, mut writing) = socket.split();
        let dribble = async {
            loop {
                tokio::time::sleep(every).await;
                if writing.write_all(then.as_bytes()).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            _ = reading.read_to_end(&mut bytes) => {}
            () = dribble => {}
            () = tokio::time::sleep(Duration::from_secs(25)) => panic!("never cut off: {first:?}"),
        }
        (began.elapsed().as_secs(), String::from_utf8_lossy(&bytes).into_owned())
    };
    let (event, tick) = (Event::new(), Duration::from_millis(900));
    let body = "POST /webhooks/kinde HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\nx";
    let answered = post(&event, "");
    let (idle, head, body, answered) = tokio::join!(
        dribbled("", "", tick),
        dribbled("POST /webhooks/kinde HTTP/1.1\r\nHost: localhost\r\nX: ", "x", tick),
        dribbled(body, "x", tick),
        dribbled(&answered, "", tick),
    );
    assert!((9..=12).contains(&idle.0) && idle.1.is_empty(), "{idle:?}");
    assert!((9..=12).contains(&head.0), "{head:?}");
    assert!((14..=17).contains(&body.0) && statuses(&body.1) == ["408"], "{body:?}");
    // Answered at once, and then kept for a while in case there is more.
    assert!((9..=12).contains(&answered.0) && statuses(&answered.1) == ["200"], "{answered:?}");
    assert_eq!(app.counts().await, (1, 1, 0));
}

#[tokio::test]
async fn one_connection_carries_many_deliveries() {
    let app = App::start().await;
    let events: Vec<Event> = (0..20).map(|_| Event::new()).collect();
    // Each after the answer to the one before, then all of them at once.
    let mut socket = connect(&app).await;
    for event in &events {
        socket.write_all(post(event, "").as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let len = socket.read(&mut answer).await.unwrap();
        assert!(String::from_utf8_lossy(&answer[..len]).ends_with(&format!(r#"{{"event":"{}","copy":false}}"#, event.id)));
    }
    drop(socket);
    let last = post(&events[19], CLOSE);
    let pipelined: String = events[..19].iter().map(|event| post(event, "")).chain([last]).collect();
    let answers = exchange(&app, pipelined).await;
    assert_eq!(statuses(&answers), ["200"; 20]);
    let order: Vec<usize> = events.iter().map(|event| answers.find(&event.id).unwrap()).collect();
    assert!(order.is_sorted(), "answered in the order they were sent in");
    assert_eq!(app.counts().await, (20, 40, 0));
}

// S56
#[tokio::test]
async fn a_request_that_is_none_is_answered_400_or_cut_off() {
    let app = App::start().await;
    let event = Event::new();
    let (token, len) = (&event.token, event.token.len());
    let requests = [
        "GARBAGE\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{7f}\x03\x03\r\n\r\n".to_owned(),
        "GET /health/live\r\n\r\n".to_owned(),
        "GET /health/live HTTP/9.9\r\nHost: x\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET /health live HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /health/live HTTP/1.1\r\nHost x\r\n\r\n".to_owned(),
        "GET /health/live HTTP/1.1\r\nHo st: x\r\n\r\n".to_owned(),
        "GET /health/live HTTP/1.1\r\nHost: x\0\r\n\r\n".to_owned(),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\nContent-Length: 5\r\n\r\n{token}"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nContent-Length: +{len}\r\n\r\n{token}"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{token}"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{token}"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n{token}"),
        format!("POST /webhooks/kinde HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{token}\r\n0\r\n\r\n"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{token}\r\n0\r\n\r\n"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\n{token}\n0\n\n"),
        format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{token}\r\n"),
    ];
    for answer in join_all(requests.iter().map(async |request| (request, exchange(&app, request).await))).await {
        assert!(matches!(statuses(&answer.1)[..], [] | ["400" | "505"]), "{answer:?}");
    }
    assert_eq!(app.counts().await, (0, 0, 0));
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
}

// S56
#[tokio::test]
async fn after_a_body_of_two_lengths_nothing_more_is_read() {
    let app = App::start().await;
    let smuggled = "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n";
    for both in ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"] {
        let request = format!("POST /webhooks/kinde HTTP/1.1\r\nHost: x\r\n{both}\r\n\r\n0\r\n\r\n{smuggled}");
        assert_eq!(statuses(&exchange(&app, request).await).len(), 1, "{both}");
    }
    assert_eq!(app.counts().await, (0, 0, 0));
}

// S55
#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_else_from_being_served() {
    let app = App::start().await;
    let mut slow = join_all((0..200).map(|_| connect(&app))).await;
    for socket in &mut slow {
        socket.write_all(b"POST /webhooks/kinde HTTP/1.1\r\nContent-Le").await.unwrap();
    }
    let events: Vec<Event> = (0..30).map(|_| Event::new()).collect();
    for event in &events {
        let answer = app.deliver(event.token.clone()).await;
        answer.says_stored(&event.id, false);
        assert!(answer.took < Duration::from_secs(2), "{:?}", answer.took);
    }
    assert_eq!(app.counts().await, (30, 30, 0));
}

// T18
#[tokio::test]
async fn at_a_stop_the_deliveries_under_way_are_finished_and_no_new_ones_are_taken() {
    let app = App::start().await;
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *lock).await.unwrap();
    let _idle = connect(&app).await;
    let events: Vec<Event> = (0..10).map(|_| Event::new()).collect();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        app.stop();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(TcpStream::connect(app.address).await.is_err(), "nobody listens any more");
        assert!(!app.has_stopped(), "it waits for them");
        lock.rollback().await.unwrap();
    };
    let (answers, ()) = tokio::join!(join_all(events.iter().map(|event| app.deliver(event.token.clone()))), stop);
    for (event, answer) in events.iter().zip(&answers) {
        answer.says_stored(&event.id, false);
    }
    let began = Instant::now();
    eventually("it has stopped", async || app.has_stopped()).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(app.counts().await, (10, 10, 0));
}
