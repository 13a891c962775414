//! What the program says about itself: lines for people (`logs`), numbers for Prometheus (`metrics`), spans for a collector of
//! OpenTelemetry (`spans`). A room calls one small function of these and knows nothing of how or whether it is told to anybody.
//!
//! None of the three waits for anything, and none can be made to grow by whoever posts to us: a log line is written or lost, a
//! label has a closed set of values (`labels`), a queue that is full drops what comes and counts that.
//!
//! Libraries do the work: the Prometheus project's client counts and writes (`registry` keeps its families closed), and from its end
//! on a span is the OpenTelemetry SDK's.
//!
//! What leaves this process leaves elsewhere: `scrape` answers Prometheus and adds what only the database knows, `collector`
//! lets the SDK send the spans.

pub mod calls;
pub mod labels;
pub mod logs;
pub mod metrics;
mod registry;
pub mod spans;
