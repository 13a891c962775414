//! A collector of OpenTelemetry for the tests: takes OTLP over HTTP in protobuf, and can be made to be in trouble.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Takes,
    Answers(u16),
    Silent,
}

#[derive(Clone)]
pub struct Collector {
    pub addr: SocketAddr,
    inside: Arc<Mutex<Inside>>,
}

struct Inside {
    mood: Mood,
    headers: HeaderMap,
    spans: Vec<Span>,
    resources: Vec<BTreeMap<String, String>>,
    /// Every byte that came.
    raw: Vec<u8>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let inside =
            Inside { mood: Mood::Takes, headers: HeaderMap::new(), spans: Vec::new(), resources: Vec::new(), raw: Vec::new() };
        let this = Self { addr: listener.local_addr().unwrap(), inside: Arc::new(Mutex::new(inside)) };
        // Some have a key in their path.
        let app = Router::new().route("/v1/traces", post(take)).route("/{key}/v1/traces", post(take)).with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        this
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn now(&self, mood: Mood) {
        self.inside.lock().unwrap().mood = mood;
    }

    pub fn headers(&self) -> HeaderMap {
        self.inside.lock().unwrap().headers.clone()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.inside.lock().unwrap().spans.clone()
    }

    pub fn resources(&self) -> Vec<BTreeMap<String, String>> {
        self.inside.lock().unwrap().resources.clone()
    }

    pub fn raw(&self) -> Vec<u8> {
        self.inside.lock().unwrap().raw.clone()
    }

    /// Until so many spans of that name have come.
    pub async fn has(&self, name: &str, count: usize) -> Vec<Span> {
        let begun = std::time::Instant::now();
        loop {
            let found: Vec<Span> = self.spans().into_iter().filter(|span| span.name == name).collect();
            if found.len() >= count {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{} of {count} spans `{name}`: {:?}", found.len(), self.spans());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    let body = match headers.get("content-encoding") {
        Some(packed) => {
            assert_eq!(packed, "gzip");
            let mut unpacked = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut unpacked).unwrap();
            unpacked
        }
        None => body.to_vec(),
    };
    let mood = {
        let mut inside = collector.inside.lock().unwrap();
        inside.headers = headers;
        inside.mood
    };
    match mood {
        Mood::Takes => {}
        Mood::Answers(status) => return StatusCode::from_u16(status).unwrap().into_response(),
        Mood::Silent => tokio::time::sleep(Duration::from_secs(60)).await,
    }
    let request = ExportTraceServiceRequest::decode(&*body).expect("OTLP");
    let mut inside = collector.inside.lock().unwrap();
    inside.raw.extend_from_slice(&body);
    for of_resource in request.resource_spans {
        inside.resources.push(said(&of_resource.resource.unwrap().attributes));
        inside.spans.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    StatusCode::OK.into_response()
}

/// Attributes as texts.
pub fn said(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}
