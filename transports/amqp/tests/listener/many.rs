//! Tests of clients with many links and sessions on a connection.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_amqp::performative::{Begin, Detach, End, Performative, SenderSettleMode};
use peeklock_core::contract::{AllowAll, Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;

use crate::client::Client;
use crate::server::Server;

const LIMIT: &str = "amqp:resource-limit-exceeded";

/// Allows only clients with a token.
struct Strict;

#[async_trait]
impl Authorizer for Strict {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match principal.token {
            Some(_) => Ok(Grant::everything()),
            None => Err(Rejection::unauthorized("no token")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Begins sessions until one is refused; returns the number of accepted ones.
async fn begin_many(client: &mut Client, most: u16) -> u16 {
    for channel in 1..=most {
        client.on(channel);
        let begin = Begin { incoming_window: 10, outgoing_window: 10, ..Begin::default() };
        client.send_frame(&Performative::Begin(Box::new(begin))).await;
        let (Performative::Begin(_), _) = client.next_frame().await else { panic!() };
        // A refused session is ended immediately; an accepted one answers this `end`.
        client.send_frame(&Performative::End(End::default())).await;
        let (Performative::End(end), _) = client.next_frame().await else { panic!() };
        if let Some(error) = end.error {
            assert_eq!(error.condition(), LIMIT);
            return channel;
        }
        let begin = Begin { incoming_window: 10, outgoing_window: 10, ..Begin::default() };
        client.send_frame(&Performative::Begin(Box::new(begin))).await;
        let (Performative::Begin(_), _) = client.next_frame().await else { panic!() };
    }
    most
}

/// AMQP-30: a connection may have hundreds of links, since the SDKs open three for each sender or
/// receiver. A link above the connection's limit is refused, and so is one without room in the
/// shared pool. Detached links make room.
#[tokio::test]
async fn a_connection_has_hundreds_of_links() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.link_count_max = 600;
        config.shared_link_count_max = 500;
    })
    .await;
    let mut client = server.client().await;
    for handle in 0..600 {
        client.receiver(handle, "q", SenderSettleMode::Unsettled).await.unwrap();
    }
    let refused = client.receiver(600, "q", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err(LIMIT.to_owned()));
    client
        .send_frame(&Performative::Detach(Detach { handle: 600, closed: true, error: None }))
        .await;
    let mut other = server.client().await;
    for handle in 0..256 + 128 {
        other.receiver(handle, "q", SenderSettleMode::Unsettled).await.unwrap();
    }
    let refused = other.receiver(384, "q", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err(LIMIT.to_owned()));
    client.detach(0).await;
    client.receiver(0, "q", SenderSettleMode::Unsettled).await.unwrap();
    server.stop().await;
}

/// AMQP-30, SEC-16: a client without valid credentials has 256 links and 1,024 sessions,
/// independent of other clients.
#[tokio::test]
async fn a_stranger_has_few_links_and_sessions() {
    let server = Server::start_for(Arc::new(Strict)).await;
    let mut client = server.client().await;
    for handle in 0..256 {
        client.receiver(handle, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    }
    let refused = client.receiver(256, "$cbs", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err(LIMIT.to_owned()));
    // One of these is the session in which it began.
    assert_eq!(begin_many(&mut client, 2_000).await, 1_024);
    server.stop().await;
}

/// AMQP-05: an accepted client has up to 5,000 sessions; the SDK for Go opens one for each link.
#[tokio::test]
async fn a_connection_has_thousands_of_sessions() {
    let server = Server::start_with(Arc::new(AllowAll), |_| {}).await;
    let mut client = server.client().await;
    assert_eq!(begin_many(&mut client, 2_500).await, 2_500);
    server.stop().await;
}
