//! `gate`: the shop's ports on this machine. It hands each connection to an instance of the service behind it, however
//! many there are, and looks their addresses up anew each time. Bytes pass as they are: it knows nothing of the shop.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections that pass at once; who comes then waits.
const AT_ONCE: usize = 4_096;
/// An instance that does not take a connection by then is passed over.
const CONNECT: Duration = Duration::from_secs(2);
/// After an error of the listener itself: too many open files go by.
const PAUSE: Duration = Duration::from_millis(100);

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Verb {
    /// Hand connections over
    Serve,
    /// End with 0 if the first port takes connections
    Health,
}

/// Hands connections over to instances of services.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to do
    #[arg(value_enum, default_value = "serve")]
    verb: Verb,
    /// A port, and the name and port behind it
    #[arg(long, env = "GATE_ROUTES", value_delimiter = ',', required = true, value_name = "PORT=NAME:PORT")]
    routes: Vec<Route>,
}

/// Where connections to a port go.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Route {
    port: u16,
    target: String,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Route, String> {
        let refused = || format!("{text:?} is not PORT=NAME:PORT");
        let (port, target) = text.split_once('=').ok_or_else(refused)?;
        let (name, there) = target.rsplit_once(':').ok_or_else(refused)?;
        let is_right = !name.is_empty() && there.parse::<u16>().is_ok();
        let port = port.parse().ok().filter(|_| is_right).ok_or_else(refused)?;
        Ok(Route { port, target: target.to_owned() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_target(false).with_ansi(false).init();
    let done = match arguments.verb {
        Verb::Serve => serve(arguments.routes).await,
        Verb::Health => connect(&[SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.routes[0].port))]).await.map(drop),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("gate ends: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Until somebody asks it to end. Connections that pass then are cut: their clients ask again.
async fn serve(routes: Vec<Route>) -> io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    for route in routes {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, route.port)).await?;
        tracing::info!("connections to {} go to {}", route.port, route.target);
        tokio::spawn(accept(listener, route, room.clone()));
    }
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

async fn accept(listener: TcpListener, route: Route, room: Arc<Semaphore>) {
    let turn = AtomicUsize::new(0);
    loop {
        // Closed by nobody.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (target, turn) = (route.target.clone(), turn.fetch_add(1, Ordering::Relaxed));
                tokio::spawn(async move {
                    if let Err(error) = pass(client, &target, turn).await {
                        tracing::debug!("a connection to {target} broke off: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("{} takes no connection: {error}", route.port);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Hands a connection to an instance: each in turn, and the next one where one is not there.
async fn pass(mut client: TcpStream, target: &str, turn: usize) -> io::Result<()> {
    let mut instances: Vec<SocketAddr> = lookup_host(target).await?.collect();
    // The order of the answer says nothing.
    instances.sort_unstable();
    if !instances.is_empty() {
        let first = turn % instances.len();
        instances.rotate_left(first);
    }
    let mut instance = connect(&instances).await?;
    client.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut instance).await.map(drop)
}

/// The first that takes a connection.
async fn connect(instances: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "there is no instance");
    for instance in instances {
        match timeout(CONNECT, TcpStream::connect(instance)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_route_names_a_port_and_what_is_behind_it() {
        let route: Route = "8001=order:8000".parse().unwrap();
        assert_eq!(route, Route { port: 8001, target: "order:8000".to_owned() });
        for wrong in ["", "8001", "8001=order", "8001=:8000", "x=order:8000", "80001=order:8000", "8001=order:x"] {
            assert!(wrong.parse::<Route>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_connection_goes_to_an_instance_that_is_there() {
        let alive = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let instances = [gone.local_addr().unwrap(), alive.local_addr().unwrap()];
        drop(gone);
        assert!(connect(&instances[..1]).await.is_err() && connect(&[]).await.is_err());
        let stream = connect(&instances).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), instances[1]);
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_until_both_have_ended() {
        let behind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (target, address) = (behind.local_addr().unwrap().to_string(), front.local_addr().unwrap());
        tokio::spawn(accept(front, Route { port: 0, target }, Arc::new(Semaphore::new(1))));
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let (mut instance, _) = behind.accept().await.unwrap();
            let mut said = String::new();
            instance.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "question");
            instance.write_all(b"answer").await.unwrap();
            drop(instance);
            let mut said = String::new();
            client.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "answer");
        }
    }
}
