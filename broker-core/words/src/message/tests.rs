//! Tests of messages, content, envelopes and overlays.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)]

use bytes::Bytes;
use siphasher::sip128::SipHasher24;

use super::*;
use crate::condition::Condition;

const KEY: [u8; 16] = *b"0123456789abcdef";

fn envelope(message: &Message) -> Envelope {
    message.encode().envelope(&PropertyLimits::default(), &KEY)
}

fn parse(bytes: &[u8]) -> Content {
    Content::parse(Bytes::copy_from_slice(bytes)).unwrap()
}

fn envelope_of_bytes(bytes: &[u8]) -> Envelope {
    parse(bytes).envelope(&PropertyLimits::default(), &KEY)
}

/// A content with a map section of application properties, sizes of four bytes.
fn with_application_map(count: u32, items: &[u8]) -> Vec<u8> {
    let size = (items.len() as u32 + 4).to_be_bytes();
    [&b"\x00\x53\x74\xd1"[..], &size, &count.to_be_bytes(), items].concat()
}

fn property_defect(envelope: &Envelope) -> Option<Condition> {
    match &envelope.defect {
        None => None,
        Some(Defect::Property(rejection)) => Some(rejection.condition()),
        Some(defect) => panic!("{defect:?}"),
    }
}

fn size_defect(envelope: &Envelope) -> Option<&str> {
    match &envelope.defect {
        None => None,
        Some(Defect::Size(rejection)) => {
            assert_eq!(rejection.condition(), Condition::MessageSizeExceeded);
            Some(rejection.detail())
        }
        Some(defect) => panic!("{defect:?}"),
    }
}

/// CON-16: a new body replaces all body sections; the footer and all properties but the content
/// encoding stay byte for byte. Bodies of other kinds and larger ones are not joined.
#[test]
fn new_body_keeps_the_other_sections_and_no_content_encoding() {
    let properties = |encoding: &[u8], size: u8| {
        let before = b"\xa1\x01m\x40\x40\x40\x40\x40\xa3\x01t";
        let fields = [&before[..], encoding, b"\x40\x40\xa1\x01s"].concat();
        [&b"\x00\x53\x73\xc0"[..], &[size, 11], &fields].concat()
    };
    let application = b"\x00\x53\x74\xc1\x07\x02\xa1\x01k\xa1\x01v";
    let footer = b"\x00\x53\x78\xc1\x01\x00";
    let data = b"\x00\x53\x75\xa0\x02ab\x00\x53\x75\xa0\x01c";
    let sequence = b"\x00\x53\x76\xc0\x04\x02\x54\x01\x41";
    let value = b"\x00\x53\x77\xa1\x01{";
    let message = |properties: Vec<u8>, body: &[u8]| {
        parse(&[&properties[..], application, body, footer].concat())
    };
    let new = b"\x00\x53\x75\xa0\x03new";
    let expected = message(properties(b"\x40", 18), new);
    for body in [&data[..], sequence, &sequence.repeat(2), value] {
        let content = message(properties(b"\xa3\x04gzip", 23), body);
        assert_eq!(content.clone().without_content_encoding().with_body(b"new"), expected);
        assert_eq!(content.with_body(b"new").header_size(), content.header_size());
        let joined = (body == &data[..]).then(|| Bytes::from_static(b"abc"));
        assert_eq!((content.data_within(3), content.data_within(2)), (joined, None));
    }
    let plain = Message::new("old").with_message_id("m").encode();
    assert_eq!(plain.clone().without_content_encoding(), plain);
    assert_eq!(parse(b"\x00\x53\x73\x45").data_within(0), Some(Bytes::new()));
}

/// MSG-01
#[test]
fn any_body_comes_back_and_the_empty_one_is_legal() {
    for body in [vec![], vec![0], (0..=255).collect(), vec![7; 256], vec![0xff; 100_000]] {
        let message = Message::new(body.clone());
        let content = message.encode();
        assert_eq!(content.body_bytes(), body);
        assert_eq!(content.decode(), Ok(message.clone()));
        assert_eq!(envelope(&message).defect, None);
    }
    assert_eq!(parse(b"\x00\x53\x73\x45").body(), Body::default());
}

/// MSG-01: several data sections are one body, and a single one is not copied.
#[test]
fn data_sections_are_joined() {
    let content =
        parse(b"\x00\x53\x75\xa0\x02ab\x00\x53\x75\xa0\x00\x00\x53\x75\xb0\x00\x00\x00\x01c");
    assert_eq!(content.body(), Body::Data("abc".into()));
    assert_eq!(content.header_size(), 0);
    let single = Message::new("body").encode();
    let range = single.as_bytes().as_ptr_range();
    assert!(range.contains(&single.body_bytes().as_ptr()));
}

/// MSG-03
#[test]
fn value_and_sequence_bodies_keep_their_kind() {
    let value = Bytes::from_static(b"\x00\x53\x77\xa1\x02hi");
    let sequence = Bytes::from_static(b"\x00\x53\x76\xc0\x02\x01\x41\x00\x53\x76\x45");
    for (body, bytes) in
        [(Body::Value(value.clone()), value), (Body::Sequence(sequence.clone()), sequence)]
    {
        let message = Message { body: body.clone(), ..Message::new("").with_message_id("m") };
        let content = message.encode();
        assert_eq!(content.body(), body);
        assert_eq!(content.body_bytes(), bytes);
        assert_eq!(content.decode(), Ok(message.clone()));
        assert_eq!(content.size() - content.header_size(), bytes.len() as u32);
        assert_eq!(Content::parse(content.as_bytes().clone()), Ok(content));
        assert_eq!(envelope(&message).defect, None);
    }
}

/// MSG-03: a body that is not the section it claims to be is refused before it is stored.
#[test]
fn malformed_value_body_is_a_defect() {
    let bad: [&'static [u8]; 5] = [
        b"junk",
        b"\x00\x53\x77",
        b"\x00\x53\x75\xa0\x01bjunk",
        b"\x00\x53\x74\xc1\x01\x00",
        b"\x00\x53\x77\x40\x00\x53\x78\xc1\x01\x00\x40",
    ];
    for bytes in bad {
        let message = Message { body: Body::Value(bytes.into()), ..Message::default() };
        assert_eq!(
            property_defect(&envelope(&message)),
            Some(Condition::ArgumentError),
            "{bytes:?}"
        );
    }
}

/// MSG-05
#[test]
fn identifiers_have_at_most_128_characters() {
    let setters: [fn(Message, String) -> Message; 5] = [
        |message, text| message.with_message_id(text),
        |message, text| message.with_session_id(text),
        |message, text| message.with_partition_key(text),
        |message, text| message.with_transaction_partition_key(text),
        |message, text| message.with_reply_to_session_id(text),
    ];
    for set in setters {
        for character in ["x", "ä", "\u{1F600}"] {
            let fits = set(Message::new("b"), character.repeat(128));
            assert_eq!(envelope(&fits).defect, None);
            let too_long = set(Message::new("b"), character.repeat(129));
            assert_eq!(property_defect(&envelope(&too_long)), Some(Condition::ArgumentOutOfRange));
        }
    }
    let binary =
        |length| Message::new("b").with_message_id(MessageId::Binary(vec![1; length].into()));
    assert_eq!(envelope(&binary(64)).defect, None);
    assert_eq!(property_defect(&envelope(&binary(65))), Some(Condition::ArgumentOutOfRange));
    assert_eq!(envelope(&Message::new("b").with_correlation_id("x".repeat(129))).defect, None);
}

/// MSG-08
#[test]
fn session_id_and_partition_key_agree_if_both_are_set() {
    let message = |session: &str, partition: &str| {
        Message::new("b").with_session_id(session).with_partition_key(partition)
    };
    assert_eq!(property_defect(&envelope(&message("a", "b"))), Some(Condition::InvalidOperation));
    assert_eq!(property_defect(&envelope(&message("a", "A"))), Some(Condition::InvalidOperation));
    for fine in [message("a", "a"), message("", "b"), message("a", "")] {
        assert_eq!(envelope(&fine).defect, None);
    }
    assert_eq!(envelope(&Message::new("b").with_session_id("a")).defect, None);
    assert_eq!(envelope(&Message::new("b").with_partition_key("a")).defect, None);
}

/// MSG-21
#[test]
fn nested_and_unknown_values_are_an_argument_error() {
    let nested: [&[u8]; 6] = [
        b"\x45",
        b"\xc0\x02\x01\x41",
        b"\xc1\x01\x00",
        b"\xe0\x03\x01\x50\x07",
        b"\x84\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\xa3\x01x\x41",
    ];
    for value in nested {
        let bytes = with_application_map(2, &[b"\xa1\x01k", value].concat());
        let envelope = envelope_of_bytes(&bytes);
        assert_eq!(property_defect(&envelope), Some(Condition::ArgumentError), "{value:02x?}");
        assert!(envelope.defect.unwrap().rejection().detail().contains("`k`"));
        assert_eq!(parse(&bytes).decode(), Err(ContentError::UnsupportedValue));
    }
}

/// MSG-22: the order stays, keys that differ in case or form are different.
#[test]
fn keys_are_unique_byte_for_byte_and_keep_their_order() {
    let message = Message::new("b")
        .with_application_property("b", 1)
        .with_application_property("B", 2)
        .with_application_property("ä", 3)
        .with_application_property("a\u{308}", 4);
    assert_eq!(envelope(&message).defect, None);
    let content = message.encode();
    let keys: Vec<_> = content.application_properties().map(|(key, _)| key).collect();
    assert_eq!(keys, ["b", "B", "ä", "a\u{308}"]);
}

/// MSG-22
#[test]
fn empty_doubled_and_textless_keys_are_an_argument_error() {
    let empty = Message::new("b").with_application_property("", 1);
    assert_eq!(property_defect(&envelope(&empty)), Some(Condition::ArgumentError));
    let textless = with_application_map(2, b"\x53\x01\x41");
    assert_eq!(property_defect(&envelope_of_bytes(&textless)), Some(Condition::ArgumentError));
    for count in [2, 16, 17, 18, 40] {
        let mut message = Message::new("b");
        for number in 0..count {
            message = message.with_application_property(format!("key{number}"), number);
        }
        assert_eq!(envelope(&message).defect, None);
        for doubled in 0..count {
            let message = message.clone().with_application_property(format!("key{doubled}"), 0);
            let defect = property_defect(&envelope(&message));
            assert_eq!(defect, Some(Condition::ArgumentError), "{doubled} of {count}");
        }
    }
}

/// MSG-24: every addition makes the message larger.
#[test]
fn size_counts_properties_and_body() {
    let plain = Message::new("body");
    let size = |message: &Message| message.encode().size();
    let larger = [
        plain.clone().with_message_id("m"),
        plain.clone().with_to("t"),
        plain.clone().with_partition_key("p"),
        plain.clone().with_time_to_live(TimeSpan::from_seconds(1)),
        plain.clone().with_application_property("k", Value::Null),
        Message::new("body!"),
    ];
    for message in larger {
        assert!(size(&message) > size(&plain), "{message:?}");
    }
}

/// MSG-25: size is the length of the encoding, header size the same without the body sections.
#[test]
fn sizes_are_lengths_of_the_encoding() {
    let message = Message::new(vec![1; 300]).with_message_id("m").with_application_property("k", 1);
    let content = message.encode();
    let envelope = envelope(&message);
    assert_eq!(envelope.size as usize, content.as_bytes().len());
    assert_eq!(envelope.size - envelope.header_size, 300 + 8);
    assert_eq!((envelope.size, envelope.header_size), (content.size(), content.header_size()));
    let footer = parse(b"\x00\x53\x75\xa0\x01b\x00\x53\x78\xc1\x01\x00");
    assert_eq!((footer.size(), footer.header_size()), (12, 6));
}

/// MSG-25: sections from a sender are kept unchanged and count with their own length, even if the
/// broker's encoding would be shorter.
#[test]
fn sections_keep_their_original_size() {
    let short = b"\x00\x53\x75\xa0\x01b";
    let long = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xb0\x00\x00\x00\x01b";
    let (short, long) = (parse(short), parse(long));
    assert_eq!(short.decode(), long.decode());
    assert_eq!((short.size(), long.size()), (6, 16));
    assert_eq!(long.decode().unwrap().encode().size(), 6);
}

/// MSG-26: key plus value at the limit and one byte over it; the error names the property.
#[test]
fn one_property_may_take_32_kib() {
    // The key takes 3 bytes, the start of the text 5.
    let message = |extra: usize| {
        Message::new("b").with_application_property("k", "x".repeat(32 * 1024 - 8 + extra))
    };
    assert_eq!(envelope(&message(0)).defect, None);
    let envelope = envelope(&message(1));
    assert!(size_defect(&envelope).unwrap().contains("`k` of 32769 bytes"));
}

/// MSG-26: the header at the limit and one byte over it; the body does not count.
#[test]
fn the_header_may_take_64_kib() {
    let message = |length: usize| Message::new(vec![0; 100_000]).with_subject("x".repeat(length));
    let overhead = envelope(&message(60_000)).header_size as usize - 60_000;
    let full = envelope(&message(64 * 1024 - overhead));
    assert_eq!((full.header_size, &full.defect), (64 * 1024, &None));
    let over = envelope(&message(64 * 1024 - overhead + 1));
    assert!(size_defect(&over).unwrap().starts_with("message header of 65537 bytes"));
}

/// SND-19: size is judged before validity, and MSG-05 before MSG-08 before the rest.
#[test]
fn the_first_failed_check_is_the_defect() {
    let mut message =
        Message::new("b").with_time_to_live(TimeSpan::ZERO).with_application_property("", 1);
    assert!(envelope(&message).defect.unwrap().rejection().detail().contains("key"));
    message = message.with_session_id("a").with_partition_key("b");
    assert_eq!(property_defect(&envelope(&message)), Some(Condition::InvalidOperation));
    message = message.with_message_id("x".repeat(129));
    assert_eq!(property_defect(&envelope(&message)), Some(Condition::ArgumentOutOfRange));
    message = message.with_subject("x".repeat(64 * 1024));
    assert!(size_defect(&envelope(&message)).is_some());
}

/// EXP-09, AMQ-19: a TTL of zero is refused, an AMQP ttl of 0 is none.
#[test]
fn zero_time_to_live_is_not_the_same_as_none() {
    let message = Message::new("b").with_time_to_live(TimeSpan::ZERO);
    assert_eq!(property_defect(&envelope(&message)), Some(Condition::ArgumentOutOfRange));
    let stored = parse(message.encode().as_bytes());
    assert_eq!(stored.time_to_live(), Some(TimeSpan::ZERO));
    let unset = envelope_of_bytes(b"\x00\x53\x70\xc0\x04\x03\x40\x40\x43\x00\x53\x75\xa0\x00");
    assert_eq!((unset.time_to_live, unset.defect), (None, None));
    assert_eq!(envelope(&Message::new("b")).time_to_live, None);
}

/// AMQ-19: only header.ttl up to its largest value, then the distance between creation and expiry.
#[test]
fn long_times_to_live_are_a_distance() {
    let largest = i64::from(u32::MAX);
    for (ms, header_only) in
        [(1, true), (255, true), (largest - 1, true), (largest, false), (largest + 1, false)]
    {
        let message = Message::new("b").with_time_to_live(TimeSpan::from_ms(ms));
        let envelope = envelope(&message);
        assert_eq!((envelope.time_to_live, &envelope.defect), (message.time_to_live, &None));
        assert_eq!(message.encode().sections().properties.is_empty(), header_only, "{ms}");
    }
    let days = TimeSpan::from_days(10_000);
    let content = Message::new("").with_time_to_live(days).encode();
    assert!(content.sections().header.ends_with(b"\x70\xff\xff\xff\xff"));
    let golden = [
        &b"\x00\x53\x73\xc0\x1b\x0a\x40\x40\x40\x40\x40\x40\x40\x40\x83"[..],
        &days.as_ms().to_be_bytes(),
        b"\x83\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    assert_eq!(content.sections().properties, golden.concat());
    assert_eq!(content.decode().unwrap().time_to_live, Some(days));
}

/// AMQ-19: without creation-time, or with a smaller ttl, absolute-expiry-time is ignored.
#[test]
fn expiry_without_creation_time_is_ignored() {
    let content = |ttl: u32, created: &[u8]| {
        let ttl = [&b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70"[..], &ttl.to_be_bytes()].concat();
        let mut fields = [&[0x40; 8][..], b"\x83\x00\x00\x00\x00\x00\x00\x03\xe8"].concat();
        fields.extend_from_slice(created);
        let size = fields.len() as u8 + 1;
        parse(&[&ttl, &b"\x00\x53\x73\xc0"[..], &[size, 10], &fields].concat())
    };
    let created = b"\x83\x00\x00\x00\x00\x00\x00\x00\x64";
    let ms = |content: Content| content.time_to_live().unwrap().as_ms();
    assert_eq!(ms(content(u32::MAX, created)), 900);
    assert_eq!(ms(content(u32::MAX, b"\x40")), i64::from(u32::MAX));
    assert_eq!(ms(content(5, created)), 5);
    let late = b"\x83\x00\x00\x00\x00\x00\x00\x03\xe9";
    assert_eq!(content(u32::MAX, late).time_to_live(), Some(TimeSpan::ZERO));
}

/// EXP-09: any positive TTL stays positive, in whole milliseconds.
#[test]
fn times_to_live_are_rounded_down_but_not_to_zero() {
    let stored = |ticks| {
        let message = Message::new("b").with_time_to_live(TimeSpan::from_ticks(ticks));
        message.encode().time_to_live().unwrap().ticks()
    };
    assert_eq!(stored(1), 10_000);
    assert_eq!(stored(10_000), 10_000);
    assert_eq!(stored(19_999), 10_000);
    let unlimited = Message::new("b").with_time_to_live(TimeSpan::MAX);
    assert_eq!(envelope(&unlimited).time_to_live, None);
}

/// AMQ-20: fields that the typed view lacks stay in the content, also when the broker adds an id.
#[test]
fn unknown_fields_are_kept_byte_for_byte() {
    let before = b"\x00\x53\x70\xc0\x04\x02\x41\x50\x09\x00\x53\x72\xc1\x06\x02\xa3\x01x\x54\x05";
    let user = b"\x40\xa0\x01u\xa1\x01t";
    let after = b"\x00\x53\x75\xa0\x01b\x00\x53\x78\xc1\x06\x02\xa3\x01f\x54\x05";
    let bytes = [&before[..], b"\x00\x53\x73\xc0\x08\x03", user, after].concat();
    let content = parse(&bytes);
    assert_eq!(content.as_bytes(), &bytes);
    let with_id = content.with_message_id(&"id".into());
    let expected = [&before[..], b"\x00\x53\x73\xc0\x0b\x03\xa1\x02id", &user[1..], after].concat();
    assert_eq!(with_id.as_bytes(), &expected);
    assert_eq!(parse(&expected), with_id);
    let bare = Message::new("b").with_application_property("k", 1).encode();
    let expected = Message::new("b").with_application_property("k", 1).with_message_id("id");
    assert_eq!(bare.with_message_id(&"id".into()), expected.encode());
}

/// AMQP-45: delivery annotations of a sender are kept, and count as header.
#[test]
fn delivery_annotations_are_kept() {
    let annotations = &b"\x00\x53\x71\xc1\x05\x02\xa3\x01d\x41"[..];
    let header = &b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x00\x00\x05"[..];
    let rest = b"\x00\x53\x72\xc1\x01\x00\x00\x53\x73\xc0\x04\x01\xa1\x01m\x00\x53\x75\xa0\x01b";
    for header in [header, &[]] {
        let bytes = [header, annotations, rest].concat();
        let content = parse(&bytes);
        assert_eq!(content.as_bytes(), &bytes);
        let sections = content.sections();
        assert_eq!((sections.header, sections.delivery_annotations), (header, annotations));
        assert_eq!(content.message_id().as_deref(), Some("m"));
        assert_eq!(content.time_to_live().is_some(), !header.is_empty());
        assert_eq!(content.header_size() as usize, bytes.len() - 6);
        let renamed = content.with_message_id(&"id".into());
        assert_eq!(parse(renamed.as_bytes()), renamed);
        assert_eq!(renamed.sections().delivery_annotations, annotations);
    }
    assert_eq!(parse(annotations).body_bytes(), "");
}

/// AMQ-21: ids keep their type and are compared by their text form.
#[test]
fn ids_keep_their_type_and_have_a_text_form() {
    let ids = [
        (MessageId::from("text"), "text"),
        (MessageId::Ulong(0), "0"),
        (MessageId::Ulong(u64::MAX), "18446744073709551615"),
        (
            MessageId::Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            "00112233-4455-6677-8899-aabbccddeeff",
        ),
        (MessageId::Binary(Bytes::from_static(&[0, 0xab])), "00ab"),
    ];
    for (id, text) in ids {
        assert_eq!(id.to_string(), text);
        let message = Message::new("b").with_message_id(id.clone()).with_correlation_id(id);
        let content = message.encode();
        assert_eq!(content.decode(), Ok(message.clone()));
        assert_eq!(content.message_id().as_deref(), Some(text));
        let same_text = envelope(&Message::new("other").with_message_id(text));
        assert_eq!(envelope(&message).message_id_hash, same_text.message_id_hash);
    }
}

/// DUP-01: the hash is SipHash-2-4 of 128 bits under the broker's key.
#[test]
fn the_id_is_hashed_with_the_key() {
    let message = Message::new("b").with_message_id("order-17");
    let expected = SipHasher24::new_with_key(&KEY).hash(b"order-17").as_u128();
    assert_eq!(envelope(&message).message_id_hash, Some(expected));
    let other = message.encode().envelope(&PropertyLimits::default(), &[0; 16]);
    assert_ne!(other.message_id_hash, Some(expected));
    assert_eq!(envelope(&Message::new("b")).message_id_hash, None);
}

/// AMQP-44, SND-25: the slot's facts are read from their places in AMQP sections.
#[test]
fn the_envelope_has_the_facts_of_the_slot() {
    let at = Timestamp::from_unix_ms(1_700_000_000_123);
    let message = Message::new("b")
        .with_session_id("s")
        .with_scheduled_enqueue_time(at)
        .with_time_to_live(TimeSpan::from_seconds(5));
    let facts = envelope(&message);
    assert_eq!(facts.session_id.as_deref(), Some("s"));
    assert_eq!(facts.scheduled_enqueue_time, Some(at));
    assert_eq!(facts.time_to_live, Some(TimeSpan::from_seconds(5)));
    // The empty id is a session like any other (SES-03).
    let empty = envelope(&Message::new("b").with_session_id(""));
    assert_eq!(empty.session_id.as_deref(), Some(""));
}

fn pairs(pairs: &[(&str, i32)]) -> Vec<(String, Value)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect()
}

/// SET-08
#[test]
fn an_overlay_adds_or_overwrites_and_keeps_the_rest() {
    let overlay = Overlay::encode(&pairs(&[("new", 1), ("b", 2)])).unwrap();
    let mut message = Message::new("body").with_message_id("m");
    message.application_properties = pairs(&[("a", 10), ("b", 20), ("B", 30)]);
    message.apply_overlay(&Overlay::from_bytes(overlay.as_bytes().clone()));
    assert_eq!(
        message.application_properties,
        pairs(&[("a", 10), ("b", 2), ("B", 30), ("new", 1)])
    );
    assert_eq!(overlay.size_bytes() as usize, overlay.as_bytes().len());
    assert_eq!(&overlay.as_bytes()[..], b"\xc1\x0d\x04\xa1\x03new\x54\x01\xa1\x01b\x54\x02");
}

/// SET-08: settlements in sequence.
#[test]
fn overlay_on_top_of_another_combines_both() {
    let earlier = Overlay::encode(&pairs(&[("a", 1), ("b", 1)])).unwrap();
    let later = Overlay::encode(&pairs(&[("c", 2), ("b", 2)])).unwrap();
    let (mut once, mut twice) = (Message::new(""), Message::new(""));
    once.apply_overlay(&later.on_top_of(&earlier));
    twice.apply_overlay(&earlier);
    twice.apply_overlay(&later);
    once.application_properties.sort_by(|a, b| a.0.cmp(&b.0));
    twice.application_properties.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(once, twice);
    assert_eq!(once.application_properties, pairs(&[("a", 1), ("b", 2), ("c", 2)]));
}

/// SET-08: after many settlements, each property has the value of the last one that names it, and
/// occurs once.
#[test]
fn together_combines_many_overlays_in_order() {
    assert_eq!(Overlay::combine(&[]), None);
    let set = |pairs_of: &[(&str, i32)]| Overlay::encode(&pairs(pairs_of)).unwrap();
    let removal = Overlay::of_changes([PropertyChange::Remove("a")]);
    let overlays = [
        set(&[("a", 1), ("b", 1)]),
        set(&[("b", 2), ("c", 2)]),
        removal,
        set(&[("c", 3), ("d", 3)]),
    ];
    for count in 1..=overlays.len() {
        let overlays = &overlays[..count];
        let one_by_one =
            overlays.iter().cloned().reduce(|earlier, later| later.on_top_of(&earlier));
        assert_eq!(Overlay::combine(overlays), one_by_one);
    }
    let together = Overlay::combine(&overlays).unwrap();
    assert_eq!(together.changes().count(), 4);
    let mut message = Message::new("");
    message.application_properties = pairs(&[("a", 0), ("e", 0)]);
    message.apply_overlay(&together);
    assert_eq!(message.application_properties, pairs(&[("e", 0), ("b", 2), ("c", 3), ("d", 3)]));
}

/// MSG-22, MSG-26: an overlay cannot add a property that a send could not have.
#[test]
fn overlays_are_checked_like_properties() {
    let condition = |properties: &[(String, Value)]| {
        let checked = Overlay::encode(properties)
            .and_then(|overlay| overlay.check(&PropertyLimits::default()));
        checked.map_err(|rejection| rejection.condition())
    };
    assert_eq!(condition(&pairs(&[("", 1)])), Err(Condition::ArgumentError));
    assert_eq!(condition(&pairs(&[("a", 1), ("a", 2)])), Err(Condition::ArgumentError));
    assert_eq!(condition(&[]), Ok(()));
    let large = |length| ("k".to_owned(), Value::String("x".repeat(length)));
    assert_eq!(condition(&[large(32 * 1024 - 8)]), Ok(()));
    assert_eq!(condition(&[large(32 * 1024 - 7)]), Err(Condition::MessageSizeExceeded));
    let many = ["k", "l", "m"].map(|key| (key.to_owned(), large(30_000).1));
    assert_eq!(condition(&many), Err(Condition::MessageSizeExceeded));
}

/// DLQ-14, DLQ-19
#[test]
fn dead_letter_overlay_has_the_given_properties() {
    let applied = |reason, description, further: &[(String, Value)]| {
        let mut message = Message::new("");
        message.apply_overlay(&Overlay::dead_letter(reason, description, further).unwrap());
        message.application_properties
    };
    let text = |key: &str, value: &str| (key.to_owned(), Value::from(value));
    assert_eq!(
        applied(Some("r"), Some("d"), &pairs(&[("k", 1)])),
        [
            text("DeadLetterReason", "r"),
            text("DeadLetterErrorDescription", "d"),
            ("k".into(), 1.into())
        ]
    );
    assert_eq!(applied(None, Some("d"), &[]), [text("DeadLetterErrorDescription", "d")]);
    assert!(Overlay::dead_letter(None, None, &[]).unwrap().is_empty());
    let own = [text("DeadLetterReason", "own")];
    assert_eq!(applied(None, None, &own), own);
    assert_eq!(applied(Some("r"), None, &own), [text("DeadLetterReason", "r")]);
}

/// DESIGN D8: content is small and can be handed to any thread.
#[test]
fn content_is_small_and_shared() {
    fn assert_shared<T: Send + Sync + Clone>() {}
    assert_shared::<Content>();
    assert_shared::<Overlay>();
    assert!(size_of::<Content>() <= 56);
}

/// MSG-20: a property is read in the expected type, in any width that its sender used.
#[test]
fn value_accessors_convert_between_widths() {
    assert_eq!(Value::from("eu").as_str(), Some("eu"));
    assert_eq!(Value::Uri("urn:a".into()).as_str(), Some("urn:a"));
    assert_eq!(Value::from(true).as_bool(), Some(true));
    for seven in [Value::I8(7), Value::I32(7), Value::U16(7), Value::U64(7)] {
        assert_eq!((seven.as_i64(), seven.as_u64(), seven.as_f64()), (Some(7), Some(7), Some(7.0)));
        assert_eq!((seven.as_str(), seven.as_bool()), (None, None));
    }
    assert_eq!((Value::I8(-1).as_i64(), Value::I8(-1).as_u64()), (Some(-1), None));
    assert_eq!(Value::U64(u64::MAX).as_i64(), None);
    assert_eq!((Value::F32(1.5).as_f64(), Value::F64(1.0).as_i64()), (Some(1.5), None));
    let instant = Timestamp::from_unix_ms(1_800_000_000_000);
    assert_eq!(Value::from(instant).as_timestamp(), Some(instant));
    assert_eq!(Value::DateTimeOffset(instant.ticks()).as_timestamp(), Some(instant));
    assert_eq!(Value::from(Bytes::from("b")).as_bytes(), Some(&Bytes::from("b")));
    assert_eq!(Value::Null.as_str(), None);
}
