//! A way to the broker that can be cut, be slow or narrow, swallow what the broker says as a black hole in the network
//! does, and stop as a broker in alarm does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};

/// AMQP's `connection.blocked` and `connection.unblocked`, as the broker sends them.
const BLOCKED: &[u8] = b"\x01\x00\x00\x00\x00\x00\x0b\x00\x0a\x00\x3c\x06memory\xce";
const UNBLOCKED: &[u8] = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x3d\xce";

pub(crate) struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    cuts: watch::Sender<u32>,
    alarm: watch::Sender<bool>,
}

#[derive(Default)]
struct Faults {
    is_silent: AtomicBool,
    delay_ms: AtomicU64,
    bytes_per_second: AtomicU64,
}

impl Proxy {
    pub(super) async fn to(target: SocketAddr) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, faults) = (listener.local_addr()?, Arc::<Faults>::default());
        let proxy = Proxy { address, faults, cuts: watch::Sender::new(0), alarm: watch::Sender::new(false) };
        let (faults, cuts, alarm) = (proxy.faults.clone(), proxy.cuts.subscribe(), proxy.alarm.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let (faults, mut cuts, alarm) = (faults.clone(), cuts.clone(), alarm.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let (client_read, client_write) = client.into_split();
                    let (server_read, server_write) = server.into_split();
                    let client_write = Mutex::new(client_write);
                    tokio::select! {
                        () = to_broker(client_read, server_write, &faults, alarm.clone()) => {}
                        () = from_broker(server_read, &client_write, &faults) => {}
                        () = tell_of(alarm, &client_write) => {}
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
        self.faults.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// From now on no more than so many bytes a second get to the broker.
    pub(crate) fn narrow(&self, bytes_per_second: u64) {
        self.faults.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// From now on nothing that the broker says arrives; what is said to it does.
    pub(crate) fn silence(&self) {
        self.faults.is_silent.store(true, Ordering::Relaxed);
    }

    /// New connections work again. Those that missed something never will.
    pub(crate) fn heal(&self) {
        self.faults.is_silent.store(false, Ordering::Relaxed);
    }

    /// From now on the broker is in alarm: it says so, and reads nothing more.
    pub(crate) fn block(&self) {
        self.alarm.send_replace(true);
    }

    /// The alarm is over.
    pub(crate) fn unblock(&self) {
        self.alarm.send_replace(false);
    }
}

async fn to_broker(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults, mut alarm: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let pace = faults.bytes_per_second.load(Ordering::Relaxed);
        if pace > 0 {
            tokio::time::sleep(Duration::from_secs_f64(read as f64 / pace as f64)).await;
        }
        if alarm.wait_for(|alarm| !alarm).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn from_broker(mut from: OwnedReadHalf, to: &Mutex<OwnedWriteHalf>, faults: &Faults) {
    let mut buffer = vec![0; 64 * 1024];
    let mut missed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(faults.delay_ms.load(Ordering::Relaxed))).await;
        missed |= faults.is_silent.load(Ordering::Relaxed);
        if !missed && to.lock().await.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn tell_of(mut alarm: watch::Receiver<bool>, to: &Mutex<OwnedWriteHalf>) {
    alarm.mark_unchanged();
    while alarm.changed().await.is_ok() {
        let frame = if *alarm.borrow_and_update() { BLOCKED } else { UNBLOCKED };
        if to.lock().await.write_all(frame).await.is_err() {
            return;
        }
    }
}
