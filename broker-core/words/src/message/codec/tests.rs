//! Bytes of single values and whole messages, and malformed bytes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)]

use bytes::Bytes;

use super::write::{Measure, write_value};
use super::{read_value, write};
use crate::message::{Body, Content, ContentError, Message, MessageId, Overlay, Value};
use crate::time::{TimeSpan, Timestamp};

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(&mut bytes, value);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Content, ContentError> {
    Content::parse(Bytes::copy_from_slice(bytes))
}

fn described(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x00, 0xa3, name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// Every type of value with its exact bytes, at the borders of its encodings.
fn values() -> Vec<(Value, Vec<u8>)> {
    let fixed = |code: u8, bytes: &[u8]| [&[code], bytes].concat();
    let long_text = "x".repeat(256);
    vec![
        (Value::Null, vec![0x40]),
        (Value::Bool(true), vec![0x41]),
        (Value::Bool(false), vec![0x42]),
        (Value::I8(-1), vec![0x51, 0xff]),
        (Value::I16(-2), vec![0x61, 0xff, 0xfe]),
        (Value::I32(-128), vec![0x54, 0x80]),
        (Value::I32(127), vec![0x54, 0x7f]),
        (Value::I32(128), fixed(0x71, &128i32.to_be_bytes())),
        (Value::I32(-129), fixed(0x71, &(-129i32).to_be_bytes())),
        (Value::I64(-128), vec![0x55, 0x80]),
        (Value::I64(128), fixed(0x81, &128i64.to_be_bytes())),
        (Value::I64(i64::MIN), fixed(0x81, &i64::MIN.to_be_bytes())),
        (Value::U8(255), vec![0x50, 0xff]),
        (Value::U16(256), vec![0x60, 0x01, 0x00]),
        (Value::U32(0), vec![0x43]),
        (Value::U32(255), vec![0x52, 0xff]),
        (Value::U32(256), fixed(0x70, &256u32.to_be_bytes())),
        (Value::U64(0), vec![0x44]),
        (Value::U64(255), vec![0x53, 0xff]),
        (Value::U64(256), fixed(0x80, &256u64.to_be_bytes())),
        (Value::F32(1.5), fixed(0x72, &1.5f32.to_be_bytes())),
        (Value::F64(-0.1), fixed(0x82, &(-0.1f64).to_be_bytes())),
        (Value::Decimal128([7; 16]), fixed(0x94, &[7; 16])),
        (Value::Char('\u{1F600}'), vec![0x73, 0x00, 0x01, 0xf6, 0x00]),
        (Value::String(String::new()), vec![0xa1, 0x00]),
        (Value::String("ä".into()), vec![0xa1, 0x02, 0xc3, 0xa4]),
        (Value::String("x".repeat(255)), [&[0xa1, 0xff], "x".repeat(255).as_bytes()].concat()),
        (Value::String(long_text.clone()), [&[0xb1, 0, 0, 1, 0], long_text.as_bytes()].concat()),
        (Value::Uuid(1), fixed(0x98, &1u128.to_be_bytes())),
        (Value::Timestamp(-1), fixed(0x83, &[0xff; 8])),
        (Value::Binary(Bytes::from_static(&[0, 255])), vec![0xa0, 0x02, 0x00, 0xff]),
        (Value::Binary(vec![9; 256].into()), [&[0xb0, 0, 0, 1, 0][..], &[9; 256]].concat()),
        (Value::Uri("a:b".into()), described("com.microsoft:uri", b"\xa1\x03a:b")),
        (
            Value::DateTimeOffset(621_355_968_000_000_000),
            described(
                "com.microsoft:datetime-offset",
                &fixed(0x81, &621_355_968_000_000_000i64.to_be_bytes()),
            ),
        ),
        (Value::TimeSpan(-1), described("com.microsoft:timespan", &[0x55, 0xff])),
    ]
}

/// A message with every property and every type of value.
fn full_message() -> Message {
    let mut message = Message::new("body")
        .with_message_id("id")
        .with_session_id("s")
        .with_partition_key("s")
        .with_transaction_partition_key("via")
        .with_reply_to_session_id("answers")
        .with_correlation_id(MessageId::Uuid(5))
        .with_content_type("text/plain")
        .with_subject("subject")
        .with_to("to")
        .with_reply_to("reply")
        .with_time_to_live(TimeSpan::from_ms(1500))
        .with_scheduled_enqueue_time(Timestamp::from_unix_ms(1_700_000_000_123));
    message.force_persistence = true;
    for (position, (value, _)) in values().into_iter().enumerate() {
        message = message.with_application_property(format!("key {position}"), value);
    }
    message
}

/// MSG-20: each type has exactly one encoding, the smallest, and comes back as itself.
#[test]
fn every_value_has_its_smallest_bytes_and_keeps_its_type() {
    for (value, bytes) in values() {
        assert_eq!(encoded(&value), bytes, "{value:?}");
        assert_eq!(read_value(&bytes), Ok(value));
        let mut measure = Measure::default();
        write_value(&mut measure, &read_value(&bytes).unwrap());
        assert_eq!(measure.bytes, bytes.len());
    }
}

/// MSG-20: other legal encodings of the same value are understood.
#[test]
fn longer_encodings_of_a_value_mean_the_same() {
    let cases: &[(&[u8], Value)] = &[
        (&[0x56, 0x01], Value::Bool(true)),
        (&[0x56, 0x00], Value::Bool(false)),
        (&[0x70, 0, 0, 0, 0], Value::U32(0)),
        (&[0x71, 0xff, 0xff, 0xff, 0xff], Value::I32(-1)),
        (&[0x80, 0, 0, 0, 0, 0, 0, 0, 1], Value::U64(1)),
        (&[0x81, 0, 0, 0, 0, 0, 0, 0, 1], Value::I64(1)),
        (&[0xb1, 0, 0, 0, 1, b'a'], Value::String("a".into())),
        (&[0xa3, 1, b'a'], Value::String("a".into())),
        (&[0xb0, 0, 0, 0, 1, 7], Value::Binary(Bytes::from_static(&[7]))),
    ];
    for (bytes, value) in cases {
        assert_eq!(read_value(bytes), Ok(value.clone()));
    }
}

/// MSG-20, MSG-21: values that the message model lacks and malformed values are refused.
#[test]
fn values_outside_the_model_are_refused() {
    for nested in [&[0x45][..], &[0xc0, 1, 0], &[0xc1, 1, 0], &[0xe0, 2, 0, 0x40]] {
        assert_eq!(read_value(nested), Err(ContentError::UnsupportedValue), "{nested:?}");
    }
    assert_eq!(read_value(&[0x74, 0, 0, 0, 0]), Err(ContentError::UnsupportedValue));
    assert_eq!(read_value(&described("other", &[0x40])), Err(ContentError::UnsupportedValue));
    assert_eq!(
        read_value(&described("com.microsoft:timespan", &[0xa1, 0])),
        Err(ContentError::UnsupportedValue)
    );
    assert_eq!(read_value(&[0xa1, 1, 0xff]), Err(ContentError::NotUtf8));
    assert_eq!(read_value(&[0x73, 0, 0, 0xd8, 0]), Err(ContentError::BadValue("char")));
    assert_eq!(read_value(&[0x57]), Err(ContentError::UnknownType(0x57)));
}

/// MSG-25: the canonical encoding of a small message, byte for byte.
#[test]
fn a_small_message_has_these_bytes() {
    let content = Message::new("hi").with_message_id("m1").encode();
    let golden = b"\x00\x53\x73\xc0\x05\x01\xa1\x02m1\x00\x53\x75\xa0\x02hi";
    assert_eq!(&content.as_bytes()[..], golden);
    assert_eq!((content.size(), content.header_size()), (17, 10));
    assert_eq!(&Message::new("").encode().as_bytes()[..], b"\x00\x53\x75\xa0\x00");
}

/// MSG-25: the canonical encoding of a message with all sections, byte for byte.
#[test]
fn a_message_with_all_sections_has_these_bytes() {
    let content = Message::new("b")
        .with_message_id(MessageId::Ulong(7))
        .with_subject("x")
        .with_content_type("t")
        .with_session_id("s")
        .with_partition_key("s")
        .with_time_to_live(TimeSpan::from_ms(256))
        .with_application_property("k", 1i32)
        .encode();
    let golden = [
        &b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x00\x01\x00"[..],
        b"\x00\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01s",
        b"\x00\x53\x73\xc0\x13\x0b\x53\x07\x40\x40\xa1\x01x\x40\x40\xa3\x01t\x40\x40\x40\xa1\x01s",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\x54\x01",
        b"\x00\x53\x75\xa0\x01b",
    ]
    .concat();
    assert_eq!(&content.as_bytes()[..], &golden[..]);
}

/// MSG-25: compound values change to sizes of four bytes exactly where one byte is too small.
#[test]
fn lists_and_maps_grow_to_four_byte_sizes_at_255() {
    use write::{Compound, compound, compound_bytes};
    let start = |items, count| {
        let mut bytes = Vec::new();
        compound(&mut bytes, Compound::Map, items, count);
        assert_eq!(bytes.len() + items, compound_bytes(Compound::Map, items, count));
        bytes
    };
    assert_eq!(start(254, 2), [0xc1, 255, 2]);
    assert_eq!(start(255, 2), [0xd1, 0, 0, 1, 3, 0, 0, 0, 2]);
    assert_eq!(start(254, 256)[0], 0xd1);
    for length in [200, 240, 245, 246, 247, 250, 251, 252, 253, 300] {
        let message = Message::new("b").with_message_id("m".repeat(length));
        let content = message.encode();
        assert_eq!(parse(content.as_bytes()), Ok(content.clone()), "{length}");
        assert_eq!(content.decode(), Ok(message));
    }
}

/// AMQP 3.2: descriptors may be longer numbers or names, and the sections mean the same.
#[test]
fn sections_are_known_by_number_and_by_name() {
    let body = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01b";
    assert_eq!(parse(body).unwrap().body(), Body::Data("b".into()));
    let mut named = described("amqp:properties:list", b"\xc0\x04\x01\xa1\x01m");
    named.extend(described("amqp:data:binary", b"\xa0\x01b"));
    let content = parse(&named).unwrap();
    assert_eq!(content.message_id().as_deref(), Some("m"));
    assert_eq!(content.body_bytes(), "b");
    assert_eq!(content.header_size() as usize, 3 + 20 + 6);
}

/// AMQP 3.2: only data and sequence sections repeat, and a body has a single kind.
#[test]
fn repeated_sections_are_refused() {
    let (header, properties) = (b"\x00\x53\x70\x45", b"\x00\x53\x73\x45");
    let (data, value) = (b"\x00\x53\x75\xa0\x01b", b"\x00\x53\x77\x40");
    let (sequence, footer) = (b"\x00\x53\x76\x45", b"\x00\x53\x78\xc1\x01\x00");
    let good: &[&[&[u8]]] = &[
        &[header, properties, data, footer],
        &[data, data, data],
        &[sequence, sequence, footer],
        &[value, footer],
        &[properties],
    ];
    for sections in good {
        let bytes = sections.concat();
        let content = parse(&bytes).unwrap();
        let parts = content.sections();
        assert_eq!(
            [
                parts.header,
                parts.delivery_annotations,
                parts.message_annotations,
                parts.properties,
                parts.application_properties,
                parts.body,
                parts.footer
            ]
            .concat(),
            bytes
        );
        assert_eq!(parts.footer.is_empty(), !bytes.ends_with(footer));
    }
    let bad: &[&[&[u8]]] = &[
        &[header, header],
        &[properties, properties],
        &[data, value],
        &[data, properties, value],
        &[properties, data, properties],
        &[data, sequence],
        &[sequence, data],
        &[value, value],
        &[footer, footer],
        &[footer, data, footer],
    ];
    for sections in bad {
        assert_eq!(parse(&sections.concat()), Err(ContentError::SectionOrder), "{sections:?}");
    }
}

/// AMQP-45: sections are accepted in any order, since some clients write sections after the body.
/// They are stored in the order of the standard; body sections keep their order.
#[test]
fn sections_are_put_in_order() {
    let header = &b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x00\x00\x05"[..];
    let delivery = &b"\x00\x53\x71\xc1\x05\x02\xa3\x01d\x41"[..];
    let annotations = &b"\x00\x53\x72\xc1\x05\x02\xa3\x01x\x41"[..];
    let properties = &b"\x00\x53\x73\xc0\x04\x01\xa1\x01m"[..];
    let application = &b"\x00\x53\x74\xc1\x05\x02\xa1\x01k\x41"[..];
    let (first, second) = (&b"\x00\x53\x75\xa0\x01b"[..], &b"\x00\x53\x75\xa0\x01c"[..]);
    let footer = &b"\x00\x53\x78\xc1\x05\x02\xa3\x01f\x41"[..];
    let ordered = [header, delivery, annotations, properties, application, first, second, footer];
    let expected = parse(&ordered.concat()).unwrap();
    assert_eq!(expected.sections().delivery_annotations, delivery);
    let mixed: [[&[u8]; 8]; 3] = [
        [footer, first, second, application, properties, annotations, delivery, header],
        [header, annotations, properties, application, first, second, delivery, footer],
        [first, footer, header, second, delivery, application, annotations, properties],
    ];
    for sections in mixed {
        assert_eq!(parse(&sections.concat()).unwrap(), expected, "{sections:?}");
    }
    let unknown = [properties, header, b"\x00\x53\x79\x40"].concat();
    assert_eq!(parse(&unknown), Err(ContentError::NoSection));
}

/// AMQP-44: a partition key may be binary and an instant a number, because the SDK for Python
/// re-sends received values like this.
#[test]
fn annotations_of_a_resent_message_are_read() {
    let annotated = |key: &str, value: &[u8]| {
        let mut items = Vec::new();
        write::symbol(&mut items, key);
        items.extend_from_slice(value);
        let mut bytes = b"\x00\x53\x72".to_vec();
        write::compound(&mut bytes, write::Compound::Map, items.len(), 2);
        bytes.extend(items);
        bytes.extend(b"\x00\x53\x75\xa0\x01b");
        parse(&bytes).map(|content| content.decode().unwrap())
    };
    for (key, is_via) in [("x-opt-partition-key", false), ("x-opt-via-partition-key", true)] {
        let message = annotated(key, b"\xa0\x01p").unwrap();
        let found = if is_via { message.transaction_partition_key } else { message.partition_key };
        assert_eq!(found.as_deref(), Some("p"), "{key}");
        assert_eq!(annotated(key, b"\xa0\x01\xff"), Err(ContentError::BadValue(key_name(key))));
    }
    let at = Some(Timestamp::from_unix_ms(5));
    let numbers: [&[u8]; 4] =
        [b"\x83\0\0\0\0\0\0\0\x05", b"\x55\x05", b"\x71\0\0\0\x05", b"\x53\x05"];
    for number in numbers {
        let message = annotated("x-opt-scheduled-enqueue-time", number).unwrap();
        assert_eq!(message.scheduled_enqueue_time, at, "{number:02x?}");
    }
    assert!(annotated("x-opt-scheduled-enqueue-time", b"\xa1\x01x").is_err());
}

fn key_name(key: &str) -> &'static str {
    match key {
        "x-opt-partition-key" => "x-opt-partition-key",
        _ => "x-opt-via-partition-key",
    }
}

/// AMQP 1.6: each of these breaks one rule of the encoding, in one place.
#[test]
fn malformed_bytes_are_refused() {
    let cases: &[(&[u8], ContentError)] = &[
        (b"", ContentError::Empty),
        (b"\x40", ContentError::NoSection),
        (b"\x00\x53\x79\x40", ContentError::NoSection),
        (b"\x00\x53\x75\x40", ContentError::BadValue("data section")),
        (b"\x00\x53\x75\xa0\x02b", ContentError::Truncated),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xffb", ContentError::Truncated),
        (b"\x00\x53\x76\x40", ContentError::BadValue("list")),
        (b"\x00\x53\x77\xc0\x02\x01\x57", ContentError::UnknownType(0x57)),
        (b"\x00\x53\x77\xc0\x02\x00\x40", ContentError::BadCount),
        (b"\x00\x53\x77\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40", ContentError::TooMany),
        (b"\x00\x53\x77\xd0\x00\x00\x00\x05\x00\x0f\x42\x40\x40", ContentError::Truncated),
        (b"\x00\x53\x77\xe0\x04\x03\x50\x01\x02", ContentError::Truncated),
        (b"\x00\x53\x77\xe0\x05\x02\x50\x01\x02\x03", ContentError::BadCount),
        (b"\x00\x53\x74\xc1\x03\x01\xa1\x00", ContentError::BadValue("map")),
        (b"\x00\x53\x74\xc0\x01\x00", ContentError::BadValue("map")),
        (b"\x00\x53\x70\xc0\x05\x03\x40\x40\xa1\x00", ContentError::BadValue("header ttl")),
        (b"\x00\x53\x73\xc0\x02\x01\x41", ContentError::BadValue("message-id")),
        (b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa0\x00", ContentError::BadValue("to")),
        (b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff", ContentError::NotUtf8),
        (b"\x00\x53\x73\xc0\x03\x01\x40\x40", ContentError::BadCount),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse(bytes), Err(*error), "{bytes:02x?}");
    }
    let fields = [&b"\x00\x53\x73\xc0\x0f\x0e"[..], &[0x40; 14]].concat();
    assert_eq!(parse(&fields), Err(ContentError::BadCount));
}

/// AMQP-14: nesting is limited: descriptors of descriptors, and lists in lists.
#[test]
fn deep_nesting_is_refused_without_deep_recursion() {
    let mut descriptors = b"\x00\x53\x77".to_vec();
    descriptors.extend(vec![0; 1_000_000]);
    assert_eq!(parse(&descriptors), Err(ContentError::TooDeep));
    let lists = |depth: usize| {
        let mut value = vec![0x40];
        for _ in 0..depth {
            let mut list = vec![0xd0];
            list.extend((value.len() as u32 + 4).to_be_bytes());
            list.extend([0, 0, 0, 1]);
            list.extend(value);
            value = list;
        }
        [&b"\x00\x53\x77"[..], &value].concat()
    };
    assert!(parse(&lists(31)).is_ok());
    assert_eq!(parse(&lists(32)), Err(ContentError::TooDeep));
    assert_eq!(parse(&lists(5_000)), Err(ContentError::TooDeep));
}

/// An array of these elements, in the form with sizes of four bytes. They share `constructor`.
fn array(constructor: &[u8], elements: &[&[u8]]) -> Vec<u8> {
    let items = [constructor, &elements.concat()].concat();
    let mut array = (items.len() as u32 + 4).to_be_bytes().to_vec();
    array.extend((elements.len() as u32).to_be_bytes());
    array.extend(items);
    array
}

fn body_of_array(array: &[u8]) -> Result<Content, ContentError> {
    parse(&[b"\x00\x53\x77\xf0", array].concat())
}

/// AMQP-14: arrays in arrays nest no deeper than lists in lists, and inner items count together
/// with outer ones.
#[test]
fn arrays_in_arrays_are_limited() {
    let nested = |depth: usize| {
        (1..depth).fold(array(&[0x40], &[&[]]), |inner, _| array(&[0xf0], &[&inner]))
    };
    assert!(body_of_array(&nested(31)).is_ok());
    assert_eq!(body_of_array(&nested(33)).err(), Some(ContentError::TooDeep));
    assert_eq!(body_of_array(&nested(3_000)).err(), Some(ContentError::TooDeep));
    // Each level is an array of lists that contain an array.
    let mixed = |depth: usize| {
        (1..depth).fold(array(&[0x40], &[&[]]), |inner, _| {
            let list = [&[0xf0], &inner[..]].concat();
            let head = [(list.len() as u32 + 4).to_be_bytes(), 1_u32.to_be_bytes()].concat();
            array(&[0xd0], &[&[head, list].concat()])
        })
    };
    assert!(body_of_array(&mixed(15)).is_ok());
    assert_eq!(body_of_array(&mixed(17)).err(), Some(ContentError::TooDeep));
}

/// AMQP-15: an empty array may omit the constructor, as Python writes it. Bytes that follow it are
/// still checked.
#[test]
fn an_empty_array_needs_no_constructor() {
    let property = b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xe0\x01\x00";
    assert!(parse(&[property, &b"\x00\x53\x75\xa0\x01b"[..]].concat()).is_ok());
    assert!(body_of_array(b"\x00\x00\x00\x04\x00\x00\x00\x00").is_ok());
    assert!(body_of_array(b"\x00\x00\x00\x05\x00\x00\x00\x00\x40").is_ok());
    assert!(body_of_array(b"\x00\x00\x00\x06\x00\x00\x00\x00\x40\x40").is_err());
    assert_eq!(
        body_of_array(b"\x00\x00\x00\x04\x00\x00\x00\x01").err(),
        Some(ContentError::Truncated)
    );
}

/// AMQP 3.2.1, 3.2.4: fields that the broker passes on unread must have the types of the standard.
/// Otherwise the sender gets an error. Stored content with other types stays readable.
#[test]
fn unread_fields_of_a_sender_must_have_standard_types() {
    let body = b"\x00\x53\x75\xa0\x01b";
    let list = |section: u8, fields: &[&[u8]]| {
        let items = fields.concat();
        let head = [0x00, 0x53, section, 0xc0, items.len() as u8 + 1, fields.len() as u8];
        Bytes::from([&head[..], &items, body].concat())
    };
    let null = &b"\x40"[..];
    let text = &b"\xa1\x01x"[..];
    let binary = &b"\xa0\x01x"[..];
    let symbol = &b"\xa3\x01x"[..];
    let before = |count: usize, field: &'static [u8]| [vec![null; count], vec![field]].concat();
    let wrong = [
        (list(0x70, &before(0, text)), "header durable"),
        (list(0x70, &before(1, b"\x52\x04")), "header priority"),
        (list(0x70, &before(3, text)), "header first-acquirer"),
        (list(0x70, &before(4, b"\x53\x04")), "header delivery-count"),
        (list(0x73, &before(1, text)), "user-id"),
        (list(0x73, &before(7, binary)), "content-encoding"),
        (list(0x73, &before(11, symbol)), "group-sequence"),
    ];
    for (bytes, field) in wrong {
        assert_eq!(Content::from_sender(bytes.clone()), Err(ContentError::BadValue(field)));
        assert!(Content::parse(bytes).is_ok(), "{field} was stored");
    }
    let right = [
        list(0x70, &[b"\x41", b"\x50\x04", b"\x43", b"\x42", b"\x52\x01"]),
        list(0x70, &[null; 5]),
        list(0x73, &before(1, binary)),
        list(0x73, &before(1, b"\xa0\x00")),
        list(0x73, &before(7, symbol)),
        list(0x73, &before(7, text)),
        list(0x73, &before(11, b"\x43")),
        Bytes::from_static(body),
    ];
    for bytes in right {
        assert!(Content::from_sender(bytes.clone()).is_ok(), "{bytes:?}");
    }
    // The header has no sixth field. A null there is harmless, and no header leaves unchanged.
    let sixth = list(0x70, &before(5, text));
    assert_eq!(Content::from_sender(sixth), Err(ContentError::BadCount));
}

/// AMQP-14: elements of arrays are checked to their innermost lengths, counts and types.
#[test]
fn compound_elements_of_arrays_are_checked() {
    let good: [(&[u8], &[&[u8]]); 6] = [
        (b"\xc0", &[b"\x02\x01\x40", b"\x01\x00"]),
        (b"\xd0", &[b"\0\0\0\x05\0\0\0\x01\x40"]),
        (b"\xc1", &[b"\x05\x02\xa3\x01k\x40"]),
        (b"\xd1", &[b"\0\0\0\x04\0\0\0\0"]),
        (b"\xe0", &[b"\x04\x02\x50\x01\x02", b"\x02\x00\x40"]),
        (b"\x00\x53\x01\xc0", &[b"\x02\x01\x40"]),
    ];
    for (constructor, elements) in good {
        assert!(body_of_array(&array(constructor, elements)).is_ok(), "{constructor:02x?}");
    }
    let bad: [(&[u8], &[u8], ContentError); 8] = [
        // A claim of five items, without a valid type.
        (b"\xc0", b"\x02\x05\x99", ContentError::UnknownType(0x99)),
        (b"\xc0", b"\x02\x05\x40", ContentError::Truncated),
        (b"\xc0", b"\x02\x00\x40", ContentError::BadCount),
        (b"\xc0", b"\x03\x01\xa1\x05", ContentError::Truncated),
        (b"\xd0", b"\0\0\0\x05\xff\xff\xff\xff\x40", ContentError::TooMany),
        (b"\xc1", b"\x02\x01\x40", ContentError::BadValue("map")),
        (b"\xe0", b"\x03\x02\x50\x01", ContentError::Truncated),
        (b"\xf0", b"\0\0\0\x06\0\0\0\x01\x99\0", ContentError::UnknownType(0x99)),
    ];
    for (constructor, element, error) in bad {
        let array = array(constructor, &[element, element]);
        assert_eq!(body_of_array(&array).err(), Some(error), "{element:02x?}");
    }
}

/// AMQP-14: a list or array from a sender has at most 65,536 items and a map half as many entries,
/// even if items take no bytes. Content stored under a higher limit stays readable.
#[test]
fn too_many_items_of_a_sender_are_refused() {
    let content = |code: u8, count: u32, items: &[u8]| {
        let size = u32::try_from(items.len() + 4).unwrap();
        let head = [0x00, 0x53, 0x77, code];
        Bytes::from([&head[..], &size.to_be_bytes(), &count.to_be_bytes(), items].concat())
    };
    let nulls = vec![0x40; 65_540];
    let cases = [
        (0xd0, 65_536, &nulls[..65_536], true),
        (0xd0, 65_537, &nulls[..65_537], false),
        (0xd1, 65_536, &nulls[..65_536], true),
        (0xd1, 65_538, &nulls[..65_538], false),
        // Arrays of nulls, trues, falses, zeros and empty lists, which consist only of the
        // constructor.
        (0xf0, 65_536, &[0x40][..], true),
        (0xf0, 65_537, &[0x40], false),
        (0xf0, 65_537, &[0x41], false),
        (0xf0, 65_537, &[0x42], false),
        (0xf0, 65_537, &[0x43], false),
        (0xf0, 65_537, &[0x44], false),
        (0xf0, 65_537, &[0x45], false),
    ];
    for (code, count, items, is_taken) in cases {
        let content = content(code, count, items);
        let expected = if is_taken { Ok(()) } else { Err(ContentError::TooMany) };
        assert_eq!(Content::from_sender(content.clone()).map(drop), expected, "{code:x} {count}");
        assert!(Content::parse(content).is_ok(), "{code:x} {count}");
    }
    let endless = content(0xf0, u32::MAX, &[0x41]);
    assert_eq!(Content::parse(endless).err(), Some(ContentError::TooMany));
}

/// AMQP-14: a whole message has at most 65,536 array elements without bytes, anywhere in it.
#[test]
fn elements_without_bytes_are_bounded_over_a_message() {
    let nulls = |count: u32| [&b"\xf0\0\0\0\x05"[..], &count.to_be_bytes(), b"\x40"].concat();
    let annotations = |value: &[u8]| {
        let entry = [b"\xa3\x01k", value].concat();
        [&b"\x00\x53\x72\xc1"[..], &[entry.len() as u8 + 1, 2], &entry].concat()
    };
    let list = |values: &[Vec<u8>]| {
        let items = values.concat();
        let size = u32::try_from(items.len() + 4).unwrap();
        let count = u32::try_from(values.len()).unwrap();
        [&b"\xd0"[..], &size.to_be_bytes(), &count.to_be_bytes(), &items].concat()
    };
    let message = |in_annotations: u32, in_body: &[u32]| {
        let values: Vec<_> = in_body.iter().map(|count| nulls(*count)).collect();
        let body = [b"\x00\x53\x77", &list(&values)[..]].concat();
        Bytes::from([annotations(&nulls(in_annotations)), body].concat())
    };
    assert!(Content::from_sender(message(16_384, &[16_384, 32_768])).is_ok());
    for too_many in [message(16_384, &[16_384, 32_769]), message(1, &[700; 100])] {
        assert_eq!(
            Content::from_sender(too_many.clone()).err(),
            Some(ContentError::TooManyWidthless)
        );
        assert!(Content::parse(too_many).is_ok());
    }
    let alone = message(65_537, &[]);
    assert_eq!(Content::from_sender(alone).err(), Some(ContentError::TooMany));
}

/// Reads all parts of content from any bytes.
fn exercise(bytes: Bytes) -> bool {
    let overlay = Overlay::from_bytes(bytes.clone());
    let mut target = Message::new("t").with_application_property("key 1", 1);
    target.apply_overlay(&overlay.on_top_of(&overlay));
    let Ok(content) = Content::parse(bytes) else {
        return false;
    };
    let envelope = content.envelope(&Default::default(), &[1; 16]);
    assert!(envelope.header_size <= envelope.size);
    assert_eq!(Content::parse(content.as_bytes().clone()), Ok(content.clone()));
    let renamed = content.with_message_id(&"other".into());
    assert_eq!(renamed.message_id().as_deref(), Some("other"));
    assert_eq!(Content::parse(renamed.as_bytes().clone()).as_ref(), Ok(&renamed));
    assert_eq!(renamed.body(), content.body());
    let changed = content.clone().without_content_encoding().with_body(b"new");
    assert_eq!(Content::parse(changed.as_bytes().clone()).as_ref(), Ok(&changed));
    assert_eq!(
        (changed.body(), changed.data_within(3)),
        (Body::Data("new".into()), Some("new".into()))
    );
    assert_eq!(
        (changed.data_within(2), changed.sections().footer),
        (None, content.sections().footer)
    );
    content.application_properties().for_each(drop);
    if let Ok(message) = content.decode() {
        let again = message.encode();
        let decoded = again.decode().unwrap();
        assert_eq!(decoded.application_properties.len(), message.application_properties.len());
        assert_eq!((&decoded.body, &decoded.message_id), (&message.body, &message.message_id));
    } else {
        assert!(envelope.defect.is_some());
    }
    true
}

/// Contents from this encoder and from others, and an overlay.
fn samples() -> Vec<Vec<u8>> {
    let foreign = [
        &b"\x00\x53\x70\xc0\x06\x04\x41\x50\x04\x43\x42"[..],
        b"\x00\x53\x71\xc1\x05\x02\xa3\x01d\x41",
        b"\x00\x53\x72\xc1\x0e\x04\xa3\x01a\x45\xa3\x01b\xe0\x04\x02\x50\x01\x02",
        b"\x00\x53\x73\xd0\x00\x00\x00\x08\x00\x00\x00\x02\xa0\x01\xff\x40",
        b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b\x00\x53\x78\xc1\x01\x00",
    ];
    let nested = [
        &b"\x00\x53\x74\xc1\x0d\x04\xa1\x01k\xa1\x01v\xa1\x01l\xc1\x01\x00"[..],
        b"\x00\x53\x76\xc0\x02\x01\x40\x00\x53\x76\x45",
    ];
    let contents = [
        full_message().encode().as_bytes().to_vec(),
        Message::new("hi").with_message_id("m1").encode().as_bytes().to_vec(),
        foreign.concat(),
        nested.concat(),
        b"\x00\x53\x77\xc1\x07\x02\xa1\x01k\xc0\x01\x00".to_vec(),
    ];
    for content in &contents {
        parse(content).unwrap_or_else(|error| panic!("{error} {content:02x?}"));
    }
    let overlay = Overlay::dead_letter(Some("r"), None, &full_message().application_properties);
    contents.into_iter().chain([overlay.unwrap().as_bytes().to_vec()]).collect()
}

/// MSG-25: a truncated message is detected, unless it ends between two sections.
#[test]
fn no_truncation_panics() {
    let (mut accepted, mut refused) = (0, 0);
    for sample in samples() {
        for end in 0..sample.len() {
            if exercise(Bytes::copy_from_slice(&sample[..end])) {
                accepted += 1
            } else {
                refused += 1
            }
        }
    }
    assert!(accepted < 20 && refused > 500, "{accepted} accepted, {refused} refused");
}

/// Any bytes are either content with all its guarantees, or an error.
#[test]
fn no_mutation_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let interesting =
        [0x00, 0x40, 0x45, 0x53, 0x70, 0xa1, 0xb1, 0xc0, 0xc1, 0xd1, 0xe0, 0xf0, 0xff];
    let (mut accepted, mut refused) = (0, 0);
    let samples = samples();
    for round in 0..60_000 {
        let mut bytes = samples[round % samples.len()].clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes[at] = interesting[random(interesting.len())],
                1 => bytes[at] ^= 1 << random(8),
                2 => bytes[at] = random(256) as u8,
                3 => drop(bytes.remove(at)),
                _ => bytes.insert(at, interesting[random(interesting.len())]),
            }
        }
        if exercise(bytes.into()) { accepted += 1 } else { refused += 1 }
    }
    assert!(accepted > 1_000 && refused > 10_000, "{accepted} accepted, {refused} refused");
}

/// MSG-02: all properties, body and every type of value survive encoding and decoding.
#[test]
fn full_message_survives_encoding_and_decoding() {
    let message = full_message();
    let content = message.encode();
    assert_eq!(content.decode(), Ok(message));
    assert_eq!(Content::parse(content.as_bytes().clone()), Ok(content));
}

/// AMQP-101, SCH-02: a delivery time of JMS is a schedule, unless the message has a schedule. A
/// delivery time of another type is ignored.
#[test]
fn a_delivery_time_is_a_schedule() {
    let annotated = |annotations: &[(&str, Value)]| {
        let mut items = Vec::new();
        for (name, value) in annotations {
            write::symbol(&mut items, name);
            write_value(&mut items, value);
        }
        let mut bytes = vec![0x00, 0x53, 0x72, 0xc1, items.len() as u8 + 1];
        bytes.push(annotations.len() as u8 * 2);
        bytes.extend(items);
        bytes.extend([0x00, 0x53, 0x75, 0xa0, 0x00]);
        let message = parse(&bytes).unwrap().decode().unwrap();
        message.scheduled_enqueue_time.map(Timestamp::unix_ms)
    };
    let delivery_time = ("x-opt-delivery-time", Value::I64(1_700_000_000_123));
    let scheduled = ("x-opt-scheduled-enqueue-time", Value::Timestamp(5));
    assert_eq!(annotated(std::slice::from_ref(&delivery_time)), Some(1_700_000_000_123));
    assert_eq!(annotated(&[delivery_time.clone(), scheduled.clone()]), Some(5));
    assert_eq!(annotated(&[scheduled, delivery_time]), Some(5));
    assert_eq!(annotated(&[("x-opt-delivery-time", Value::String("soon".into()))]), None);
}
