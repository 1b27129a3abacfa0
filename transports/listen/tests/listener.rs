//! What every listener keeps, over sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::contract::RunningTransport;
use peeklock_listen::{Listener, Serve, Threads, Tracker};
use peeklock_tls::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Greets, and stays until its client goes or it is told to end.
#[derive(Default)]
struct Greeter {
    connections: Tracker,
    /// How many were served at the same time.
    most: AtomicUsize,
}

impl Serve for Greeter {
    async fn serve(self: Arc<Self>, mut stream: Stream) {
        let _tracked = self.connections.track();
        self.most.fetch_max(self.connections.count(), Ordering::Relaxed);
        let stopped = self.connections.stop_begun();
        stream.write_all(b"h").await.unwrap();
        tokio::select! {
            _ = stream.read_u8() => {}
            _ = stopped => stream.write_all(b"e").await.unwrap(),
        }
    }

    fn connections(&self) -> &Tracker {
        &self.connections
    }
}

fn at(address: impl Into<SocketAddr>) -> Listener {
    Listener { transport: "test", address: address.into(), i_know: false }
}

fn serve(
    broker: &Broker,
    greeter: &Arc<Greeter>,
    socket_count_max: usize,
) -> Box<dyn RunningTransport> {
    let listener = at(LOOPBACK);
    let socket = listener.bind(broker).unwrap();
    let threads = Threads { name: "test", count: 2, socket_count_max, tls: None };
    listener.serve(socket, threads, Arc::clone(greeter)).unwrap()
}

async fn broker() -> Broker {
    Broker::builder().arbiters(1).start().await.unwrap()
}

/// SEC-17: anonymous access beyond loopback must be asked for.
#[tokio::test]
async fn an_open_listener_beyond_loopback_is_refused() {
    let broker = broker().await;
    let open = at(([0, 0, 0, 0], 0));
    let error = open.bind(&broker).unwrap_err();
    assert!(error.to_string().contains("security.i_know"), "{error}");
    Listener { i_know: true, ..open }.bind(&broker).unwrap();
    at(LOOPBACK).bind(&broker).unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_socket_beyond_the_bound_waits_until_another_one_ends() {
    let (broker, greeter) = (broker().await, Arc::default());
    let running = serve(&broker, &greeter, 1);
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(TcpStream::connect(running.local_address()).await.unwrap());
    }
    for mut client in clients {
        assert_eq!(client.read_u8().await.unwrap(), b'h');
    }
    assert_eq!(greeter.most.load(Ordering::Relaxed), 1);
    running.stop(Duration::ZERO).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_stop_tells_connections_and_waits_for_them() {
    let (broker, greeter) = (broker().await, Arc::default());
    let running = serve(&broker, &greeter, 8);
    let address = running.local_address();
    let mut client = TcpStream::connect(address).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'h');
    running.stop(Duration::ZERO).await;
    assert_eq!(greeter.connections.count(), 0);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"e");
    TcpStream::connect(address).await.unwrap_err();
    broker.stop(Duration::ZERO).await.unwrap();
}
