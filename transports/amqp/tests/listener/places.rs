//! Tests of the limit of connections: which connection gives up its place, and to which client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_amqp::performative::{Performative, SenderSettleMode};
use peeklock_core::contract::{AllowAll, Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::message::{MessageId, Value};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::client::Client;
use crate::server::Server;
use crate::tokens::{request, status};

const SETTLED: SenderSettleMode = SenderSettleMode::Settled;
const PLAIN: (&str, &[u8]) = ("PLAIN", b"\0team\0k");
const ANONYMOUS: (&str, &[u8]) = ("ANONYMOUS", b"");
/// Number of spare sockets next to two places, which is the minimum.
const SPARE: usize = 16;

/// QUO-01: the connection that is idle for the longest time gives up its place to a new client, and
/// gets the reason. A connection with a link keeps its place, however long it is silent. If no
/// connection is idle, the new client waits with its requests.
#[tokio::test]
async fn longest_idle_connection_gives_up_its_place() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.connection_count_max = 3;
    })
    .await;
    let mut kept = server.client().await;
    kept.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
    kept.credit(0, 0, 10, false).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    // Links for tokens or transactions do not keep a place, nor does a transaction without an
    // operation.
    first.sender(7, "$cbs").await.unwrap();
    second.coordinator().await;
    second.declare().await;
    let mut all = Vec::new();
    for idle in [&mut first, &mut second] {
        let mut next = server.client().await;
        next.sender(0, "q").await.unwrap();
        all.push(next);
        let (Performative::Close(close), _) = idle.next_frame().await else {
            panic!("it is not closed")
        };
        let error = close.error.unwrap();
        assert_eq!(error.condition(), "amqp:connection:forced");
        assert!(idle.is_closed().await);
    }
    let last = server.client().await;
    let mut last = attaching(last);
    tokio::select! {
        biased;
        _ = &mut last => panic!("nobody was idle"),
        () = messages(&server, &mut kept) => {}
    }
    kept.detach(0).await;
    drop(last.await.unwrap());
    server.stop().await;
}

/// Attaches a link, which waits for a place.
fn attaching(mut client: Client) -> tokio::task::JoinHandle<Client> {
    tokio::spawn(async move {
        client.sender(0, "q").await.unwrap();
        client
    })
}

/// Checks that a waiting receiver gets messages.
async fn messages(server: &Server, kept: &mut Client) {
    for number in 0..5 {
        let text = number.to_string();
        server.put(&[&text]).await;
        kept.message().await;
    }
}

/// Returns the condition with which the broker closes a connection.
async fn closed(client: &mut Client) -> String {
    let (Performative::Close(close), _) = client.next_frame().await else {
        panic!("it is not closed")
    };
    close.error.unwrap().condition().to_owned()
}

/// A client from an address of this machine.
async fn from(address: [u8; 4], server: &Server) -> Client {
    from_saying(address, server, ANONYMOUS).await
}

async fn from_saying(
    address: [u8; 4],
    server: &Server,
    (mechanism, said): (&str, &[u8]),
) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((address, 0))).unwrap();
    let stream = socket.connect(server.address).await.unwrap();
    let (mut client, code) = Client::log_in_over(Box::new(stream), mechanism, said).await;
    assert_eq!(code, 0);
    client.begin().await;
    client
}

/// QUO-01: if an address has all places with connections that have links, its connection that is
/// silent for the longest time gives up its place to a client from elsewhere.
#[tokio::test]
async fn the_address_with_most_places_gives_one_up() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.connection_count_max = 3;
    })
    .await;
    let mut many = Vec::new();
    for _ in 0..3 {
        let mut client = from([127, 0, 0, 2], &server).await;
        client.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
        client.credit(0, 0, 10, false).await;
        many.push(client);
    }
    many[0].sender(1, "q").await.unwrap();
    let mut other = from([127, 0, 0, 3], &server).await;
    other.sender(0, "q").await.unwrap();
    let (Performative::Close(close), _) = many[1].next_frame().await else {
        panic!("it is not closed")
    };
    assert_eq!(close.error.unwrap().condition(), "amqp:connection:forced");
    // The others go on.
    many[2].detach(0).await;
    messages(&server, &mut many[0]).await;
    server.stop().await;
}

/// Grants everything to any key and to the token `good`, and optionally to anonymous clients;
/// refuses all others.
struct AnyKey {
    allows_anonymous: bool,
}

#[async_trait]
impl Authorizer for AnyKey {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match (&principal.key, principal.token.as_deref()) {
            (Some(_), None) | (None, Some("good")) => Ok(Grant::everything()),
            (None, None) if self.allows_anonymous => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("not known")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        self.allows_anonymous
    }
}

/// A listener with this number of places, whose authorizer knows keys.
async fn listener(allows_anonymous: bool, places: usize) -> Server {
    Server::start_with(Arc::new(AnyKey { allows_anonymous }), |config| {
        config.connection_count_max = places;
    })
    .await
}

/// A client that has logged in with a key and has a link.
async fn consumer(address: [u8; 4], server: &Server) -> Client {
    let mut client = from_saying(address, server, PLAIN).await;
    client.receiver(0, "q", SETTLED).await.unwrap();
    client
}

/// Strangers that have declared a transaction, which needs no right.
async fn strangers(count: usize, server: &Server) -> Vec<Client> {
    let mut strangers = Vec::new();
    for _ in 0..count {
        let mut stranger = from([127, 0, 0, 4], server).await;
        stranger.coordinator().await;
        stranger.declare().await;
        strangers.push(stranger);
    }
    strangers
}

/// QUO-01, SEC-16: if all places are taken, a stranger gets the place of an idle connection. It
/// does not get the place of a silent receiver, from any address.
#[tokio::test]
async fn stranger_takes_only_places_of_idle_connections() {
    let server = listener(false, 4).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = from_saying([127, 0, 0, 2], &server, PLAIN).await;
        client.receiver(0, "q", SETTLED).await.unwrap();
        silent.push(client);
    }
    let mut last = from([127, 0, 0, 2], &server).await;
    // Each stranger gets the place of the previous one once that is idle for a while; connections
    // with links are silent for longer.
    for _ in 0..3 {
        let next = from([127, 0, 0, 3], &server).await;
        assert_eq!(closed(&mut last).await, "amqp:connection:forced");
        last = next;
    }
    for client in &mut silent {
        client.sender(1, "q").await.unwrap();
    }
    server.stop().await;
}

/// QUO-01, SEC-16: a client that logs in with a key gets the place of a stranger, even if that has
/// links. Strangers without requests for the longest time go first. If all have logged in with a
/// key, the client waits until one is idle, and a stranger gets no place.
#[tokio::test]
async fn client_with_key_takes_the_place_of_a_stranger() {
    let server = listener(false, 2).await;
    let mut strangers = strangers(2, &server).await;
    let mut known = Vec::new();
    for stranger in &mut strangers {
        known.push(consumer([127, 0, 0, 4], &server).await);
        assert_eq!(closed(stranger).await, "amqp:connection:forced");
    }
    let next = from_saying([127, 0, 0, 3], &server, PLAIN).await;
    let stranger = from([127, 0, 0, 3], &server).await;
    let (mut next, mut stranger) = (attaching(next), attaching(stranger));
    for client in &mut known {
        // As many as are sent, so that the next receiver gets the later messages.
        client.credit(0, 0, 5, false).await;
        tokio::select! {
            biased;
            _ = &mut next => panic!("all have shown a key"),
            _ = &mut stranger => panic!("he has shown nothing"),
            () = messages(&server, client) => {}
        }
    }
    stranger.abort();
    assert!(stranger.await.is_err());
    known[0].detach(0).await;
    let next = next.await.unwrap();
    drop((known, next));
    server.stop().await;
}

/// QUO-01, SEC-16, AMQP-21: a client that puts a valid token gets the place of a stranger, even if
/// that has links. A client with an invalid token gets none.
#[tokio::test]
async fn client_with_token_takes_the_place_of_a_stranger() {
    let server = listener(true, 2).await;
    let mut strangers = strangers(2, &server).await;
    for stranger in &mut strangers {
        stranger.receiver(0, "q", SETTLED).await.unwrap();
    }
    let mut client = from([127, 0, 0, 4], &server).await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    for (token, code) in [("bad", 401), ("good", 202)] {
        // They are connected, and the first has sent no request for the longest time.
        for stranger in &mut strangers {
            stranger.declare().await;
        }
        let token = request("amqp://h/q", token, MessageId::Ulong(1));
        client.send(0, 0, true, token.as_bytes()).await;
        let (_, reply) = client.message().await;
        assert_eq!(status(&reply), Value::I32(code));
    }
    assert_eq!(closed(&mut strangers[0]).await, "amqp:connection:forced");
    client.sender(2, "q").await.unwrap();
    strangers[1].declare().await;
    drop((client, strangers));
    server.stop().await;
}

/// QUO-01, SEC-17: the same holds if anonymous access is on. A client with a key gets the place of
/// a client without one, also from the same address, and keeps it when clients come from addresses
/// with fewer connections.
#[tokio::test]
async fn client_with_key_takes_and_keeps_a_place() {
    let server = listener(true, 3).await;
    let here = [127, 0, 0, 2];
    let mut without = Vec::new();
    for _ in 0..3 {
        let mut client = from(here, &server).await;
        client.receiver(0, "q", SETTLED).await.unwrap();
        without.push(client);
    }
    let mut known = Vec::new();
    for client in &mut without[..2] {
        known.push(consumer(here, &server).await);
        assert_eq!(closed(client).await, "amqp:connection:forced");
    }
    without[2].detach(0).await;
    let mut last = without.remove(2);
    // The clients with a key are silent, and more than from any other address.
    for address in [3, 4, 5] {
        let next = from([127, 0, 0, address], &server).await;
        assert_eq!(closed(&mut last).await, "amqp:connection:forced");
        last = next;
    }
    for client in &mut known {
        client.sender(1, "q").await.unwrap();
    }
    drop((known, last));
    server.stop().await;
}

/// QUO-01: next to the places there are spare sockets for connections without a place. If they are
/// taken too, the oldest such connection is closed, so that a new client can log in.
#[tokio::test]
async fn the_oldest_without_a_place_is_closed() {
    let server = listener(false, 2).await;
    let here = [127, 0, 0, 2];
    let mut known = [consumer(here, &server).await, consumer(here, &server).await];
    let mut silent = Vec::new();
    for _ in 0..2 * SPARE {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for socket in &mut silent[..SPARE] {
        socket.read_u8().await.unwrap_err();
    }
    // It can still log in, with success.
    let next = from_saying([127, 0, 0, 3], &server, PLAIN).await;
    silent[SPARE].read_u8().await.unwrap_err();
    for client in &mut known {
        client.sender(1, "q").await.unwrap();
    }
    drop((known, next, silent));
    server.stop().await;
}

/// QUO-01, SEC-16: a client that finds no place within the opening timeout gets an error with a
/// condition upon which the SDKs connect again.
#[tokio::test]
async fn client_without_place_is_closed_after_timeout() {
    let server = Server::start_with(Arc::new(AnyKey { allows_anonymous: false }), |config| {
        config.connection_count_max = 1;
        config.opening_timeout = Duration::from_millis(300);
    })
    .await;
    let mut known = consumer([127, 0, 0, 2], &server).await;
    let mut next = from_saying([127, 0, 0, 3], &server, PLAIN).await;
    next.send_frame(&Performative::Attach(Box::new(Client::sender_of(0, "q")))).await;
    let (Performative::Close(close), _) = next.next_frame().await else {
        panic!("it is not closed")
    };
    let error = close.error.unwrap();
    assert_eq!(error.condition(), "amqp:connection:forced");
    let text = error.to_string();
    assert!(text.contains("QuotaExceeded: there are already 1 connections"), "{text}");
    assert!(text.contains("`amqp.connection_count_max`"), "{text}");
    known.credit(0, 0, 5, false).await;
    messages(&server, &mut known).await;
    drop((known, next));
    server.stop().await;
}
