//! A way to the broker that can be cut, and that can swallow what the broker says as a black hole in the network does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub(super) async fn to(target: SocketAddr) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let proxy = Proxy { address: listener.local_addr()?, is_silent: Arc::default(), cuts: watch::Sender::new(0) };
        let (silent, cuts) = (proxy.is_silent.clone(), proxy.cuts.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let (silent, mut cuts) = (silent.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let (client_read, client_write) = client.into_split();
                    let (server_read, server_write) = server.into_split();
                    tokio::select! {
                        () = copy(client_read, server_write, Arc::default()) => {}
                        () = copy(server_read, client_write, silent) => {}
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

    /// From now on nothing that the broker says arrives; what is said to it does.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// New connections work again. Those that missed something never will.
    pub(crate) fn heal(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_silent: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut missed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        missed |= is_silent.load(Ordering::Relaxed);
        if !missed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
