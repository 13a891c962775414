//! Sends finished spans to a collector of OpenTelemetry: the SDK gathers them, writes them down (OTLP in protobuf) and tries
//! again; the guarded client carries them.
//!
//! Whatever the collector does, nobody here waits for it: the SDK works on a thread of its own, and what cannot be sent is lost
//! and counted. A collector that is away is told of once, and once more when it is back; the SDK's own lines are not built in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, Protocol, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter};
use reqwest::Method;
use tokio::runtime::Handle;

use crate::config::signals::Traces;
use crate::outbound::{Answer, Client, OutboundError};
use crate::telemetry::labels::SpanEnd;
use crate::telemetry::metrics;
use crate::telemetry::spans::{self, QUEUE_MAX};

/// Spans are gathered for this long, so that one at a time does not make a call each.
const GATHER: Duration = Duration::from_secs(1);
/// After the first attempt; the waits double from a second. So a collector may restart, while what comes waits in the queue.
const RETRIES: usize = 4;
/// No wait goes on beyond this.
const TRIED_FOR: Duration = Duration::from_secs(30);
/// Hardly more than whether it took them.
const ANSWER_MAX: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum NoCollector {
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT")]
    Outbound(#[from] OutboundError),
    /// One that only the SDK reads.
    #[error("one of the settings OTEL_EXPORTER_OTLP_* cannot be used")]
    Settings(#[from] ExporterBuildError),
}

/// What takes spans and sends them. `role` tells the processes of one Bottle apart. Has to be called on the runtime that is to send.
///
/// # Errors
/// Nothing may be sent to this address (see [`Client::near`]), or a setting is wrong.
pub fn queue(traces: Traces, role: &'static str) -> Result<BatchSpanProcessor, NoCollector> {
    let resource = Resource::builder()
        .with_service_name(traces.service.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("bottle.role", role))
        .with_attribute(KeyValue::new("process.pid", i64::from(std::process::id())))
        .build();
    // The client is tied to this, and it is all that the SDK is told: the path may hold a key.
    let origin = traces.url.origin().ascii_serialization();
    let carrier = Carrier { client: Client::near(&origin)?, traces, runtime: Handle::current(), away: AtomicBool::new(false) };
    let retries = RetryPolicy::default().with_max_retries(RETRIES);
    let retries = retries.with_initial_delay(Duration::from_secs(1)).with_max_delay(Duration::from_secs(8));
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(origin).with_timeout(TRIED_FOR).with_retry_policy(retries);
    let mut exporter = exporter.with_http_client(carrier).build()?;
    exporter.set_resource(&resource);
    let config = BatchConfigBuilder::default().with_max_queue_size(QUEUE_MAX).with_scheduled_delay(GATHER).build();
    Ok(BatchSpanProcessor::new(Counted(exporter), config))
}

/// Counts what becomes of the spans.
#[derive(Debug)]
struct Counted(opentelemetry_otlp::SpanExporter);

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        spans::taken(count);
        let sent = self.0.export(batch).await;
        metrics::spans(if sent.is_ok() { SpanEnd::Sent } else { SpanEnd::Lost }, count);
        sent
    }
}

#[derive(Debug)]
struct Carrier {
    client: Client,
    traces: Traces,
    runtime: Handle,
    /// That it is away has been told.
    away: AtomicBool,
}

#[async_trait]
impl HttpClient for Carrier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let post = self.client.request(Method::POST, self.traces.url.as_str())?;
        let post = post.headers(head.headers).headers(self.traces.headers.clone()).body(body).build()?;
        let client = self.client.clone();
        // The SDK's thread has no runtime of its own.
        let answer = self.runtime.spawn(async move { client.send(post, ANSWER_MAX).await }).await?;
        self.tell(&answer);
        let answer = answer?;
        let mut response = Response::new(Bytes::from(answer.body));
        (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
        Ok(response)
    }
}

impl Carrier {
    fn tell(&self, answer: &Result<Answer, OutboundError>) {
        let why = match answer {
            Ok(answer) if answer.status.is_success() => None,
            Ok(answer) => Some(format!("it answered with status {}", answer.status.as_u16())),
            Err(error) => Some(error.to_string()),
        };
        match (self.away.swap(why.is_some(), Ordering::Relaxed), why) {
            (false, Some(why)) => {
                tracing::warn!(%why, "the collector does not take spans; they are lost meanwhile, and nothing else is");
            }
            (true, None) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}
