//! What a person on call is told: each condition once until it is over, over a signed webhook that may be down for a while.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use bottle::alerts::outgoing::Channels;
use bottle::alerts::webhook::Webhook;
use bottle::alerts::{Alerts, Changes};
use bottle::domain::event::Source;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio_util::sync::CancellationToken;

use super::support::app::{App, Event, eventually};
use super::support::load::Ground;

const KEY: [u8; 32] = [7; 32];

/// Whoever is on call: keeps what comes, and answers as told.
#[derive(Clone, Default)]
struct OnCall {
    came: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    away: Arc<Mutex<bool>>,
}

impl OnCall {
    async fn listen(&self) -> String {
        let app = Router::new().route("/hook", post(receive)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, app).into_future());
        format!("http://{address}/hook")
    }

    /// What was said, oldest first: (id, type, condition, events).
    fn heard(&self) -> Vec<(String, String, String, usize)> {
        let came = self.came.lock().unwrap();
        came.iter()
            .map(|(headers, body)| {
                let said: Value = serde_json::from_slice(body).unwrap();
                let text = |v: &Value| v.as_str().unwrap().to_owned();
                let events = said["data"]["event_ids"].as_array().unwrap().len();
                (
                    headers["webhook-id"].to_str().unwrap().to_owned(),
                    text(&said["type"]),
                    text(&said["data"]["condition"]),
                    events,
                )
            })
            .collect()
    }
}

async fn receive(State(on_call): State<OnCall>, headers: HeaderMap, body: Bytes) -> StatusCode {
    on_call.came.lock().unwrap().push((headers, body));
    if *on_call.away.lock().unwrap() { StatusCode::BAD_GATEWAY } else { StatusCode::NO_CONTENT }
}

struct Stage {
    app: App,
    on_call: OnCall,
    alerts: Alerts,
}

impl Stage {
    async fn new() -> Self {
        let app = App::start().await;
        let on_call = OnCall::default();
        let alerts = alerts(&app, &on_call.listen().await);
        Self { app, on_call, alerts }
    }

    async fn sql(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.app.pool).await.unwrap();
    }

    async fn event(&self) {
        let event = Event::new();
        self.app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    }

    async fn look(&self) -> (Vec<String>, Vec<String>) {
        let Changes { raised, cleared } = self.alerts.look().await.unwrap();
        (raised, cleared)
    }

    async fn send(&self) -> u32 {
        self.alerts.send(&CancellationToken::new()).await.unwrap()
    }
}

fn alerts(app: &App, url: &str) -> Alerts {
    let secret = format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(KEY));
    let webhook = Webhook::new(&url.parse().unwrap(), &secret).unwrap();
    Alerts {
        pool: app.pool.clone(),
        providers: vec![Source::Kinde],
        nightly: true,
        channels: Channels { webhook: Some(webhook), email: None },
    }
}

fn raised(condition: &str) -> (Vec<String>, Vec<String>) {
    (vec![condition.to_owned()], vec![])
}

fn cleared(condition: &str) -> (Vec<String>, Vec<String>) {
    (vec![], vec![condition.to_owned()])
}

const NOTHING: (Vec<String>, Vec<String>) = (vec![], vec![]);

/// How a condition comes about, and how it ends.
const CONDITIONS: &[(&str, &str, &str)] = &[
    ("dead", "update inbox_events set status = 'dead', due_at = 'infinity'", "update inbox_events set status = 'applied'"),
    (
        "parked",
        "update inbox_events set status = 'parked', due_at = 'infinity', received_at = now() - interval '25 hours'",
        "update inbox_events set status = 'applied'",
    ),
    (
        "overdue",
        "update inbox_events set status = 'failed', due_at = now() - interval '6 minutes'",
        "update inbox_events set status = 'applied'",
    ),
    (
        "conflict",
        "insert into conflicts (event_id, digest, body, received_at) select id, decode(md5(random()::text), 'hex'), '\\x02', now() from inbox_events",
        "update conflicts set received_at = now() - interval '25 hours'",
    ),
    (
        "breaker",
        "insert into worker_pauses (worker, fingerprint, since, seen_at) values (gen_random_uuid(), 'a word', now(), now())",
        "update worker_pauses set seen_at = now() - interval '4 minutes'",
    ),
    (
        "silent:kinde",
        "update provider_seen set heard_at = now() - interval '25 hours'",
        "update provider_seen set heard_at = now()",
    ),
];

#[tokio::test]
async fn each_condition_is_told_once_and_its_end_once() {
    for (condition, begins, ends) in CONDITIONS {
        let stage = Stage::new().await;
        stage.event().await;
        stage.sql("update inbox_events set status = 'applied'").await;
        assert_eq!(stage.look().await, NOTHING, "{condition}: all is well at first");
        stage.sql(begins).await;
        assert_eq!(stage.look().await, raised(condition));
        assert_eq!(stage.look().await, NOTHING, "{condition}: once");
        stage.sql(ends).await;
        assert_eq!(stage.look().await, cleared(condition));
        assert_eq!(stage.look().await, NOTHING);
        stage.sql(begins).await;
        assert_eq!(stage.look().await, raised(condition), "a new spell is told again");

        stage.send().await;
        let heard: Vec<_> = stage.on_call.heard().into_iter().map(|(_, kind, name, _)| (kind, name)).collect();
        let told = |kind: &str| (kind.to_owned(), (*condition).to_owned());
        assert_eq!(heard[..2], [told("alert.raised"), told("alert.cleared")]);
        let (.., events) = stage.on_call.heard()[0].clone();
        assert_eq!(events, usize::from(!["silent:kinde", "breaker"].contains(condition)), "{condition} names its events");
    }
}

#[tokio::test]
async fn a_dead_event_that_an_operator_acknowledged_is_no_news_until_it_dies_again() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity', processed_at = now()").await;
    assert_eq!(stage.look().await, raised("dead"));
    stage
        .sql(
            "insert into event_notes (event_id, note, acknowledges, written_by, written_at, form_key)
             select id, 'it may rest', processed_at, 'olive', now(), gen_random_uuid() from inbox_events",
        )
        .await;
    assert_eq!(stage.look().await, cleared("dead"));
    stage.sql("update inbox_events set processed_at = now() + interval '1 second'").await;
    assert_eq!(stage.look().await, raised("dead"));
}

#[tokio::test]
async fn nothing_is_raised_just_below_its_bound() {
    let stage = Stage::new().await;
    for _ in 0..2 {
        stage.event().await;
    }
    stage.look().await;
    stage.sql("update inbox_events set status = 'parked', due_at = 'infinity', received_at = now() - interval '23 hours'").await;
    stage.sql("update inbox_events set status = 'failed', due_at = now() - interval '4 minutes' where id = 1").await;
    stage.sql("update provider_seen set heard_at = now() - interval '23 hours'").await;
    assert_eq!(stage.look().await, NOTHING);
}

#[tokio::test]
async fn a_provider_that_speaks_again_ends_its_silence() {
    let stage = Stage::new().await;
    assert_eq!(stage.look().await, NOTHING, "a fresh installation has heard of nobody, and that is no alarm yet");
    stage.sql("update provider_seen set heard_at = now() - interval '25 hours'").await;
    assert_eq!(stage.look().await, raised("silent:kinde"));
    stage.event().await;
    stage.sql("update inbox_events set status = 'applied'").await;
    assert_eq!(stage.look().await, cleared("silent:kinde"));
}

#[tokio::test]
async fn a_message_that_does_not_get_through_is_sent_again_under_the_same_id() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity'").await;
    stage.look().await;
    *stage.on_call.away.lock().unwrap() = true;
    assert_eq!(stage.send().await, 0);
    assert_eq!(stage.send().await, 0, "it waits before it tries again");
    assert_eq!(stage.on_call.heard().len(), 1);
    // A new process, and the other side is back.
    *stage.on_call.away.lock().unwrap() = false;
    let restarted = alerts(&stage.app, &stage.on_call.listen().await);
    stage.sql("update alert_messages set due_at = now()").await;
    assert_eq!(restarted.send(&CancellationToken::new()).await.unwrap(), 1);
    assert_eq!(restarted.send(&CancellationToken::new()).await.unwrap(), 0);
    let ids: Vec<_> = stage.on_call.heard().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["alert_1_raised", "alert_1_raised"]);
}

#[tokio::test]
async fn a_process_that_dies_between_sending_and_marking_sends_again() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity'").await;
    stage.look().await;
    assert_eq!(stage.send().await, 1);
    // As if the mark had not been written; the claim's minute is over.
    stage.sql("update alert_messages set sent_at = null, due_at = now() - interval '1 second'").await;
    assert_eq!(stage.send().await, 1);
}

#[tokio::test]
async fn a_message_nobody_takes_is_given_up_after_days_and_not_before() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity'").await;
    stage.look().await;
    *stage.on_call.away.lock().unwrap() = true;
    let mut waited = time::Duration::ZERO;
    for attempt in 1..=10 {
        stage.sql("update alert_messages set due_at = now()").await;
        stage.send().await;
        let sql = "select attempts, due_at = 'infinity', case when due_at = 'infinity' then 0 else extract(epoch from due_at - now())::float8 end, last_error \
                   from alert_messages";
        let (attempts, never, wait, error): (i32, bool, f64, String) =
            sqlx::query_as(sql).fetch_one(&stage.app.pool).await.unwrap();
        assert_eq!((attempts, never, error.contains("502")), (attempt, attempt == 10, true));
        waited += time::Duration::seconds_f64(wait);
    }
    assert!(waited > time::Duration::days(2), "{waited}");
}

#[tokio::test]
async fn the_signature_is_over_id_time_and_body() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity'").await;
    stage.look().await;
    stage.send().await;
    let (headers, body) = stage.on_call.came.lock().unwrap()[0].clone();
    let header = |name| headers[name].to_str().unwrap().to_owned();
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&body);
    let right = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(header("webhook-signature"), format!("v1,{right}"));
}

#[tokio::test]
async fn two_processes_raise_one_alert() {
    let stage = Stage::new().await;
    stage.event().await;
    stage.sql("update inbox_events set status = 'dead', due_at = 'infinity'").await;
    let other = alerts(&stage.app, "http://127.0.0.1:9/hook");
    for _ in 0..10 {
        let (a, b) = tokio::join!(stage.alerts.look(), other.look());
        a.unwrap();
        b.unwrap();
    }
    let count: i64 = sqlx::query_scalar("select count(*) from alerts").fetch_one(&stage.app.pool).await.unwrap();
    assert_eq!(count, 1);
    let sql = "select count(*) from alert_messages";
    assert_eq!(sqlx::query_scalar::<_, i64>(sql).fetch_one(&stage.app.pool).await.unwrap(), 1);
}

#[tokio::test]
async fn what_an_alert_looks_for_is_found_by_its_index() {
    let stage = Stage::new().await;
    let fill = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at, body) \
                select 'kinde', 'e' || n, 't', '\\x00', now(), 'applied', now(), '\\x01' from generate_series(1, 30000) n";
    stage.sql(fill).await;
    stage.sql("analyze inbox_events").await;
    for (index, query) in [
        ("inbox_events_dead", "select id from inbox_events where status = 'dead' order by id desc limit 20"),
        (
            "inbox_events_parked",
            "select id from inbox_events where status = 'parked' and received_at < now() - interval '1 day' \
             order by received_at limit 20",
        ),
        (
            "inbox_events_due",
            "select id from inbox_events where status in ('received', 'processing', 'failed', 'parked') \
             and due_at < now() - interval '5 minutes' order by due_at, id limit 20",
        ),
    ] {
        let sql = sqlx::AssertSqlSafe(format!("explain {query}"));
        let plan: Vec<String> = sqlx::query_scalar(sql).fetch_all(&stage.app.pool).await.unwrap();
        assert!(plan.join("\n").contains(index), "{plan:?}");
    }
}

#[tokio::test]
async fn the_real_worker_looks_by_itself() {
    let ground = Ground::new().await;
    let dead = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at) \
                values ('kinde', 'event_1', 'customer.plan_changed', '\\x00', now(), 'dead', now())";
    sqlx::query(dead).execute(&ground.pool).await.unwrap();
    let mut worker = ground.start("worker", &[]).await;
    eventually("it is raised", async || {
        let raised = "select count(*) from alerts where condition = 'dead' and cleared_at is null";
        sqlx::query_scalar::<_, i64>(raised).fetch_one(&ground.pool).await.unwrap() == 1
    })
    .await;
    worker.told(rustix::process::Signal::TERM).await;
    assert!(worker.log().contains("will not be tried again by itself"), "{}", worker.log());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_channel_that_fell_silent_and_the_message_is_due_again() {
    let app = App::start().await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mail = bottle::mail::Mail::new(&format!("smtp://{}", silent.local_addr().unwrap()), "bottle@bottle.test").unwrap();
    let email = Some(bottle::alerts::email::Email { mail, to: "oncall@bottle.test".to_owned() });
    let dead = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at)
                values ('kinde', 'e', 'x', '', now(), 'dead', now())";
    sqlx::query(dead).execute(&app.pool).await.unwrap();
    let stop = CancellationToken::new();
    let channels = Channels { webhook: None, email };
    let alerts = Alerts { pool: app.pool.clone(), providers: vec![Source::Kinde], nightly: false, channels };
    let running = tokio::spawn(bottle::alerts::run(alerts, stop.clone()));
    let _taken = silent.accept().await.unwrap();
    let began = std::time::Instant::now();
    stop.cancel();
    running.await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    let waits: (bool, i32) = sqlx::query_as("select due_at <= now() and sent_at is null, attempts from alert_messages")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(waits, (true, 0), "whoever runs next sends it at once");
}
