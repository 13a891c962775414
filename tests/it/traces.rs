//! Traces of the real program: what a delivery, a worker and a provider call have to do with each other is seen at a collector,
//! and a collector in whatever state is no concern of an event's.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::Signal;
use sha2::{Digest, Sha256};

use crate::local_stripe::{self, KEY, PRO, SECRET, Stripe};
use crate::support::collector::{Collector, Mood, said};
use crate::support::deliveries::{Sender, Upgrade, count, settled};
use crate::support::exposition::{Exposition, scraped};
use crate::support::load::Ground;
use crate::support::till::{event, now_secs, signature};

const METRICS: (&str, &str) = ("BOTTLE_METRICS_ADDR", "127.0.0.1:0");

/// As the documentation has it, for whoever has an event's id and looks for its trace.
fn trace_of(source: &str, key: &str) -> (Vec<u8>, Vec<u8>) {
    let digest = Sha256::digest(format!("bottle event\n{source}\n{key}"));
    (digest[..16].to_vec(), digest[16..24].to_vec())
}

fn attribute(span: &Span, name: &str) -> String {
    said(&span.attributes).remove(name).unwrap_or_default()
}

fn links_to(span: &Span, (trace, id): &(Vec<u8>, Vec<u8>)) -> impl Iterator<Item = std::collections::BTreeMap<String, String>> {
    span.links.iter().filter(move |link| link.trace_id == *trace && link.span_id == *id).map(|link| said(&link.attributes))
}

#[tokio::test]
async fn the_spans_of_a_worker_link_to_the_delivery_that_another_process_took_and_so_does_a_replay() {
    let (ground, sender, collector) = (Ground::new().await, Sender::new(), Collector::start().await);
    let url = collector.url();
    let traced = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"),
        ("OTEL_SERVICE_NAME", "till"),
        // Such as the SDK reads by itself.
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging"),
    ];
    let web = ground.start("web", &traced).await;
    let upgrade = Upgrade::new();
    assert_eq!(sender.post(web.addr(), &upgrade.up).await, Some(200));
    assert_eq!(sender.post(web.addr(), &upgrade.up).await, Some(200));
    let of_event = trace_of("kinde", &upgrade.up.key);
    let deliveries = collector.has("deliver", 2).await;
    assert!(deliveries.iter().all(|span| span.trace_id == of_event.0 && span.kind == SpanKind::Server as i32));
    let [stored, copy] = [&deliveries[0], &deliveries[1]];
    assert_eq!((attribute(stored, "bottle.outcome"), &stored.span_id), ("stored".to_owned(), &of_event.1));
    assert_eq!(attribute(copy, "bottle.outcome"), "copy");
    assert_ne!(copy.span_id, of_event.1, "a copy is a span of its own");
    assert_eq!(attribute(stored, "bottle.event"), upgrade.up.key);

    let mut worker = ground.start("worker", &traced).await;
    settled(&ground.pool).await;
    let id = count(&ground.pool, "select max(id) from inbox_events where source = 'kinde'").await.to_string();
    let claims = collector.has("claim", 1).await;
    let claim = claims.iter().find(|claim| links_to(claim, &of_event).count() == 1).expect("a claim that links to the delivery");
    let link = links_to(claim, &of_event).next().unwrap();
    assert_eq!((link["bottle.event"].as_str(), link["bottle.event_id"].as_str()), (upgrade.up.key.as_str(), id.as_str()));
    assert_eq!((claim.kind, claim.parent_span_id.len()), (SpanKind::Consumer as i32, 0));
    assert_ne!(claim.trace_id, of_event.0, "a claim is of many events, so it is a trace of its own");
    for (name, status) in [("resolve", None), ("apply", Some(("applied", "plan_set")))] {
        let spans = collector.has(name, 1).await;
        let span =
            spans.iter().find(|span| links_to(span, &of_event).count() == 1).unwrap_or_else(|| panic!("{name}: {spans:?}"));
        assert_eq!((&span.trace_id, &span.parent_span_id), (&claim.trace_id, &claim.span_id), "{name} is within its claim");
        assert!(span.start_time_unix_nano >= claim.start_time_unix_nano && span.end_time_unix_nano <= claim.end_time_unix_nano);
        let link = links_to(span, &of_event).next().unwrap();
        let is = link.get("bottle.status").map(|status| (status.as_str(), link["bottle.reason"].as_str()));
        assert_eq!(is, status, "{name}");
    }
    assert_eq!(
        (&collector.headers()["x-tenant"], &collector.headers()["content-encoding"]),
        (&"a b".parse().unwrap(), &"gzip".parse().unwrap())
    );
    assert!(collector.resources().iter().all(|of| of["deployment.environment.name"] == "staging"));
    let roles: Vec<String> =
        collector.resources().iter().map(|of| format!("{} {}", of["service.name"], of["bottle.role"])).collect();
    assert!(roles.contains(&"till web".to_owned()) && roles.contains(&"till worker".to_owned()), "{roles:?}");

    // Next year, in another process: the event alone says where it came from.
    worker.told(Signal::TERM).await;
    let seen = collector.spans().len();
    let again = "update inbox_events set status = 'received', due_at = now(), replayed_by = 'a person' where source = 'kinde'";
    sqlx::query(again).execute(&ground.pool).await.unwrap();
    let _worker = ground.start("worker", &traced).await;
    let begun = Instant::now();
    while !collector.spans()[seen..].iter().any(|span| span.name == "apply" && links_to(span, &of_event).count() == 1) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the replay is not seen: {:?}", &collector.spans()[seen..]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_call_to_a_provider_is_a_span_within_the_claim_and_a_forged_delivery_is_none() {
    let (ground, collector) = (Ground::new().await, Collector::start().await);
    let stripe = Stripe::begin(local_stripe::settings()).await;
    let (url, api) = (collector.url(), stripe.url());
    let settings = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("STRIPE_SECRET_KEY", KEY),
        ("STRIPE_WEBHOOK_SECRET", SECRET),
        ("STRIPE_PRICE_PRO", PRO),
        ("STRIPE_API_BASE", api.as_str()),
    ];
    let bottle = ground.start("serve", &settings).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |secret: &str, key: &str| {
        let body = event(key, "invoice.paid", "in_1NoSuchInvoice").to_string();
        let header = signature(secret, now_secs(), body.as_bytes());
        let to = format!("http://{}/webhooks/stripe", bottle.addr());
        http.post(to).header("stripe-signature", header).body(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(post("whsec_forged", "evt_forged").await, 400);
    assert_eq!(post(SECRET, "evt_genuine").await, 200);
    settled(&ground.pool).await;
    let of_event = trace_of("stripe", "evt_genuine");
    let calls = collector.has("call", 1).await;
    let call = calls.iter().find(|call| attribute(call, "bottle.call") == "stripe_api").expect("a call to Stripe");
    assert_eq!((call.kind, attribute(call, "bottle.result")), (SpanKind::Client as i32, "refused".to_owned()), "there is none");
    let resolves = collector.has("resolve", 1).await;
    let resolve = resolves.iter().find(|span| links_to(span, &of_event).count() == 1).unwrap();
    assert_eq!((&call.trace_id, &call.parent_span_id), (&resolve.trace_id, &resolve.span_id));
    collector.has("apply", 1).await;
    let deliveries = collector.has("deliver", 1).await;
    assert_eq!(deliveries.len(), 1, "whoever posts forgeries fills no queue");
    assert_eq!(attribute(&deliveries[0], "bottle.event"), "evt_genuine");
}

#[tokio::test]
async fn what_is_under_way_at_a_stop_is_still_sent() {
    let (ground, sender, collector) = (Ground::new().await, Sender::new(), Collector::start().await);
    let url = collector.url();
    let mut bottle = ground.start("serve", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]).await;
    let people: Vec<Upgrade> = (0..5).map(|_| Upgrade::new()).collect();
    for event in people.iter().flat_map(Upgrade::events) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    // Sooner than spans are gathered.
    assert_eq!(bottle.told(Signal::TERM).await.0.code(), Some(0));
    let deliveries = collector.has("deliver", 15).await;
    assert_eq!(deliveries.len(), 15);
}

#[tokio::test]
async fn a_collector_that_is_gone_silent_or_in_trouble_slows_nothing_and_is_told_of_once() {
    let (ground, sender, collector) = (Ground::new().await, Sender::new(), Collector::start().await);
    let url = collector.url();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (endpoint, mood) in [(format!("http://{gone}"), Mood::Takes), (url.clone(), Mood::Silent), (url, Mood::Answers(400))] {
        collector.now(mood);
        let mut bottle = ground.start("serve", &[METRICS, ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
        let mut slowest = Duration::ZERO;
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let upgrade = Upgrade::new();
            for event in upgrade.nine() {
                let begun = Instant::now();
                assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
                slowest = slowest.max(begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        settled(&ground.pool).await;
        assert!(slowest < Duration::from_secs(2), "{mood:?}: {slowest:?}");
        if mood == Mood::Answers(400) {
            let begun = Instant::now();
            while scraped(&bottle).await.sum("bottle_trace_spans_total", &[("outcome", "lost")]) < 1.0 {
                assert!(begun.elapsed() < Duration::from_secs(10), "what is refused is counted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        let (status, took) = bottle.told(Signal::TERM).await;
        assert!(status.code() == Some(0) && took < Duration::from_secs(8), "{mood:?}: {status} after {took:?}");
        let lines = bottle.log().lines().filter(|line| line.contains("the collector does not take spans")).count();
        // A silent one is noticed by the time limit of a call, which may not have come.
        assert!(lines == 1 || (mood == Mood::Silent && lines == 0), "{mood:?}: {lines}");
        assert_eq!(count(&ground.pool, "select count(*) from inbox_events where attempts > 0").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full_drops_what_comes_and_counts_it() {
    let (ground, sender, collector) = (Ground::new().await, Sender::new(), Collector::start().await);
    collector.now(Mood::Silent);
    let url = collector.url();
    let bottle = ground.start("web", &[METRICS, ("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]).await;
    let upgrade = Upgrade::new();
    // More than what is queued and under way together.
    let wanted = bottle::telemetry::spans::QUEUE_MAX + 512 + 500;
    let addr = bottle.addr();
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (sender, event) = (sender.clone(), upgrade.up.clone());
        senders.spawn(async move {
            for _ in 0..wanted / 16 + 1 {
                assert_eq!(sender.post(addr, &event).await, Some(200));
            }
        });
    }
    senders.join_all().await;
    let metrics = scraped(&bottle).await;
    let told = |metrics: &Exposition, outcome| metrics.sum("bottle_trace_spans_total", &[("outcome", outcome)]);
    let dropped = told(&metrics, "dropped");
    assert!(dropped > 0.0, "{:?}", metrics.samples);
    assert_eq!(told(&metrics, "sent"), 0.0);

    // There is room again, and each span is accounted for.
    collector.now(Mood::Takes);
    let mut posts = 16 * (wanted / 16 + 1);
    collector.has("deliver", bottle::telemetry::spans::QUEUE_MAX).await;
    for _ in 0..20 {
        assert_eq!(sender.post(addr, &upgrade.up).await, Some(200));
    }
    posts += 20;
    let begun = Instant::now();
    loop {
        let metrics = scraped(&bottle).await;
        assert_eq!((told(&metrics, "dropped"), told(&metrics, "lost")), (dropped, 0.0));
        if told(&metrics, "sent") + dropped == posts as f64 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{posts} posts, {dropped} dropped: {:?}", metrics.samples);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_collector_outside_is_reached_by_https_alone_and_wrong_settings_stop_the_start() {
    let ground = Ground::new().await;
    for (settings, complaint) in [
        (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://8.8.8.8:4318")][..], "plain http is for this machine and its private network"),
        (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://169.254.169.254")], "plain http is for this machine"),
        (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://169.254.169.254")], "reserved network"),
        (
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            "OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not spoken here",
        ),
    ] {
        let said = ground.home.run(&["worker"], settings).await;
        let complaints = said.complaints();
        assert_eq!((said.code, complaints.len()), (Some(1), 1), "{said:?}");
        assert!(complaints[0].contains("OTEL_EXPORTER_OTLP") && complaints[0].contains(complaint), "{said:?}");
    }
}
