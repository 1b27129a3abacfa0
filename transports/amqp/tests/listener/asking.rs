//! Tests of management nodes at their limits: large requests, long lists, and the bytes of replies.

use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_amqp::codec::value::{Raw, Symbols};
use peeklock_amqp::performative::{Attach, Open, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_amqp::terminus::{Coordinator, NodeTarget, Source, Target, TerminusNode};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_words::amqp::{Reader, Scalar};

use crate::client::Client;
use crate::management::token;
use crate::request::{list, map, request, uuids, value};
use crate::server::Server;
use crate::sessions::of_session;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const MIB: usize = 1 << 20;

/// A list with a message of this size to be scheduled.
fn scheduled(bytes: usize, at: Timestamp) -> Vec<u8> {
    let message = Message::new(vec![7; bytes]).with_scheduled_enqueue_time(at);
    let message = value(Value::Binary(message.encode().as_bytes().clone()));
    list(&[map(&[("message", message), ("message-id", value("m"))])])
}

/// AMQP-103, AMQP-81, AMQP 2.7.3: a request above the size limit of its link that was sent settled
/// cannot be rejected, so its link is detached with an error. An unsettled one is rejected, and the
/// link stays.
#[tokio::test]
async fn oversized_settled_request_detaches_its_link() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.manager(0, "q").await;
    let entries = map(&[("messages", value(Value::Binary(vec![7; 3 * MIB].into())))]);
    let large = request(1, "com.microsoft:schedule-message", &[], &entries);
    client.send(0, 0, false, large.as_bytes()).await;
    let (_, state) = client.disposed().await;
    assert_eq!(crate::sending::condition(&state), "amqp:link:message-size-exceeded");
    client.send(0, 0, true, large.as_bytes()).await;
    let (Performative::Detach(detach), _) = client.next_frame().await else { panic!() };
    let error = detach.error.unwrap();
    assert_eq!((detach.handle, error.condition()), (0, "amqp:link:message-size-exceeded"));
    assert!(error.description().contains("request of 3"), "{error}");
    server.stop().await;
}

/// AMQP-97, AMQP 2.7.3: the same holds for requests to a coordinator, if they are too large or
/// malformed.
#[tokio::test]
async fn invalid_settled_coordinator_request_detaches_its_link() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (handle, sent) in [(0, vec![0; 3 * MIB]), (1, b"none".to_vec())] {
        let target = Some(Target::Coordinator(Coordinator::default()));
        let attach = Attach { target, ..Client::sender_of(handle, "") };
        client.attach_sender(attach).await.unwrap();
        client.send(handle, 0, true, &sent).await;
        let (Performative::Detach(detach), _) = client.next_frame().await else { panic!() };
        assert!(detach.handle == handle && detach.error.is_some(), "{detach:?}");
    }
    server.stop().await;
}

/// AMQP-103, SCH-01, SES-26: a request with contents may be as large as messages of its entity,
/// other requests may not. With a limit of 100 MiB, a message of 20 MiB can be scheduled, and can
/// be the state of a session.
#[tokio::test]
async fn a_request_is_as_large_as_its_entity_takes() {
    let server = Server::start_large().await;
    let at = server.broker.now().plus(TimeSpan::from_seconds(600));
    let mut client = server.client().await;
    client.passes_flows = true;
    client.manager(0, "q").await;
    for bytes in [20 * MIB, 99 * MIB] {
        let entries = [("messages", scheduled(bytes, at))];
        assert_eq!(
            client.ask(0, "schedule-message", &entries).await.numbers("sequence-numbers").len(),
            1
        );
    }
    assert_eq!(server.counts().await.scheduled, 2);
    // The entity judges a request slightly above its limit, and the link a much larger one.
    let entries = [("messages", scheduled(100 * MIB + 1, at))];
    let refused = client.ask(0, "schedule-message", &entries).await;
    assert_eq!(refused.condition(), "amqp:link:message-size-exceeded");
    let lots = [("lock-tokens", value("x".repeat(3 * MIB)))];
    let refused = client.ask(0, "renew-lock", &lots).await;
    assert_eq!(refused.condition(), "amqp:link:message-size-exceeded");
    let update = QueueUpdate {
        requires_session: Some(true),
        max_message_size_in_kilobytes: Some(100 << 10),
        ..QueueUpdate::default()
    };
    server.broker.create_queue("s", update).await.unwrap();
    let session = || ("session-id", value("one"));
    let one = Raw::encoded(|bytes| {
        Value::from("one").encode_to(bytes);
    });
    client.attach_receiver(of_session(4, "s", one)).await.unwrap();
    client.manager(5, "s").await;
    let state = Bytes::from(vec![3; 20 * MIB]);
    let set = [session(), ("session-state", value(Value::Binary(state.clone())))];
    assert_eq!(client.ask(5, "set-session-state", &set).await.status(), 200);
    server.stop().await;
}

/// AMQP-88, AMQP-81: a client whose waiting requests exceed their limit in bytes gets status 503,
/// upon which clients try again. The other requests are carried out when there is credit.
#[tokio::test]
async fn requests_without_room_to_wait_get_503() {
    let server = Server::start_large().await;
    let at = server.broker.now().plus(TimeSpan::from_seconds(600));
    let mut client = server.client().await;
    client.sender(0, "q/$management").await.unwrap();
    client.receiver(1, "q/$management", LOCKED).await.unwrap();
    client.passes_flows = true;
    let entries = map(&[("messages", scheduled(3 * MIB, at))]);
    for id in 0..3 {
        let request = request(id, "com.microsoft:schedule-message", &[], &entries);
        client.send(0, 0, true, request.as_bytes()).await;
    }
    client.credit(1, 0, 3, false).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (_, content) = client.message().await;
        statuses.push(crate::request::Reply { content }.status());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503]);
    assert_eq!(server.counts().await.scheduled, 2);
    server.stop().await;
}

/// AMQP-103, AMQP-05: large requests are carried out one client at a time, as large messages are.
/// The room is free again after the reply.
#[tokio::test]
async fn large_requests_come_one_after_the_other() {
    let server = Server::start_large().await;
    let at = server.broker.now().plus(TimeSpan::from_seconds(600));
    let ask = async |mut client: Client| {
        client.passes_flows = true;
        client.manager(0, "q").await;
        for _ in 0..2 {
            let entries = [("messages", scheduled(20 * MIB, at))];
            assert_eq!(client.ask(0, "schedule-message", &entries).await.status(), 200);
        }
    };
    let (first, second) = (server.client().await, server.client().await);
    tokio::join!(ask(first), ask(second));
    // A large message finds the room too.
    let mut third = server.client().await;
    third.passes_flows = true;
    third.sender(0, "q").await.unwrap();
    third.send(0, 0, false, Message::new(vec![7; 20 * MIB]).encode().as_bytes()).await;
    assert_eq!(third.disposed().await, (0, DeliveryState::accepted()));
    server.stop().await;
}

/// AMQP-87, AMQP-104: a client that requests all rules at once gets all, or an error if they are
/// too many. It never gets a part without notice.
#[tokio::test]
async fn enumerate_rules_returns_all_rules() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    // Each has about 3 KB.
    let text = "x".repeat(1_000);
    for number in 0..700 {
        let filter = Filter::Correlation(CorrelationFilter {
            to: Some(text.clone().into()),
            reply_to: Some(text.clone().into()),
            subject: Some(text.clone().into()),
            ..CorrelationFilter::default()
        });
        let rule = RuleDescription::new(format!("r{number:04}"), filter, Timestamp::NONE);
        server.broker.create_rule("t/Subscriptions/s", rule).await.unwrap();
    }
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let all = [("top", value(i32::MAX)), ("skip", value(0_i32))];
    let rules = client.ask(0, "enumerate-rules", &all).await.maps("rules");
    assert_eq!(rules.len(), 701);
    let few = [("top", value(500_i32)), ("skip", value(300_i32))];
    let rules = client.ask(0, "enumerate-rules", &few).await.maps("rules");
    assert_eq!(rules.len(), 401);
    server.stop().await;
}

/// AMQP-104: a list with more rules than fit into a reply is refused. The error explains how to
/// request parts with `top` and `skip`.
#[tokio::test]
async fn too_many_rules_for_a_reply_are_refused() {
    const RULES: usize = 36;
    let mut limits = Limits::of(Tier::Premium);
    limits.rule_bytes_max = 1 << 20;
    let server = Server::start_under(limits).await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    server.broker.delete_rule("t/Subscriptions/s", "$Default").await.unwrap();
    for number in 0..RULES {
        let filter = (0..33).fold(CorrelationFilter::default(), |filter, place| {
            filter.and_property(format!("p{place}"), "v".repeat(30_000))
        });
        let name = format!("r{number:02}");
        let rule = RuleDescription::new(name, Filter::Correlation(filter), Timestamp::NONE);
        server.broker.create_rule("t/Subscriptions/s", rule).await.unwrap();
    }
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let part = |skip: usize, top: usize| {
        let [skip, top] = [skip, top].map(|count| value(i32::try_from(count).unwrap()));
        [("skip", skip), ("top", top)]
    };
    for top in [RULES, 0x7fff_ffff] {
        let refused = client.ask(0, "enumerate-rules", &part(0, top)).await;
        let condition = "com.microsoft:argument-out-of-range";
        assert_eq!((refused.status(), &*refused.condition()), (400, condition));
        let Some(Value::String(text)) = refused.property("statusDescription") else { panic!() };
        assert!(text.contains("`top`") && text.contains("`skip`"), "{text}");
    }
    let mut count = 0;
    for skip in (0..RULES).step_by(12) {
        count += client.ask(0, "enumerate-rules", &part(skip, 12)).await.maps("rules").len();
    }
    assert_eq!(count, RULES);
    assert_eq!(client.ask(0, "enumerate-rules", &part(RULES, 12)).await.status(), 204);
    server.stop().await;
}

/// AMQP-103: a link announces the maximum size of requests: the size of messages, but at least 2
/// MiB. A request may be larger than a message of the entity.
#[tokio::test]
async fn link_announces_maximum_request_size() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let token = server.lock_one().await;
    let mut client = server.client().await;
    client.passes_flows = true;
    for (handle, address) in [(0, "q/$management"), (2, "q/$DeadLetterQueue/$management")] {
        let answer = client.attach_sender(Client::sender_of(handle, address)).await.unwrap();
        assert_eq!(answer.max_message_size, Some(2 << 20), "{address}");
    }
    client.receiver(1, "q/$management", LOCKED).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let entries = [("lock-tokens", uuids(&[token])), ("beside", value("x".repeat(MIB + MIB / 2)))];
    assert_eq!(client.ask(0, "renew-lock", &entries).await.status(), 200);
    server.stop().await;
    let server = Server::start_large().await;
    let attach = Client::sender_of(0, "q/$management");
    let answer = server.client().await.attach_sender(attach).await.unwrap();
    assert_eq!(answer.max_message_size, Some(100 << 20));
    server.stop().await;
}

/// AMQP-82, SET-18: the cost of a request about a few locks does not depend on the number of other
/// locks of the connection. Otherwise a single client could occupy the thread.
#[tokio::test]
async fn request_cost_is_independent_of_other_locks() {
    const FEW: usize = 256;
    const MANY: usize = 8_000;
    let server = Server::start().await;
    let mut took = Vec::new();
    for held in [FEW, MANY] {
        server.put(&vec!["m"; held]).await;
        let mut client = Client::open_with(server.address, Open::default(), 10_000).await;
        client.manager(0, "q").await;
        client.receiver(2, "q", LOCKED).await.unwrap();
        client.credit_within(2, 0, u32::try_from(held).unwrap(), false, 10_000).await;
        let mut tokens = Vec::new();
        for _ in 0..held {
            let (transfer, _) = client.message().await;
            tokens.push(token(transfer.delivery_tag.unwrap().as_slice()));
        }
        let entries = [("lock-tokens", uuids(&tokens[held - FEW..]))];
        // Often enough that some requests are not delayed by other load of the machine.
        let mut least = Duration::MAX;
        for _ in 0..20 {
            let began = Instant::now();
            assert_eq!(
                client.ask(0, "renew-lock", &entries).await.numbers("expirations").len(),
                FEW
            );
            least = least.min(began.elapsed());
        }
        took.push(least);
    }
    assert!(took[1] < 4 * took[0], "{took:?}");
    server.stop().await;
}

/// Returns the encoded value of a property of a reply.
pub fn property<'a>(content: &'a Content, name: &str) -> &'a [u8] {
    let mut reader = Reader::new(content.sections().application_properties);
    reader.section().unwrap();
    let (_, mut items) = reader.map().unwrap();
    while !items.is_empty() {
        let key = items.scalar().unwrap();
        let value = items.raw().unwrap();
        if key == Scalar::Text(name) {
            return value;
        }
    }
    panic!("{name} is not there")
}

/// AMQP-81, AMQP-87: values that clients cast have fixed types: the condition is a symbol, the
/// description and names of rules are strings, the status is an int.
#[tokio::test]
async fn cast_values_have_fixed_types() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let wrong = client.ask(0, "make-coffee", &[]).await.content;
    assert_eq!(property(&wrong, "errorCondition")[0], 0xa3);
    assert_eq!(property(&wrong, "statusDescription")[0], 0xa1);
    assert!(matches!(property(&wrong, "statusCode")[0], 0x54 | 0x71));
    let rules = client.ask(0, "enumerate-rules", &[]).await.maps("rules");
    let (_, items) = rules[0].get("rule-description").unwrap().described().unwrap();
    let items: Vec<_> = items.raw_items().unwrap().collect();
    assert_eq!(&items[2].as_bytes()[..], b"\xa1\x08$Default");
    server.stop().await;
}

/// AMQP 4.5.1, 3.5.3, 3.5.4: the answer has only the requested capabilities that are supported.
#[tokio::test]
async fn only_capabilities_that_there_are_are_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let asked = |names: &[&str]| Some(Symbols::new(names));
    let coordinator = |handle, capabilities| Attach {
        target: Some(Target::Coordinator(Coordinator { capabilities })),
        ..Client::sender_of(handle, "")
    };
    let transactions = asked(&["amqp:distributed-transactions", "amqp:local-transactions"]);
    let answer = client.attach_sender(coordinator(0, transactions)).await.unwrap();
    let Some(Target::Coordinator(target)) = answer.target else { panic!() };
    assert_eq!(target.capabilities, asked(&["amqp:local-transactions"]));
    let answer = client.attach_sender(coordinator(1, None)).await.unwrap();
    let Some(Target::Coordinator(target)) = answer.target else { panic!() };
    assert_eq!(target.capabilities, None);
    let node = NodeTarget { capabilities: asked(&["queue", "topic"]), node: TerminusNode::at("q") };
    let attach = Attach { target: Some(Target::Node(node)), ..Client::sender_of(2, "q") };
    let answer = client.attach_sender(attach).await.unwrap();
    let Some(Target::Node(target)) = answer.target else { panic!() };
    assert_eq!(target.capabilities, asked(&["queue"]));
    let source = Source { capabilities: asked(&["topic"]), ..Source::at("q") };
    let attach = Attach { source: Some(source), ..Client::receiver_of(3, "q", LOCKED) };
    let answer = client.attach_receiver(attach).await.unwrap();
    assert_eq!(answer.source.unwrap().capabilities, None);
    server.stop().await;
}
