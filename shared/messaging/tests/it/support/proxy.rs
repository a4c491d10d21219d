//! A way to the broker that can be cut, be slow, and swallow what the broker says as a black hole in the network does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    delay_ms: Arc<AtomicU64>,
    bytes_per_second: Arc<AtomicU64>,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub(super) async fn to(target: SocketAddr) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, cuts) = (listener.local_addr()?, watch::Sender::new(0));
        let (is_silent, delay_ms, bytes_per_second) = (Arc::default(), Arc::default(), Arc::default());
        let proxy = Proxy { address, is_silent, delay_ms, bytes_per_second, cuts };
        let (silent, delay, cuts) = (proxy.is_silent.clone(), proxy.delay_ms.clone(), proxy.cuts.subscribe());
        let pace = proxy.bytes_per_second.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let (silent, delay, pace, mut cuts) = (silent.clone(), delay.clone(), pace.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let (client_read, client_write) = client.into_split();
                    let (server_read, server_write) = server.into_split();
                    tokio::select! {
                        () = copy(client_read, server_write, Arc::default(), Arc::default(), pace) => {}
                        () = copy(server_read, client_write, silent, delay, Arc::default()) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Ok(proxy)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection at once; new ones work.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on everything that the broker says comes so much later.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// From now on no more than so many bytes a second get to the broker.
    pub(crate) fn narrow(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// From now on nothing that the broker says arrives; what is said to it does.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// New connections work again. Those that missed something never will.
    pub(crate) fn heal(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_silent: Arc<AtomicBool>,
    delay_ms: Arc<AtomicU64>,
    bytes_per_second: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut missed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed))).await;
        let pace = bytes_per_second.load(Ordering::Relaxed);
        if pace > 0 {
            tokio::time::sleep(Duration::from_secs_f64(read as f64 / pace as f64)).await;
        }
        missed |= is_silent.load(Ordering::Relaxed);
        if !missed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
