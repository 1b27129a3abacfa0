//! Tests of windows, idle connections and slow clients: they must not harm other clients or the
//! memory of the broker.

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::{Flow, Open, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_core::contract::AllowAll;
use peeklock_core::message::Content;
use peeklock_core::time::TimeSpan;

use crate::browsing::browser;
use crate::client::{Client, text};
use crate::management::deferred;
use crate::request::{longs, uuids, value};
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

/// AMQP-30: no frame exceeds the client's window. Frames that wait for it do not prevent the broker
/// from reading the flow that opens it.
#[tokio::test]
async fn a_window_that_is_shut_can_be_opened() {
    let server = Server::start().await;
    let long = "x".repeat(100_000);
    // More than a connection may hold for its client.
    for _ in 0..30 {
        server.put(&[&long]).await;
    }
    let mut client = Client::open_with(server.address, Open::default(), 0).await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.sender(1, "q").await.unwrap();
    client.credit_within(0, 0, 100, false, 0).await;
    // Sends go on, and are answered although the client takes no deliveries.
    client.send(1, 0, false, &text("m")).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    let (mut frames, mut messages) = (0, 0);
    while messages < 31 {
        client.window(frames, 1).await;
        let (Performative::Transfer(transfer), _) = client.next_frame().await else { panic!() };
        frames += 1;
        messages += u32::from(!transfer.more);
    }
    server.stop().await;
}

/// RCV-14: no message is locked for a client whose window is closed, for any credit, so others
/// receive them. A drain does not end while the window blocks available messages.
#[tokio::test]
async fn nothing_is_locked_for_a_window_that_is_shut() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = Client::open_with(server.address, Open::default(), 0).await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit_within(0, 0, 5, false, 0).await;
    // By now the credit has reached the queue.
    client.sender(1, "q").await.unwrap();
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, true).await;
    let (performative, _) = other.next_frame().await;
    assert!(matches!(performative, Performative::Transfer(_)), "{performative:?}");
    server.put(&["b"]).await;
    client.credit_within(0, 0, 5, true, 0).await;
    client.send(1, 0, false, &text("c")).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    client.window(0, 10).await;
    assert_eq!(client.message().await.1.body_bytes(), "b");
    assert_eq!(client.message().await.1.body_bytes(), "c");
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!((flow.link_credit, flow.delivery_count), (Some(0), Some(5)));
    assert_eq!(server.delivery_counts().await, [0; 3]);
    server.stop().await;
}

/// RCV-14: deliveries that cannot be sent are given back before their locks end. They are not
/// counted, and others receive them.
#[tokio::test]
async fn blocked_delivery_is_given_back_before_its_lock_ends() {
    let server = Server::start().await;
    // The message has more frames than the window, so later ones wait behind it.
    let long = "x".repeat(200_000);
    server.put(&[&long, "b", "c"]).await;
    let open = Open { max_frame_size: Some(65_536), ..Open::default() };
    let mut client = Client::open_with(server.address, open, 3).await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.sender(1, "q").await.unwrap();
    client.credit_within(0, 0, 5, false, 3).await;
    for _ in 0..3 {
        assert!(matches!(client.next_frame().await, (Performative::Transfer(_), _)));
    }
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 5, true).await;
    let (Performative::Flow(flow), _) = other.next_frame().await else { panic!() };
    assert_eq!(flow.link_credit, Some(0), "they are locked");
    server.clock.advance(TimeSpan::from_seconds(59));
    client.send(1, 0, false, &text("d")).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    other.credit(0, 5, 3, true).await;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let (Performative::Transfer(_), bytes) = other.next_frame().await else { panic!() };
        bodies.push(Content::parse(bytes).unwrap().body_bytes());
    }
    bodies.sort();
    assert_eq!(bodies, ["b", "c", "d"]);
    assert_eq!(server.delivery_counts().await, [0; 4]);
    // Later messages are sent when it is possible.
    client.window(3, 10).await;
    assert!(matches!(client.next_frame().await, (Performative::Transfer(_), _)));
    server.put(&["e"]).await;
    assert_eq!(client.message().await.1.body_bytes(), "e");
    server.stop().await;
}

/// RCV-02, AMQP-93: messages received and deleted by number would be lost if the client does not
/// take earlier deliveries. While these exceed half of the bytes that may wait, such a request is
/// refused and the message stays deferred. A request with a lock is not refused.
#[tokio::test]
async fn slow_client_may_not_receive_and_delete_by_number() {
    let config =
        |config: &mut peeklock_amqp::server::AmqpConfig| config.outbound_bytes_max = 64 << 10;
    let server = Server::start_with(Arc::new(AllowAll), config).await;
    server.put(&["a", "b"]).await;
    let mut other = server.client().await;
    let numbers = [deferred(&mut other).await, {
        other.detach(2).await;
        deferred(&mut other).await
    }];
    // The message needs a frame more than the window has, so its bytes are held until the last
    // frame is sent.
    server.put(&[&"x".repeat(100_000)]).await;
    let open = Open { max_frame_size: Some(65_536), ..Open::default() };
    let mut client = Client::open_with(server.address, open, 1).await;
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit_within(2, 0, 1, false, 1).await;
    let (Performative::Transfer(first), _) = client.next_frame().await else { panic!() };
    assert!(first.more);
    client.begin_on(1).await;
    client.manager(0, "q").await;
    let receive = |number: i64, mode: u32| {
        [("sequence-numbers", longs(&[number])), ("receiver-settle-mode", value(mode))]
    };
    for _ in 0..2 {
        let refused = client.ask(0, "receive-by-sequence-number", &receive(numbers[0], 0)).await;
        assert_eq!((refused.status(), &*refused.condition()), (503, "com.microsoft:server-busy"));
    }
    let locked = client.ask(0, "receive-by-sequence-number", &receive(numbers[1], 1)).await;
    assert_eq!(locked.messages()[0].body_bytes(), "b");
    assert_eq!(server.total().await, 3);
    client.on(0);
    client.window(1, 10).await;
    let (Performative::Transfer(last), _) = client.next_frame().await else { panic!() };
    assert!(!last.more);
    client.on(1);
    // The delivery no longer counts when a later request is answered.
    let peek = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    assert_eq!(client.ask(0, "peek-message", &peek).await.messages().len(), 1);
    let taken = client.ask(0, "receive-by-sequence-number", &receive(numbers[0], 0)).await;
    assert_eq!(taken.messages()[0].body_bytes(), "a");
    assert_eq!(server.total().await, 2);
    server.stop().await;
}

/// AMQP-51: a drain ends after all available messages were delivered, even if they do not fit at
/// once.
#[tokio::test]
async fn drain_waits_for_messages_that_do_not_fit_at_once() {
    let server = Server::start().await;
    let long = "x".repeat(100_000);
    for _ in 0..30 {
        server.put(&[&long]).await;
    }
    let mut client = server.client().await;
    client.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
    client.credit(0, 0, 50, true).await;
    for _ in 0..30 {
        client.message().await;
    }
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!((flow.link_credit, flow.drain, flow.delivery_count), (Some(0), true, Some(50)));
    server.stop().await;
}

/// AMQP-50: credit that arrives during a drain remains, and later messages use it.
#[tokio::test]
async fn credit_that_comes_during_a_drain_stands() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    // Read together: the second flow arrives before the first is answered.
    client.hold_back();
    client.credit(0, 0, 10, true).await;
    client.credit(0, 0, 10, false).await;
    let echo = Flow {
        next_incoming_id: Some(0),
        incoming_window: 1_000,
        outgoing_window: 1_000,
        echo: true,
        ..Flow::default()
    };
    client.send_frame(&Performative::Flow(echo)).await;
    client.let_go().await;
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!(flow.handle, None);
    // By now the credit has reached the queue, which gets these messages later.
    server.put(&["a", "b"]).await;
    client.message().await;
    client.message().await;
    server.stop().await;
}

/// AMQP-81: a session with the maximum number of unsettled deliveries still gets replies, can
/// browse, and can receive and delete.
#[tokio::test]
async fn settled_deliveries_pass_unsettled_limit() {
    let few = |config: &mut peeklock_amqp::server::AmqpConfig| config.unsettled_count_max = 2;
    let server = Server::start_with(Arc::new(AllowAll), few).await;
    server.put(&["a", "b", "c"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 10, false).await;
    client.message().await;
    client.message().await;
    client.manager(5, "q").await;
    let reply = client.ask(5, "renew-lock", &[("lock-tokens", uuids(&[1]))]).await;
    assert_eq!(reply.status(), 410);
    let reply = client.ask(5, "peek-message", &[("message-count", value(0_i32))]).await;
    assert_eq!(reply.status(), 400);
    client.attach_receiver(browser(1, "q")).await.unwrap();
    client.credit(1, 0, 1, false).await;
    client.message().await;
    client.receiver(2, "q", SenderSettleMode::Settled).await.unwrap();
    client.credit(2, 0, 1, false).await;
    client.message().await;
    server.stop().await;
}

/// AMQP-06: a client with an idle time-out gets empty frames.
#[tokio::test]
async fn an_idle_client_is_sent_empty_frames() {
    let server = Server::start().await;
    let open = Open { idle_time_out: Some(400), ..Open::default() };
    let mut client = Client::open_with(server.address, open, 10).await;
    let frame = tokio::time::timeout(Duration::from_secs(20), client.any_frame()).await.unwrap();
    assert!(frame.unwrap().is_empty());
    server.stop().await;
}

/// AMQP-06: a client that is silent for longer than the announced time-out is disconnected. Its
/// locks expire and are counted (SET-21).
#[tokio::test]
async fn a_silent_client_is_closed() {
    let idle = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.idle_timeout = Duration::from_millis(300);
    };
    let server = Server::start_with(Arc::new(AllowAll), idle).await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 1, false).await;
    client.message().await;
    let (Performative::Close(close), _) = client.next_frame().await else { panic!() };
    assert_eq!(close.error.unwrap().condition(), "amqp:resource-limit-exceeded");
    assert!(client.is_closed().await);
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, false).await;
    server.clock.advance(TimeSpan::from_minutes(1));
    other.message().await;
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// AMQP-06: a client that is not read for lack of room does not count as silent. It is served when
/// there is room.
#[tokio::test]
async fn client_waiting_for_room_is_not_silent() {
    let idle = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.idle_timeout = Duration::from_millis(300);
    };
    let server = Server::start_with(Arc::new(AllowAll), idle).await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let mut held = Vec::new();
    for bytes in [16 << 20, 1] {
        while let Some(permit) = server.broker.connection_budget().try_take(bytes) {
            held.push(permit);
        }
    }
    client.send(0, 0, false, &text("m")).await;
    let heard = tokio::time::timeout(Duration::from_millis(1_000), client.next_frame()).await;
    assert!(heard.is_err(), "{heard:?}");
    drop(held);
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    server.stop().await;
}

/// AMQP-90: a client that is disconnected for an error gets the reason, and its socket is closed as
/// soon as it has closed too.
#[tokio::test]
async fn a_client_that_has_closed_too_is_let_go() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send_frame(&Performative::Open(Box::default())).await;
    let (Performative::Close(close), _) = client.next_frame().await else { panic!() };
    assert_eq!(close.error.unwrap().condition(), "amqp:illegal-state");
    client
        .send_frame(&Performative::Close(peeklock_amqp::performative::Close { error: None }))
        .await;
    // Long before the next regular check.
    let closed = tokio::time::timeout(Duration::from_secs(3), client.is_closed()).await;
    assert_eq!(closed, Ok(true));
    server.stop().await;
}

/// SET-21, SET-31, AMQP-69: an orderly `end` and `close` leave locks unchanged and count nothing. A
/// client that closes with an error has closed in order too.
#[tokio::test]
async fn an_orderly_close_leaves_locks() {
    for error in [None, Some(AmqpError::new("amqp:internal-error", "the client has failed"))] {
        an_orderly_close_because_of(error).await;
    }
}

async fn an_orderly_close_because_of(error: Option<AmqpError>) {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 1, false).await;
    client.message().await;
    if error.is_none() {
        client
            .send_frame(&Performative::End(peeklock_amqp::performative::End { error: None }))
            .await;
        assert!(matches!(client.next_frame().await, (Performative::End(_), _)));
    }
    client.send_frame(&Performative::Close(peeklock_amqp::performative::Close { error })).await;
    assert!(matches!(client.next_frame().await, (Performative::Close(_), _)));
    assert!(client.is_closed().await);
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, true).await;
    let (Performative::Flow(flow), _) = other.next_frame().await else { panic!() };
    assert_eq!(flow.link_credit, Some(0), "it is locked still");
    assert_eq!(server.delivery_counts().await, [0]);
    server.stop().await;
}
