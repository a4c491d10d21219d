//! A TCP proxy on loopback that a test puts between a service and a server: it delays, cuts, or swallows.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::servers::ports;

/// What the proxy does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Passing,
    /// Connections stay, and new ones are taken, but nothing passes, not even an end.
    Swallowing,
    /// Connections are closed and new ones refused.
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    mode: Mode,
    to_target: Duration,
    to_client: Duration,
}

/// How much may be under way in one direction, in chunks: more than a slow line holds, little enough to push back.
const UNDER_WAY: usize = 256;
const CHUNK: usize = 16 * 1024;

#[derive(Default)]
struct Counters {
    open: AtomicUsize,
    accepted: AtomicUsize,
    disturbed: AtomicUsize,
}

/// A proxy in front of one server. Dropping it closes everything.
pub struct Proxy {
    address: SocketAddr,
    condition: watch::Sender<Condition>,
    counters: Arc<Counters>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy that passes everything on at once.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::pick(1)?[0]));
        let listener = TcpListener::bind(address).await?;
        let healthy = Condition { mode: Mode::Passing, to_target: Duration::ZERO, to_client: Duration::ZERO };
        let (condition, watched) = watch::channel(healthy);
        let counters = Arc::new(Counters::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, address, target, watched, counters.clone()));
        Ok(Proxy { address, condition, counters, _tasks: tasks })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays what is sent, each way. What is under way already keeps its time.
    pub fn delay(&self, to_target: Duration, to_client: Duration) {
        self.condition.send_modify(|condition| {
            condition.to_target = to_target;
            condition.to_client = to_client;
        });
    }

    /// Closes all connections and refuses new ones.
    pub fn cut(&self) {
        self.condition.send_modify(|condition| condition.mode = Mode::Cut);
    }

    /// Keeps connections, and takes new ones, but passes nothing on: a partition, seen from inside.
    pub fn swallow(&self) {
        self.condition.send_modify(|condition| condition.mode = Mode::Swallowing);
    }

    /// Passes everything on again, at once, with what was held back.
    pub fn heal(&self) {
        self.condition.send_replace(Condition {
            mode: Mode::Passing,
            to_target: Duration::ZERO,
            to_client: Duration::ZERO,
        });
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.counters.open.load(Ordering::SeqCst)
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> usize {
        self.counters.accepted.load(Ordering::SeqCst)
    }

    /// Pieces and new connections that were ever delayed or held back.
    pub fn disturbed(&self) -> usize {
        self.counters.disturbed.load(Ordering::SeqCst)
    }
}

/// Accepts until the proxy is dropped; while cut, there is no listener, so that connecting is refused.
async fn listen(
    first: TcpListener,
    address: SocketAddr,
    target: SocketAddr,
    mut condition: watch::Receiver<Condition>,
    counters: Arc<Counters>,
) {
    let mut listener = first;
    let for_connections = condition.clone();
    loop {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                changed = condition.wait_for(|condition| condition.mode == Mode::Cut) => match changed {
                    Ok(_) => break,
                    Err(_) => return,
                },
                accepted = listener.accept() => if let Ok((client, _)) = accepted {
                    counters.accepted.fetch_add(1, Ordering::SeqCst);
                    connections.spawn(serve(client, target, for_connections.clone(), Open::count(counters.clone())));
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(listener);
        connections.shutdown().await;
        if condition.wait_for(|condition| condition.mode != Mode::Cut).await.is_err() {
            return;
        }
        listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            // Another program took the port: clients are refused for good, and the test that waits for them says so.
            Err(_) => return,
        };
    }
}

/// One connection in the count.
struct Open(Arc<Counters>);

impl Open {
    fn count(counters: Arc<Counters>) -> Self {
        counters.open.fetch_add(1, Ordering::SeqCst);
        Open(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(client: TcpStream, target: SocketAddr, mut condition: watch::Receiver<Condition>, open: Open) {
    if condition.borrow().mode != Mode::Passing {
        open.0.disturbed.fetch_add(1, Ordering::SeqCst);
    }
    if passing(&mut condition).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let up = pump(client_read, server_write, condition.clone(), |condition| condition.to_target, &open.0);
    let down = pump(server_read, client_write, condition, |condition| condition.to_client, &open.0);
    let _ = tokio::try_join!(up, down);
}

/// Carries one direction. Reading and writing run side by side, so a delay costs time and not throughput.
async fn pump(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    condition: watch::Receiver<Condition>,
    delay: fn(&Condition) -> Duration,
    counters: &Counters,
) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    let (read, written) =
        tokio::join!(take(from, sender, condition.clone(), delay), give(to, receiver, condition, counters));
    read.and(written)
}

async fn take(
    mut from: impl AsyncRead + Unpin,
    chunks: mpsc::Sender<(Instant, Bytes)>,
    condition: watch::Receiver<Condition>,
    delay: fn(&Condition) -> Duration,
) -> io::Result<()> {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let length = from.read_buf(&mut chunk).await?;
        let due = Instant::now() + delay(&condition.borrow());
        // An end travels as an empty chunk: it is delayed and swallowed like any other.
        if chunks.send((due, chunk.freeze())).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn give(
    mut to: impl AsyncWrite + Unpin,
    mut chunks: mpsc::Receiver<(Instant, Bytes)>,
    mut condition: watch::Receiver<Condition>,
    counters: &Counters,
) -> io::Result<()> {
    while let Some((due, chunk)) = chunks.recv().await {
        if due > Instant::now() || condition.borrow().mode != Mode::Passing {
            counters.disturbed.fetch_add(1, Ordering::SeqCst);
        }
        sleep_until(due).await;
        passing(&mut condition).await?;
        if chunk.is_empty() {
            break;
        }
        to.write_all(&chunk).await?;
    }
    to.shutdown().await
}

async fn passing(condition: &mut watch::Receiver<Condition>) -> io::Result<()> {
    match condition.wait_for(|condition| condition.mode == Mode::Passing).await {
        Ok(_) => Ok(()),
        Err(_) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}
