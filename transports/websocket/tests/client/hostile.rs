//! A broker that is hostile to its clients: a proxy forwards the answers of a real one up to a
//! point, then writes without end and reads nothing.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_core::condition::Condition;
use peeklock_core::message::Message;
use peeklock_websocket::client::{ClientOptions, connect_with};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::server::{Server, run};

/// Time without progress after which a peer counts as no longer reading.
const STUCK: Duration = Duration::from_secs(1);
/// Upper bound of the bytes that the system accepts for a socket that is not read.
const OF_SYSTEM_BYTES: usize = 32 << 20;

fn options() -> ClientOptions {
    let mut options = ClientOptions::default();
    options.grace = Duration::ZERO;
    options.connect_timeout = Duration::from_secs(20);
    options
}

fn pings() -> Vec<u8> {
    [&[0x89, 125][..], &[b'x'; 125]].concat().repeat(500)
}

/// Forwards one unit, whose end `end` finds.
async fn pass(from: &mut TcpStream, to: &mut TcpStream, end: impl Fn(&[u8]) -> Option<usize>) {
    let mut bytes = Vec::new();
    while end(&bytes).is_none_or(|end| bytes.len() < end) {
        assert_ne!(from.read_buf(&mut bytes).await.unwrap(), 0);
    }
    to.write_all(&bytes).await.unwrap();
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Returns the end of a frame of less than 64 KiB.
fn frame_end(bytes: &[u8]) -> Option<usize> {
    let second = *bytes.get(1)?;
    let mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
    let (head_bytes, length) = match second & 0x7f {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        short => (2, usize::from(short)),
    };
    Some(head_bytes + mask_bytes + length)
}

/// Accepts the next client of the hostile broker, and forwards its upgrade, or everything up to its
/// welcome.
async fn client_of(listener: &TcpListener, real: SocketAddr, is_welcome: bool) -> TcpStream {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut broker = TcpStream::connect(real).await.unwrap();
    pass(&mut client, &mut broker, head_end).await;
    pass(&mut broker, &mut client, head_end).await;
    if is_welcome {
        pass(&mut client, &mut broker, frame_end).await;
        pass(&mut broker, &mut client, frame_end).await;
    }
    client
}

/// DESIGN D6: pings of a broker that reads no pongs are read only to a bound.
#[test]
fn pings_are_not_read_while_pongs_are_not_taken() {
    run(async {
        let server = Server::start(30).await;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (client, broker) =
            tokio::join!(connect_with(&url, options()), client_of(&listener, server.address, true));
        let (_client, mut broker) = (client.unwrap(), broker);
        let (pings, mut written) = (pings(), 0);
        while let Ok(Ok(())) = tokio::time::timeout(STUCK, broker.write_all(&pings)).await {
            written += pings.len();
            assert!(written < OF_SYSTEM_BYTES, "pings are read without end");
        }
        server.stop().await;
    });
}

/// DESIGN D6: before the welcome, a client reads only as many bytes as a welcome needs: neither
/// pings nor a frame larger than any welcome are read to their end.
#[test]
fn little_is_read_before_a_welcome() {
    let endless_frame = [&[0x82, 127][..], &(255_u64 << 20).to_be_bytes(), &[0; 1 << 20]].concat();
    for said in [pings().repeat(4), endless_frame] {
        run(async {
            let server = Server::start(30).await;
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let url = format!("ws://{}", listener.local_addr().unwrap());
            let flooding = async {
                let mut client = client_of(&listener, server.address, false).await;
                // Ends when the client has closed.
                while client.write_all(&said).await.is_ok() {}
            };
            let (client, ()) = tokio::join!(connect_with(&url, options()), flooding);
            let error = client.err().expect("no connection").to_string();
            assert!(error.contains("no welcome"), "{error}");
            server.stop().await;
        });
    }
}

/// DESIGN D6: after the welcome, a frame may have at most the size that the client allows.
#[test]
fn a_frame_beyond_the_bound_of_the_client_ends_the_connection() {
    run(async {
        let server = Server::start(30).await;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mut options = options();
        options.frame_bytes_max = 64 << 10;
        options.give_up_after = Some(Duration::ZERO);
        let (client, broker) =
            tokio::join!(connect_with(&url, options), client_of(&listener, server.address, true));
        let (client, mut broker) = (client.unwrap(), broker);
        drop(listener);
        broker.write_all(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 1]).await.unwrap();
        let error = client.sender("q").unwrap().send(Message::new("a")).await.unwrap_err();
        assert_eq!(error.condition(), Condition::CommunicationProblem);
        server.stop().await;
    });
}
