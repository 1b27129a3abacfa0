//! Tests of attached links that the broker ends because of their entity: the error makes clients
//! attach again, and the refusal has the actual condition.

use peeklock_amqp::performative::{Close, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::inspect::ClientQuery;

use crate::client::{Client, text};
use crate::sending::condition;
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
pub const FORCED: &str = "amqp:link:detach-forced";

/// Returns the next link that the broker detaches, with condition and description.
pub async fn ended(client: &mut Client) -> (u32, String, String) {
    let (Performative::Detach(detach), _) = client.next_frame().await else { panic!() };
    assert!(detach.closed);
    let error = detach.error.unwrap();
    (detach.handle, error.condition().to_owned(), error.description().to_owned())
}

async fn set(server: &Server, status: EntityStatus) {
    let update = QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    server.broker.update_queue("q", update, None).await.unwrap();
}

/// AMQP-79: a receiver is detached when its entity is deleted.
#[tokio::test]
async fn a_receiver_ends_with_its_entity() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 1, false).await;
    server.broker.delete_entity("q").await.unwrap();
    assert_eq!(client.detached().await, FORCED);
    let again = client.receiver(1, "q", LOCKED).await;
    assert_eq!(again, Err("amqp:not-found".to_owned()));
    server.stop().await;
}

/// AMQP-79, AMQP-91: an idle sender is detached when its entity is deleted, and no other link is.
/// It can be attached again when the entity exists again.
#[tokio::test]
async fn a_sender_ends_with_its_entity() {
    let server = Server::start().await;
    server.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    client.sender(0, "other").await.unwrap();
    client.sender(1, "q").await.unwrap();
    client.send(1, 0, false, &text("x")).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    server.broker.delete_entity("q").await.unwrap();
    let (handle, condition, description) = ended(&mut client).await;
    assert_eq!((handle, condition.as_str()), (1, FORCED));
    assert!(description.contains("'q'") || description.contains("`q`"), "{description}");
    assert_eq!(client.sender(2, "q").await, Err("amqp:not-found".to_owned()));
    client.send(0, 0, false, &text("y")).await;
    assert_eq!(client.disposed().await, (1, DeliveryState::accepted()));
    server.broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    client.sender(3, "q").await.unwrap();
    client.send(3, 0, false, &text("z")).await;
    assert_eq!(client.disposed().await, (2, DeliveryState::accepted()));
    assert_eq!(server.bodies().await, ["z"]);
    server.stop().await;
}

/// AMQP-91: at a stop every connection, with or without links, is closed with a condition upon
/// which clients connect again. It ends when the client has answered.
#[tokio::test]
async fn stop_closes_every_connection_with_an_error() {
    let server = Server::start().await;
    let (mut idle, mut receiving) = (server.client().await, server.client().await);
    receiving.receiver(0, "q", LOCKED).await.unwrap();
    receiving.credit(0, 0, 1, false).await;
    let stopping = tokio::spawn(server.stop_in_order());
    for client in [&mut idle, &mut receiving] {
        let close = loop {
            match client.next_frame().await.0 {
                Performative::Close(close) => break close,
                // Credit that is returned.
                Performative::Flow(_) => {}
                other => panic!("{other:?}"),
            }
        };
        let error = close.error.unwrap();
        assert_eq!(error.condition(), "amqp:connection:forced");
        assert!(error.description().contains("stopped"), "{}", error.description());
        client.send_frame(&Performative::Close(Close { error: None })).await;
        assert!(client.is_closed().await);
    }
    stopping.await.unwrap();
}

/// AMQP-79, ENT-24: a receiver is detached when receiving is disabled, and is refused until it is
/// enabled. Senders go on.
#[tokio::test]
async fn a_receiver_ends_when_its_entity_is_closed_to_receivers() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    set(&server, EntityStatus::ReceiveDisabled).await;
    let (handle, condition, description) = ended(&mut client).await;
    assert_eq!((handle, condition.as_str()), (1, FORCED));
    assert!(description.contains("ReceiveDisabled"), "{description}");
    client.send(0, 0, false, &text("x")).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    let again = client.receiver(2, "q", LOCKED).await;
    assert_eq!(again, Err("com.microsoft:entity-disabled".to_owned()));
    set(&server, EntityStatus::Active).await;
    client.receiver(3, "q", LOCKED).await.unwrap();
    client.credit(3, 0, 1, false).await;
    let (_, message) = client.message().await;
    assert_eq!(message.body_bytes(), "x");
    server.stop().await;
}

/// AMQP-46, ENT-24: a sender stays attached while sending is disabled: its messages are rejected.
#[tokio::test]
async fn a_sender_outlasts_an_entity_that_is_closed_to_senders() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    for status in [EntityStatus::SendDisabled, EntityStatus::Disabled] {
        set(&server, status).await;
        client.send(0, 0, false, &text("x")).await;
        let (_, state) = client.disposed().await;
        assert_eq!(condition(&state), "com.microsoft:entity-disabled");
    }
    set(&server, EntityStatus::Active).await;
    client.send(0, 0, false, &text("y")).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["y"]);
    server.stop().await;
}

/// CON-24, SET-31: an operator closes a client. Its message is available at once and not counted,
/// and the condition makes clients connect again.
#[tokio::test]
async fn operator_closes_a_client() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    client.sender(0, "q").await.unwrap();
    client.send(0, 0, false, &text("x")).await;
    client.disposed().await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    client.message().await;
    let query = ClientQuery { path: Some("q".into()), count_max: 10, ..ClientQuery::default() };
    let id = server.broker.clients(&query).await.clients[0].id;
    server.broker.close_client(id).unwrap();
    let close = loop {
        match client.next_frame().await.0 {
            Performative::Close(close) => break close,
            Performative::Flow(_) => {}
            other => panic!("{other:?}"),
        }
    };
    let error = close.error.unwrap();
    assert_eq!(error.condition(), "amqp:connection:forced");
    assert!(error.description().contains("operator"), "{}", error.description());
    client.send_frame(&Performative::Close(Close { error: None })).await;
    assert!(client.is_closed().await);
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, false).await;
    other.message().await;
    assert_eq!(server.delivery_counts().await, [0]);
    server.stop().await;
}
