//! Tests of sending clients: messages in one frame or many, and their answers.

use std::num::NonZero;

use bytes::Bytes;
use peeklock_amqp::connection::{Config, Continuation, Event, LinkId, MessagePart};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::link::Delivery;
use peeklock_amqp::performative::{Disposition, Performative, Role, Transfer};
use peeklock_amqp::state::{DeliveryState, Outcome, Transactional};

use crate::client::{Client, credit, receiver, sender, tag, transfer};

fn sending(config: Config) -> (Client, LinkId) {
    let (mut client, _) = Client::in_session(config);
    let link = client.attach(sender(0));
    client.connection.grant(link, 1_000);
    client.receive();
    (client, link)
}

fn received(client: &mut Client, transfer: Transfer, payload: &[u8]) -> MessagePart {
    client.say_with(0, &Performative::Transfer(transfer), payload);
    match client.events().pop() {
        Some(Event::Received { part, .. }) => part,
        other => panic!("{other:?}"),
    }
}

fn dispositions(client: &mut Client) -> Vec<(u32, Option<u32>, Option<DeliveryState>)> {
    let heard = client.receive().into_iter();
    heard
        .map(|(_, performative, _)| match performative {
            Performative::Disposition(Disposition {
                role, first, last, settled, state, ..
            }) => {
                assert_eq!((role, settled), (Role::Receiver, true));
                (first, last, state)
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Continuations may repeat or omit the identity of the delivery (AMQP-31). No part is copied.
#[test]
fn a_message_comes_in_parts_as_its_frames_do() {
    for repeats in [true, false] {
        let (mut client, _) = sending(Config::default());
        let first = received(&mut client, Transfer { more: true, ..transfer(0, 7) }, b"abc");
        assert_eq!(
            (first.continuation, &first.payload[..], first.settled),
            (Continuation::More, &b"abc"[..], false)
        );
        assert_eq!((first.tag, first.message_format), (tag(&7_u32.to_be_bytes()), 0));
        let next = if repeats { transfer(0, 7) } else { Transfer::default() };
        let more = Transfer { more: true, ..next.clone() };
        assert_eq!(received(&mut client, more, b"de").delivery, first.delivery);
        let last = received(&mut client, next, b"f");
        assert_eq!((last.continuation, last.delivery), (Continuation::Whole, first.delivery));
    }
}

/// A payload is a part of the bytes read from the socket.
#[test]
fn a_payload_is_not_copied() {
    let (mut client, _) = sending(Config::default());
    client.say_with(0, &Performative::Transfer(transfer(0, 0)), &[7; 5_000]);
    let read = client.input.as_ptr_range();
    let Some(Event::Received { part, .. }) = client.event() else { panic!("nothing came") };
    assert!(read.contains(&part.payload.as_ptr()));
}

/// The batch format and the transaction are passed on.
#[test]
fn the_format_and_the_transaction_are_passed_on() {
    let (mut client, _) = sending(Config::default());
    let state = DeliveryState::Transactional(Box::new(Transactional {
        txn_id: Bytes::from_static(b"txn"),
        outcome: None,
    }));
    let batch = Transfer {
        message_format: Some(0x8001_3700),
        state: Some(state.clone()),
        ..transfer(0, 0)
    };
    let part = received(&mut client, batch, b"");
    assert_eq!((part.message_format, part.state), (0x8001_3700, Some(state)));
}

/// Every unsettled delivery gets a settled disposition. Consecutive deliveries with the same state
/// share a range. An error has all its fields (AMQP-16).
#[test]
fn deliveries_are_answered_in_ranges() {
    let (mut client, _) = sending(Config::default());
    let parts: Vec<_> =
        (0..6).map(|id| received(&mut client, transfer(0, id), b"x").delivery).collect();
    let rejected =
        || DeliveryState::rejected(AmqpError::new("amqp:resource-limit-exceeded", "full"));
    for (index, delivery) in parts.into_iter().enumerate() {
        let state = if index == 3 { rejected() } else { DeliveryState::accepted() };
        client.connection.dispose_received(delivery, state);
    }
    let accepted = || Some(DeliveryState::accepted());
    let expected = [
        (0, Some(2), accepted()),
        (3, None, Some(rejected().with_transience())),
        (4, Some(5), accepted()),
    ];
    assert_eq!(dispositions(&mut client), expected);
}

/// A message is settled if any of its frames is; this is known after the last frame.
#[test]
fn a_message_is_settled_if_any_frame_says_so() {
    let (mut client, _) = sending(Config::default());
    let settled = Transfer { settled: Some(true), more: true, ..transfer(0, 0) };
    assert!(received(&mut client, settled, b"x").settled);
    assert!(received(&mut client, Transfer::default(), b"y").settled);
    let late = Transfer { more: true, ..transfer(0, 1) };
    assert!(!received(&mut client, late, b"x").settled);
    let last = Transfer { settled: Some(true), ..Transfer::default() };
    assert!(received(&mut client, last, b"y").settled);
}

/// The parts of an aborted message are void, and it gets no answer.
#[test]
fn an_aborted_message_is_void() {
    let (mut client, _) = sending(Config::default());
    received(&mut client, Transfer { more: true, ..transfer(0, 0) }, b"x");
    let aborted = Transfer { aborted: true, more: true, ..Transfer::default() };
    let part = received(&mut client, aborted, b"y");
    assert_eq!((part.continuation, &part.payload[..]), (Continuation::Void, &b""[..]));
    assert_eq!(client.receive(), []);
    assert_eq!(received(&mut client, transfer(0, 1), b"z").continuation, Continuation::Whole);
}

/// A message that is too large is void as soon as that is known. Its other frames are dropped, its
/// size is reported when all have arrived, and the link stays (AMQP-43).
#[test]
fn oversized_message_is_reported_and_link_stays() {
    let config = Config { message_bytes_max: NonZero::new(10).unwrap(), ..Config::default() };
    let (mut client, _) = sending(config);
    let whole = Transfer { more: true, ..transfer(0, 0) };
    assert_eq!(received(&mut client, whole, &[0; 10]).continuation, Continuation::More);
    let more = || Transfer { more: true, ..Transfer::default() };
    assert_eq!(received(&mut client, more(), &[0; 1]).continuation, Continuation::Void);
    client.say_with(0, &Performative::Transfer(more()), &[0; 1_000]);
    assert_eq!(client.events(), []);
    assert_eq!(client.receive(), []);
    client.say_with(0, &Performative::Transfer(Transfer::default()), &[0; 1_000]);
    let told = |client: &mut Client| match &client.events()[..] {
        [Event::Received { part, .. }] => (part.continuation, part.payload.len(), part.settled),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut client), (Continuation::TooLarge(2_011), 0, false));
    // A message of a single frame.
    let settled = Transfer { settled: Some(true), ..transfer(0, 1) };
    client.say_with(0, &Performative::Transfer(settled), &[0; 11]);
    assert_eq!(told(&mut client), (Continuation::TooLarge(11), 0, true));
    // An aborted message has no size.
    let begun = Transfer { more: true, ..transfer(0, 2) };
    assert_eq!(received(&mut client, begun, &[0; 11]).continuation, Continuation::Void);
    let aborted = Transfer { aborted: true, ..Transfer::default() };
    client.say_with(0, &Performative::Transfer(aborted), &[]);
    assert_eq!(client.events(), []);
    assert_eq!(client.receive(), []);
    assert_eq!(received(&mut client, transfer(0, 3), &[0; 10]).continuation, Continuation::Whole);
}

/// Deliveries above the credit of a client are accepted.
#[test]
fn deliveries_above_credit_are_taken() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(sender(0));
    client.connection.grant(link, 1);
    client.receive();
    for id in 0..3 {
        assert_eq!(received(&mut client, transfer(0, id), b"x").continuation, Continuation::Whole);
    }
    assert_eq!(client.connection.credit(link), 0);
}

/// Dispositions of a client for its own deliveries have no effect (AMQP-47), also not on deliveries
/// to it with the same numbers.
#[test]
fn a_client_may_dispose_of_its_own_deliveries() {
    let (mut client, link) = sending(Config::default());
    let receiving = client.attach(receiver(1));
    client.send(0, &Performative::Flow(credit(1, 0, 1)));
    client.events();
    let sent = Delivery { tag: tag(b"t"), settled: false, payload: vec![] };
    client.connection.send(receiving, sent).unwrap();
    client.receive();
    let delivery = received(&mut client, transfer(0, 0), b"x").delivery;
    let disposition = Disposition {
        role: Role::Sender,
        first: 0,
        last: Some(1_000_000),
        settled: true,
        state: Some(DeliveryState::Outcome(Outcome::Released)),
        batchable: false,
    };
    client.send(0, &Performative::Disposition(disposition));
    assert_eq!(client.events(), []);
    assert_eq!(client.connection.unsettled_count(link.session()), 1);
    client.connection.dispose_received(delivery, DeliveryState::accepted());
    assert_eq!(dispositions(&mut client).len(), 1);
}
