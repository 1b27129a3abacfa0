//! A few bytes that name thousands of deliveries. Over WebSocket: frames of requests that each name
//! all of them in one range, answers unread. Over AMQP: dispositions of all of them with as many
//! properties as fit into a frame, and thousands of small dispositions for deliveries that are
//! already being settled.

use peeklock_amqp::performative::{Disposition, Performative, Role};
use peeklock_amqp::state::{DeliveryState, Modified, Outcome};
use serde_json::{Value as Json, json};

use super::super::amqp::{credit, encoded, open, receiver};
use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::links::Amqp;
use super::super::wire::{WebSocket, ask, masked};
use super::any_values::changes;
use super::attached;

/// Maximum of deliveries in one request, and of requests in a frame.
const DELIVERIES: u32 = 4_096;
/// AMQP clients of each kind.
const CLIENTS: usize = 2;
/// Properties that fit into a frame. The last one has no name.
const PROPERTIES: usize = 20_000;
/// Dispositions sent in one write.
const DISPOSITIONS: usize = 2_000;
/// A window that no test exhausts.
const ALL: u32 = 1 << 30;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let long = json!({ "lockDuration": "PT5M" }).to_string();
    assert_eq!(ask(broker.http, "PUT", "/$api/v1/queues/attacked", &long).unwrap().status, 201);
    let mut renewing = renewing(broker);
    let some = || (0..CLIENTS).map(|_| receiving(broker)).collect::<Vec<_>>();
    let (changing, completing) = (some(), some());
    let mut attack = Attack::default();
    flood(&mut renewing.stream, &renewals(), weight.min(5));
    attack.hold(renewing);
    let changed = Modified {
        delivery_failed: Some(true),
        message_annotations: Some(changes(PROPERTIES, false)),
        ..Modified::default()
    };
    for (mut client, first) in changing {
        let changed = DeliveryState::Outcome(Outcome::Modified(changed.clone()));
        client.say(&all_of(first, changed)).unwrap();
        attack.hold(client);
    }
    for (mut client, first) in completing {
        let completed = Performative::Disposition(all_of(first, DeliveryState::accepted()));
        flood(&mut client.stream, &encoded(0, &completed, &[]).repeat(DISPOSITIONS), 1);
        attack.hold(client);
    }
    attack
}

/// Sends one tiny message for each delivery of a client.
fn fill(broker: &Broker) {
    let mut socket = attached(broker, "sender");
    let messages = vec![json!({ "body": "x" }); DELIVERIES as usize];
    let answer = socket.ask(3, "send", &json!({ "link": 1, "messages": messages })).unwrap();
    let accepted = answer["accepted"].as_object().unwrap();
    assert!(accepted.get("failed").is_none(), "{answer}");
}

/// A WebSocket client that has all messages under lock.
fn renewing(broker: &Broker) -> WebSocket {
    fill(broker);
    let mut socket = attached(broker, "receiver");
    let credit = json!({ "link": 1, "upTo": DELIVERIES });
    socket.send(&json!({ "requests": [{ "credit": credit }] })).unwrap();
    let mut count = 0;
    while count < DELIVERIES as usize {
        let frame = socket.frame().unwrap();
        let items = frame["items"].as_array().into_iter().flatten();
        let messages = items.filter_map(|item| item["deliveries"]["messages"].as_array());
        count += messages.map(Vec::len).sum::<usize>();
    }
    socket
}

/// Frame with the maximum of requests, each of which names all deliveries: half of them plain, half
/// in a transaction that does not exist.
fn renewals() -> Vec<u8> {
    let renew = json!({ "link": 1, "ranges": [[1, DELIVERIES]] });
    let in_transaction = json!({ "transaction": 1, "renew": renew });
    let request = |number: u32| match number % 2 {
        0 => json!({ "id": 100 + number, "renew": renew }),
        _ => json!({ "id": 100 + number, "renewIn": in_transaction }),
    };
    let requests: Vec<Json> = (0..DELIVERIES).map(request).collect();
    masked(0x81, json!({ "seen": 0, "requests": requests }).to_string().as_bytes())
}

/// An AMQP client that has as many messages under lock, and the number of its first delivery.
fn receiving(broker: &Broker) -> (Amqp, u32) {
    fill(broker);
    let mut client = open(broker.amqp, ALL).unwrap();
    client.attach(&receiver(0, "attacked")).unwrap();
    client.say(&credit(0, DELIVERIES, ALL)).unwrap();
    let (mut count, mut first) = (0, None);
    while count < DELIVERIES {
        match client.hear().unwrap().0 {
            Performative::Transfer(transfer) => {
                count += u32::from(transfer.delivery_id.is_some());
                first = first.or(transfer.delivery_id);
            }
            Performative::Close(close) => panic!("{close:?}"),
            _ => {}
        }
    }
    (client, first.unwrap())
}

/// Disposition of all deliveries from `first` with this state.
fn all_of(first: u32, state: DeliveryState) -> Disposition {
    Disposition {
        role: Role::Receiver,
        first,
        last: Some(first.wrapping_add(DELIVERIES - 1)),
        settled: false,
        state: Some(state),
        batchable: false,
    }
}
