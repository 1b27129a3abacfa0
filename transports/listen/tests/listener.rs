//! Guarantees of every listener, tested over sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::contract::{Principal, RunningTransport};
use peeklock_listen::{Admission, Entrance, Listener, Proxies, Serve, Source, Threads, Tracker};
use peeklock_tls::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Sends a greeting, and keeps the connection until its client disconnects or the listener stops.
#[derive(Default)]
struct Greeter {
    connections: Tracker,
    /// Maximum number of connections served at the same time.
    most: AtomicUsize,
    /// Principal of the last connection.
    principal: Mutex<Option<Principal>>,
}

impl Serve for Greeter {
    async fn serve(self: Arc<Self>, mut stream: Stream) {
        let _tracked = self.connections.track();
        self.most.fetch_max(self.connections.count(), Ordering::Relaxed);
        let stopped = self.connections.stop_begun();
        *self.principal.lock().unwrap() = Some(stream.principal());
        stream.write_all(b"h").await.unwrap();
        tokio::select! {
            _ = stream.read_u8() => {}
            _ = stopped => stream.write_all(b"e").await.unwrap(),
        }
    }

    fn connections(&self) -> &Tracker {
        &self.connections
    }

    fn takes_upgrade(&self, _: &str) -> bool {
        false
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
    serve_with(broker, greeter, socket_count_max, Admission::default())
}

fn serve_with(
    broker: &Broker,
    greeter: &Arc<Greeter>,
    socket_count_max: usize,
    admission: Admission,
) -> Box<dyn RunningTransport> {
    let listener = at(LOOPBACK);
    let socket = listener.bind(broker).unwrap();
    let entrance = Entrance::default();
    let threads = Threads { name: "test", count: 2, socket_count_max, admission, entrance };
    listener.serve(socket, threads, Arc::clone(greeter)).unwrap()
}

async fn broker() -> Broker {
    Broker::builder().arbiters(1).start().await.unwrap()
}

/// SEC-17: anonymous access beyond loopback requires `i_know`.
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
async fn a_stop_ends_connections_and_waits_for_them() {
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

/// Listener behind proxies at these sources.
fn serve_behind(
    broker: &Broker,
    greeter: &Arc<Greeter>,
    sources: &[&str],
) -> Box<dyn RunningTransport> {
    let proxies = Proxies::at(sources.iter().map(|source| source.parse().unwrap()).collect());
    serve_with(broker, greeter, 1_000, Admission { proxies, tls: None })
}

/// Header of the PROXY protocol.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &bytes, rest].concat()
}

/// Header that names this address as the client.
fn header_of(client: [u8; 4]) -> Vec<u8> {
    header(0x21, 0x11, &[&client[..], &[10, 0, 0, 1, 0x12, 0x34, 0, 80]].concat())
}

/// Whether a client that sends these bytes is served.
async fn is_served(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut client = TcpStream::connect(address).await.unwrap();
    // A refused connection may be closed before all bytes are written.
    client.write_all(bytes).await.ok();
    matches!(client.read_u8().await, Ok(b'h'))
}

/// LIS-04, SEC-17: the client of a proxy has the address in the header, and never counts as local.
/// Bytes after the header belong to the client.
#[tokio::test]
async fn the_client_address_comes_from_the_proxy_header() {
    let (broker, greeter) = (broker().await, Arc::new(Greeter::default()));
    let running = serve_behind(&broker, &greeter, &["10.0.0.0/8", "127.0.0.1"]);
    let address = running.local_address();
    let who = || greeter.principal.lock().unwrap().take().unwrap();
    assert!(is_served(address, &header_of([192, 0, 2, 7])).await);
    let principal = who();
    assert_eq!(principal.peer, "192.0.2.7:4660".parse().ok());
    assert!(!principal.is_local());
    assert!(is_served(address, &header_of([127, 0, 0, 1])).await);
    assert!(!who().is_local(), "a proxy on this machine");
    for silent in [header(0x20, 0, &[]), header(0x21, 0, &[1, 2, 3])] {
        assert!(is_served(address, &silent).await);
        let principal = who();
        assert_eq!(principal.peer.unwrap().ip(), address.ip(), "the proxy's own");
        assert!(!principal.is_local());
    }
    running.stop(Duration::ZERO).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

/// LIS-04: a proxy without a valid header is disconnected, and other peers may not send a header.
#[tokio::test]
async fn without_a_valid_header_a_proxy_is_not_served() {
    let (broker, greeter) = (broker().await, Arc::new(Greeter::default()));
    let running = serve_behind(&broker, &greeter, &["*"]);
    let address = running.local_address();
    let good = header_of([192, 0, 2, 7]);
    for place in 0..16 {
        let mut bad = good.clone();
        bad[place] ^= 0x40;
        assert!(!is_served(address, &bad).await, "byte {place}");
    }
    for bad in [
        b"AMQP\0\x01\0\0 and more bytes".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
        header(0x21, 0x31, &[0; 216]),
        header(0x21, 0x11, &[0; 65_535]),
        header(0x21, 0x11, &[1; 11]),
    ] {
        assert!(!is_served(address, &bad).await, "{bad:?}");
    }
    for bytes in 0..good.len() {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&good[..bytes]).await.unwrap();
        client.shutdown().await.unwrap();
        assert!(client.read_u8().await.is_err(), "{bytes} bytes of a header, and the end");
    }
    assert!(greeter.principal.lock().unwrap().is_none(), "nobody was served");
    assert!(is_served(address, &good).await);
    running.stop(Duration::ZERO).await;
    // Bytes of a peer that is not a proxy go to the transport.
    let running = serve_behind(&broker, &greeter, &["10.0.0.7"]);
    assert!(is_served(running.local_address(), &header_of([192, 0, 2, 7])).await);
    let principal = greeter.principal.lock().unwrap().take().unwrap();
    assert_eq!(principal.peer.unwrap().ip(), running.local_address().ip());
    running.stop(Duration::ZERO).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

/// LIS-04: a proxy whose header is not complete in time is disconnected without an answer, even
/// after a part of the header.
#[tokio::test]
async fn a_late_header_closes_its_connection() {
    let (broker, greeter) = (broker().await, Arc::new(Greeter::default()));
    let time = Duration::from_millis(50);
    let proxies = Proxies::with_header_timeout(vec![Source::Everywhere], time);
    let running = serve_with(&broker, &greeter, 1_000, Admission { proxies, tls: None });
    let good = header_of([192, 0, 2, 7]);
    for bytes in [0, 1, 16, good.len() - 1] {
        let mut client = TcpStream::connect(running.local_address()).await.unwrap();
        client.write_all(&good[..bytes]).await.unwrap();
        // The client keeps its side open, so only the timeout ends the connection.
        assert!(client.read_u8().await.is_err(), "{bytes} bytes of a header, and silence");
    }
    assert!(greeter.principal.lock().unwrap().is_none(), "nobody was served");
    running.stop(Duration::ZERO).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

/// LIS-04: a further proxy without a header ends the oldest one.
#[tokio::test]
async fn the_oldest_silent_proxy_makes_room() {
    let (broker, greeter) = (broker().await, Arc::new(Greeter::default()));
    let running = serve_behind(&broker, &greeter, &["*"]);
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut client = TcpStream::connect(running.local_address()).await.unwrap();
        client.write_all(&header_of([192, 0, 2, 7])[..17]).await.unwrap();
        silent.push(client);
    }
    // Each thread has every second connection. The first connection of the faster thread is not
    // among the last 256 and ends long before its timeout; the last ones stay.
    let [first, second, .., last_but_one, last] = silent.as_mut_slice() else { unreachable!() };
    let ended = async {
        tokio::select! {
            read = first.read_u8() => read,
            read = second.read_u8() => read,
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(3), ended).await;
    assert!(ended.is_ok_and(|read| read.is_err()));
    for stays in [last_but_one, last] {
        assert_eq!(stays.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert!(is_served(running.local_address(), &header_of([192, 0, 2, 7])).await);
    running.stop(Duration::ZERO).await;
    broker.stop(Duration::ZERO).await.unwrap();
}
