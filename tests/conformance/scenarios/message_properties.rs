//! Contents of a message (file 02).

use bytes::Bytes;

use super::*;

/// A message with every property of the table of MSG-04.
fn full(at: Timestamp) -> Message {
    let message = message("full")
        .with_message_id("message-1")
        .with_session_id("session-1")
        .with_partition_key("session-1")
        .with_transaction_partition_key("via-1")
        .with_reply_to_session_id("reply-session-1")
        .with_correlation_id("correlation-1")
        .with_content_type("text/plain; charset=utf-8")
        .with_subject("sübject ☃")
        .with_to("sb://somewhere/else")
        .with_reply_to("replies")
        .with_time_to_live(minutes(10))
        .with_scheduled_enqueue_time(at)
        .with_application_property("colour", "blue")
        .with_application_property("Colour", 7_i64);
    in_order(Message { force_persistence: true, ..message })
}

/// Every type of MSG-20, with a value that a smaller type could not hold.
pub fn typed_values() -> Vec<(&'static str, Value)> {
    vec![
        ("null", Value::Null),
        ("true", Value::Bool(true)),
        ("i8", Value::I8(i8::MIN)),
        ("i16", Value::I16(i16::MIN)),
        ("i32", Value::I32(i32::MIN)),
        ("i64", Value::I64(i64::MIN + 1)),
        ("u8", Value::U8(u8::MAX)),
        ("u16", Value::U16(u16::MAX)),
        ("u32", Value::U32(u32::MAX)),
        ("u64", Value::U64(u64::MAX)),
        ("f32", Value::F32(0.1)),
        ("f64", Value::F64(0.1 + 0.2)),
        ("whole f64", Value::F64(3.0)),
        ("infinite", Value::F64(f64::NEG_INFINITY)),
        ("decimal128", Value::Decimal128(*b"0123456789abcdef")),
        ("char", Value::Char('☃')),
        ("string", Value::String("text with \"quotes\", \n and ☃".to_owned())),
        ("empty string", Value::String(String::new())),
        ("uuid", Value::Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        ("timestamp", Value::Timestamp(-62_135_596_800_000)),
        ("binary", Value::Binary(Bytes::from_static(&[0, 255, 13, 10]))),
        ("uri", Value::Uri("https://example.org/ä?b=c".to_owned())),
        ("date time offset", Value::DateTimeOffset(637_134_336_000_000_001)),
        ("time span", Value::TimeSpan(-1)),
    ]
}

/// MSG-01
pub async fn a_body_is_any_bytes_and_may_be_empty(s: &Stage) {
    s.open_queue(ORDERS).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    for body in [Vec::new(), every_byte, b"\r\n\r\n".to_vec(), vec![0xff, 0xfe]] {
        s.send(ORDERS, Message::new(body.clone())).await.unwrap();
        let peeked = s.look(ORDERS).await;
        assert_eq!(peeked[0].body(), &body);
        let seen = s.take(ORDERS).await;
        assert_eq!(seen.body(), &body);
        s.complete(ORDERS, &seen).await;
    }
}

/// MSG-09: destination, subject and content type of a message do not affect where it goes, nor do
/// the sessions and messages that it names. All of them arrive unchanged.
pub async fn addressing_properties_of_a_message_are_not_interpreted(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.open_queue("other").await;
    let first = s.send(ORDERS, message("a").with_message_id("one")).await.unwrap();
    let sent = in_order(
        message("not JSON")
            .with_message_id("two")
            .with_to("other")
            .with_reply_to("other")
            .with_reply_to_session_id("one")
            .with_correlation_id("one")
            .with_subject("other/$DeadLetterQueue")
            .with_content_type("application/json"),
    );
    assert_eq!(s.send(ORDERS, sent.clone()).await.unwrap(), first + 1);
    let other = s.counts("other").await;
    assert_eq!((other.total(), s.counts(ORDERS).await.active), (0, 2));
    s.assert_empty("other/$DeadLetterQueue").await;
    let there = s.take_all(ORDERS).await;
    assert_eq!(texts(&there), ["a", "not JSON"]);
    // A message without a time to live gets the default of its queue.
    let time_to_live = there[1].message.time_to_live;
    assert_eq!(there[1].message, Message { time_to_live, ..sent });
    s.complete(ORDERS, &there[1]).await;
    assert_eq!((s.counts(ORDERS).await.active, s.counts("other").await.total()), (1, 0));
}

/// MSG-04, MSG-10, SCH-03
pub async fn every_property_of_the_sender_appears_on_peek_and_receive(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = full(s.now());
    s.send(ORDERS, sent.clone()).await.unwrap();
    assert_eq!(s.look(ORDERS).await[0].message, sent);
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.message, sent);
}

/// MSG-10
pub async fn a_session_id_has_no_effect_on_a_queue_without_sessions(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        s.send(ORDERS, message(text).with_session_id("one")).await.unwrap();
    }
    assert_eq!(s.take(ORDERS).await.text(), "a");
    let second = s.take(ORDERS).await;
    assert_eq!((second.text(), second.message.session_id.as_deref()), ("b", Some("one")));
}

/// MSG-05, QUO-01
pub async fn ids_and_keys_have_at_most_128_characters(s: &Stage) {
    s.open_queue(ORDERS).await;
    let with: [fn(String) -> Message; 5] = [
        |text| message("x").with_message_id(text),
        |text| message("x").with_session_id(text),
        |text| message("x").with_partition_key(text),
        |text| message("x").with_transaction_partition_key(text),
        |text| message("x").with_reply_to_session_id(text),
    ];
    for make in with {
        s.send(ORDERS, make("i".repeat(128))).await.unwrap();
        // The limit counts characters, not bytes.
        s.send(ORDERS, make("ä".repeat(128))).await.unwrap();
        refused(s.send(ORDERS, make("i".repeat(129))).await, "ArgumentOutOfRange");
    }
}

/// MSG-06, MSG-14, SET-26, DLQ-12
pub async fn id_and_number_stay_over_redelivery_deferral_and_dead_lettering(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = full(s.now());
    let sequence = s.send(ORDERS, sent.clone()).await.unwrap();
    let enqueued_at = s.look(ORDERS).await[0].enqueued_at;
    s.advance(seconds(1)).await;
    let check = |seen: &Seen| {
        assert_eq!((seen.sequence, seen.enqueued_at), (sequence, enqueued_at));
        assert_eq!(seen.message.message_id, sent.message_id);
        assert_eq!(seen.message.application_properties, sent.application_properties);
        assert_eq!(seen.body(), "full");
    };
    let seen = s.take(ORDERS).await;
    check(&seen);
    s.abandon(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    check(&seen);
    s.defer(ORDERS, &seen).await;
    let seen = &s.receive_deferred(ORDERS, ReceiveMode::PeekLock, &[sequence]).await.unwrap()[0];
    check(seen);
    s.dead_letter(ORDERS, seen).await;
    check(&s.take(DLQ).await);
}

/// MSG-07
pub async fn the_broker_gives_an_id_to_a_message_without_one(s: &Stage) {
    s.open_queue(ORDERS).await;
    let mut ids = BTreeSet::new();
    for _ in 0..5 {
        s.put(ORDERS, "x").await;
    }
    for seen in s.look(ORDERS).await {
        let id = seen.message.message_id.unwrap().to_string();
        assert_eq!(id.len(), 32, "{id}");
        assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        ids.insert(id);
    }
    assert_eq!(ids.len(), 5);
}

/// MSG-08
pub async fn session_id_and_partition_key_must_agree(s: &Stage) {
    s.open_queue(ORDERS).await;
    let both =
        |session: &str, key: &str| message("x").with_session_id(session).with_partition_key(key);
    s.send(ORDERS, both("a", "a")).await.unwrap();
    refused(s.send(ORDERS, both("a", "b")).await, "InvalidOperation");
    refused(s.send(ORDERS, both("a", "A")).await, "InvalidOperation");
}

/// MSG-11
pub async fn a_sender_may_use_the_names_of_dead_letter_properties(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = message("x")
        .with_application_property("DeadLetterReason", 7_i64)
        .with_application_property("DeadLetterErrorDescription", "mine");
    let sent = in_order(sent);
    s.send(ORDERS, sent.clone()).await.unwrap();
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.message.application_properties, sent.application_properties);
}

/// MSG-18, MSG-12: a number of 63 bits is the same in the answer to a send, in a peeked or received
/// message, and in a request.
pub async fn numbers_have_63_bits(s: &Stage) {
    const LAST: u64 = (1 << 63) - 9;
    s.open_queue(ORDERS).await;
    let s = s.restart_behind(ORDERS, LAST).await;
    assert_eq!(s.put_deferred(ORDERS, "a").await, LAST + 1);
    assert_eq!(s.put(ORDERS, "b").await, LAST + 2);
    let at = s.now().plus(minutes(5));
    let scheduled = s.schedule(ORDERS, message("c"), at).await.unwrap();
    assert_eq!(scheduled, LAST + 3);
    assert_eq!(sequences(&s.look(ORDERS).await), [LAST + 1, LAST + 2, LAST + 3]);
    assert_eq!(sequences(&s.peek(ORDERS, LAST + 2, 1).await.unwrap()), [LAST + 2]);
    s.cancel(ORDERS, &[scheduled]).await.unwrap();
    let mode = ReceiveMode::PeekLock;
    let deferred = s.receive_deferred(ORDERS, mode, &[LAST + 1]).await.unwrap().remove(0);
    assert_eq!((deferred.text(), deferred.sequence), ("a", LAST + 1));
    s.complete(ORDERS, &deferred).await;
    let seen = s.take(ORDERS).await;
    assert_eq!((seen.text(), seen.sequence), ("b", LAST + 2));
    s.complete(ORDERS, &seen).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    s.stop().await;
}

/// MSG-12, MSG-16
pub async fn each_queue_numbers_its_messages_from_1(s: &Stage) {
    s.open_queue("a").await;
    s.open_queue("b").await;
    assert_eq!(s.put("a", "x").await, 1);
    assert_eq!(s.put("a", "x").await, 2);
    assert_eq!(s.put("b", "x").await, 1);
}

/// MSG-15
pub async fn an_untransferred_message_has_no_original_number(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "x").await;
    assert_eq!(s.look(ORDERS).await[0].enqueued_sequence, 0);
    assert_eq!(s.take(ORDERS).await.enqueued_sequence, 0);
}

/// MSG-17, FND-06, FND-07
pub async fn the_enqueued_time_is_that_of_the_clock_of_the_broker(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(ms(1)).await;
    let sent_at = s.now();
    s.put(ORDERS, "x").await;
    s.advance(seconds(5)).await;
    assert_eq!(s.look(ORDERS).await[0].enqueued_at, sent_at);
    assert_eq!(s.take(ORDERS).await.enqueued_at, sent_at);
}

/// MSG-19, RCV-02, PEK-05
pub async fn only_a_message_under_lock_has_a_token(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "x").await;
    let locked = s.take(ORDERS).await;
    assert!(locked.lock_token.is_some() && locked.locked_until.is_some());
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((&peeked.lock_token, peeked.locked_until), (&None, None));
    s.abandon(ORDERS, &locked).await;
    let mode = ReceiveMode::ReceiveAndDelete;
    let removed = &s.receive(ORDERS, mode, 1, TimeSpan::ZERO).await.unwrap()[0];
    assert_eq!((&removed.lock_token, removed.locked_until), (&None, None));
}

/// MSG-20
pub async fn application_properties_keep_their_exact_types(s: &Stage) {
    s.open_queue(ORDERS).await;
    let mut sent = message("typed");
    for (key, value) in typed_values() {
        sent = sent.with_application_property(key, value);
    }
    let sent = in_order(sent);
    s.send(ORDERS, sent.clone()).await.unwrap();
    assert_eq!(s.look(ORDERS).await[0].message.application_properties, sent.application_properties);
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.message.application_properties, sent.application_properties);
}

/// MSG-22
pub async fn keys_of_properties_are_compared_byte_by_byte_and_not_empty(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = message("x")
        .with_application_property("key", "a")
        .with_application_property("Key", "b")
        .with_application_property("schlüssel", "c");
    let sent = in_order(sent);
    s.send(ORDERS, sent.clone()).await.unwrap();
    assert_eq!(s.take(ORDERS).await.message.application_properties, sent.application_properties);
    refused(s.send(ORDERS, message("x").with_application_property("", "v")).await, "ArgumentError");
}

/// MSG-24, MSG-25, MSG-27, CNT-08
pub async fn the_size_of_a_message_is_that_of_its_canonical_encoding(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = full(s.now());
    let size = u64::from(sent.encode().size());
    s.send(ORDERS, sent).await.unwrap();
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, size);
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, 0);
    s.send(ORDERS, sized(MIB, "large")).await.unwrap();
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, MIB);
}

/// MSG-02: a message sent over one transport arrives unchanged over every other one, in both
/// directions.
pub async fn messages_cross_from_each_transport_to_each_other(s: &Stage) {
    s.open_queue(ORDERS).await;
    let mut sent = full(s.now());
    for (key, value) in typed_values() {
        sent = sent.with_application_property(key, value);
    }
    sent = in_order(sent);
    sent.body = peeklock_core::message::Body::Data(Bytes::from_static(&[0, 1, 254, 255]));
    for other in crate::subjects::Transport::ALL {
        let other = s.another_over(other).await;
        s.send(ORDERS, sent.clone()).await.unwrap();
        let mode = ReceiveMode::PeekLock;
        let there = &other.receive(ORDERS, mode, 1, TimeSpan::ZERO).await.unwrap()[0];
        assert_eq!(there.message, sent);
        // The token settles over any transport (SET-24).
        s.settle(ORDERS, there.token(), Decision::Complete).await.unwrap();

        other.send(ORDERS, sent.clone()).await.unwrap();
        let here = s.take(ORDERS).await;
        assert_eq!(here.message, sent);
        other.settle(ORDERS, here.token(), Decision::Complete).await.unwrap();
        other.stop().await;
    }
}
