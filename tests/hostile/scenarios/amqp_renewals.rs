//! One client over AMQP with the maximum of unsettled deliveries, more than 50,000. It renews the
//! locks of thousands of them at a management node, several requests ahead of their replies.

use std::io::{self, Write as _};

use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_amqp::performative::{DeliveryTag, Disposition, Performative, Role};
use peeklock_amqp_testing::client::request;
use peeklock_core::message::Message;
use serde_json::json;

use super::super::amqp::{attach, begin, credit, encoded, open, receiver, sender};
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::links::Amqp;
use super::super::wire::ask;

/// Sessions with receivers, one link each. Requests and replies use another session.
const SESSIONS: u16 = 7;
/// Maximum of unsettled deliveries in a session (`amqp.unsettled_count_max`).
const UNSETTLED: u32 = 8_192;
const DELIVERIES: usize = UNSETTLED as usize * SESSIONS as usize;
/// Maximum of lock tokens in one request.
const TOKENS: usize = 4_096;
/// A window that no test exhausts.
const ALL: u32 = 1 << 30;
/// Messages sent in one batch.
const BATCH: usize = 512;
/// Link handles in the first session.
const SENDER: u32 = 0;
const REQUESTS: u32 = 1;
const REPLIES: u32 = 2;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let long = json!({ "lockDuration": "PT5M" }).to_string();
    assert_eq!(ask(broker.http, "PUT", "/$api/v1/queues/attacked", &long).unwrap().status, 201);
    let mut client = open(broker.amqp, ALL).unwrap();
    client.attach(&sender(SENDER, "attacked")).unwrap();
    fill(&mut client);
    let tokens = receive_all(&mut client).unwrap();
    let tokens: Vec<u128> = tokens.into_iter().step_by(DELIVERIES / TOKENS).take(TOKENS).collect();
    let entries = [("lock-tokens", request::uuids(&tokens))];
    let body = request::map(&entries);
    let renewal = request::request(1, "client", ("com.microsoft:renew-lock", &[]), &body);
    client.attach(&sender(REQUESTS, "attacked/$management")).unwrap();
    client.attach(&receiver(REPLIES, "attacked/$management")).unwrap();
    let ahead = 8 * weight.min(5);
    let mut asker = Asker { client, renewal: renewal.as_bytes().to_vec(), replies: 0 };
    asker.begin(ahead);
    let mut attack = Attack::default();
    attack.repeat(move || asker.again());
    attack
}

/// Sends one tiny message for each delivery to come.
fn fill(client: &mut Amqp) {
    let message = Message::new("x").encode();
    let message = message.as_bytes();
    let mut one = vec![0x00, 0x53, 0x75, 0xa0, u8::try_from(message.len()).unwrap()];
    one.extend(message);
    for _ in 0..DELIVERIES / BATCH {
        let id = client.send(SENDER, BATCH_FORMAT, &one.repeat(BATCH)).unwrap();
        loop {
            if let Performative::Disposition(Disposition { first, state, .. }) =
                client.hear().unwrap().0
            {
                assert_eq!(first, id);
                assert!(format!("{state:?}").contains("Accepted"), "{state:?}");
                break;
            }
        }
    }
}

/// Receives all messages on sessions of their own and settles none. Returns their lock tokens.
fn receive_all(client: &mut Amqp) -> io::Result<Vec<u128>> {
    for channel in 1..=SESSIONS {
        let link = receiver(u32::from(channel), "attacked");
        // More credit than a session may use.
        let flow = credit(link.handle, 2 * UNSETTLED, ALL);
        let said = [
            encoded(channel, &begin(ALL), &[]),
            encoded(channel, &attach(link), &[]),
            encoded(channel, &Performative::Flow(flow), &[]),
        ];
        client.stream.write_all(&said.concat())?;
    }
    let mut tokens = Vec::new();
    while tokens.len() < DELIVERIES {
        match client.hear_any()? {
            (_, Performative::Transfer(transfer), _) => {
                tokens.extend(transfer.delivery_tag.map(token))
            }
            (
                _,
                ended @ (Performative::Detach(_) | Performative::End(_) | Performative::Close(_)),
                _,
            ) => {
                return Err(io::Error::other(format!("{ended:?}")));
            }
            _ => {}
        }
    }
    Ok(tokens)
}

/// Lock token of a delivery tag, whose first three groups have reversed bytes.
fn token(tag: DeliveryTag) -> u128 {
    let mut bytes: [u8; 16] = tag.as_slice().try_into().unwrap();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    u128::from_be_bytes(bytes)
}

/// A client that repeats a renewal.
struct Asker {
    client: Amqp,
    renewal: Vec<u8>,
    replies: u32,
}

impl Asker {
    /// Sends `ahead` requests before it reads a reply.
    fn begin(&mut self, ahead: usize) {
        self.take_more();
        for _ in 0..ahead {
            self.client.send(REQUESTS, 0, &self.renewal).unwrap();
        }
    }

    /// Waits for a reply, settles it, and sends the request again.
    fn again(&mut self) {
        let id = loop {
            match self.client.hear().unwrap() {
                (Performative::Transfer(transfer), payload) => {
                    if let Some(id) = transfer.delivery_id {
                        // The reply to a refused request is shorter.
                        assert!(payload.len() > 8 * TOKENS, "{} bytes", payload.len());
                        break id;
                    }
                }
                (
                    ended @ (Performative::Detach(_)
                    | Performative::End(_)
                    | Performative::Close(_)),
                    _,
                ) => {
                    panic!("{ended:?}")
                }
                _ => {}
            }
        };
        self.replies = self.replies.wrapping_add(1);
        let settled = Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled: true,
            state: None,
            batchable: false,
        };
        self.client.say(&settled).unwrap();
        if self.replies.is_multiple_of(50) {
            self.take_more();
        }
        self.client.send(REQUESTS, 0, &self.renewal).unwrap();
    }

    fn take_more(&mut self) {
        let flow = self.client.session.credit(REPLIES, self.replies, 100);
        self.client.say(&flow).unwrap();
    }
}
