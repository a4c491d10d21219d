//! Takes connections of a listener. HTTP/1.1 only: it is what the services and their clients speak, and it has the
//! fewest ways to be abused. Slow and idle connections are bounded, and a stop does not wait for them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A header that is not here by then is not waited for; an idle connection is closed then too. Clients that keep
/// connections should let go of them sooner.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);
/// The buffer for the header of a request: longer ones are answered 431.
const LONGEST_HEADER: usize = 32 * 1024;
/// A client that reads nothing of its answer for so long loses the connection.
const WRITE_DEADLINE: Duration = Duration::from_secs(15);
/// Connections at once; more wait in the listener's queue.
const CONNECTIONS: usize = 2_048;
/// After a stop, for connections that have a request running.
const GRACE: Duration = Duration::from_secs(2);
/// Without file descriptors nothing can be accepted; it will pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then takes no more, and waits two seconds at most for answers that are on their way. What a
/// handler does goes on beyond that: see [`Front::drained`](super::Front::drained).
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &seats) => accepted,
        };
        let Some((stream, seat)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            converse(stream, router, stop).await;
            drop(seat);
        });
    }
    drop(listener);
    connections.close();
    drop(tokio::time::timeout(GRACE, connections.wait()).await);
}

async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, seat)),
        Err(error) => {
            tracing::warn!("a connection could not be accepted: {error}");
            None
        }
    }
}

async fn converse(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Answers are written whole; waiting for more to send only delays them.
    drop(stream.set_nodelay(true));
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_DEADLINE));
    let stream = Box::pin(stream);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_DEADLINE)
            .max_buf_size(LONGEST_HEADER)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    // What ends a connection is the client's business: it left, or spoke something else.
    tokio::select! {
        ended = connection.as_mut() => drop(ended),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            drop(tokio::time::timeout(GRACE, connection).await);
        }
    }
}
