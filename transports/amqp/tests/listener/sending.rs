//! Tests of clients that send.

use peeklock_amqp::codec::value::Symbols;
use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_amqp::performative::{Attach, Flow, Performative, SenderSettleMode};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::limits::Limits;
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_words::amqp::Scalar;

use crate::client::{Client, text};
use crate::request::map;
use crate::server::Server;

/// Returns the description of a rejection.
fn error(state: &DeliveryState) -> &str {
    match state {
        DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
            rejected.error.as_ref().unwrap().description()
        }
        other => panic!("{other:?}"),
    }
}

pub fn condition(state: &DeliveryState) -> String {
    match state {
        DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
            rejected.error.as_ref().unwrap().condition().to_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// AMQP-40, AMQP-41: a sender has credit immediately; an accepted message is stored.
#[tokio::test]
async fn accepted_message_is_stored() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "amqps://localhost:5672/Q").await.unwrap();
    for id in 0..3 {
        client.send(0, 0, false, &text("m")).await;
        assert_eq!(client.disposed().await, (id, DeliveryState::accepted()));
        assert_eq!(server.counts().await.active, u64::from(id) + 1);
    }
    server.stop().await;
}

/// AMQP-40: the credit is the number of messages for which the connection has room, if they are as
/// large as the last ones; before the first one, as large as the link allows.
#[tokio::test]
async fn credit_depends_on_message_size() {
    let server = Server::start_large().await;
    let mut client = server.client().await;
    let attach = Client::sender_of(0, "q");
    client.send_frame(&Performative::Attach(Box::new(attach))).await;
    assert!(matches!(client.next_frame().await, (Performative::Attach(_), _)));
    let granted = async |client: &mut Client| loop {
        match client.next_frame().await {
            (Performative::Flow(Flow { handle: Some(0), link_credit, .. }), _) => {
                break link_credit;
            }
            (Performative::Disposition(_) | Performative::Flow(_), _) => {}
            other => panic!("{other:?}"),
        }
    };
    // The room is less than 16 MiB, and a message may have 100 MiB.
    assert_eq!(granted(&mut client).await, Some(1));
    client.send(0, 0, false, &text(&"m".repeat(3 << 20))).await;
    assert_eq!(granted(&mut client).await, Some(5));
    for _ in 0..3 {
        client.send(0, 0, false, &text("m")).await;
    }
    assert_eq!(granted(&mut client).await, Some(5));
    for _ in 0..3 {
        client.send(0, 0, false, &text("m")).await;
    }
    assert_eq!(granted(&mut client).await, Some(1_000));
    server.stop().await;
}

/// AMQP-41: a message that is sent settled is stored and not answered.
#[tokio::test]
async fn settled_message_is_not_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    client.send(0, 0, true, &text("a")).await;
    client.send(0, 0, false, &text("b")).await;
    assert_eq!(client.disposed().await, (1, DeliveryState::accepted()));
    assert_eq!(server.counts().await.active, 2);
    server.stop().await;
}

/// AMQP-42, AMQ-13: a batch is one delivery with many messages.
#[tokio::test]
async fn a_batch_is_taken_apart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let mut batch = Vec::new();
    for part in ["a", "b", "c"] {
        let message = text(part);
        batch.extend([0x00, 0x53, 0x75, 0xa0, u8::try_from(message.len()).unwrap()]);
        batch.extend_from_slice(&message);
    }
    client.send(0, BATCH_FORMAT, false, &batch).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    assert_eq!(server.counts().await.active, 3);
    server.stop().await;
}

/// AMQP-42, SND-30: a batch is limited by its bytes, since an SDK fills it with as many small
/// messages as fit.
#[tokio::test]
async fn a_batch_of_many_small_messages_is_taken() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let message = b"\x00\x53\x75\xa0\x01x";
    let batch = |count: usize| {
        let head = [0x00, 0x53, 0x75, 0xa0, u8::try_from(message.len()).unwrap()];
        [&head[..], message].concat().repeat(count)
    };
    client.send(0, BATCH_FORMAT, false, &batch(16_384)).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    assert_eq!(server.counts().await.active, 16_384);
    client.send(0, BATCH_FORMAT, false, &batch(65_537)).await;
    let (_, refused) = client.disposed().await;
    assert_eq!(condition(&refused), "amqp:link:message-size-exceeded");
    assert!(error(&refused).contains("65536 messages"), "{refused:?}");
    assert_eq!(server.counts().await.active, 16_384);
    server.stop().await;
}

/// SND-06, SND-30, MSG-07: limits apply to the received bytes. A message and a batch of the maximum
/// size are accepted without ids, which the broker adds, and such a message can be forwarded. One
/// more byte is refused.
#[tokio::test]
async fn ids_that_the_broker_adds_count_against_no_limit() {
    let server = Server::start().await;
    let update = QueueUpdate { forward_to: Some("q".into()), ..QueueUpdate::default() };
    server.broker.create_queue("on", update).await.unwrap();
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    client.sender(1, "on").await.unwrap();
    let most = 1 << 20;
    let of = |bytes: usize| {
        let mut message = b"\x00\x53\x75\xb0".to_vec();
        message.extend(u32::try_from(bytes - 8).unwrap().to_be_bytes());
        message.resize(bytes, b'x');
        message
    };
    client.passes_flows = true;
    client.receiver(2, "q", SenderSettleMode::Settled).await.unwrap();
    client.send(1, 0, false, &of(most)).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    client.credit(2, 0, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes().len(), most - 8);
    for (handle, bytes, is_taken) in [(0, most, true), (1, most + 1, false), (0, most + 1, false)] {
        client.send(handle, 0, false, &of(bytes)).await;
        let (_, state) = client.disposed().await;
        assert_eq!(state == DeliveryState::accepted(), is_taken, "{bytes}: {state:?}");
    }
    // 1,024 messages of 1,024 bytes.
    for (bytes, is_taken) in [(1_024, true), (1_025, false)] {
        let message = of(bytes);
        let mut batch = Vec::new();
        for _ in 0..1_024 {
            batch.extend(b"\x00\x53\x75\xb0");
            batch.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            batch.extend(&message);
        }
        client.send(0, BATCH_FORMAT, false, &batch).await;
        let (_, state) = client.disposed().await;
        assert_eq!(state == DeliveryState::accepted(), is_taken, "{bytes}: {state:?}");
    }
    assert_eq!(server.counts().await.active, 1_025);
    server.stop().await;
    // A limit of ids does not apply to an id from the broker (MSG-05).
    let mut limits = Limits::default();
    limits.message_id_chars_max = 16;
    let server = Server::start_under(limits).await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    client.send(0, 0, false, &text("x")).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    server.stop().await;
}

/// AMQP-43, AMQP-90, SND-06: a message that is too large is rejected with a tracking id and the
/// name of its entity, whether link or entity finds it, and the link stays.
#[tokio::test]
async fn a_message_that_is_too_large_is_rejected() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    for bytes in [1 << 20, 2 << 20] {
        let large = Message::new(vec![7; bytes]).encode();
        client.send(0, 0, false, large.as_bytes()).await;
        let (_, state) = client.disposed().await;
        assert_eq!(condition(&state), "amqp:link:message-size-exceeded");
        let error = error(&state);
        assert!(error.contains("TrackingId:") && error.contains("Entity:q,"), "{error}");
        assert!(error.contains("the 1048576 bytes allowed"), "{error}");
    }
    client.send(0, 0, false, &text("m")).await;
    assert_eq!(client.disposed().await, (2, DeliveryState::accepted()));
    server.stop().await;
}

/// AMQP-36, AMQP-90: the link to a missing entity is refused.
#[tokio::test]
async fn a_missing_entity_refuses_the_link() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.sender(0, "none").await, Err("amqp:not-found".to_owned()));
    let refused = client.receiver(1, "none", SenderSettleMode::Unsettled).await;
    assert_eq!(refused, Err("amqp:not-found".to_owned()));
    assert_eq!(client.sender(2, "q/$DeadLetterQueue").await, Err("amqp:not-allowed".to_owned()));
    server.stop().await;
}

/// SND-16, ERR-04, AMQ-17: a settled message that cannot be stored is dropped silently. An
/// unsettled one is rejected with its error. The link stays in both cases.
#[tokio::test]
async fn an_error_of_one_message_keeps_the_link() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let mut wrong = Message::new("a");
    wrong.session_id = Some("x".repeat(200));
    let wrong = wrong.encode();
    client.send(0, 0, true, wrong.as_bytes()).await;
    client.send(0, 0, false, wrong.as_bytes()).await;
    let (id, state) = client.disposed().await;
    assert_eq!(id, 1);
    assert!(condition(&state).starts_with("com.microsoft:argument"), "{state:?}");
    client.send(0, 0, false, b"\x00\x53\x99").await;
    let (_, state) = client.disposed().await;
    assert_eq!(condition(&state), "amqp:decode-error");
    assert!(error(&state).contains("TrackingId:"), "{state:?}");
    client.send(0, 0, false, &text("m")).await;
    assert_eq!(client.disposed().await, (3, DeliveryState::accepted()));
    assert_eq!(server.total().await, 1);
    server.stop().await;
}

/// AMQP-34, AMQP-37, AMQ-07: the answer to a sender has the size limits of its entity, with fixed
/// types.
#[tokio::test]
async fn sender_gets_size_limits_of_its_entity() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let answer = client.attach_sender(Client::sender_of(0, "q")).await.unwrap();
    assert_eq!(answer.max_message_size, Some(1 << 20));
    let batch = answer.properties.unwrap().get("com.microsoft:max-message-batch-size").unwrap();
    assert_eq!(batch.as_bytes()[..], [&[0x81][..], &(1_i64 << 20).to_be_bytes()].concat());
    // Clients would take it for a limit on a receiver.
    let receiver = Client::receiver_of(1, "q", SenderSettleMode::Unsettled);
    let answer = client.attach_receiver(receiver).await.unwrap();
    assert_eq!((answer.max_message_size, answer.initial_delivery_count), (None, Some(0)));
    server.stop().await;
}

/// AMQP-101, SCH-02: a sender that wants delayed sends gets the capability, as an array. A message
/// with a delivery time is scheduled.
#[tokio::test]
async fn a_delivery_time_is_a_schedule() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let wanted = Some(Symbols::new(&["DELAYED_DELIVERY", "SHARED-SUBS"]));
    let attach = Attach { desired_capabilities: wanted, ..Client::sender_of(0, "q") };
    let answer = client.attach_sender(attach).await.unwrap();
    assert_eq!(answer.offered_capabilities, Some(Symbols::new(&["DELAYED_DELIVERY"])));
    let answer = client.attach_sender(Client::sender_of(1, "q")).await.unwrap();
    assert_eq!(answer.offered_capabilities, None);
    let mut message = vec![0x00, 0x53, 0x72, 0xc1, 31, 2, 0xa3, 19];
    message.extend(b"x-opt-delivery-time");
    message.push(0x81);
    message.extend((server.broker.now().unix_ms() + 60_000).to_be_bytes());
    message.extend(&text("later")[..]);
    client.send(0, 0, false, &message).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    let counts = server.counts().await;
    assert_eq!((counts.active, counts.scheduled), (0, 1));
    server.stop().await;
}

/// AMQP-90, AMQ-05: the error for a missing entity has the words by which clients know that a retry
/// is useless.
#[tokio::test]
async fn missing_entity_error_has_known_words() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let attach = Performative::Attach(Box::new(Client::sender_of(0, "none")));
    client.send_frame(&attach).await;
    let (Performative::Attach(answer), _) = client.next_frame().await else { panic!() };
    assert!(answer.target.is_none() && answer.source.is_none());
    let (Performative::Detach(detach), _) = client.next_frame().await else { panic!() };
    let error = detach.error.unwrap();
    let words = "The messaging entity 'none' could not be found.";
    assert!(error.description().starts_with(words), "{error}");
    // ERR-02: a retry is useless.
    let is_transient = error.info().unwrap().get("com.microsoft:is-transient").unwrap();
    assert_eq!(is_transient.scalar(), Ok(Scalar::Bool(false)));
    server.stop().await;
}

/// AMQP-102, AMQP-45: an empty user-id and empty sections are accepted and passed on unchanged.
#[tokio::test]
async fn empty_sections_are_passed_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    let empty_sections = [
        &b"\x00\x53\x70\x45"[..],
        b"\x00\x53\x72\xc1\x01\x00",
        b"\x00\x53\x73\xc0\x06\x02\xa1\x01a\xa0\x00",
        b"\x00\x53\x74\xc1\x01\x00",
        b"\x00\x53\x75\xa0\x01x",
    ];
    client.send(0, 0, false, &empty_sections.concat()).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    client.receiver(1, "q", SenderSettleMode::Settled).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (_, content) = client.message().await;
    assert!(content.as_bytes().ends_with(&empty_sections[2..].concat()));
    server.stop().await;
}

/// AMQP-102: a rule sees the inner value of a described value, which is passed on byte for byte.
#[tokio::test]
async fn rule_sees_inner_value_of_described_value() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let filter = "due > sent AND short < long AND here = there AND here <> away";
    let rule = RuleDescription::new("r", Filter::sql(filter), server.broker.now());
    let subscription = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", subscription, vec![rule]).await.unwrap();
    let mut client = server.client().await;
    client.sender(0, "t").await.unwrap();
    let described = |name: &str, value: &[u8]| {
        [&[0x00, 0xa3, u8::try_from(name.len()).unwrap()], name.as_bytes(), value].concat()
    };
    let long = |value: i64| [&[0x81][..], &value.to_be_bytes()].concat();
    let uri = |text: &[u8]| [&[0xa1, u8::try_from(text.len()).unwrap()][..], text].concat();
    let of = |due: i64| {
        let entries = [
            ("due", described("com.microsoft:datetime-offset", &long(due))),
            // 2026 in milliseconds since 1970.
            ("sent", [&[0x83][..], &1_767_225_600_000_i64.to_be_bytes()].concat()),
            ("short", described("com.microsoft:timespan", &long(5))),
            ("long", described("com.microsoft:timespan", &long(6))),
            ("here", described("com.microsoft:uri", &uri(b"http://h/"))),
            ("there", described("com.microsoft:uri", &uri(b"http://h/"))),
            ("away", described("com.microsoft:uri", &uri(b"http://a/"))),
        ];
        let properties = [&[0x00, 0x53, 0x74][..], &map(&entries)].concat();
        (properties.clone(), [&properties[..], b"\x00\x53\x75\xa0\x01x"].concat())
    };
    // 2026 in ticks since year 1, and one more.
    let noon = 639_028_224_000_000_000;
    let (passed_on, message) = of(noon + 1);
    client.send(0, 0, true, &of(noon).1).await;
    client.send(0, 0, false, &message).await;
    assert_eq!(client.disposed().await, (1, DeliveryState::accepted()));
    client.receiver(1, "t/subscriptions/s", SenderSettleMode::Settled).await.unwrap();
    client.credit(1, 0, 2, true).await;
    let (_, content) = client.message().await;
    assert_eq!(content.sections().application_properties, passed_on);
    assert!(
        matches!(client.next_frame().await, (Performative::Flow(_), _)),
        "the other is not selected"
    );
    server.stop().await;
}

/// AMQP-45: a message with a field of the wrong type is refused, alone and in a batch, even if the
/// broker does not read the field. Receivers would fail on it at each delivery.
#[tokio::test]
async fn a_field_that_breaks_receivers_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "q").await.unwrap();
    // A header whose `durable` is a string.
    let wrong = b"\x00\x53\x70\xc0\x04\x01\xa1\x01x\x00\x53\x75\xa0\x01b";
    client.send(0, 0, false, wrong).await;
    assert_eq!(condition(&client.disposed().await.1), "amqp:decode-error");
    let size = u8::try_from(wrong.len()).unwrap();
    let batch = [&[0x00, 0x53, 0x75, 0xa0, size][..], wrong].concat();
    client.send(0, 0x8001_3700, false, &batch).await;
    assert_eq!(condition(&client.disposed().await.1), "amqp:decode-error");
    assert_eq!(server.total().await, 0);
    server.stop().await;
}
