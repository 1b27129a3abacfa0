//! Tests of clients that browse without receiving.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::{Attach, Performative, SenderSettleMode};
use peeklock_amqp::terminus::Source;
use peeklock_core::contract::{Authorizer, Ceiling, Grant, Principal};
use peeklock_core::description::TopicUpdate;
use peeklock_core::error::Rejection;

use crate::client::Client;
use crate::server::Server;

pub fn browser(handle: u32, address: &str) -> Attach {
    let source = Source { distribution_mode: Some("copy".into()), ..Source::at(address) };
    Attach {
        source: Some(source),
        ..Client::receiver_of(handle, address, SenderSettleMode::Settled)
    }
}

async fn sees(client: &mut Client, bodies: &[&str]) {
    for body in bodies {
        let (transfer, content) = client.message().await;
        assert_eq!((transfer.settled, &content.body_bytes()[..]), (Some(true), body.as_bytes()));
    }
}

async fn is_drained(client: &mut Client, delivery_count: u32) {
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    let told = (flow.link_credit, flow.drain, flow.delivery_count);
    assert_eq!(told, (Some(0), true, Some(delivery_count)));
}

/// AMQP-99, PEK-01: a browser gets all messages, including locked ones, and changes none. A drain
/// ends after the last one.
#[tokio::test]
async fn a_browser_takes_nothing() {
    let server = Server::start().await;
    server.put(&["a", "b", "c"]).await;
    server.lock_one().await;
    let mut client = server.client().await;
    client.attach_receiver(browser(0, "q")).await.unwrap();
    client.credit(0, 0, 10, true).await;
    sees(&mut client, &["a", "b", "c"]).await;
    is_drained(&mut client, 10).await;
    assert_eq!(server.counts().await.active, 3);
    assert_eq!(server.delivery_counts().await, [0, 0, 0]);
    server.stop().await;
}

/// AMQP-50, AMQP-99: a browser gets at most as many messages as its credit, and continues after the
/// last one.
#[tokio::test]
async fn a_browser_goes_on_where_it_was() {
    let server = Server::start().await;
    server.put(&["a", "b", "c"]).await;
    let mut client = server.client().await;
    client.attach_receiver(browser(0, "q")).await.unwrap();
    client.credit(0, 0, 2, false).await;
    sees(&mut client, &["a", "b"]).await;
    client.credit(0, 2, 5, true).await;
    sees(&mut client, &["c"]).await;
    is_drained(&mut client, 7).await;
    server.put(&["d"]).await;
    client.credit(0, 7, 5, true).await;
    sees(&mut client, &["d"]).await;
    is_drained(&mut client, 12).await;
    client.detach(0).await;
    server.stop().await;
}

/// Allows everybody to browse, and nobody to receive.
struct Looking;

#[async_trait]
impl Authorizer for Looking {
    async fn authorize(&self, _: &Principal, _: &str) -> Result<Grant, Rejection> {
        Ok(Grant::everything().with_ceiling(Ceiling::Viewer))
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// SEC-05, AMQP-99: a client without the right to receive may keep a browser.
#[tokio::test]
async fn browser_needs_no_right_to_receive() {
    let server = Server::start_for(Arc::new(Looking)).await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    let refused = client.receiver(0, "q", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err("amqp:unauthorized-access".to_owned()));
    client.attach_receiver(browser(1, "q")).await.unwrap();
    client.credit(1, 0, 10, true).await;
    sees(&mut client, &["a"]).await;
    is_drained(&mut client, 10).await;
    server.put(&["b"]).await;
    client.credit(1, 10, 5, true).await;
    sees(&mut client, &["b"]).await;
    is_drained(&mut client, 15).await;
    server.stop().await;
}

/// AMQP-79, AMQP-99: a browser is detached when its entity is deleted, even after it has got all
/// messages.
#[tokio::test]
async fn a_browser_ends_with_its_entity() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.attach_receiver(browser(0, "q")).await.unwrap();
    client.credit(0, 0, 1, false).await;
    server.broker.delete_entity("q").await.unwrap();
    assert_eq!(client.detached().await, "amqp:link:detach-forced");
    server.stop().await;
}

/// AMQP-99, PEK-11: requests that go beyond a browser are refused with their name.
#[tokio::test]
async fn unsupported_browsers_are_refused() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    let source = |handle, change: fn(&mut Source)| {
        let mut attach = browser(handle, "q");
        change(attach.source.as_mut().unwrap());
        attach
    };
    let unsettled = Client::receiver_of(3, "q", SenderSettleMode::Unsettled);
    for attach in [
        source(0, |source| source.node.durable = Some(2)),
        source(1, |source| source.node.expiry_policy = Some("never".into())),
        source(2, |source| {
            let selector = Raw::encoded(|bytes| bytes.push(0x40));
            source.filter = Some(Map::of_symbols([("jms-selector", selector)]));
        }),
        Attach { source: browser(3, "q").source, ..unsettled },
    ] {
        let refused = client.attach_receiver(attach).await.unwrap_err();
        assert_eq!(refused, "amqp:not-implemented");
    }
    let refused = client.attach_receiver(browser(4, "t")).await.unwrap_err();
    assert_eq!(refused, "amqp:not-allowed");
    server.stop().await;
}
