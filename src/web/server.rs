//! The HTTP server: axum's router under hyper with limits on headers and time, which `axum::serve` does not set.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::error;

/// A request's head must be complete within this; an idle connection is closed after it too.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEAD_FIELDS_MAX: usize = 100;
/// At a stop, connections that the system has taken on for us are taken over until none came for this long,
const LAST_CALL: Duration = Duration::from_millis(20);
/// but no longer than this in all: others may go on knocking.
const LAST_CALLS: Duration = Duration::from_millis(250);
/// Whoever was taken over last has so long to begin their request: hyper ends a connection that has said nothing yet.
const BEGIN_WITHIN: Duration = Duration::from_millis(500);
/// Requests under way at a stop may take this long.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// Serves until `stop`, then finishes the requests under way.
pub async fn serve(listener: TcpListener, app: Router, stop: CancellationToken) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        // The buffer's limit alone lets a longer head through when it is complete by the time it is looked at.
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_FIELDS_MAX)
        .half_close(false);
    let open = GracefulShutdown::new();
    let take = |socket: TcpStream| {
        let _ = socket.set_nodelay(true);
        let app = app.clone().map_request(|request: hyper::Request<Incoming>| request.map(Body::new));
        let service = TowerToHyperService::new(app.map_future(to_its_end));
        let connection = open.watch(http.serve_connection(TokioIo::new(socket), service));
        tokio::spawn(async move {
            // What ends a connection is its client's affair.
            let _ = connection.await;
        });
    };
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Out of file descriptors, mostly: wait for some to be freed.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        take(socket);
    }
    // A client whose connection was taken may have sent its request. With the listener, those nobody took over would be reset.
    let closing = Instant::now();
    while closing.elapsed() < LAST_CALLS
        && let Ok(Ok((socket, _))) = tokio::time::timeout(LAST_CALL, listener.accept()).await
    {
        take(socket);
    }
    drop(listener);
    let closed = Instant::now();
    while open.count() > 0 && closed.elapsed() < BEGIN_WITHIN {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if tokio::time::timeout(FINISH_WITHIN, open.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time; they are cut off");
    }
}

/// In a task of its own: whoever hangs up would have their request dropped where it is. Dropped while a transaction begins, it
/// leaves its connection inside that transaction, and the next request would write into what nobody ever commits.
async fn to_its_end(answer: impl Future<Output = Result<Response, Infallible>> + Send + 'static) -> Result<Response, Infallible> {
    // A panic was made an answer by the layers below; what is left here is a runtime that is shutting down.
    Ok(tokio::spawn(answer).await.map_or_else(|_| error::failed(), |Ok(answer)| answer))
}
