//! Tests of the rights that tokens grant on other entities than they name: below a topic, and for
//! sends through another entity. Also tests of malformed requests to `$cbs`.

use peeklock_amqp::performative::SenderSettleMode;
use peeklock_auth_sas::sign;
use peeklock_core::contract::{Right, Rights};
use peeklock_core::message::{Message, MessageId};
use peeklock_core::policies::{KeyText, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;

use crate::client::Client;
use crate::rights::{client, in_time, is_refused, put, sender_via, start};
use crate::server::Server;
use crate::tokens::request;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const SUBSCRIPTION: &str = "news/Subscriptions/audit";

/// SEC-05, SEC-09, SEC-12, SEC-13, SEC-14: a token that is invalid, or for another entity, grants
/// nothing at a topic or its subscription.
#[tokio::test]
async fn invalid_token_grants_nothing_at_a_topic() {
    let server = start().await;
    for owner in ["", "news"] {
        let name = format!("Manage{owner}");
        let anew = || server.broker.regenerate_key(owner, &name, WhichKey::Secondary, None);
        let retired = anew().await.unwrap().secondary_key.reveal().to_owned();
        anew().await.unwrap();
        let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
        for (why, token) in [
            ("expired", sign(&name, KEY, "sb://x/news", past)),
            ("signed wrongly", sign(&name, OTHER_KEY, "sb://x/news", latest)),
            ("signed with a key of before", sign(&name, &retired, "sb://x/news", latest)),
            ("for something else", sign(&name, KEY, "sb://x/sibling", latest)),
            ("of a policy of something else", sign("Manageorders", KEY, "sb://x/news", latest)),
        ] {
            for audience in ["news", SUBSCRIPTION] {
                let mut client = client(&server).await;
                assert!(!put(&server, &mut client, audience, &token).await, "{why}, {name}");
                let node = format!("{SUBSCRIPTION}/$management");
                for attach in [
                    Client::sender_of(10, "news"),
                    Client::receiver_of(11, SUBSCRIPTION, LOCKED),
                    Client::sender_of(12, &node),
                    sender_via(13, "orders", "news"),
                ] {
                    assert!(is_refused(&server, &mut client, attach).await, "{why}, {name}");
                }
            }
        }
    }
    server.stop().await;
}

fn token(name: &str, path: &str) -> String {
    sign(name, KEY, &format!("amqps://h:5671/{path}"), Timestamp::NEVER)
}

/// VIA-02, SEC-07, SEC-09, SEC-15: a link that sends through an entity to another one ends when the
/// client's key for the destination is regenerated or the policy is deleted. Messages that were
/// stored before are still moved.
#[tokio::test]
async fn a_link_by_another_entity_ends_with_the_right_at_its_destination() {
    let server = start().await;
    for ended in ["orders", "sibling"] {
        for is_deleted in [false, true] {
            let name = format!("For{ended}{is_deleted}");
            let properties = PolicyUpdate {
                rights: Some(Rights::of(Right::Send)),
                primary_key: KeyText::parse(KEY).ok(),
                ..PolicyUpdate::default()
            };
            server.broker.create_policy(ended, &name, properties).await.unwrap();
            let mut client = client(&server).await;
            for path in ["orders", "sibling"] {
                let name = if path == ended { name.clone() } else { format!("Send{path}") };
                assert!(put(&server, &mut client, path, &token(&name, path)).await);
            }
            let via = sender_via(10, "orders", "sibling");
            client.attach_sender(via).await.unwrap();
            client.send(10, 0, false, Message::new("a").encode().as_bytes()).await;
            client.disposed().await;
            match is_deleted {
                true => server.broker.delete_policy(ended, &name).await.unwrap(),
                false => {
                    let which = WhichKey::Primary;
                    server.broker.regenerate_key(ended, &name, which, None).await.unwrap();
                }
            }
            assert_eq!(client.detached().await, "amqp:link:detach-forced", "{name}");
            // The link through the entity cannot be attached again.
            let again = is_refused(&server, &mut client, sender_via(11, "orders", "sibling")).await;
            assert!(again, "{name}");
        }
    }
    server.broker.idle_except_store().await;
    let counts = server.broker.describe_queue("sibling").await.unwrap().counts;
    assert_eq!(counts.active, 4, "what was taken before is there");
    server.stop().await;
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// Returns whether a frame ends a link, a session or a connection.
fn is_end(frame: &[u8]) -> bool {
    [0x16, 0x17, 0x18].iter().any(|code| frame.windows(3).any(|it| it == [0x00, 0x53, *code]))
}

/// AMQP-21, AMQP-25, SEC-14: every malformed token or message to `$cbs` is answered, or ends its
/// link or connection. The listener continues, and accepts a valid token.
#[tokio::test]
async fn malformed_requests_to_cbs_are_answered() {
    let server = start().await;
    let good = token("Manage", "orders");
    let mut random = Random(0x0c_b5_70_6b_65_6e);
    let mut connected: Option<Client> = None;
    let mut ends = 0;
    for number in 0..600_u64 {
        let audience = if number % 3 == 0 { "amqp://h:1/orders" } else { "\u{0}sb:///\u{fffd}%2" };
        let mut bytes = request(audience, &good, MessageId::Ulong(number)).as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len());
            match random.below(4) {
                0 => bytes.truncate(place.max(1)),
                1 => {
                    bytes[place] = [0x00, 0x40, 0x53, 0xa1, 0xb1, 0xd0, 0xf0, 0xff][random.below(8)]
                }
                2 => bytes.insert(place, u8::try_from(random.below(256)).unwrap()),
                _ => bytes[place] ^= 1 << random.below(8),
            }
        }
        let mut client = match connected.take() {
            Some(client) => client,
            None => client_of(&server).await,
        };
        client.send(0, 0, true, &bytes).await;
        let id = 0x5eed_0000_0000_0000 + number;
        let after = request("amqp://h:1/orders", &good, MessageId::Ulong(id));
        client.send(0, 0, true, after.as_bytes()).await;
        let goes_on = in_time(&server, async {
            loop {
                let Some(frame) = client.any_frame().await else { return false };
                if frame.windows(8).any(|it| it == id.to_be_bytes()) {
                    return true;
                }
                if is_end(&frame) {
                    return false;
                }
            }
        })
        .await;
        ends += usize::from(!goes_on);
        connected = Some(client).filter(|_| goes_on);
    }
    assert!(ends < 600, "some of them are messages, with something else than a token");
    let mut client = client_of(&server).await;
    assert!(put(&server, &mut client, "orders", &good).await);
    server.stop().await;
}

/// A client with credit for the replies to all requests.
async fn client_of(server: &Server) -> Client {
    let mut client = client(server).await;
    client.credit(1, 0, 10_000, false).await;
    client
}
