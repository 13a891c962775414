//! Sign-ins that Kinde, the person or the database breaks off: a page that says what to do, no session, and no secret anywhere.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::app::{Answer, SESSION_KEY};
use crate::support::fake_kinde::Trouble;
use crate::support::visitor::{Visitor, with_kinde};

#[track_caller]
fn says(answer: &Answer, status: u16, words: &str) {
    assert!(answer.status == status && answer.text.contains(words), "{}: {}", answer.status, answer.text);
    assert!(!answer.text.contains("canary"), "nothing from inside: {}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    if status == 503 {
        assert!(answer.headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn whoever_says_no_at_kinde_reads_that_nothing_happened() {
    let (app, kinde) = with_kinde().await;
    for (error, status, words) in [
        ("access_denied", 403, "You did not sign in"),
        ("login_required", 403, "You did not sign in"),
        ("login_link_expired", 400, "This sign-in cannot be finished"),
        ("temporarily_unavailable", 503, "Kinde cannot be reached just now"),
        ("server_error", 503, "Kinde cannot be reached just now"),
        ("invalid_scope", 502, "does not let this Bottle sign people in"),
        ("<script>canary", 400, "Kinde ended the sign-in"),
    ] {
        kinde.inside().error = Some(error);
        let visitor = Visitor::new(&app);
        let back = visitor.come_back_from("/login?return_to=/account?status=dead").await;
        let answer = visitor.get(&back).await;
        says(&answer, status, words);
        assert!(!answer.text.contains("<script>canary"), "{}", answer.text);
        if status != 502 {
            assert!(answer.text.contains("href=\"/login?return_to=%2Faccount%3Fstatus%3Ddead\""), "{}", answer.text);
        }
        assert!(visitor.cookie("bottle").is_none() && visitor.cookie("bottle-login").is_none());
    }
    assert!(kinde.inside().token_requests.is_empty());
}

#[tokio::test]
async fn a_token_endpoint_that_refuses_fails_or_babbles_leaves_nobody_signed_in() {
    let (app, kinde) = with_kinde().await;
    let refusal = |error: &str| format!(r#"{{"error":"{error}","error_description":"canary-description"}}"#);
    for (status, body, told, words) in [
        (400, refusal("invalid_grant"), 400, "This sign-in cannot be finished"),
        (401, refusal("invalid_client"), 502, "does not let this Bottle sign people in"),
        (400, refusal("unauthorized_client"), 502, "does not let this Bottle sign people in"),
        (400, refusal("canary_of_its_own"), 502, "does not let this Bottle sign people in"),
        (500, "canary".to_owned(), 503, "Kinde cannot be reached just now"),
        (503, String::new(), 503, "Kinde cannot be reached just now"),
        (429, "{}".to_owned(), 503, "Kinde cannot be reached just now"),
        (200, String::new(), 502, "What came back is not from Kinde"),
        (200, "canary, no JSON".to_owned(), 502, "What came back is not from Kinde"),
        (200, r#"{"access_token":"canary","token_type":"bearer"}"#.to_owned(), 502, "What came back is not from Kinde"),
        (200, format!("\"{}\"", "canary".repeat(20_000)), 503, "Kinde cannot be reached just now"),
        (302, "{}".to_owned(), 502, "What came back is not from Kinde"),
    ] {
        kinde.inside().trouble = Trouble::Answers(status, body.clone());
        let visitor = Visitor::new(&app);
        let back = visitor.come_back_from("/login").await;
        says(&visitor.get(&back).await, told, words);
        assert!(visitor.cookie("bottle").is_none(), "{status} {body:.40}");
        kinde.inside().trouble = Trouble::None;
        visitor.sign_in().await;
    }
}

#[tokio::test]
async fn a_token_endpoint_that_hangs_is_given_up_on_in_time() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    kinde.inside().trouble = Trouble::Hangs;
    let began = Instant::now();
    says(&visitor.get(&back).await, 503, "Kinde cannot be reached just now");
    assert!((4..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let rows: i64 = sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn with_kinde_away_nobody_new_gets_in_and_those_inside_stay() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().discovery = Box::new(|document| document["status"] = 503.into());
    let visitor = Visitor::new(&app);
    for _ in 0..20 {
        says(&visitor.get("/login?return_to=/account").await, 503, "Kinde cannot be reached just now");
    }
    assert_eq!(kinde.inside().discoveries, 1, "a Kinde in trouble is not asked by everybody who comes");
    assert!(visitor.cookie("bottle-login").is_none());
    let inside = app.sign_in("kp_inside").await;
    assert!(app.get_as(&inside, "/").await.text.contains("Good to see you, kp_inside."));
    assert_eq!(app.get("/engine-room").await.status, 200);
    // It comes back, and so do the people.
    kinde.inside().discovery = Box::new(|_| {});
    tokio::time::sleep(Duration::from_millis(5200)).await;
    visitor.sign_in().await;
}

#[tokio::test]
async fn a_discovery_document_that_leads_away_is_not_followed() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().discovery = Box::new(|document| document["authorization_endpoint"] = "https://evil.example/auth".into());
    says(&Visitor::new(&app).get("/login").await, 502, "What came back is not from Kinde");
}

#[tokio::test]
async fn a_database_that_is_away_ends_the_sign_in_with_a_page() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let back = visitor.come_back_from("/login").await;
    let mut tx = app.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table sessions in access exclusive mode").execute(&mut *tx).await.unwrap();
    let answer = visitor.get(&back).await;
    assert!(answer.status == 503 && answer.text.contains("You are not signed in"), "{}: {}", answer.status, answer.text);
    assert!(visitor.cookie("bottle").is_none());
    tx.rollback().await.unwrap();
    visitor.sign_in().await;

    let mut tx = app.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table sessions in access exclusive mode").execute(&mut *tx).await.unwrap();
    let answer = visitor.post("/logout").await;
    assert!(answer.status == 503 && answer.text.contains("You are still signed in"), "{}: {}", answer.status, answer.text);
    tx.rollback().await.unwrap();
    assert!(visitor.get("/").await.text.contains("Good to see you"));
}

/// What was written to the log, in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One thread, so that all of the program logs to this test.
#[tokio::test]
async fn no_secret_of_a_sign_in_is_in_a_log_a_page_or_the_database() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || to.clone())
        .finish();
    // With one subscriber alone, what other tests' threads log first is remembered as not worth hearing.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let listening = tracing::subscriber::set_default(subscriber);

    let (app, kinde) = with_kinde().await;
    kinde.inside().expires_in = 30;
    let visitor = Visitor::new(&app);
    let mut answers = Vec::new();
    let mut secrets = vec![SESSION_KEY.to_owned()];
    let back = visitor.come_back_from("/login").await;
    secrets.push(visitor.cookie("bottle-login").unwrap());
    answers.push(visitor.get(&back).await);
    secrets.push(visitor.cookie("bottle").unwrap());
    answers.push(visitor.get("/").await);
    answers.push(visitor.get(&back).await);
    answers.push(visitor.post("/account/billing").await);
    answers.push(visitor.get("/account/billing").await);
    for trouble in [
        Trouble::Answers(400, r#"{"error":"invalid_grant","error_description":"canary-description"}"#.to_owned()),
        Trouble::Answers(401, r#"{"error":"invalid_client","error_description":"canary-description"}"#.to_owned()),
        Trouble::Answers(500, "canary-body".to_owned()),
        Trouble::Answers(200, "canary-body".to_owned()),
    ] {
        let back = visitor.come_back_from("/login").await;
        kinde.inside().trouble = trouble;
        answers.push(visitor.get(&back).await);
        answers.push(visitor.post("/account/billing").await);
        kinde.inside().trouble = Trouble::None;
    }
    let back = visitor.come_back_from("/login").await;
    kinde.inside().forge = Box::new(|claims| claims["nonce"] = "canary-nonce".into());
    answers.push(visitor.get(&back).await);
    let records: Vec<String> = sqlx::query_scalar("select record::text from sessions").fetch_all(&app.pool).await.unwrap();
    answers.push(visitor.post("/logout").await);
    drop(listening);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for heard in ["signed in", "a sign-in was refused", "nobody can sign in", "TRACE", "sqlx", "tower_sessions"] {
        assert!(log.contains(heard), "the log lacks {heard}, of {} bytes", log.len());
    }
    secrets.extend(kinde.inside().secrets.clone());
    secrets.extend(["canary-description", "canary-body", "canary-nonce"].map(str::to_owned));
    for request in &kinde.inside().token_requests {
        secrets.extend(["code", "code_verifier", "refresh_token"].iter().filter_map(|name| request.get(*name).cloned()));
    }
    for asked in &kinde.inside().authorized {
        secrets.extend([asked["state"].clone(), asked["nonce"].clone()]);
    }
    assert!(secrets.len() > 25, "{secrets:?}");
    // The sign-in lets its browser carry state and code in addresses; what they are for is in none of the places below.
    for secret in &secrets {
        if let Some(line) = log.lines().find(|line| line.contains(secret.as_str())) {
            panic!("{secret} is in the log: {line}");
        }
        assert!(!answers.iter().any(|answer| answer.text.contains(secret.as_str())), "{secret} is in a page");
        assert!(!records.iter().any(|record| record.contains(secret.as_str())), "{secret} is in the database");
    }
    assert_eq!(records.len(), 1);
}
