//! Tests of large messages: in frames of any size, and one message at a time.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::performative::{
    DeliveryTag, Flow, Open, Performative, SenderSettleMode, Transfer,
};
use peeklock_amqp::state::DeliveryState;
use peeklock_core::command::Command;
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::Message;

use crate::browsing::browser;
use crate::client::{Client, text};
use crate::request::{uuids, value};
use crate::sending::condition;
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const MIB: usize = 1 << 20;
/// More than several clients may send at the same time.
const LARGE: usize = 20 * MIB;

/// An encoded large message.
fn large(bytes: usize) -> Bytes {
    Message::new(vec![7; bytes]).encode().as_bytes().clone()
}

/// A client with frames of 4 KiB.
async fn narrow(server: &Server, incoming_window: u32) -> Client {
    let open = Open { max_frame_size: Some(4_096), ..Open::default() };
    let mut client = Client::open_with(server.address, open, incoming_window).await;
    client.frame_bytes = 4_000;
    client
}

/// Receives a message while opening the window; returns its size in bytes.
async fn take(client: &mut Client, mut frames: u32) -> usize {
    let mut bytes = 0;
    loop {
        let (Performative::Transfer(transfer), payload) = client.next_frame().await else {
            panic!()
        };
        frames += 1;
        bytes += payload.len();
        if !transfer.more {
            return bytes;
        }
        if frames.is_multiple_of(500) {
            client.window(frames, 1_000).await;
        }
    }
}

/// AMQP-05, AMQP-43: a message of nearly 100 MiB passes through frames of 4 KiB in both directions.
#[tokio::test]
async fn a_large_message_passes_through_small_frames() {
    let server = Server::start_large().await;
    let mut client = narrow(&server, 1_000).await;
    client.sender(0, "q").await.unwrap();
    let message = large(99 * MIB);
    client.send(0, 0, false, &message).await;
    accepted(&mut client).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    assert!(take(&mut client, 0).await > 99 * MIB);
    server.stop().await;
}

/// A single large content is received at a time: others wait until it is stored.
#[tokio::test]
async fn large_messages_arrive_one_at_a_time() {
    let server = Server::start_large().await;
    let mut first = server.client().await;
    first.sender(0, "q").await.unwrap();
    let message = large(LARGE);
    let (begin, rest) = message.split_at(17 * MIB);
    say_part(&mut first, Some(0), begin, true).await;
    read(&mut first, u32::try_from(begin.len().div_ceil(60_000)).unwrap()).await;
    let mut second = server.client().await;
    second.sender(0, "q").await.unwrap();
    let mut sending = Box::pin(async {
        second.send(0, 0, false, &message).await;
        accepted(&mut second).await;
    });
    // The first client may pause for a while. The broker reads no more of the second message, so it
    // cannot even be written.
    assert!(tokio::time::timeout(Duration::from_secs(2), &mut sending).await.is_err());
    assert_eq!(server.total().await, 0);
    say_part(&mut first, None, rest, false).await;
    accepted(&mut first).await;
    sending.await;
    assert_eq!(server.total().await, 2);
    server.stop().await;
}

/// AMQP-66: large messages in transactions do not block each other. Their limits are those for open
/// transactions: here 64 MiB for a connection, and half of the inbound bytes for all together.
#[tokio::test]
async fn large_messages_of_transactions_have_a_bound_of_their_own() {
    let message = large(LARGE);
    for (inbound_bytes, has_room) in [(256 * MIB, true), (64 * MIB, false)] {
        let mut limits = Limits::of(Tier::Premium);
        limits.broker_inbound_bytes_max = inbound_bytes as u64;
        let server = Server::start_large_under(limits, |_| {}).await;
        let (mut first, first_id) = in_transaction(&server).await;
        let (mut second, second_id) = in_transaction(&server).await;
        let within = |state: &DeliveryState| matches!(state, DeliveryState::Transactional(_));
        assert!(within(&first.send_within(0, &first_id, &message).await));
        let answer = second.send_within(0, &second_id, &message).await;
        if has_room {
            assert!(within(&answer), "beside that of the first");
            for _ in 0..2 {
                assert!(within(&first.send_within(0, &first_id, &message).await));
            }
            let refused = first.send_within(0, &first_id, &message).await;
            assert_eq!(condition(&refused), "amqp:resource-limit-exceeded");
            let done = second.discharge(&second_id, false).await;
            assert_eq!(done, DeliveryState::accepted());
        } else {
            assert_eq!(condition(&answer), "com.microsoft:server-busy");
            let done = first.discharge(&first_id, false).await;
            assert_eq!(done, DeliveryState::accepted());
        }
        assert_eq!(server.total().await, 1);
        server.stop().await;
    }
}

/// A client that sends to `q` and has declared a transaction.
async fn in_transaction(server: &Server) -> (Client, Bytes) {
    let mut client = server.client().await;
    client.passes_flows = true;
    client.coordinator().await;
    client.sender(0, "q").await.unwrap();
    let id = client.declare().await;
    (client, id)
}

/// Sends a part of a message; the first part has an id.
async fn say_part(client: &mut Client, id: Option<u32>, part: &[u8], more: bool) {
    let mut parts = part.chunks(60_000).peekable();
    let mut id = id;
    while let Some(part) = parts.next() {
        let transfer = Transfer {
            handle: 0,
            delivery_id: id,
            delivery_tag: id.map(|_| DeliveryTag::new(b"0").unwrap()),
            more: more || parts.peek().is_some(),
            ..Transfer::default()
        };
        client.say_with(&Performative::Transfer(transfer), part).await;
        id = None;
    }
}

/// Waits until the broker has read this number of frames of messages.
async fn read(client: &mut Client, frames: u32) {
    let echo = Flow {
        next_incoming_id: Some(0),
        incoming_window: 1_000,
        outgoing_window: 1_000,
        echo: true,
        ..Flow::default()
    };
    client.send_frame(&Performative::Flow(echo)).await;
    loop {
        let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
        if flow.next_incoming_id == Some(frames) {
            return;
        }
    }
}

/// Waits until a message is accepted, skipping flows.
async fn accepted(client: &mut Client) {
    loop {
        match client.next_frame().await {
            (Performative::Disposition(disposition), _) => {
                assert_eq!(disposition.state, Some(DeliveryState::accepted()));
                return;
            }
            (Performative::Flow(_), _) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A single large content is sent at a time. A client that waits for one is served otherwise.
#[tokio::test]
async fn large_messages_leave_one_at_a_time() {
    let server = Server::start_large().await;
    let entity = server.broker.entity("q").unwrap();
    for _ in 0..2 {
        let message = server.broker.inbound(Message::new(vec![7; LARGE]));
        entity.call(Command::Send { message }).await.unwrap();
    }
    let mut first = narrow(&server, 0).await;
    first.receiver(0, "q", LOCKED).await.unwrap();
    first.credit_within(0, 0, 1, false, 1).await;
    assert!(matches!(first.next_frame().await, (Performative::Transfer(_), _)));
    let mut second = narrow(&server, 1_000).await;
    second.manager(1, "q").await;
    second.receiver(0, "q", LOCKED).await.unwrap();
    second.credit(0, 0, 1, false).await;
    // The next frame is the reply to this request.
    let reply = second.ask(1, "renew-lock", &[("lock-tokens", uuids(&[1]))]).await;
    assert_eq!(reply.status(), 410);
    second.sender(5, "q").await.unwrap();
    second.send(5, 0, false, &text("m")).await;
    accepted(&mut second).await;
    let reply = second.ask(1, "peek-message", &[("message-count", value(0_i32))]).await;
    assert_eq!(reply.status(), 400);
    first.window(1, 1_000).await;
    assert!(take(&mut first, 1).await > LARGE - 8_192);
    assert!(take(&mut second, 0).await > LARGE);
    server.stop().await;
}

/// RCV-14: a large message is given back if its client reads nothing, so that others get theirs.
/// The partly sent delivery is aborted and not counted, and the message is delivered again later.
#[tokio::test]
async fn a_large_message_that_stands_still_makes_room() {
    let server = Server::start_large_with(|config| {
        config.write_timeout = Duration::from_millis(300);
    })
    .await;
    let entity = server.broker.entity("q").unwrap();
    for _ in 0..2 {
        let message = server.broker.inbound(Message::new(vec![7; LARGE]));
        entity.call(Command::Send { message }).await.unwrap();
    }
    let mut first = narrow(&server, 0).await;
    first.receiver(0, "q", LOCKED).await.unwrap();
    first.credit_within(0, 0, 1, false, 1).await;
    assert!(matches!(first.next_frame().await, (Performative::Transfer(_), _)));
    let mut second = narrow(&server, 1_000).await;
    second.receiver(0, "q", LOCKED).await.unwrap();
    second.credit(0, 0, 1, false).await;
    let taking = tokio::time::timeout(Duration::from_secs(30), take(&mut second, 0));
    assert!(taking.await.unwrap() > LARGE);
    // A peek shows as many messages as fit.
    assert_eq!(server.delivery_counts().await[0], 0);
    first.window(1, 1_000).await;
    let (Performative::Transfer(transfer), _) = first.next_frame().await else { panic!() };
    assert!(transfer.aborted);
    first.credit_within(0, 1, 1, false, 1_000).await;
    assert!(matches!(first.next_frame().await, (Performative::Transfer(_), _)));
    server.stop().await;
}

/// The same holds for browsers.
#[tokio::test]
async fn large_messages_are_looked_at_one_at_a_time() {
    let server = Server::start_large().await;
    let entity = server.broker.entity("q").unwrap();
    let message = server.broker.inbound(Message::new(vec![7; LARGE]));
    entity.call(Command::Send { message }).await.unwrap();
    let mut first = narrow(&server, 0).await;
    first.attach_receiver(browser(0, "q")).await.unwrap();
    first.credit_within(0, 0, 1, false, 1).await;
    assert!(matches!(first.next_frame().await, (Performative::Transfer(_), _)));
    let mut second = narrow(&server, 1_000).await;
    second.sender(5, "q").await.unwrap();
    second.attach_receiver(browser(0, "q")).await.unwrap();
    second.credit(0, 0, 1, false).await;
    for _ in 0..50 {
        second.send(5, 0, false, &text("m")).await;
        accepted(&mut second).await;
    }
    first.window(1, 1_000).await;
    assert!(take(&mut first, 1).await > LARGE - 8_192);
    assert!(take(&mut second, 0).await > LARGE);
    server.stop().await;
}
