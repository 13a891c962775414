//! Spans: what took how long, and what belongs together, across the queue and across processes.
//!
//! The trace of an event is derived from its source and the provider's id of it. So nothing has to be carried through the
//! database: a worker of another process, or a replay next year, knows the context of the delivery by the event alone, and a
//! person who has an event's id can work out where to look. The span of the delivery that was stored has a derived id too; what a
//! worker does is a trace of its own, one a claim, and links to it.
//!
//! That is why spans are put together here and not by the SDK's tracer: it gives a span its ids when it begins, and whose delivery
//! it is we know only when it was read and stored. From its end on a span is the SDK's: its queue, of bounded length, gathers and
//! sends. What comes while that is full is dropped, and nobody waits. Without a collector a span is nothing.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::labels::SpanEnd;
use super::metrics;
use crate::domain::event::Source;
use crate::domain::ids::{EventId, EventKey};
use crate::domain::word::words;

/// Finished spans that wait for the collector at most.
pub const QUEUE_MAX: usize = 4096;

words! {
    Name { Deliver = "deliver", Claim = "claim", Resolve = "resolve", Call = "call", Apply = "apply" }
}

impl Name {
    const fn kind(self) -> SpanKind {
        match self {
            Self::Deliver => SpanKind::Server,
            Self::Claim => SpanKind::Consumer,
            Self::Call => SpanKind::Client,
            Self::Resolve | Self::Apply => SpanKind::Internal,
        }
    }
}

static QUEUE: OnceLock<BatchSpanProcessor> = OnceLock::new();
/// As many as the queue has. The SDK drops in silence; whoever finds none here is counted instead.
static PLACES: Semaphore = Semaphore::const_new(QUEUE_MAX);

tokio::task_local! {
    static CURRENT: Place;
}

/// The span that is being worked in, and the clock of its trace.
#[derive(Clone)]
struct Place {
    context: SpanContext,
    clock: TraceClock,
}

/// A trace has one clock: the time of day when it began, and from there on one that nobody sets. So what is within a span lies
/// within it, whatever becomes of the time of day meanwhile.
#[derive(Clone, Copy)]
struct TraceClock {
    day: SystemTime,
    steady: Instant,
}

impl TraceClock {
    fn begin() -> Self {
        Self { day: SystemTime::now(), steady: Instant::now() }
    }

    fn now(self) -> SystemTime {
        self.day + self.steady.elapsed()
    }
}

/// From now on spans are kept, for this queue, which is of [`QUEUE_MAX`]. The first one counts.
pub fn listen(queue: BatchSpanProcessor) {
    let _ = QUEUE.set(queue);
}

/// So many have left the queue.
pub fn taken(count: usize) {
    PLACES.add_permits(count);
}

/// Sends what is left, and blocks meanwhile, but no longer than `within`. Whether that was enough.
pub fn flush(within: Duration) -> bool {
    QUEUE.get().is_none_or(|queue| queue.shutdown_with_timeout(within).is_ok())
}

/// The delivery by which this event was stored.
fn delivery_of(source: Source, key: &EventKey) -> SpanContext {
    let digest =
        Sha256::new().chain_update("bottle event\n").chain_update(source.as_str()).chain_update("\n").chain_update(key.as_str());
    let digest: [u8; 32] = digest.finalize().into();
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&digest[..16]);
    span.copy_from_slice(&digest[16..24]);
    context(TraceId::from_bytes(trace), SpanId::from_bytes(span))
}

fn context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

/// A span that has begun, or nothing if nobody listens. It ends when it is dropped.
#[must_use]
pub struct Span(Option<Box<Open>>);

struct Open {
    data: SpanData,
    clock: TraceClock,
}

impl Span {
    /// The first of a trace of its own.
    pub fn root(name: Name) -> Self {
        Self::begin(name, None)
    }

    /// Inside the span that is being worked in. Nothing, if there is none: what is done for show is no part of what is watched.
    pub fn child(name: Name) -> Self {
        match CURRENT.try_with(Clone::clone) {
            Ok(current) => Self::begin(name, Some(current)),
            Err(_) => Self(None),
        }
    }

    fn begin(name: Name, within: Option<Place>) -> Self {
        if QUEUE.get().is_none() {
            return Self(None);
        }
        let ids = RandomIdGenerator::default();
        let (trace, parent, clock) = match within {
            Some(Place { context, clock }) => (context.trace_id(), context.span_id(), clock),
            None => (ids.new_trace_id(), SpanId::INVALID, TraceClock::begin()),
        };
        let began = clock.now();
        let data = SpanData {
            span_context: context(trace, ids.new_span_id()),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: name.kind(),
            name: name.as_str().into(),
            start_time: began,
            end_time: began,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder(env!("CARGO_PKG_NAME")).build(),
        };
        Self(Some(Box::new(Open { data, clock })))
    }

    /// It turns out to be a delivery of this event: `first` if it is the one by which it was stored.
    pub fn delivers(&mut self, source: Source, key: &EventKey, first: bool) {
        if let Some(open) = &mut self.0 {
            let stored = delivery_of(source, key);
            let own = || context(stored.trace_id(), RandomIdGenerator::default().new_span_id());
            open.data.span_context = if first { stored } else { own() };
        }
        self.text("bottle.event", key.as_str());
    }

    pub fn word(&mut self, name: &'static str, word: &'static str) {
        self.attribute(name, || word.into());
    }

    pub fn text(&mut self, name: &'static str, text: &str) {
        self.attribute(name, || text.to_owned().into());
    }

    pub fn count(&mut self, name: &'static str, count: usize) {
        self.attribute(name, || i64::try_from(count).unwrap_or(i64::MAX).into());
    }

    fn attribute(&mut self, name: &'static str, value: impl FnOnce() -> Value) {
        if let Some(open) = &mut self.0 {
            open.data.attributes.push(KeyValue::new(name, value()));
        }
    }

    /// It is about this event, whose delivery is in another trace.
    pub fn about(&mut self, source: Source, key: &EventKey, id: EventId, more: &[(&'static str, &'static str)]) {
        if let Some(open) = &mut self.0 {
            let mut attributes = vec![
                KeyValue::new("bottle.event", key.0.clone()),
                KeyValue::new("bottle.event_id", id.0),
                KeyValue::new("bottle.source", source.as_str()),
            ];
            attributes.extend(more.iter().map(|(name, word)| KeyValue::new(*name, *word)));
            open.data.links.links.push(Link::new(delivery_of(source, key), attributes, 0));
        }
    }

    pub fn fail(&mut self, why: &'static str) {
        if let Some(open) = &mut self.0 {
            open.data.status = Status::error(why);
        }
    }

    /// There was nothing to tell of.
    pub fn forget(mut self) {
        self.0 = None;
    }

    /// Does the work inside this span.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(open) => CURRENT.scope(Place { context: open.data.span_context.clone(), clock: open.clock }, work).await,
            None => work.await,
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(open), Some(queue)) = (self.0.take(), QUEUE.get()) else { return };
        let Open { mut data, clock } = *open;
        data.end_time = clock.now();
        match PLACES.try_acquire() {
            Ok(place) => {
                place.forget();
                queue.on_end(data);
            }
            Err(_) => metrics::spans(SpanEnd::Dropped, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by other means: it is what a person would do who has an event's id and looks for its trace.
    #[test]
    fn the_trace_of_an_event_is_derived_from_its_source_and_its_id() {
        let of = |source, key: &str| delivery_of(source, &EventKey(key.to_owned()));
        let event = of(Source::Kinde, "event_1");
        assert_eq!(event, of(Source::Kinde, "event_1"));
        assert_ne!(event.trace_id(), of(Source::Stripe, "event_1").trace_id());
        assert_ne!(event.trace_id(), of(Source::Kinde, "event_2").trace_id());
        assert_eq!(event.trace_id().to_string(), "2e5fd7fe7720a11764024cdfd4ad1c23");
    }
}
