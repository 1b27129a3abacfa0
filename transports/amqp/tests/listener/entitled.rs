//! What tokens give at other entities than the one they name: below a topic, and where messages go by way of another; and what `$cbs` makes of
//! bytes that no client should send.

use std::sync::Arc;

use peeklock_amqp::performative::SenderSettleMode;
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Action, Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{Message, MessageId};
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;

use crate::client::Client;
use crate::request::{longs, map, uuids, value};
use crate::rights::{allows, client, in_time, is_refused, put, sender_via};
use crate::server::Server;
use crate::tokens::request;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const SUBSCRIPTION: &str = "news/Subscriptions/audit";

fn rights_of(right: Right) -> Rights {
    if right == Right::Manage { Rights::ALL } else { Rights::of(right) }
}

/// A listener with two queues, a topic and its subscription, and policies of each right of all that can have some.
async fn start() -> Server {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    let server = Server::start_with_policies(authorizer, &policies).await;
    for queue in ["orders", "sibling"] {
        server.broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    server.broker.create_topic("news", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("news", "audit", properties, Vec::new()).await.unwrap();
    for owner in ["", "orders", "sibling", "news"] {
        for right in Right::ALL {
            let properties = PolicyUpdate {
                rights: Some(rights_of(right)),
                primary_key: KeyText::parse(KEY).ok(),
                ..PolicyUpdate::default()
            };
            let name = format!("{}{owner}", right.name());
            server.broker.create_policy(owner, &name, properties).await.unwrap();
        }
    }
    server
}

/// SEC-05, SEC-09, SEC-12, SEC-13, SEC-14: no token that is not good, or is not for them, gives anything at a topic or its subscription.
#[tokio::test]
async fn a_topic_is_asked_nothing_with_a_token_that_is_not_good() {
    let server = start().await;
    for owner in ["", "news"] {
        let name = format!("Manage{owner}");
        let anew = || server.broker.regenerate_key(owner, &name, WhichKey::Secondary, None);
        let retired = anew().await.unwrap().secondary.reveal().to_owned();
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

/// SEC-03, SEC-05, SEC-06, SEC-12, SEC-13: what a subscription can be asked is let do by the policies of its topic and of the namespace, and by those of
/// no queue; by a token for the topic as by one for the subscription.
#[tokio::test]
async fn a_subscription_has_the_policies_of_its_topic() {
    let server = start().await;
    let browse = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    let page = [("top", value(1_i32)), ("skip", value(0_i32))];
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[1]))];
    let rule = map(&[("sql-filter", map(&[("expression", value("a = 1"))]))]);
    let add = [("rule-name", value("r")), ("rule-description", rule)];
    let remove = [("rule-name", value("r"))];
    let deferred = [("sequence-numbers", longs(&[99]))];
    for owner in ["", "news", "orders"] {
        for right in Right::ALL {
            let name = format!("{}{owner}", right.name());
            let rights = if owner == "orders" { Rights::NONE } else { rights_of(right) };
            for audience in ["news", SUBSCRIPTION] {
                let mut client = client(&server).await;
                let token = token(&name, audience);
                let is_taken = put(&server, &mut client, audience, &token).await;
                assert_eq!(is_taken, rights != Rights::NONE, "{name} for {audience}");
                let receiver = Client::receiver_of(10, SUBSCRIPTION, LOCKED);
                let refused = is_refused(&server, &mut client, receiver).await;
                assert_eq!(refused, !allows(Action::Receive, rights), "{name} for {audience}");
                // What is for a subscription is not for its topic.
                let rights_at_topic = if audience == "news" { rights } else { Rights::NONE };
                let sender = Client::sender_of(11, "news");
                let refused = is_refused(&server, &mut client, sender).await;
                assert_eq!(
                    refused,
                    !allows(Action::Send, rights_at_topic),
                    "{name} for {audience}"
                );
                let node = format!("{SUBSCRIPTION}/$management");
                let refused = is_refused(&server, &mut client, Client::sender_of(2, &node)).await;
                assert_eq!(refused, rights == Rights::NONE, "{name} for {audience}");
                if refused {
                    continue;
                }
                client.receiver(3, &node, LOCKED).await.unwrap();
                client.credit(3, 0, 100, false).await;
                for (operation, entries, action) in [
                    ("peek-message", &browse[..], Action::Peek),
                    ("get-message-sessions", &page[..], Action::ListSessions),
                    ("update-disposition", &settle[..], Action::Settle),
                    ("receive-by-sequence-number", &deferred[..], Action::ReceiveDeferred),
                    ("enumerate-rules", &page[..], Action::ReadRules),
                    ("add-rule", &add[..], Action::ChangeRules),
                    ("remove-rule", &remove[..], Action::ChangeRules),
                ] {
                    let reply = in_time(&server, client.ask(2, operation, entries)).await;
                    let is_allowed = allows(action, rights);
                    assert_eq!(reply.status() == 401, !is_allowed, "{operation} by {name}");
                }
            }
        }
    }
    server.stop().await;
}

/// VIA-02, SEC-07, SEC-09, SEC-15: a link by way of one entity to another ends with the key by which its client may send to the other, and with the
/// policy; what it has stored before is moved on.
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
            // The way itself is as good as it was.
            let again = is_refused(&server, &mut client, sender_via(11, "orders", "sibling")).await;
            assert!(again, "{name}");
        }
    }
    server.broker.idle_but_for_store().await;
    let counts = server.broker.describe_queue("sibling").await.unwrap().counts;
    assert_eq!(counts.active, 4, "what was taken before is there");
    server.stop().await;
}

/// A row of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// Whether a frame ends a link, a session or a connection.
fn is_end(frame: &[u8]) -> bool {
    [0x16, 0x17, 0x18].iter().any(|code| frame.windows(3).any(|it| it == [0x00, 0x53, *code]))
}

/// AMQP-21, AMQP-25, SEC-14: whatever is put at `$cbs` that is no token, or no message, is answered, or ends its link or connection; the listener goes
/// on, and a token that is good is taken.
#[tokio::test]
async fn whatever_is_put_at_cbs_is_answered() {
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

/// With credit for as many replies as there are requests.
async fn client_of(server: &Server) -> Client {
    let mut client = client(server).await;
    client.credit(1, 0, 10_000, false).await;
    client
}
