//! Tests of credit that is lowered, left unused or used up meanwhile, and of the order in which
//! links are served.

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::{Detach, Flow, Open, Performative, SenderSettleMode};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_core::message::{Content, Value};

use crate::client::{Client, text};
use crate::closing::all_room;
use crate::receiving::modified;
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

/// Returns all messages of the queue that another client gets now.
async fn left(server: &Server) -> Vec<Bytes> {
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 100, true).await;
    let mut bodies = Vec::new();
    loop {
        match other.next_frame().await {
            (Performative::Transfer(_), payload) => {
                bodies.push(Content::parse(payload).unwrap().body_bytes());
            }
            (Performative::Flow(_), _) => return bodies,
            other => panic!("{other:?}"),
        }
    }
}

/// A client whose window is closed in the middle of the first of three messages, with credit for
/// all three on handle 0. The others wait behind the first.
async fn stuck(server: &Server, behind: &[&str]) -> Client {
    server.put(&[&"x".repeat(200_000)]).await;
    server.put(behind).await;
    let open = Open { max_frame_size: Some(60_000), ..Open::default() };
    let mut client = Client::open_with(server.address, open, 3).await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit_within(0, 0, 3, false, 3).await;
    for _ in 0..3 {
        let (Performative::Transfer(transfer), _) = client.next_frame().await else { panic!() };
        assert!(transfer.more);
    }
    // By now the credit has reached the queue.
    client.sender(1, "q").await.unwrap();
    client
}

/// Takes the rest of the first message.
async fn rest(client: &mut Client) {
    let (Performative::Transfer(transfer), _) = client.next_frame().await else { panic!() };
    assert!(!transfer.more);
}

/// AMQP-50: when credit is taken back, deliveries for it that were not sent become available to
/// others immediately, not at the end of their locks, and are not counted. Deliveries within the
/// remaining credit are sent.
#[tokio::test]
async fn lowered_credit_gives_back_deliveries() {
    let server = Server::start().await;
    let mut client = stuck(&server, &["a", "b"]).await;
    assert!(left(&server).await.is_empty(), "all are locked for the link");
    // It has counted the first delivery, and takes another one.
    client.credit_within(0, 1, 1, false, 3).await;
    client.sender(2, "q").await.unwrap();
    assert_eq!(left(&server).await, ["b"]);
    client.window(3, 10).await;
    rest(&mut client).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    // New credit has its full value.
    server.put(&["c", "d"]).await;
    client.credit_within(0, 2, 1, false, 100).await;
    let (transfer, content) = client.message().await;
    assert!(content.body_bytes() == "b" || content.body_bytes() == "c", "{transfer:?}");
    client.sender(3, "q").await.unwrap();
    server.stop().await;
}

/// AMQP-50, RCV-14: a client that lowers its credit to 0 keeps only the deliveries that it was
/// sent.
#[tokio::test]
async fn credit_of_nothing_gives_back_all_that_came() {
    let server = Server::start().await;
    let mut client = stuck(&server, &["a", "b"]).await;
    client.credit_within(0, 1, 0, false, 3).await;
    client.sender(2, "q").await.unwrap();
    assert_eq!(server.delivery_counts().await, [0, 0, 0]);
    assert_eq!(left(&server).await, ["a", "b"]);
    server.stop().await;
}

/// AMQP-50, AMQP 2.6.7: credit in a flow that waited for room is reduced by deliveries sent
/// meanwhile. None is counted twice, and no message is locked beyond the credit.
#[tokio::test]
async fn credit_that_was_used_meanwhile_is_not_counted_twice() {
    let server = Server::start().await;
    let mut client = stuck(&server, &["a", "b", "c", "d", "e"]).await;
    let held = all_room(&server);
    client.hold_back();
    client.send(1, 0, false, &text("m")).await;
    // The same credit again, and a window.
    client.credit_within(0, 0, 3, false, 100).await;
    client.let_go().await;
    rest(&mut client).await;
    for body in ["a", "b"] {
        assert_eq!(client.message().await.1.body_bytes(), body);
    }
    drop(held);
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    client.sender(2, "q").await.unwrap();
    assert_eq!(left(&server).await, ["c", "d", "e", "m"]);
    server.stop().await;
}

/// AMQP-53: a client whose first flow grants no credit gets no delivery. Credit that it raises and
/// leaves unused serves later messages. A delivery that it releases is not counted.
#[tokio::test]
async fn credit_is_raised_and_left_standing() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 0, false).await;
    client.sender(1, "q").await.unwrap();
    client.credit(0, 0, 3, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    // The remaining credit stays after a pause.
    assert_eq!(client.settle(0, DeliveryState::accepted()).await, DeliveryState::accepted());
    server.put(&["b"]).await;
    assert_eq!(client.message().await.1.body_bytes(), "b");
    // A credit of 1 remains, and serves the same message again.
    let released = DeliveryState::Outcome(Outcome::Released);
    assert_eq!(client.settle(1, released.clone()).await, released);
    assert_eq!(client.message().await.1.body_bytes(), "b");
    assert_eq!(server.delivery_counts().await, [0]);
    server.stop().await;
}

/// AMQP-58: messages are delivered in the order of their numbers. An abandoned message, and one
/// whose lock has expired, is delivered again before later ones.
#[tokio::test]
async fn returned_message_keeps_its_order() {
    let server = Server::start().await;
    server.put(&["a", "b", "c", "d"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 2, false).await;
    for body in ["a", "b"] {
        assert_eq!(client.message().await.1.body_bytes(), body);
    }
    assert_eq!(client.settle(1, modified(false)).await, modified(false));
    client.credit(0, 2, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "b", "before those behind it");
    server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(61));
    client.credit(0, 3, 4, false).await;
    for body in ["a", "b", "c", "d"] {
        assert_eq!(client.message().await.1.body_bytes(), body);
    }
    server.stop().await;
}

/// AMQP-59: links with credit at a queue are served in the order in which their credit arrived.
#[tokio::test]
async fn credit_is_served_in_the_order_in_which_it_came() {
    let server = Server::start().await;
    let mut clients = [server.client().await, server.client().await, server.client().await];
    for client in &mut clients {
        client.receiver(0, "q", LOCKED).await.unwrap();
    }
    for (count, order) in [(0, [2, 0, 1]), (1, [1, 2, 0])] {
        for at in order {
            clients[at].credit(0, count, 1, false).await;
            // The credit has arrived when this is answered.
            clients[at].sender(1 + count, "q").await.unwrap();
        }
        server.put(&["a", "b", "c"]).await;
        for (at, body) in order.into_iter().zip(["a", "b", "c"]) {
            assert_eq!(clients[at].message().await.1.body_bytes(), body);
        }
    }
    server.stop().await;
}

/// AMQP-95, AMQP 4.4.3: a flow that requests deliveries in a transaction is refused as unsupported,
/// and no message is delivered.
#[tokio::test]
async fn messages_are_not_acquired_in_a_transaction() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    let id = Raw::encoded(|bytes| {
        Value::Binary(Bytes::from_static(&[0; 8])).encode_to(bytes);
    });
    let flow = Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        outgoing_window: 100,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(1),
        properties: Some(Map::of_symbols([("txn-id", id)])),
        ..Flow::default()
    };
    client.send_frame(&Performative::Flow(flow)).await;
    let (Performative::Detach(Detach { error, closed, .. }), _) = client.next_frame().await else {
        panic!()
    };
    assert!(closed);
    assert_eq!(error.unwrap().condition(), "amqp:not-implemented");
    assert_eq!(left(&server).await, ["a"]);
    server.stop().await;
}
