//! Clients that send.

use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_core::message::Message;

use crate::client::{Client, text};
use crate::server::Server;

fn condition(state: &DeliveryState) -> String {
    match state {
        DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
            rejected.error.as_ref().unwrap().condition().to_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// AMQP-40, AMQP-41: a sender has credit at once; what is accepted is stored.
#[tokio::test]
async fn what_is_accepted_is_stored() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "amqps://localhost:5672/Q").await.unwrap();
    for id in 0..3 {
        client.send(0, 0, false, &text("m")).await;
        assert_eq!(client.disposed().await, (id, DeliveryState::accepted()));
        assert_eq!(server.counts().await.active, u64::from(id) + 1);
    }
    server.stop().await;
}

/// AMQP-41: what is sent settled is stored and not answered.
#[tokio::test]
async fn what_is_sent_settled_is_not_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    client.send(0, 0, true, &text("a")).await;
    client.send(0, 0, false, &text("b")).await;
    assert_eq!(client.disposed().await, (1, DeliveryState::accepted()));
    assert_eq!(server.counts().await.active, 2);
    server.stop().await;
}

/// AMQP-42: a batch is one delivery and many messages.
#[tokio::test]
async fn a_batch_is_taken_apart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let mut batch = Vec::new();
    for part in ["a", "b", "c"] {
        let message = text(part);
        batch.extend([0x00, 0x53, 0x75, 0xa0, u8::try_from(message.len()).unwrap()]);
        batch.extend_from_slice(&message);
    }
    client.send(0, BATCH_FORMAT, false, &batch).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    assert_eq!(server.counts().await.active, 3);
    server.stop().await;
}

/// AMQP-43: a message that is too large is rejected, and the link stays.
#[tokio::test]
async fn a_message_that_is_too_large_is_rejected() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let large = Message::new(vec![7; 1 << 20]).encode();
    client.send(0, 0, false, large.as_bytes()).await;
    let (_, state) = client.disposed().await;
    assert_eq!(condition(&state), "amqp:link:message-size-exceeded");
    client.send(0, 0, false, &text("m")).await;
    assert_eq!(client.disposed().await, (1, DeliveryState::accepted()));
    server.stop().await;
}

/// AMQP-36, AMQP-90: an entity that is not there refuses the link.
#[tokio::test]
async fn a_missing_entity_refuses_the_link() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.sender(0, "none").await, Err("amqp:not-found".to_owned()));
    let refused = client.receiver(1, "none", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err("amqp:not-found".to_owned()));
    assert_eq!(client.sender(2, "q/$DeadLetterQueue").await, Err("amqp:not-allowed".to_owned()));
    server.stop().await;
}

/// AMQP-08: a user whose key nobody can judge is not let in.
#[tokio::test]
async fn a_key_is_not_taken_for_a_token() {
    let server = Server::start().await;
    let (mut client, code) = Client::log_in(server.address, "PLAIN", b"\0policy\0key").await;
    assert_eq!(code, 1);
    assert!(client.is_closed().await);
    server.stop().await;
}
