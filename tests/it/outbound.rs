//! What the guarded client will not do.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use bottle::outbound::{Client, OutboundError};
use futures_util::stream;

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    base
}

#[test]
fn only_https_or_this_machine() {
    for base in [
        "https://tenant.kinde.com",
        "https://tenant.kinde.com/base/",
        "https://8.8.8.8",
        "https://[2606:4700::1111]",
        "https://localhost:8443",
        "http://localhost:4000",
        "http://LOCALHOST",
        "http://kinde.localhost:4000",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://localhost.",
        "http://127.1",
        "http://2130706433",
    ] {
        assert!(Client::new(base).is_ok(), "{base}");
    }
    for base in [
        "http://tenant.kinde.com",
        "http://8.8.8.8",
        "http://localhost.evil.test",
        "http://evillocalhost",
        "http://127.0.0.1.evil.test",
        "https://10.0.0.1",
        "https://192.168.1.1",
        "https://172.16.5.4",
        "https://169.254.169.254",
        "http://169.254.169.254",
        "https://100.64.0.1",
        "https://0.0.0.0",
        "http://0.0.0.0",
        "https://[fc00::1]",
        "https://[fe80::1]",
        "https://[::]",
        "https://[::ffff:10.0.0.1]",
        "https://167772161",
        "https://0xa.0.0.1",
        "https://user:pw@tenant.kinde.com",
        "https://user@tenant.kinde.com",
        "ftp://tenant.kinde.com",
        "file:///etc/passwd",
        "data:,x",
        "tenant.kinde.com",
        "",
        "https://",
    ] {
        let error = Client::new(base).err();
        assert!(matches!(error, Some(OutboundError::Refused(_))), "{base}: {error:?}");
    }
    let secret = Client::new("https://user:hunter2@tenant.kinde.com").unwrap_err().to_string();
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let followed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&followed);
    let app = Router::new().route("/from", get(|| async { Redirect::temporary("/to") })).route(
        "/to",
        get(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async { "there" }
        }),
    );
    let client = Client::new(&serve(app).await).unwrap();
    let error = client.get("/from", 100).await.unwrap_err();
    assert!(matches!(error, OutboundError::Status(status) if status == 307), "{error:?}");
    assert_eq!(followed.load(Ordering::SeqCst), 0);
    assert_eq!(client.get("/to", 100).await.unwrap(), b"there");
}

#[tokio::test]
async fn no_other_origin_is_called() {
    let (ours, theirs) = (serve(Router::new()).await, serve(Router::new().route("/", get(|| async { "x" }))).await);
    let client = Client::new(&ours).unwrap();
    for path in
        [format!("{theirs}/"), theirs.replacen("http:", "", 1), ours.replace("http", "https"), "file:///etc/passwd".into()]
    {
        assert!(matches!(client.get(&path, 100).await, Err(OutboundError::Refused(_))), "{path}");
    }
    let foreign = reqwest::Request::new(reqwest::Method::GET, theirs.parse().unwrap());
    assert!(matches!(client.send(foreign, 100).await, Err(OutboundError::Refused(_))));
    assert!(matches!(client.get(&format!("{ours}/full-address"), 100).await, Err(OutboundError::Status(_))));
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_cap() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let app = Router::new()
        .route("/ten", get(|| async { "0123456789" }))
        .route("/ten-in-chunks", get(|| async { Body::from_stream(stream::iter((0..10).map(|_| Ok::<_, Infallible>("x")))) }))
        .route(
            "/endless",
            get(move || async move {
                let chunk = Bytes::from(vec![b'x'; 16 * 1024]);
                Body::from_stream(stream::iter(std::iter::repeat_with(move || {
                    counted.fetch_add(chunk.len(), Ordering::SeqCst);
                    Ok::<_, Infallible>(chunk.clone())
                })))
            }),
        );
    let client = Client::new(&serve(app).await).unwrap();
    for path in ["/ten", "/ten-in-chunks"] {
        assert_eq!(client.get(path, 10).await.unwrap().len(), 10, "{path}");
        assert!(matches!(client.get(path, 9).await, Err(OutboundError::TooLarge { cap: 9 })), "{path}");
    }
    let watch = Instant::now();
    assert!(matches!(client.get("/endless", 256 * 1024).await, Err(OutboundError::TooLarge { .. })));
    assert!(watch.elapsed() < Duration::from_secs(4), "the cap ended it, not the time limit");
    // What the kernel buffers on its way is beyond our say.
    assert!(sent.load(Ordering::SeqCst) < 64 * 1024 * 1024);
}

#[tokio::test]
async fn a_slow_server_is_left_after_five_seconds() {
    let app = Router::new().route("/never", get(std::future::pending::<&'static str>)).route(
        "/drips",
        get(|| async {
            Body::from_stream(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Some((Ok::<_, Infallible>("x"), ()))
            }))
        }),
    );
    let client = Client::new(&serve(app).await).unwrap();
    let watch = Instant::now();
    let (never, drips) = tokio::join!(client.get("/never", 1000), client.get("/drips", 1000));
    assert!(matches!(never, Err(OutboundError::Unavailable(_))), "{never:?}");
    assert!(matches!(drips, Err(OutboundError::Unavailable(_))), "{drips:?}");
    let took = watch.elapsed();
    assert!((4..8).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn a_closed_port_is_no_answer_and_the_error_keeps_the_path_to_itself() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(&base).unwrap().get("/x?code=canary", 10).await.unwrap_err();
    assert!(matches!(error, OutboundError::Unavailable(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn it_says_who_it_is() {
    let app = Router::new()
        .route("/", get(|headers: HeaderMap| async move { headers["user-agent"].clone().as_bytes().to_vec().into_response() }));
    let agent = Client::new(&serve(app).await).unwrap().get("/", 100).await.unwrap();
    assert_eq!(String::from_utf8(agent).unwrap(), format!("bottle/{}", env!("CARGO_PKG_VERSION")));
}
