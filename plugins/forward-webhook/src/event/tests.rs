use std::collections::BTreeMap;

use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::message::{MessageId, Overlay};
use peeklock_core::path::SubQueue;

use super::*;
use crate::config::WebhookConfig;

const BROKER: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

fn outgoing(message: &Message) -> Outgoing {
    let content = message.encode();
    Outgoing {
        facts: MessageFacts {
            sequence: SequenceNumber(42),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: Timestamp::parse("2026-05-01T12:00:00.5Z").unwrap(),
            expires_at: None,
            time_to_live: None,
            delivery_count: 2,
            state: MessageState::Active,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: None,
            size: content.size(),
            overlay_count: 0,
            was_scheduled: false,
        },
        content,
        overlays: Vec::new(),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        never_duplicate: false,
    }
}

fn source() -> Source {
    let path = "shop/orders".into();
    Source { broker: BROKER, entity: EntityId(3), path, sub_queue: SubQueue::Main }
}

fn event_to(outgoing: &Outgoing, parameters: &str) -> Event {
    let destination = format!("webhook+https://a.net/{parameters}");
    let target = Target::parse(&destination, &WebhookConfig::default()).unwrap();
    Event::of(outgoing, &outgoing.message().unwrap(), &source(), &target)
}

fn headers(outgoing: &Outgoing, parameters: &str) -> BTreeMap<String, String> {
    let event = event_to(outgoing, parameters);
    let count = event.headers.len();
    let headers: BTreeMap<_, _> = event.headers.into_iter().collect();
    assert_eq!(headers.len(), count, "a name is there once");
    headers
}

fn json(outgoing: &Outgoing) -> serde_json::Value {
    let event = event_to(outgoing, "?mode=structured");
    assert!(event.headers.is_empty());
    assert_eq!(event.content_type.as_deref(), Some("application/cloudevents+json; charset=utf-8"));
    serde_json::from_slice(&event.body).unwrap()
}

fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_bare_message_has_the_required_attributes() {
    let message = Message::new("two coffees").with_message_id("order-1");
    assert_eq!(
        headers(&outgoing(&message), ""),
        expected(&[
            ("ce-specversion", "1.0"),
            ("ce-id", "order-1"),
            ("ce-source", "peeklock://01234567-89ab-cdef-0011-223344556677/shop/orders"),
            ("ce-type", "io.github.peeklock.message"),
            ("ce-time", "2026-05-01T12:00:00.5Z"),
            ("ce-sequencenumber", "42"),
            ("ce-deliverycount", "2"),
            ("ce-hopcount", "1"),
        ])
    );
    let event = event_to(&outgoing(&message), "");
    assert_eq!(event.body, "two coffees");
    assert_eq!(event.content_type, None);
}

#[test]
fn all_properties_have_an_attribute() {
    let message = Message::new("{}")
        .with_message_id("order-1")
        .with_subject("tea \"green\" 100% grün")
        .with_content_type("application/json")
        .with_session_id("table-7")
        .with_correlation_id("c-1")
        .with_to("kitchen")
        .with_reply_to("answers")
        .with_reply_to_session_id("waiter-3")
        .with_partition_key("table-7");
    let mut outgoing = outgoing(&message);
    outgoing.facts.enqueued_sequence = SequenceNumber(9);
    outgoing.facts.expires_at = Timestamp::parse("2026-05-02T00:00:00Z");
    outgoing.dead_letter_source = Some("shop/orders".into());
    outgoing.hops = 3;
    outgoing.overlays =
        vec![Overlay::dead_letter(Some("TTLExpiredException"), Some("too old"), &[]).unwrap()];
    let mut source = source();
    source.sub_queue = SubQueue::DeadLetter;
    let target =
        Target::parse("webhook+https://a.net/?type=com.example.order", &WebhookConfig::default());
    let event = Event::of(&outgoing, &outgoing.message().unwrap(), &source, &target.unwrap());
    assert_eq!(event.content_type.as_deref(), Some("application/json"));
    let headers: BTreeMap<_, _> = event.headers.into_iter().collect();
    let uuid = "01234567-89ab-cdef-0011-223344556677";
    let path = format!("peeklock://{uuid}/shop/orders/$deadletterqueue");
    assert_eq!(
        headers,
        expected(&[
            ("ce-specversion", "1.0"),
            ("ce-id", "order-1"),
            ("ce-source", &path),
            ("ce-type", "com.example.order"),
            ("ce-subject", "tea%20%22green%22%20100%25%20gr%C3%BCn"),
            ("ce-time", "2026-05-01T12:00:00.5Z"),
            ("ce-sequencenumber", "42"),
            ("ce-enqueuedsequence", "9"),
            ("ce-sessionid", "table-7"),
            ("ce-correlationid", "c-1"),
            ("ce-partitionkey", "table-7"),
            ("ce-to", "kitchen"),
            ("ce-replyto", "answers"),
            ("ce-replytosessionid", "waiter-3"),
            ("ce-expirytime", "2026-05-02T00:00:00Z"),
            ("ce-deliverycount", "2"),
            ("ce-hopcount", "3"),
            ("ce-deadlettersource", "shop/orders"),
            ("ce-deadletterreason", "TTLExpiredException"),
            ("ce-deadletterdetail", "too%20old"),
        ])
    );
}

#[test]
fn application_properties_are_extensions_where_name_and_type_allow_it() {
    let name20 = "a".repeat(20);
    let message = Message::new("")
        .with_message_id("1")
        .with_application_property("priority", 7i64)
        .with_application_property("large", i64::from(i32::MAX) + 1)
        .with_application_property("small", i32::MIN)
        .with_application_property("unsigned", u64::from(i32::MAX.unsigned_abs()))
        .with_application_property("urgent", true)
        .with_application_property("note", "a b")
        .with_application_property("letter", 'ä')
        .with_application_property("raw", vec![0u8, 255])
        .with_application_property("at", Value::Timestamp(1_000))
        .with_application_property("key", Value::Uuid(1))
        .with_application_property("link", Value::Uri("a:b".to_owned()))
        .with_application_property("weight", 1.5f64)
        .with_application_property("nothing", Value::Null)
        .with_application_property("span", Value::TimeSpan(1))
        .with_application_property("line", "a\nb")
        .with_application_property("empty", "")
        .with_application_property("Priority", 1i32)
        .with_application_property("with_underscore", 1i32)
        .with_application_property("gr\u{fc}n", 1i32)
        .with_application_property(name20.as_str(), 1i32)
        .with_application_property("a".repeat(21), 1i32)
        // Names reserved by CloudEvents and by the broker.
        .with_application_property("source", "forged")
        .with_application_property("dataschema", "forged")
        .with_application_property("data", "forged")
        .with_application_property("sequencenumber", "forged")
        .with_application_property("hopcount", 0i32);
    let given = headers(&outgoing(&message), "");
    let mut wanted = expected(&[
        ("ce-priority", "7"),
        ("ce-small", "-2147483648"),
        ("ce-unsigned", "2147483647"),
        ("ce-urgent", "true"),
        ("ce-note", "a%20b"),
        ("ce-letter", "%C3%A4"),
        ("ce-raw", "AP8="),
        ("ce-at", "1970-01-01T00:00:01Z"),
        ("ce-key", "00000000-0000-0000-0000-000000000001"),
        ("ce-link", "a:b"),
        (&format!("ce-{name20}"), "1"),
    ]);
    wanted.extend(headers(&outgoing(&Message::new("").with_message_id("1")), ""));
    assert_eq!(given, wanted);
    let json = json(&outgoing(&message));
    assert_eq!(json["priority"], 7);
    assert_eq!(json["urgent"], true);
    assert_eq!(json["note"], "a b");
    assert_eq!(json["raw"], "AP8=");
    assert_eq!(json["hopcount"], 1);
    assert_eq!(json.get("Priority"), None);
}

#[test]
fn a_message_without_a_usable_id_is_named_by_its_number() {
    for id in [MessageId::from(""), MessageId::from("a\nb"), MessageId::from("\u{ffff}")] {
        let message = Message::new("").with_message_id(id);
        assert_eq!(headers(&outgoing(&message), "")["ce-id"], "42");
    }
    let message = Message::new("").with_message_id(MessageId::Ulong(7));
    assert_eq!(headers(&outgoing(&message), "")["ce-id"], "7");
}

#[test]
fn the_body_of_a_structured_event_comes_back_as_it_was() {
    let of = |content_type: Option<&str>, body: &'static [u8]| {
        let mut message = Message::new(body).with_message_id("1");
        message.content_type = content_type.map(str::to_owned);
        outgoing(&message)
    };
    // JSON is embedded as written, so that no digit is lost.
    let exact = br#"{"a":1.0000000000000000000001,"b":18446744073709551616,"a":2}"#;
    for content_type in ["application/json", "Application/JSON; x=y", "application/a+json"] {
        let event = event_to(&of(Some(content_type), exact), "?mode=structured");
        let text = String::from_utf8(event.body.to_vec()).unwrap();
        let data = format!(",\"data\":{}}}", String::from_utf8_lossy(exact));
        assert!(text.ends_with(&data), "{text}");
    }
    let event = json(&of(Some("application/json"), b"[1]"));
    assert_eq!(event["datacontenttype"], "application/json");
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["id"], "1");
    // Invalid JSON is sent as bytes, and cannot break out of the object.
    for body in [&b"{"[..], b"", b"1,\"id\":2", b"\xff", b"{}}"] {
        let event = json(&of(Some("application/json"), body));
        assert_eq!(event.get("data"), None);
        assert_eq!(event["id"], "1");
        let encoded = (!body.is_empty()).then(|| STANDARD.encode(body));
        assert_eq!(event.get("data_base64").and_then(|data| data.as_str()), encoded.as_deref());
    }
    let event = json(&of(Some("text/plain; charset=\"UTF-8\""), "gr\u{fc}n \"\n".as_bytes()));
    assert_eq!(event["data"], "gr\u{fc}n \"\n");
    for content_type in [None, Some("text/plain; charset=latin-1"), Some("image/png"), Some("")] {
        let event = json(&of(content_type, b"abc"));
        assert_eq!(event["data_base64"], "YWJj", "{content_type:?}");
        assert_eq!(event.get("data"), None);
    }
    let event = json(&of(Some("text/plain"), b"\xff\xfe"));
    assert_eq!(event["data_base64"], "//4=");
}

#[test]
fn a_message_with_an_event_is_forwarded_as_that_event() {
    let message = Message::new("{}")
        .with_message_id("1")
        .with_subject("other")
        .with_content_type("application/json")
        .with_application_property("cloudEvents:specversion", "1.0")
        .with_application_property("cloudEvents:id", "e-1")
        .with_application_property("cloudEvents:source", "/sensors/7")
        .with_application_property("cloudEvents:type", "com.example.measured")
        .with_application_property("cloudEvents_dataschema", "https://example.com/s")
        .with_application_property("cloudEvents:hopcount", "theirs")
        .with_application_property("cloudEvents:data", "forged")
        .with_application_property("cloudEvents:Bad Name", "x");
    let given = headers(&outgoing(&message), "?type=unused");
    assert_eq!(
        given,
        expected(&[
            ("ce-specversion", "1.0"),
            ("ce-id", "e-1"),
            ("ce-source", "/sensors/7"),
            ("ce-type", "com.example.measured"),
            ("ce-dataschema", "https://example.com/s"),
            ("ce-hopcount", "theirs"),
            ("ce-sequencenumber", "42"),
            ("ce-deliverycount", "2"),
        ])
    );
    // An incomplete event does not count as an event.
    let message = Message::new("")
        .with_message_id("1")
        .with_application_property("cloudEvents:id", "e-1")
        .with_application_property("cloudEvents:specversion", "1.0");
    assert_eq!(headers(&outgoing(&message), "")["ce-id"], "1");
}

#[test]
fn a_body_with_an_event_is_posted_unchanged() {
    for parameters in ["", "?mode=structured"] {
        let message = Message::new("{\"specversion\":\"1.0\"}")
            .with_content_type("Application/CloudEvents+json; charset=UTF-8");
        let event = event_to(&outgoing(&message), parameters);
        assert_eq!(event.body, "{\"specversion\":\"1.0\"}");
        assert_eq!(
            event.content_type.as_deref(),
            Some("Application/CloudEvents+json; charset=UTF-8")
        );
        assert!(event.headers.is_empty());
    }
}

/// No property can break a header or add another one.
#[test]
fn no_property_breaks_a_header() {
    let message = Message::new("")
        .with_message_id("1\r\nx-forged: 1")
        .with_subject("a\r\nx-forged: 1")
        .with_content_type("text/plain\r\nx-forged: 1")
        .with_application_property("note", "\u{85}\u{202e}\"%\u{7f}");
    let event = event_to(&outgoing(&message), "");
    assert_eq!(event.content_type, None);
    for (name, value) in &event.headers {
        assert!(value.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "{name}: {value}");
        assert!(!value.contains('"'), "{name}: {value}");
    }
}
