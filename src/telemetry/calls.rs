//! A call to an outside party, watched: how long it took and how it ended become a metric and a span.

use std::time::Instant;

use super::labels::{Call, CallEnd};
use super::metrics;
use super::spans::{Name, Span};

/// Makes the call. `ended` says of its result how the call ended as a call; what the answer means is for the caller.
pub async fn watch<T>(call: Call, work: impl Future<Output = T>, ended: impl FnOnce(&T) -> CallEnd) -> T {
    let mut span = Span::child(Name::Call);
    span.word("bottle.call", call.as_str());
    let mut watched = Watched { call, span, began: Instant::now(), end: CallEnd::Unreachable };
    let result = work.await;
    watched.end = ended(&result);
    result
}

/// Counts when it is dropped: whoever waits may give up before there is an answer, and that call was made as well.
struct Watched {
    call: Call,
    span: Span,
    began: Instant,
    end: CallEnd,
}

impl Drop for Watched {
    fn drop(&mut self) {
        metrics::call(self.call, self.end, self.began.elapsed());
        self.span.word("bottle.result", self.end.as_str());
        if self.end != CallEnd::Ok {
            self.span.fail(self.end.as_str());
        }
    }
}
