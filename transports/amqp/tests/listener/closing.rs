//! Tests of the end of connections: requests before a `close` are carried out, even if they have to
//! wait for room.

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::performative::{Close, Performative, SenderSettleMode};
use peeklock_amqp::server::AmqpConfig;
use peeklock_amqp::state::DeliveryState;
use peeklock_core::admission::Permit;
use peeklock_core::contract::AllowAll;
use peeklock_core::time::TimeSpan;

use crate::client::{Client, text};
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

/// Takes all room of the broker for inbound requests.
pub fn all_room(server: &Server) -> Vec<Permit> {
    let mut held = Vec::new();
    for bytes in [16 << 20, 1] {
        while let Some(permit) = server.broker.connection_budget().try_take(bytes) {
            held.push(permit);
        }
    }
    held
}

/// A client with this number of locked deliveries, and a sender on handle 1.
async fn holding(server: &Server, count: u32) -> Client {
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.sender(1, "q").await.unwrap();
    client.credit(0, 0, count, false).await;
    for _ in 0..count {
        client.message().await;
    }
    client
}

async fn close(client: &mut Client) {
    client.send_frame(&Performative::Close(Close { error: None })).await;
}

/// Waits until the queue has this number of messages; returns their stored delivery counts.
async fn left(server: &Server, count: u64) -> Vec<u32> {
    while server.total().await != count {
        tokio::task::yield_now().await;
    }
    server.delivery_counts().await
}

/// SET-21, SET-31, AMQP-69: settlements and settled sends before an orderly `close` are carried out
/// when there is room. Unsettled deliveries stay locked, and nothing is counted.
#[tokio::test]
async fn requests_before_close_are_carried_out() {
    let server = Server::start().await;
    server.put(&["a", "b", "c"]).await;
    let mut client = holding(&server, 3).await;
    let held = all_room(&server);
    client.hold_back();
    client.settle_for_good(0, DeliveryState::accepted()).await;
    client.send(1, 0, true, &text("d")).await;
    client.settle_for_good(1, DeliveryState::accepted()).await;
    close(&mut client).await;
    client.let_go().await;
    let mut other = server.client().await;
    assert_eq!(server.total().await, 3);
    drop(held);
    assert!(matches!(client.next_frame().await, (Performative::Close(_), _)));
    assert!(client.is_closed().await);
    assert_eq!(left(&server, 2).await, [0, 0]);
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 5, true).await;
    let (_, message) = other.message().await;
    assert_eq!(message.body_bytes(), "d");
    let (Performative::Flow(flow), _) = other.next_frame().await else { panic!() };
    assert_eq!(flow.link_credit, Some(0), "the third is locked still");
    server.stop().await;
}

/// The same holds if the `close` is answered before there is room for the requests.
#[tokio::test]
async fn waiting_requests_outlast_the_answer_to_close() {
    let server = Server::start().await;
    server.put(&["a", "b"]).await;
    let mut client = holding(&server, 2).await;
    let held = all_room(&server);
    client.hold_back();
    client.settle_for_good(0, DeliveryState::accepted()).await;
    close(&mut client).await;
    client.let_go().await;
    assert!(matches!(client.next_frame().await, (Performative::Close(_), _)));
    assert_eq!(server.total().await, 2);
    drop(held);
    assert!(client.is_closed().await);
    assert_eq!(left(&server, 1).await, [0]);
    server.stop().await;
}

/// The same holds for a client that does not wait after its `close`, so that no answer can be
/// written.
#[tokio::test]
async fn a_close_may_be_the_last_that_is_heard_of_a_client() {
    let server = Server::start().await;
    server.put(&["a", "b"]).await;
    let mut client = holding(&server, 2).await;
    client.credit(0, 2, 5, false).await;
    server.put(&["c"]).await;
    // A single thread serves all clients. It has written to this client by now, so dropping the
    // unread bytes resets the socket.
    server.client().await;
    let held = all_room(&server);
    client.hold_back();
    client.settle_for_good(0, DeliveryState::accepted()).await;
    close(&mut client).await;
    client.let_go().await;
    drop(client);
    server.client().await;
    drop(held);
    while server.bodies().await != ["b", "c"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(left(&server, 2).await, [0, 0]);
    server.stop().await;
}

/// The wait at the end is limited: requests without room within the write timeout are not carried
/// out, and the connection counts as lost. Its locks expire and are counted (SET-21).
#[tokio::test]
async fn a_close_does_not_wait_for_room_without_end() {
    let short = |config: &mut AmqpConfig| config.write_timeout = Duration::from_millis(200);
    let server = Server::start_with(Arc::new(AllowAll), short).await;
    server.put(&["a"]).await;
    let mut client = holding(&server, 1).await;
    let held = all_room(&server);
    client.hold_back();
    client.settle_for_good(0, DeliveryState::accepted()).await;
    close(&mut client).await;
    client.let_go().await;
    assert!(matches!(client.next_frame().await, (Performative::Close(_), _)));
    assert!(client.is_closed().await);
    drop(held);
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, false).await;
    server.clock.advance(TimeSpan::from_minutes(1));
    other.message().await;
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// AMQP-69: the same limit holds for a client that has disconnected without a `close` while its
/// requests wait: they are not carried out, and its locks expire and are counted.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[tokio::test]
async fn disconnected_client_waits_for_room_until_timeout() {
    let short = |config: &mut AmqpConfig| config.write_timeout = Duration::from_millis(200);
    let server = Server::start_with(Arc::new(AllowAll), short).await;
    server.put(&["a"]).await;
    let mut client = holding(&server, 1).await;
    let held = all_room(&server);
    client.settle_for_good(0, DeliveryState::accepted()).await;
    // No other client can be asked while there is no room. After the end of its sending direction,
    // this client still reads the end of the connection.
    client.leave().await;
    while client.any_frame().await.is_some() {}
    drop(held);
    server.clock.advance(TimeSpan::from_minutes(1));
    while server.delivery_counts().await != [1] {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.total().await, 1);
    server.stop().await;
}

/// AMQP-62: a settlement without room waits, and then gets its real answer, since clients take a
/// busy broker for a failure.
#[tokio::test]
async fn a_settlement_waits_for_room_and_is_not_refused() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = holding(&server, 1).await;
    let held = all_room(&server);
    client.say_of(0, DeliveryState::accepted(), false).await;
    // Other clients of the same thread are served meanwhile.
    server.client().await;
    assert_eq!(server.total().await, 1);
    drop(held);
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    assert_eq!(server.total().await, 0);
    server.stop().await;
}
