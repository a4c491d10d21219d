//! A way to the broker that can be made to swallow what the broker says, as a black hole in the network does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    is_silent: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, is_silent) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let silent = is_silent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let ((client_read, client_write), (server_read, server_write)) = (client.into_split(), server.into_split());
                tokio::spawn(copy(client_read, server_write, Arc::default()));
                tokio::spawn(copy(server_read, client_write, silent.clone()));
            }
        });
        Ok(Proxy { address, is_silent })
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
