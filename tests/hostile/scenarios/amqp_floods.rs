//! Requests over AMQP that cost the client little and get an answer that it does not read: sessions
//! and links of existing and absent entities, tokens, requests for the state of a link, and empty
//! frames.

use peeklock_amqp::performative::{Detach, Flow, Performative};
use peeklock_core::message::{Body, Message, MessageId, Value};

use super::super::amqp::{WINDOW, attach, begin, encoded, frame, open, part, receiver, sender};
use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::queue;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let floods =
        [links(), lost_links(), sessions(), echoes(), tokens(), frame(0, 0, &[]).repeat(8_000)];
    let mut attack = Attack::default();
    attack.may_leave(4 * weight.min(5));
    for number in 0..24 * weight.min(5) {
        let Ok(mut client) = open(broker.amqp, WINDOW) else { continue };
        if client.attach(&sender(0, "attacked")).is_err()
            || client.attach(&sender(1, "$cbs")).is_err()
            || client.attach(&receiver(2, "$cbs")).is_err()
        {
            continue;
        }
        flood(&mut client.stream, &floods[number % floods.len()], 50 * weight);
        attack.hold(client);
    }
    // A client that sends only empty frames, as fast as they are accepted.
    let (address, empty) = (broker.amqp, frame(0, 0, &[]).repeat(8_000));
    attack.repeat(move || {
        if let Ok(mut client) = open(address, WINDOW) {
            flood(&mut client.stream, &empty, 10);
        }
    });
    attack
}

/// Links that attach and detach.
fn links() -> Vec<u8> {
    let both = (10..200_u32).flat_map(|handle| {
        let detach = Performative::Detach(Detach { handle, closed: true, error: None });
        [encoded(0, &attach(receiver(handle, "attacked")), &[]), encoded(0, &detach, &[])]
    });
    both.flatten().collect()
}

/// Links to entities that do not exist.
fn lost_links() -> Vec<u8> {
    let attaches = (10..200).map(|handle| encoded(0, &attach(sender(handle, "attacked-not")), &[]));
    attaches.flatten().collect()
}

/// More sessions than a connection may have.
fn sessions() -> Vec<u8> {
    (1..2_000).flat_map(|channel| encoded(channel, &begin(WINDOW), &[])).collect()
}

/// Requests for the state of a link.
fn echoes() -> Vec<u8> {
    let echo = Flow {
        next_incoming_id: Some(0),
        incoming_window: WINDOW,
        outgoing_window: WINDOW,
        handle: Some(0),
        delivery_count: Some(0),
        echo: true,
        ..Flow::default()
    };
    encoded(0, &Performative::Flow(echo), &[]).repeat(4_000)
}

/// Tokens of maximum size, each for another audience.
fn tokens() -> Vec<u8> {
    let token = "t".repeat(16 << 10);
    let mut body = vec![0x00, 0x53, 0x77];
    Value::String(token).encode_to(&mut body);
    let put = (0..400_u32).flat_map(|number| {
        let property = |name: &str, value: String| (name.to_owned(), Value::String(value));
        let request = Message {
            message_id: Some(MessageId::Ulong(number.into())),
            body: Body::Value(body.clone().into()),
            application_properties: vec![
                property("operation", "put-token".to_owned()),
                property("type", "servicebus.windows.net:sastoken".to_owned()),
                property("name", format!("amqp://h/any-{number}")),
            ],
            ..Message::default()
        };
        encoded(0, &part(1, Some(number), false), request.encode().as_bytes())
    });
    put.collect()
}
