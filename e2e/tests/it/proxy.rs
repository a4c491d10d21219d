//! The proxy does to a line what the tests of faults ask for.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use e2e::{Proxy, State, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(5);
/// Long enough that an answer would have come, had it not been held back.
const SILENCE: Duration = Duration::from_millis(200);

/// A server that says everything back.
async fn echo() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = client.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    Ok(address)
}

async fn say(line: &mut TcpStream, word: &[u8; 4]) -> std::io::Result<[u8; 4]> {
    line.write_all(word).await?;
    let mut heard = [0; 4];
    line.read_exact(&mut heard).await?;
    Ok(heard)
}

#[tokio::test]
async fn a_delay_costs_its_time_each_way_and_changes_nothing_else() -> anyhow::Result<()> {
    let proxy = Proxy::start(echo().await?).await?;
    let mut line = TcpStream::connect(proxy.address()).await?;
    assert_eq!(&say(&mut line, b"ping").await?, b"ping");

    proxy.delay(Duration::from_millis(60), Duration::from_millis(90));
    let begin = Instant::now();
    assert_eq!(&say(&mut line, b"slow").await?, b"slow");
    assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());

    proxy.heal();
    let sent = vec![7_u8; 3_000_000];
    let (mut read, mut write) = line.into_split();
    let copy = sent.clone();
    let writing = tokio::spawn(async move { write.write_all(&copy).await.map(|()| write) });
    let mut received = vec![0; sent.len()];
    timeout(SOON, read.read_exact(&mut received)).await??;
    writing.await??;
    assert!(received == sent);
    Ok(())
}

#[tokio::test]
async fn a_cut_closes_open_connections_and_refuses_new_ones_until_healed() -> anyhow::Result<()> {
    let proxy = Proxy::start(echo().await?).await?;
    let mut line = TcpStream::connect(proxy.address()).await?;
    say(&mut line, b"ping").await?;
    assert_eq!(proxy.open(), 1);

    proxy.cut();
    let ended = timeout(SOON, say(&mut line, b"gone")).await?;
    assert!(ended.is_err());
    eventually(SOON, "new connections are refused", async || {
        Ok(match TcpStream::connect(proxy.address()).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => State::Reached(()),
            other => State::pending(other),
        })
    })
    .await?;
    assert_eq!(proxy.open(), 0);

    proxy.heal();
    let mut line =
        eventually(SOON, "the line is back", async || Ok(State::Reached(TcpStream::connect(proxy.address()).await?)))
            .await?;
    assert_eq!(&say(&mut line, b"back").await?, b"back");
    Ok(())
}

#[tokio::test]
async fn a_black_hole_keeps_connections_and_passes_nothing_until_healed() -> anyhow::Result<()> {
    let proxy = Proxy::start(echo().await?).await?;
    let mut old = TcpStream::connect(proxy.address()).await?;
    say(&mut old, b"ping").await?;

    proxy.swallow();
    let mut new = TcpStream::connect(proxy.address()).await?;
    assert!(timeout(SILENCE, say(&mut old, b"held")).await.is_err());
    assert!(timeout(SILENCE, say(&mut new, b"held")).await.is_err());
    assert_eq!(proxy.open(), 2);

    proxy.heal();
    for line in [&mut old, &mut new] {
        let mut heard = [0; 4];
        timeout(SOON, line.read_exact(&mut heard)).await??;
        assert_eq!(&heard, b"held");
    }
    assert_eq!(proxy.accepted(), 2);
    Ok(())
}
