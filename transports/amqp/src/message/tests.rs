//! Tests of sections: golden bytes of messages to clients, batches, requests to a coordinator,
//! truncations and mutations.

use peeklock_store_testing::Random;
use peeklock_words::message::{
    Body, Content, Message, Overlay, PropertyChange, SettableProperty, Value, ValueRef,
};

use super::*;
use crate::link::Assembly;
use crate::tests::{ascii, bytes, digits, hex};

fn stamps() -> Stamps<'static> {
    Stamps {
        delivery_count: 1,
        time_to_live_ms: Some(60_000),
        sequence_number: 5,
        enqueued_sequence_number: Some(4),
        enqueued_at_ms: 1_000,
        locked_until_ms: Some(2_000),
        ..Stamps::default()
    }
}

fn key(name: &str) -> String {
    format!("a3 {:02x} {}", name.len(), ascii(name))
}

/// Annotations of the broker, in the types of AMQP-56.
fn stamped(before: &str, count: u8, locked: bool) -> String {
    let mut entries = before.to_owned();
    let mut put = |name: &str, value: &str| entries.push_str(&format!("{} {value}", key(name)));
    put("x-opt-sequence-number", "81 0000000000000005");
    put("x-opt-enqueue-sequence-number", "81 0000000000000004");
    put("x-opt-enqueued-time", "83 00000000000003e8");
    if locked {
        put("x-opt-locked-until", "83 00000000000007d0");
    }
    let size = hex(&entries).len() + 1;
    format!("005372 c1 {size:02x} {count:02x} {entries}")
}

fn sent(content: &Content, overlays: &[Overlay], stamps: &Stamps<'_>) -> Vec<u8> {
    encode(content, overlays, stamps).concat()
}

fn data(body: &str) -> String {
    format!("005375 a0 {:02x} {}", body.len(), ascii(body))
}

/// Every message has a header with delivery count and remaining time to live, and annotations in
/// their types under symbols (AMQP-15). The other sections are unchanged and not copied.
#[test]
fn a_message_is_sent_with_new_sections_before_old_bytes() {
    let rest = format!("005373 c0 05 01 a1 02 {} {}", ascii("id"), data("hi"));
    let content = Content::parse(bytes(&rest)).unwrap();
    let pieces = encode(&content, &[], &stamps());
    let header = "005370 c0 0b 05 40 40 70 0000ea60 40 52 01";
    let expected = bytes(&format!("{header} {}", stamped("", 8, true)));
    assert_eq!(digits(&pieces[0]), digits(&expected));
    assert_eq!(pieces[1..], [bytes(&rest)]);
    assert_eq!(pieces[1].as_ptr(), content.as_bytes().as_ptr());
    // First delivery without time to live: the count is present, and nulls only precede it.
    let first =
        Stamps { delivery_count: 0, time_to_live_ms: None, locked_until_ms: None, ..stamps() };
    let pieces = encode(&content, &[], &first);
    let expected = bytes(&format!("005370 c0 06 05 40 40 40 40 43 {}", stamped("", 6, false)));
    assert_eq!(digits(&pieces[0]), digits(&expected));
}

/// The sender's durable and priority are passed on, its count and time to live are not. Its
/// annotations with names of the broker are replaced. Others are kept byte for byte, except nulls
/// under names that clients read.
#[test]
fn annotations_of_the_broker_replace_those_of_the_sender() {
    let kept = format!("{} 54 07", key("mine"));
    let annotations =
        format!("{} 55 63 {} 40 {kept}", key("x-opt-sequence-number"), key("x-opt-partition-key"),);
    let size = hex(&annotations).len() + 1;
    let content = format!(
        "005370 c0 0c 05 41 50 09 70 000003e8 42 52 09 005372 c1 {size:02x} 06 {annotations} {}",
        data("x"),
    );
    let content = Content::parse(bytes(&content)).unwrap();
    let expected = format!(
        "005370 c0 0c 05 41 50 09 70 0000ea60 40 52 01 {} {}",
        stamped(&kept, 10, true),
        data("x"),
    );
    assert_eq!(digits(&sent(&content, &[], &stamps())), digits(&bytes(&expected)));
}

/// A lock token stands in delivery annotations if it is requested.
#[test]
fn a_lock_token_stands_in_delivery_annotations() {
    let content = Content::parse(bytes(&data("x"))).unwrap();
    let with = Stamps { lock_token: Some(1), ..stamps() };
    let expected = format!(
        "005370 c0 0b 05 40 40 70 0000ea60 40 52 01 005371 c1 24 02 {} 98 {:032x} {} {}",
        key("x-opt-lock-token"),
        1,
        stamped("", 8, true),
        data("x"),
    );
    assert_eq!(digits(&sent(&content, &[], &with)), digits(&bytes(&expected)));
}

/// AMQP-56: an active message that was never moved has neither a state nor an enqueued sequence
/// number. Its delivery without a lock has empty delivery annotations; a message that is only shown
/// has none.
#[test]
fn a_plain_message_is_sent_without_default_annotations() {
    let content = Content::parse(bytes(&data("x"))).unwrap();
    let plain = Stamps { enqueued_sequence_number: None, locked_until_ms: None, ..stamps() };
    let entries = format!(
        "{} 81 0000000000000005 {} 83 00000000000003e8",
        key("x-opt-sequence-number"),
        key("x-opt-enqueued-time"),
    );
    let sent_of = |stamps: &Stamps<'_>| digits(&sent(&content, &[], stamps));
    let expected = |delivery_annotations: &str, entries: &str, count: u8| {
        let size = hex(entries).len() + 1;
        let header = "005370 c0 0b 05 40 40 70 0000ea60 40 52 01";
        digits(&bytes(&format!(
            "{header} {delivery_annotations} 005372 c1 {size:02x} {count:02x} {entries} {}",
            data("x"),
        )))
    };
    assert_eq!(sent_of(&plain), expected("", &entries, 4));
    let delivered = Stamps { is_delivered: true, ..plain };
    assert_eq!(sent_of(&delivered), expected("005371 c1 01 00", &entries, 4));
    let deferred = Stamps { state: 1, ..plain };
    let entries = format!("{entries} {} 71 00000001", key("x-opt-message-state"));
    assert_eq!(sent_of(&deferred), expected("", &entries, 6));
}

/// Sections with other descriptors are sent with the descriptor that all clients read (AMQP-10),
/// for all body sections and the footer.
#[test]
fn descriptors_leave_in_their_smallest_form() {
    let odd = format!(
        "00 80 0000000000000075 a0 01 61  00 a3 10 {} a0 01 62  00 80 0000000000000078 c1 01 00",
        ascii("amqp:data:binary"),
    );
    let content = Content::parse(bytes(&odd)).unwrap();
    let sent = digits(&sent(&content, &[], &stamps()));
    assert!(sent.ends_with(&digits(&bytes("005375 a00161 005375 a00162 005378 c10100"))), "{sent}");
}

/// AMQP-45: a missing body stays missing, and an empty body stays empty.
#[test]
fn a_body_is_sent_as_it_came() {
    let properties = "005373 c0 04 01 a1 01 61";
    for rest in [properties.to_owned(), format!("{properties} 005375 a000"), "005370 45".into()] {
        let content = Content::parse(bytes(&rest)).unwrap();
        let sent = digits(&sent(&content, &[], &stamps()));
        let kept = if rest.starts_with("005370") { String::new() } else { rest };
        let expected = format!("{} {kept}", stamped("", 8, true));
        assert!(sent.ends_with(&digits(&bytes(&expected))), "{sent}");
    }
}

/// AMQP-45: delivery annotations of a sender are passed on, except names of the broker.
#[test]
fn delivery_annotations_are_passed_on() {
    let own = format!("{} 98 {:032x}", key("x-opt-lock-token"), 7);
    let mine = format!("{} 54 05", key("mine"));
    let both = format!("{own} {mine}");
    let size = hex(&both).len() + 1;
    let content = format!("005371 c1 {size:02x} 04 {both} {}", data("x"));
    let content = Content::parse(bytes(&content)).unwrap();
    let size = hex(&mine).len() + 1;
    let expected = format!(
        "005370 c0 0b 05 40 40 70 0000ea60 40 52 01 005371 c1 {size:02x} 02 {mine} {} {}",
        stamped("", 8, true),
        data("x"),
    );
    assert_eq!(digits(&sent(&content, &[], &stamps())), digits(&bytes(&expected)));
}

/// AMQP-45: text keys of annotations and of a footer become symbols, since some clients read no
/// other key. AMQP-56: partition keys and schedule times have the types that clients expect.
#[test]
fn keys_leave_as_symbols_and_known_values_in_their_types() {
    let (text, symbol) = ("a1 01 6b 54 05", "a3 01 6b 54 05");
    let typed = [
        ("x-opt-partition-key", "a0 01 70", "a1 01 70"),
        ("x-opt-via-partition-key", "a3 01 70", "a1 01 70"),
        ("x-opt-scheduled-enqueue-time", "55 05", "83 0000000000000005"),
    ];
    let all = |value: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        typed.iter().map(|it| format!("{} {}", key(it.0), value(it))).collect::<String>()
    };
    let annotations = format!("{text} {}", all(|it| it.1));
    let size = hex(&annotations).len() + 1;
    let content = format!(
        "005371 c1 06 02 {text} 005372 c1 {size:02x} 08 {annotations} {} 005378 c1 06 02 {text}",
        data("x")
    );
    let content = Content::parse(bytes(&content)).unwrap();
    let expected = format!(
        "005371 c1 06 02 {symbol} {} {} 005378 c1 06 02 {symbol}",
        stamped(&format!("{symbol} {}", all(|it| it.2)), 16, true),
        data("x"),
    );
    let sent = digits(&sent(&content, &[], &stamps()));
    assert!(sent.ends_with(&digits(&bytes(&expected))), "{sent}\n{}", digits(&bytes(&expected)));
}

/// AMQP-56: the sender's first-acquirer is passed on at the first delivery, and omitted later.
#[test]
fn first_acquirer_is_passed_on_at_the_first_delivery() {
    let content = format!("005370 c0 05 04 40 40 40 41 {}", data("x"));
    let content = Content::parse(bytes(&content)).unwrap();
    for (delivery_count, expected) in [(0, "41 43"), (1, "40 52 01")] {
        let stamps = Stamps { delivery_count, time_to_live_ms: None, ..stamps() };
        let sent = digits(&sent(&content, &[], &stamps));
        let size = 4 + hex(expected).len();
        let expected = format!("005370 c0 {size:02x} 05 40 40 40 {expected}");
        assert!(sent.starts_with(&digits(&bytes(&expected))), "{sent}");
    }
}

/// Changed properties stand in their place, new ones at the end, removed ones nowhere. Properties
/// that the model does not know (here a user-id) stay.
#[test]
fn changed_properties_are_sent_as_changed() {
    let content = format!(
        "005372 c1 19 02 {} a1016f 005373 c0 0b 04 a1 01 61 a0 01 62 40 a1 01 63 005374 c1 10 06 a1016b 5401 a1016c 5402 a1016d 5403 {}",
        key("x-opt-partition-key"),
        data("x"),
    );
    let content = Content::parse(bytes(&content)).unwrap();
    let properties = |properties: &[(&str, Value)]| {
        let owned: Vec<_> =
            properties.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Overlay::encode(&owned).unwrap()
    };
    let overlays = [
        properties(&[("l", Value::I32(8)), ("n", Value::from("new"))]),
        properties(&[("l", Value::I32(9))]),
        Overlay::of_changes([
            PropertyChange::Remove("k"),
            PropertyChange::SetBroker(SettableProperty::Subject, ValueRef::String("S")),
            PropertyChange::SetBroker(SettableProperty::PartitionKey, ValueRef::String("P")),
        ]),
    ];
    let sent = digits(&sent(&content, &overlays, &stamps()));
    let expected = format!(
        "{} 005373 c0 0b 04 a10161 a00162 40 a10153 005374 c1 13 06 a1016c 5409 a1016d 5403 a1016e a1036e6577 {}",
        stamped(&format!("{} a10150", key("x-opt-partition-key")), 10, true),
        data("x"),
    );
    assert!(sent.ends_with(&digits(&bytes(&expected))), "{sent}\n{}", digits(&bytes(&expected)));
}

/// AMQP-45, AMQP-14: a property nested as deeply as allowed does not hide later ones when
/// properties are changed.
#[test]
fn a_deep_property_is_kept_with_those_behind_it() {
    let descriptors = "00".repeat(30);
    let deep = format!("a10161 {descriptors} 5301 {}", "40".repeat(30));
    let entries = format!("{deep} a10162 5401");
    let size = entries.replace(' ', "").len() / 2 + 1;
    let content = format!("005374 c1 {size:02x} 04 {entries} {}", data("x"));
    let content = Content::parse(bytes(&content)).unwrap();
    let overlay = Overlay::encode(&[("n".to_owned(), Value::I32(1))]).unwrap();
    let sent = digits(&sent(&content, &[overlay], &stamps()));
    let expected = format!("005374 c1 {:02x} 06 {entries} a1016e 5401 {}", size + 5, data("x"));
    assert!(sent.ends_with(&digits(&bytes(&expected))), "{sent}\n{expected}");
}

/// AMQ-18: an expiring message is sent with its expiry, which replaces the sender's value. The
/// distance from its creation to it equals the distance from the enqueueing to the expiry. The
/// other properties are unchanged. A missing creation time becomes the time of the enqueueing
/// (AMQ-19).
#[test]
fn expiry_is_sent_with_its_distance_from_creation() {
    let instant = |ms: i64| format!("83 {ms:016x}");
    let (expires, enqueued) = (instant(0x0001_0203_0405_0607), instant(stamps().enqueued_at_ms));
    let stamps = Stamps { expires_at_ms: Some(0x0001_0203_0405_0607), ..stamps() };
    let sent_of = |properties: &str| {
        let content = Content::parse(bytes(&format!("{properties} {}", data("x")))).unwrap();
        digits(&sent(&content, &[], &stamps))
    };
    let ends_with = |sent: &str, properties: &str| {
        let expected = digits(&bytes(&format!("{properties} {}", data("x"))));
        assert!(sent.ends_with(&expected), "{sent}\n{expected}");
    };
    let nulls = "40 40 40 40 40 40";
    ends_with(&sent_of(""), &format!("005373 c0 12 09 40 40 {nulls} {expires}"));
    let (other, made) = (instant(7), instant(9));
    let behind = instant(9 + 0x0001_0203_0405_0607 - stamps.enqueued_at_ms);
    // With a user-id, which the model does not know, and a property after it.
    let properties = |expires: &str, made: &str| {
        format!("005373 c0 22 0b a10161 a00162 {nulls} {expires} {made} a10173")
    };
    ends_with(&sent_of(&properties(&other, &made)), &properties(&behind, &made));
    ends_with(&sent_of(&properties(&other, &instant(0))), &properties(&expires, &enqueued));
    // A message that does not expire is unchanged.
    let kept = properties(&other, &instant(0));
    let content = Content::parse(bytes(&format!("{kept} {}", data("x")))).unwrap();
    let stamps = Stamps { expires_at_ms: None, ..stamps };
    ends_with(&digits(&super::encode(&content, &[], &stamps).concat()), &kept);
}

/// A client that decodes a sent message gets the original message.
#[test]
fn random_messages_are_read_as_they_were_sent() {
    let mut random = Random::new(19);
    for _ in 0..2_000 {
        let mut message = Message::new(vec![7; random.index(300)]);
        if random.one_in(4) {
            message.body = Body::Value(bytes("005377 a10161"));
        }
        if random.one_in(2) {
            message = message.with_message_id(format!("id-{}", random.below(1_000)));
        }
        if random.one_in(2) {
            message = message.with_partition_key("key").with_session_id("key");
        }
        for index in 0..random.index(4) {
            let value = Value::I64(random.bits().cast_signed());
            message = message.with_application_property(format!("p{index}"), value);
        }
        let overlay = Overlay::encode(&[("p1".to_owned(), Value::Bool(true))]).unwrap();
        let overlays = if random.one_in(2) { vec![overlay] } else { vec![] };
        let content = message.encode();
        let sent = Content::parse(sent(&content, &overlays, &stamps()).into()).unwrap();
        let mut expected = content.message(&overlays).unwrap();
        expected.time_to_live = Some(peeklock_words::time::TimeSpan::from_ms(60_000));
        assert_eq!(sent.decode().unwrap(), expected);
    }
}

/// Content that was accepted can be sent, and the sent bytes can be read.
#[test]
fn truncated_and_mutated_content_is_refused_or_sent() {
    let whole = Message::new("body")
        .with_message_id("id")
        .with_partition_key("key")
        .with_application_property("p", 7_i64)
        .encode();
    let whole = whole.as_bytes();
    let overlay = [Overlay::encode(&[("p".to_owned(), Value::Bool(true))]).unwrap()];
    let mut random = Random::new(20);
    let mut accepted = 0;
    for turn in 0..20_000 {
        let mut mutated = whole.to_vec();
        if turn < whole.len() {
            mutated.truncate(turn);
        } else {
            for _ in 0..random.between(1, 3) {
                let at = random.index(mutated.len());
                mutated[at] = u8::try_from(random.below(256)).unwrap();
            }
        }
        let Ok(content) = Content::parse(mutated.into()) else {
            continue;
        };
        accepted += 1;
        for overlays in [&[][..], &overlay] {
            let sent = Content::parse(sent(&content, overlays, &stamps()).into());
            assert!(sent.is_ok(), "{content:?}: {sent:?}");
        }
    }
    assert!(accepted > 1_000, "{accepted}");
}

#[test]
fn parts_are_joined_once_and_a_single_one_is_not_copied() {
    let part = Bytes::from(vec![7; 100]);
    let mut assembly = Assembly::default();
    assembly.push(part.clone());
    assembly.push(Bytes::new());
    assert_eq!(assembly.clone().join().as_ptr(), part.as_ptr());
    assembly.push(part.clone());
    assert_eq!(assembly.len(), 200);
    assert_eq!(assembly.join(), vec![7; 200]);
}

/// A batch is a sequence of data sections with one message each, which are not copied. Its other
/// sections are dropped. An empty batch has no messages (AMQ-13).
#[test]
fn a_batch_is_taken_apart() {
    let message = |body: &str| {
        let message = data(body);
        let size = hex(&message).len();
        format!("005375 a0 {size:02x} {message}")
    };
    let envelope = format!("005373 c0 05 01 a1 02 {}", ascii("id"));
    let batch = bytes(&format!("{envelope} {} {}", message("one"), message("two")));
    let messages = unpack(batch.clone(), 2).unwrap();
    let bodies: Vec<_> = messages.iter().map(Content::body_bytes).collect();
    assert_eq!(bodies, [&b"one"[..], b"two"]);
    assert!(batch.as_ptr_range().contains(&messages[1].as_bytes().as_ptr()));
    assert_eq!(unpack(batch, 1), Err(BatchError::TooMany(1)));
    assert_eq!(unpack(bytes(&envelope), 1), Ok(vec![]));
    assert_eq!(unpack(bytes("005375 a000"), 1), Ok(vec![]));
    let error = unpack(bytes(&format!("{} 005375 a00140", message("one"))), 9).unwrap_err();
    assert_eq!(error.to_string(), "message 1 of the batch: value is not a section of a message");
    assert!(matches!(unpack(bytes("005377 40"), 1), Err(BatchError::Envelope(_))));
}

/// Requests to a coordinator are message bodies.
#[test]
fn a_coordinator_is_asked_by_values() {
    let declare = CoordinatorRequest::Declare(Declare { global_id: None });
    for golden in ["005377 005331 45", "005377 005331 c0 02 01 40"] {
        assert_eq!(CoordinatorRequest::read(&bytes(golden)), Ok(declare.clone()));
    }
    let discharge = CoordinatorRequest::Discharge(Discharge {
        txn_id: Bytes::from_static(b"\x01\x02"),
        fail: true,
    });
    let golden = bytes("005377 005332 c0 06 02 a0 02 0102 41");
    assert_eq!(CoordinatorRequest::read(&golden), Ok(discharge));
    for end in 0..golden.len() {
        assert!(CoordinatorRequest::read(&golden.slice(..end)).is_err(), "{end}");
    }
    for wrong in ["005375 a000", "005377 005331 45 40", "005377 40", "005377 005332 45"] {
        assert!(CoordinatorRequest::read(&bytes(wrong)).is_err(), "{wrong}");
    }
}
