//! Who makes room when there are as many connections as there may be, and for whom.

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
/// Sockets beside two places, which are as few as there can be.
const SPARE: usize = 16;

/// QUO-01: the connection that has been idle longest makes room for one that comes, and is told so; one that has a link
/// does not, however long nothing comes, and who finds nobody idle waits with whatever he asks for until somebody is.
#[tokio::test]
async fn who_is_idle_longest_makes_room() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.connection_count_max = 3;
    })
    .await;
    let mut kept = server.client().await;
    kept.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
    kept.credit(0, 0, 10, false).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    // Links to put tokens or to declare transactions are no reason to stay, nor is a transaction without an operation.
    first.sender(7, "$cbs").await.unwrap();
    second.coordinator().await;
    second.declare().await;
    let mut all = Vec::new();
    for idle in [&mut first, &mut second] {
        let mut next = server.client().await;
        next.sender(0, "q").await.unwrap();
        all.push(next);
        let (Performative::Close(close), _) = idle.hear().await else { panic!("it is not closed") };
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

/// Who waits for messages gets them.
async fn messages(server: &Server, kept: &mut Client) {
    for number in 0..5 {
        let text = number.to_string();
        server.put(&[&text]).await;
        kept.message().await;
    }
}

/// The condition with which the broker closes a connection.
async fn closed(client: &mut Client) -> String {
    let (Performative::Close(close), _) = client.hear().await else { panic!("it is not closed") };
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

/// QUO-01: whoever has all places by connections with links gives one up to who comes from elsewhere: the one that has
/// said nothing for longest.
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
    let (Performative::Close(close), _) = many[1].hear().await else { panic!("it is not closed") };
    assert_eq!(close.error.unwrap().condition(), "amqp:connection:forced");
    // The others go on.
    many[2].detach(0).await;
    messages(&server, &mut many[0]).await;
    server.stop().await;
}

/// Whoever shows a key or the token `good` may do everything; who shows nothing may too, or is not known.
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

/// A listener with so many places, for who shows a key.
async fn listener(allows_anonymous: bool, places: usize) -> Server {
    Server::start_with(Arc::new(AnyKey { allows_anonymous }), |config| {
        config.connection_count_max = places;
    })
    .await
}

/// One that has shown a key, and has a link.
async fn consumer(address: [u8; 4], server: &Server) -> Client {
    let mut client = from_saying(address, server, PLAIN).await;
    client.receiver(0, "q", SETTLED).await.unwrap();
    client
}

/// Strangers that have declared a transaction, which takes no right.
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

/// QUO-01, SEC-16: where all places are taken, a stranger, who has shown nothing yet, gets the place of one who holds
/// nothing, and of nobody who waits in silence, from wherever he comes.
#[tokio::test]
async fn a_stranger_gets_the_place_of_nobody_who_holds_something() {
    let server = listener(false, 4).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = from_saying([127, 0, 0, 2], &server, PLAIN).await;
        client.receiver(0, "q", SETTLED).await.unwrap();
        silent.push(client);
    }
    let mut last = from([127, 0, 0, 2], &server).await;
    // Each gets the place of the one before as soon as that has been idle for a while; those with links are silent for longer.
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

/// QUO-01, SEC-16: who logs in by a key gets the place of a stranger, whatever that one holds, the one that has asked for
/// nothing for longest first; where all have shown a key he waits until one of them holds nothing, and a stranger gets none.
#[tokio::test]
async fn who_logs_in_gets_the_place_of_a_stranger() {
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
        // As much as is sent, so that the next one gets what is sent then.
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

/// QUO-01, SEC-16, AMQP-21: who puts a token that is good gets the place of a stranger, whatever that one holds, and
/// who puts one that is not good gets none.
#[tokio::test]
async fn who_puts_a_token_gets_the_place_of_a_stranger() {
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
        // They are there, and the first has asked for nothing for longest.
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

/// QUO-01, SEC-17: the same where everybody is let in: who shows a key gets the place of one who has shown none, from the
/// same address too, and keeps it when others come from wherever there are fewer.
#[tokio::test]
async fn who_shows_a_key_gets_and_keeps_the_place_of_one_who_shows_none() {
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
    // Those with a key are silent, and more than come from anywhere else.
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

/// QUO-01: beside the places there are sockets for those that have none yet; when they are taken too, the oldest of those
/// is closed, so that whoever comes is heard.
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
    // It is asked who it is, and told that it is good.
    let next = from_saying([127, 0, 0, 3], &server, PLAIN).await;
    silent[SPARE].read_u8().await.unwrap_err();
    for client in &mut known {
        client.sender(1, "q").await.unwrap();
    }
    drop((known, next, silent));
    server.stop().await;
}

/// QUO-01, SEC-16: who finds no place in the time in which a connection has to be opened is told so, with a condition
/// upon which SDKs connect again.
#[tokio::test]
async fn who_finds_no_place_in_time_is_told_so() {
    let server = Server::start_with(Arc::new(AnyKey { allows_anonymous: false }), |config| {
        config.connection_count_max = 1;
        config.opening_timeout = Duration::from_millis(300);
    })
    .await;
    let mut known = consumer([127, 0, 0, 2], &server).await;
    let mut next = from_saying([127, 0, 0, 3], &server, PLAIN).await;
    next.say(&Performative::Attach(Box::new(Client::sender_of(0, "q")))).await;
    let (Performative::Close(close), _) = next.hear().await else { panic!("it is not closed") };
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
