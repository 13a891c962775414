//! What Prometheus is told by the real program: after real traffic its counts are those of what was sent, and nobody who posts to
//! us can make it tell more.

use std::time::Duration;

use serde_json::json;

use crate::support::binary::Bottle;
use crate::support::collector::Collector;
use crate::support::deliveries::{Sender, Upgrade, count, settled};
use crate::support::exposition::{Exposition, address, scraped, text_at};
use crate::support::load::Ground;
use crate::support::tokens::{STRANGER, TENANT};

const METRICS: (&str, &str) = ("BOTTLE_METRICS_ADDR", "127.0.0.1:0");

async fn post(bottle: &Bottle, path: &str, body: Vec<u8>) -> u16 {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    http.post(format!("http://{}{path}", bottle.addr())).body(body).send().await.unwrap().status().as_u16()
}

/// What the database said may be a few seconds old.
async fn until(bottle: &Bottle, what: &str, is: impl Fn(&Exposition) -> bool) -> Exposition {
    let begun = std::time::Instant::now();
    loop {
        let metrics = scraped(bottle).await;
        if is(&metrics) {
            return metrics;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}: {:?}", metrics.samples);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_metrics_count_what_was_sent_and_hostile_input_makes_no_new_series() {
    let (ground, sender) = (Ground::new().await, Sender::new());
    let bottle = ground.start("serve", &[METRICS]).await;
    let before = scraped(&bottle).await;
    assert_eq!(before.sum("bottle_deliveries_total", &[]), 0.0);
    assert_eq!(before.sum("bottle_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);

    // Three events by nine deliveries, and one of them again with other words, genuinely signed.
    let upgrade = Upgrade::new();
    for event in upgrade.nine() {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    let mut other = upgrade.up.claims.clone();
    other["data"]["plan"]["key"] = json!("customer_starter_plan");
    assert_eq!(post(&bottle, "/webhooks/kinde", TENANT.sign_event(other.to_string()).into()).await, 200);
    // Types and plans that somebody made up, to be told apart by nobody.
    for n in 0..30 {
        let claims = json!({
            "type": format!("customer.hacked_{n}"), "event_id": format!("event_{}", uuid::Uuid::new_v4().simple()),
            "source": "user", "event_timestamp": "2026-10-01T00:00:00Z", "timestamp": "2026-10-01T00:00:00Z",
            "data": { "user_id": format!("kp_{n}"), "customer_id": format!("customer_{n}"), "plan": { "key": format!("plan_{n}") } },
        });
        assert_eq!(post(&bottle, "/webhooks/kinde", TENANT.sign_event(claims.to_string()).into()).await, 200);
    }
    // A type that would end a label and begin a series is none at all.
    let mut broken = upgrade.up.claims.clone();
    broken["type"] = json!("customer.\"} 1\nbottle_hacked{x=\"");
    assert_eq!(post(&bottle, "/webhooks/kinde", TENANT.sign_event(broken.to_string()).into()).await, 401);
    for _ in 0..4 {
        let forged = STRANGER.sign_event(upgrade.up.claims.to_string());
        assert_eq!(post(&bottle, "/webhooks/kinde", forged.into()).await, 401);
    }
    assert_eq!(post(&bottle, "/webhooks/kinde", vec![b'x'; 300 * 1024]).await, 413);
    assert_eq!(post(&bottle, "/webhooks/stripe", b"{}".to_vec()).await, 501);
    for path in ["/webhooks/paypal", "/webhooks/%22%7D%201", "/webhooks/kinde%0A"] {
        assert_eq!(post(&bottle, path, b"{}".to_vec()).await, 404);
    }
    settled(&ground.pool).await;

    let after = until(&bottle, "the queue is empty", |m| {
        m.sum("bottle_event_verdicts_total", &[]) >= 33.0 && m.sum("bottle_queue_events", &[]) == 0.0
    })
    .await;
    let sent = |source, outcome| after.sum("bottle_deliveries_total", &[("source", source), ("outcome", outcome)]);
    let counts = ["stored", "copy", "conflict", "not_genuine", "too_large", "unreadable", "unavailable", "unconfigured"];
    assert_eq!(counts.map(|outcome| sent("kinde", outcome)), [33.0, 6.0, 1.0, 5.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!((sent("stripe", "unconfigured"), sent("other", "unconfigured")), (1.0, 3.0));
    assert_eq!(after.sum("bottle_deliveries_total", &[]), 50.0);
    assert_eq!(after.sum("bottle_acknowledgement_seconds_count", &[("source", "kinde")]), 40.0, "those that were answered 200");
    assert!(after.sum("bottle_acknowledgement_seconds_sum", &[]) > 0.0);

    let stored = count(&ground.pool, "select count(*) from inbox_events where source = 'kinde'").await;
    assert_eq!(stored, 33);
    let runs = after.sum("bottle_event_attempts_total", &[("outcome", "applied")])
        + after.sum("bottle_event_attempts_total", &[("outcome", "ignored")]);
    assert_eq!(runs, 33.0);
    let verdict = |reason| after.sum("bottle_event_verdicts_total", &[("source", "kinde"), ("reason", reason)]);
    assert_eq!((verdict("no_billing_change"), after.sum("bottle_event_verdicts_total", &[])), (30.0, 33.0));
    assert_eq!(after.sum("bottle_event_lag_seconds_count", &[("source", "kinde")]), 33.0);
    assert!(after.sum("bottle_handler_seconds_count", &[]) >= 1.0);
    assert!(after.sum("bottle_jwks_fetches_total", &[("result", "ok")]) >= 1.0);
    assert_eq!(
        after.sum("bottle_provider_calls_total", &[("call", "kinde_keys"), ("result", "ok")]),
        after.sum("bottle_jwks_fetches_total", &[("result", "ok")])
    );
    assert_eq!(after.sum("bottle_leases_expired_total", &[]), 0.0);
    assert!(after.sum("bottle_pool_wait_seconds_count", &[("pool", "intake")]) >= 1.0);
    assert!(after.sum("bottle_pool_wait_seconds_count", &[("pool", "worker")]) >= 1.0);
    assert_eq!(after.sum("bottle_pool_connections_max", &[("pool", "intake")]), 4.0);
    assert!(after.sum("bottle_log_lines_total", &[("level", "error")]) >= 1.0, "the conflict");
    assert!(after.sum("process_resident_memory_bytes", &[]) > 1e6 && after.sum("process_open_fds", &[]) > 3.0);

    assert_eq!(after.series(), before.series(), "not one series more");
    let text = text_at(&address(&bottle).await).await;
    for outside in ["hacked", "paypal", "customer_", "kp_", "event_0", "plan_1", &upgrade.user, &upgrade.up.key] {
        assert!(!text.contains(outside), "{outside}");
    }
}

#[tokio::test]
async fn what_only_the_database_knows_is_told_by_a_worker_and_by_a_web_process_alike() {
    let ground = Ground::new().await;
    let insert = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at, claims, body)
                  select 'kinde', s || n, 'customer.plan_changed', '', now() - interval '1 hour', s,
                         now() - interval '10 minutes', 1, 'x'
                  from unnest(array['dead', 'dead', 'dead']) with ordinality d (s, n)";
    sqlx::query(insert).execute(&ground.pool).await.unwrap();
    // Left behind by a worker that died: its lease has ended.
    let left = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at, claims, lease_token)
                values ('bottle', 'left', 'nothing.known', '', now() - interval '10 minutes', 'processing',
                        now() - interval '9 minutes', 1, gen_random_uuid())";
    sqlx::query(left).execute(&ground.pool).await.unwrap();
    let mut web = ground.start("web", &[METRICS]).await;
    let metrics = scraped(&web).await;
    assert_eq!(metrics.sum("bottle_queue_events", &[("status", "dead")]), 3.0);
    assert_eq!(metrics.sum("bottle_queue_events", &[("status", "processing")]), 1.0);
    let due = metrics.sum("bottle_queue_oldest_due_seconds", &[]);
    assert!((539.0..600.0).contains(&due), "{due}");
    assert_eq!(metrics.sum("bottle_leases_expired_total", &[]), 0.0);

    let worker = ground.start("worker", &[METRICS]).await;
    let metrics = until(&worker, "the event that was left is settled, and alerts are raised", |m| {
        m.sum("bottle_leases_expired_total", &[]) > 0.0
            && m.sum("bottle_queue_events", &[("status", "processing")]) == 0.0
            && m.sum("bottle_alerts_open", &[("condition", "dead")]) == 1.0
    })
    .await;
    assert_eq!(metrics.sum("bottle_leases_expired_total", &[]), 1.0);
    assert_eq!(metrics.sum("bottle_event_verdicts_total", &[("source", "bottle")]), 1.0);
    assert_eq!(metrics.sum("bottle_queue_events", &[("status", "dead")]), 3.0);
    assert_eq!(metrics.sum("bottle_queue_oldest_due_seconds", &[]), 0.0);
    assert_eq!(web.told(rustix::process::Signal::TERM).await.0.code(), Some(0));
}

#[tokio::test]
async fn while_the_database_cannot_be_read_the_rest_is_told_all_the_same_and_at_once() {
    let ground = Ground::new().await;
    let bottle = ground.start("web", &[METRICS]).await;
    let mut tx = ground.pool.begin().await.unwrap();
    sqlx::query("lock table alerts in access exclusive mode").execute(&mut *tx).await.unwrap();
    let begun = std::time::Instant::now();
    let metrics = scraped(&bottle).await;
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(metrics.sum("bottle_scrape_database_read", &[]), 0.0);
    assert!(!metrics.types.contains_key("bottle_queue_events"), "an old number would look like a good one");
    assert_eq!(metrics.sum("bottle_deliveries_total", &[]), 0.0);
    // Others that come now do not ask the database again so soon.
    let url = address(&bottle).await;
    futures_util::future::join_all((0..5).map(|_| text_at(&url))).await;
    let asked = bottle.log().lines().filter(|line| line.contains("could not be read for the metrics")).count();
    assert_eq!(asked, 1, "{}", bottle.log());
    tx.rollback().await.unwrap();
    until(&bottle, "read again", |m| m.sum("bottle_scrape_database_read", &[]) == 1.0).await;
}

#[tokio::test]
async fn nothing_but_metrics_is_there_and_only_where_it_was_asked_for() {
    let ground = Ground::new().await;
    let bottle = ground.start("web", &[METRICS]).await;
    let at = address(&bottle).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, status) in [("", 405), ("/", 404), ("/../health/live", 404)] {
        let url = format!("{at}{path}");
        let answer = if status == 405 { http.post(&url) } else { http.get(&url) }.send().await.unwrap();
        assert_eq!(answer.status(), status, "{url}");
    }
    assert_eq!(http.head(&at).send().await.unwrap().status(), 200);
    assert_eq!(bottle.get("/metrics").await.0, 404, "people's listener has none");
    let silent = ground.start("web", &[]).await;
    assert!(!silent.said().contains("Metrics"), "{}", silent.said());
}

#[tokio::test]
async fn a_taken_port_stops_every_kind_of_process_with_one_clear_line() {
    let ground = Ground::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    for command in ["serve", "web", "worker"] {
        let said = ground.home.run(&[command], &[("BOTTLE_METRICS_ADDR", &addr)]).await;
        let complaints = said.complaints();
        assert_eq!((said.code, complaints.len()), (Some(1), 1), "{said:?}");
        assert!(complaints[0].contains(&format!("BOTTLE_METRICS_ADDR: {addr} cannot be listened on")), "{said:?}");
    }
    let said = ground.home.run(&["web"], &[("BOTTLE_METRICS_ADDR", "somewhere")]).await;
    assert!(said.complaints()[0].contains("BOTTLE_METRICS_ADDR: `somewhere` is no address"), "{said:?}");
}

/// It runs the same code in the same process, on rows of its own.
#[tokio::test]
async fn what_the_engine_room_shows_is_not_counted_among_what_happened() {
    let ground = Ground::new().await;
    let collector = Collector::start().await;
    let otlp = collector.url();
    let bottle = ground.start("serve", &[METRICS, ("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp)]).await;
    assert_eq!(bottle.get("/engine-room").await.0, 200);
    let ran = count(&ground.pool, "select count(*) from information_schema.schemata where schema_name = 'engine_room'").await;
    assert_eq!(ran, 1, "it ran, for otherwise the page would have been 503");
    let metrics = scraped(&bottle).await;
    for name in [
        "bottle_deliveries_total",
        "bottle_event_attempts_total",
        "bottle_event_verdicts_total",
        "bottle_event_lag_seconds_count",
        "bottle_handler_seconds_count",
        "bottle_provider_calls_total",
    ] {
        let keys = if name == "bottle_provider_calls_total" { metrics.sum(name, &[("call", "kinde_keys")]) } else { 0.0 };
        assert_eq!(metrics.sum(name, &[]), keys, "{name}");
    }
    assert_eq!(metrics.sum("bottle_pool_wait_seconds_count", &[("pool", "intake")]), 0.0);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(collector.spans().is_empty(), "{:?}", collector.spans());
}
