//! Who makes room when there are as many connections as there may be.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use peeklock_amqp::performative::{Performative, SenderSettleMode};
use peeklock_core::contract::{AllowAll, Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use tokio::net::TcpSocket;

use crate::client::Client;
use crate::server::Server;

/// QUO-01: the connection that has been idle longest makes room for one that comes, and is told so; one that has a link
/// does not, however long nothing comes, and who finds nobody idle waits until somebody is.
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
    // Links to put tokens are no reason to stay.
    first.sender(7, "$cbs").await.unwrap();
    second.sender(7, "$cbs").await.unwrap();
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
    let address = server.address;
    let mut last = tokio::spawn(async move { Client::open(address).await });
    tokio::select! {
        biased;
        _ = &mut last => panic!("nobody was idle"),
        () = messages(&server, &mut kept) => {}
    }
    kept.detach(0).await;
    drop(last.await.unwrap());
    server.stop().await;
}

/// Who waits for messages gets them.
async fn messages(server: &Server, kept: &mut Client) {
    for number in 0..5 {
        let text = number.to_string();
        server.put(&[&text]).await;
        kept.message().await;
    }
}

/// A client from an address of this machine.
async fn from(address: [u8; 4], server: &Server) -> Client {
    from_saying(address, server, "ANONYMOUS", b"").await
}

async fn from_saying(address: [u8; 4], server: &Server, mechanism: &str, said: &[u8]) -> Client {
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

/// Whoever shows a key may do everything; nobody else is known.
struct AnyKey;

#[async_trait]
impl Authorizer for AnyKey {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match principal.key {
            Some(_) => Ok(Grant::everything()),
            None => Err(Rejection::unauthorized("not known")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// QUO-01, SEC-16: where all places are taken, who comes is a stranger, since he has shown nothing yet; he gets the place of one who
/// holds nothing, and of nobody who waits in silence, from wherever he comes.
#[tokio::test]
async fn a_stranger_gets_the_place_of_nobody_who_holds_something() {
    let server = Server::start_with(Arc::new(AnyKey), |config| {
        config.connection_count_max = 4;
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = from_saying([127, 0, 0, 2], &server, "PLAIN", b"\0team\0k").await;
        client.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
        silent.push(client);
    }
    let mut last = from_saying([127, 0, 0, 2], &server, "PLAIN", b"\0team\0k").await;
    // Each gets the place of the one before as soon as that has been idle for a while; those with links are silent for longer.
    for _ in 0..3 {
        let next = from([127, 0, 0, 3], &server).await;
        let (Performative::Close(close), _) = last.hear().await else { panic!("it is not closed") };
        assert_eq!(close.error.unwrap().condition(), "amqp:connection:forced");
        last = next;
    }
    for client in &mut silent {
        client.sender(1, "q").await.unwrap();
    }
    server.stop().await;
}
