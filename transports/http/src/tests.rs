//! Tests of parsers and formatters: headers, broker properties, paths, origins, JSON, OpenAPI.

use actix_web::http::header::HeaderValue;
use actix_web::web::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::contract::browser;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, MessageId, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::api::openapi_json;
use crate::atom::AtomRoute;
use crate::broker_properties::{self, BrokerProperties};
use crate::broker_properties::{parse_instant, parse_time_span};
use crate::header_value;
use crate::header_value::{is_property, parse, write, write_property};
use crate::route::{self, ApiRoute, Probe, Route, encode_path, encode_segment, parameter};
use peeklock_json::{PropertyMap, write_value};

fn noon() -> Timestamp {
    Timestamp::parse("2026-05-01T12:00:00Z").unwrap()
}

/// MSG-23
#[test]
fn a_header_value_has_the_type_that_it_shows() {
    let check = |text: &str, expected: Value| assert_eq!(parse(text), expected, "{text}");
    check("1", Value::I64(1));
    check("-9223372036854775808", Value::I64(i64::MIN));
    check("1.5", Value::F64(1.5));
    check("1e3", Value::F64(1_000.0));
    check("9223372036854775808", Value::F64(9_223_372_036_854_775_808.0));
    check("true", Value::Bool(true));
    check("false", Value::Bool(false));
    check("\"1\"", Value::from("1"));
    check("\"true\"", Value::from("true"));
    check("\"\"", Value::from(""));
    check("\"Fri, 01 May 2026 12:00:00 GMT\"", noon().into());
    // Any other value is literal text.
    for text in [
        "",
        "\"",
        "True",
        "007",
        "+1",
        "1.",
        ".5",
        "NaN",
        "1e999",
        "a\"b",
        "0x10",
        "null",
        "Fri, 01 May 2026 12:00:00 GMT",
    ] {
        check(text, Value::from(text));
    }
    check("\"1 May 2026 12:00 +0000\"", Value::from("1 May 2026 12:00 +0000"));
    check(r#""C:\x""#, Value::from(r"C:\x"));
}

/// MSG-23
#[test]
fn a_value_that_http_has_comes_back_as_it_was() {
    for value in [
        Value::Bool(true),
        Value::I64(-5),
        Value::F64(1.0),
        Value::F64(0.1),
        Value::F64(-1e300),
        Value::from("plain"),
        Value::from("17"),
        Value::from("a \"quoted\" \\ word"),
        Value::from("line\r\nInjected: yes\u{7f}\u{0}"),
        Value::from("grüße 🚚"),
        noon().into(),
    ] {
        assert_eq!(parse(&write(&value)), value);
        let (name, header) = write_property("key", &value).unwrap();
        assert_eq!(name, "key");
        assert_eq!(parse(std::str::from_utf8(header.as_bytes()).unwrap()), value);
    }
    for value in [Value::U8(1), Value::I32(1), Value::U64(1)] {
        assert_eq!(parse(&write(&value)), Value::I64(1));
    }
    assert_eq!(parse(&write(&Value::F64(f64::NAN))), Value::from("NaN"));
    assert_eq!(parse(&write(&Value::Null)), Value::from(""));
}

/// HTP-05
#[test]
fn headers_with_a_meaning_of_their_own_are_not_properties() {
    for name in
        ["host", "content-length", "accept", "accept-language", "authorization", "sec-ch-ua"]
    {
        assert!(!is_property(name), "{name}");
    }
    for name in ["priority", "customer", "x-request-id", "diagnostic-id", "hostname"] {
        assert!(is_property(name), "{name}");
    }
    for key in ["", "two words", "Grüße", "Content-Length", "a:b", "a\r\nb"] {
        assert!(write_property(key, &Value::I64(1)).is_none(), "{key}");
    }
}

fn read(header: &'static str) -> Result<Message, String> {
    let mut message = Message::default();
    BrokerProperties::parse(&HeaderValue::from_static(header))
        .map_err(|refusal| format!("{refusal:?}"))?
        .apply_to(&mut message);
    Ok(message)
}

/// HTP-03, HTP-04, MSG-11
#[test]
fn broker_properties_are_read() {
    let message = read(
        r#"{"MessageId":"m","SessionId":"s","PartitionKey":"p","ViaPartitionKey":"v","Label":"l",
            "ReplyToSessionId":"rs","CorrelationId":"c","To":"t","ReplyTo":"r","TimeToLive":1.5,
            "ScheduledEnqueueTimeUtc":"Fri, 01 May 2026 12:00:00 GMT","ForcePersistence":true,
            "SequenceNumber":77,"DeliveryCount":"many","Unknown":{"deep":[1,2]},"ContentType":null}"#
            .replace('\n', " ")
            .leak(),
    )
    .unwrap();
    let expected = Message {
        transaction_partition_key: Some("v".to_owned()),
        reply_to_session_id: Some("rs".to_owned()),
        time_to_live: Some(TimeSpan::from_ms(1_500)),
        scheduled_enqueue_time: Some(noon()),
        force_persistence: true,
        ..Message::default()
    }
    .with_message_id("m")
    .with_session_id("s")
    .with_partition_key("p")
    .with_subject("l")
    .with_correlation_id("c")
    .with_to("t")
    .with_reply_to("r");
    assert_eq!(message, expected);
    assert_eq!(read("{}").unwrap(), Message::default());
}

/// HTP-03
#[test]
fn a_broker_property_of_the_wrong_type_is_named() {
    let check = |header: &'static str, named: &str| {
        let refusal = read(header).unwrap_err();
        assert!(refusal.contains("ArgumentError") && refusal.contains(named), "{refusal}");
    };
    check(r#"{"MessageId":5}"#, "MessageId");
    check(r#"{"TimeToLive":"soon"}"#, "TimeToLive");
    check(r#"{"TimeToLive":-1}"#, "TimeToLive");
    check(r#"{"TimeToLiveTimeSpan":"1:2"}"#, "TimeToLiveTimeSpan");
    check(r#"{"ScheduledEnqueueTimeUtc":"tomorrow"}"#, "ScheduledEnqueueTimeUtc");
    check(r#"{"ForcePersistence":"yes"}"#, "ForcePersistence");
    check(r#"{"Label":["a"]}"#, "Label");
    check("[]", "BrokerProperties");
    check("{", "BrokerProperties");
    check("", "BrokerProperties");
}

/// HTP-03, MSG-19, FWD-26
#[test]
fn broker_properties_are_written() {
    let lock = LockGrant { token: LockToken::new(SequenceNumber(9), 1), until: noon() };
    let facts = MessageFacts {
        sequence: SequenceNumber(9),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: noon(),
        expires_at: None,
        time_to_live: Some(TimeSpan::from_ms(2_500)),
        delivery_count: 0,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: Some(lock),
        size: 40,
        overlay_count: 0,
        was_scheduled: false,
    };
    let message = Message::new("x").with_message_id(MessageId::Ulong(7)).with_subject("naïve\n");
    let header = broker_properties::write(&message, &facts, Some("t/Subscriptions/s"));
    assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header}");
    let json: serde_json::Value = serde_json::from_str(&header).unwrap();
    let expected = serde_json::json!({
        "MessageId": "7", "Subject": "naïve\n", "Label": "naïve\n", "TimeToLive": 2.5,
        "SequenceNumber": 9, "EnqueuedSequenceNumber": 0, "DeliveryCount": 1, "State": "Active",
        "EnqueuedTimeUtc": "Fri, 01 May 2026 12:00:00 GMT", "Size": 40,
        "DeadLetterSource": "t/Subscriptions/s",
        "LockToken": "00000000-0000-0009-0000-000000000001",
        "LockedUntilUtc": "Fri, 01 May 2026 12:00:00 GMT",
    });
    assert_eq!(json, expected);
    let peeked = broker_properties::write(&message, &MessageFacts { lock: None, ..facts }, None);
    assert!(!peeked.contains("Lock") && !peeked.contains("DeadLetterSource"));
}

/// HTP-04
#[test]
fn times_to_live_and_instants_have_the_forms_of_http() {
    let check = |text: &str, expected: Option<i64>| {
        assert_eq!(parse_time_span(text).map(TimeSpan::ticks), expected, "{text}");
    };
    check("00:00:01", Some(10_000_000));
    check("1.02:03:04.5", Some(937_845_000_000));
    check("00:00:00.0000001", Some(1));
    check("10675199.02:48:05.4775807", Some(i64::MAX));
    for wrong in [
        "",
        "1",
        "1:2",
        "1:2:3:4",
        "24:00:00",
        "00:60:00",
        "00:00:60",
        "-1:00:00",
        "a:b:c",
        "10675199.02:48:05.4775808",
        "00:00:00.00000001",
        "1.:00:00",
        "00:00:",
        "99999999999999:0:0",
    ] {
        check(wrong, None);
    }
    assert_eq!(parse_instant("Fri, 01 May 2026 12:00:00 GMT"), Some(noon()));
    assert_eq!(parse_instant("2026-05-01T14:00:00+02:00"), Some(noon()));
    assert_eq!(parse_instant("2026-05-01"), None);
}

#[test]
fn paths_are_read_segment_by_segment() {
    let check = |path: &str, expected: Option<Route>| {
        assert_eq!(route::parse(path, ""), expected, "{path}");
    };
    let owned = str::to_owned;
    let entity = |text: &str| text.to_owned();
    check("/q/messages", Some(Route::Messages { entity: entity("q") }));
    check("/eu/orders/Messages/", Some(Route::Messages { entity: entity("eu/orders") }));
    check("/eu%2Forders/messages", Some(Route::Messages { entity: entity("eu/orders") }));
    check("/q/messages/messages", Some(Route::Messages { entity: entity("q/messages") }));
    check("/q/messages/head", Some(Route::Head { entity: entity("q") }));
    check(
        "/q/%24DeadLetterQueue/messages/HEAD",
        Some(Route::Head { entity: entity("q/$DeadLetterQueue") }),
    );
    check(
        "/q/$Transfer/$deadletterqueue/messages/head",
        Some(Route::Head { entity: entity("q/$Transfer/$deadletterqueue") }),
    );
    check(
        "/q/messages/a%2Fb%20c/t",
        Some(Route::Lock { entity: entity("q"), reference: owned("a/b c"), token: owned("t") }),
    );
    check("/livez", Some(Route::Probe(Probe::Live)));
    let livez = AtomRoute::Entity { path: entity("livez") };
    assert_eq!(route::parse("/livez", "x=1&api-version=2021-05"), Some(Route::Atom(livez)));
    check("/livez/messages", Some(Route::Messages { entity: entity("livez") }));
    check(
        "/$api/v1/queues/eu%2Forders/messages",
        Some(Route::Api(ApiRoute::Messages { queue: owned("eu/orders") })),
    );
    check("/%24api/v1/queues", Some(Route::Api(ApiRoute::Queues)));
    for unknown in ["/", "", "*", "//", "/$api/v1", "/$api/v2/queues", "/$Resources/relays"] {
        check(unknown, Some(Route::Unknown));
    }
    check("/%ff/messages", None);
}

/// ADM-04, HTP-12, HTP-13: words are case-insensitive, names may have slashes, and paths without
/// data-plane words are Atom paths.
#[test]
fn paths_of_atom_are_read_in_any_case() {
    let check = |path: &str, expected: AtomRoute| {
        assert_eq!(route::parse(path, ""), Some(Route::Atom(expected)), "{path}");
    };
    let owned = str::to_owned;
    check("/messages", AtomRoute::Entity { path: owned("messages") });
    check("/eu%2Forders/", AtomRoute::Entity { path: owned("eu/orders") });
    check("/eu/orders", AtomRoute::Entity { path: owned("eu/orders") });
    check("/%24resources/QUEUES", AtomRoute::Queues);
    check("/$Resources/Topics/", AtomRoute::Topics);
    check("/$NamespaceInfo", AtomRoute::Namespace);
    check("/a/b/SUBSCRIPTIONS/", AtomRoute::Subscriptions { topic: owned("a/b") });
    let (topic, subscription) = (owned("a/b"), owned("s"));
    check(
        "/a/b/Subscriptions/s",
        AtomRoute::Subscription { topic: topic.clone(), name: owned("s") },
    );
    check(
        "/a/b/subscriptions/s/RULES",
        AtomRoute::Rules { topic: topic.clone(), subscription: subscription.clone() },
    );
    check(
        "/a/b/subscriptions/s/rules/$Default/",
        AtomRoute::Rule { topic: topic.clone(), subscription, name: owned("$Default") },
    );
    // Encoded slashes count as slashes.
    for one in ["/t%2Fsubscriptions%2Fs", "/t%2fSubscriptions/s", "/t/subscriptions%2fs%2F"] {
        check(one, AtomRoute::Subscription { topic: owned("t"), name: owned("s") });
    }
    check("/eu%2Ft%2Fsubscriptions", AtomRoute::Subscriptions { topic: owned("eu/t") });
    check(
        "/t%2Fsubscriptions%2Fs%2Frules%2Fr",
        AtomRoute::Rule { topic: owned("t"), subscription: owned("s"), name: owned("r") },
    );
    check(
        "/t%2Fsubscriptions/messages",
        AtomRoute::Subscription { topic: owned("t"), name: owned("messages") },
    );
    // Words of the data plane may be names.
    check(
        "/a/b/subscriptions/messages",
        AtomRoute::Subscription { topic: topic.clone(), name: owned("messages") },
    );
    check(
        "/t/subscriptions/s/rules/messages",
        AtomRoute::Rule { topic: owned("t"), subscription: owned("s"), name: owned("messages") },
    );
    let sent = Route::Messages { entity: owned("t/subscriptions/s") };
    assert_eq!(route::parse("/t/subscriptions/s/messages", ""), Some(sent));
    for name in ["%3Fapi-version", "api-version", "?api-version"] {
        assert_eq!(route::parameter(&format!("a=b&{name}=1"), "api-version"), Some(owned("1")));
    }
}

#[test]
fn encoded_paths_are_parsed_back() {
    for text in ["plain", "a/b", "100% + ü?#&", "$DeadLetterQueue", "..", "\u{0}"] {
        let path = format!("/q/messages/{}/t", encode_segment(text));
        let expected = Route::Lock {
            entity: "q".to_owned(),
            reference: text.to_owned(),
            token: "t".to_owned(),
        };
        assert_eq!(route::parse(&path, ""), Some(expected));
    }
    assert_eq!(encode_path("eu/orders/$deadletterqueue"), "eu/orders/$deadletterqueue");
    assert_eq!(parameter("a=1&TimeOut=2%30&b", "timeout"), Some("20".to_owned()));
    assert_eq!(parameter("a=1&b", "b"), Some(String::new()));
    assert_eq!(parameter("", "b"), None);
}

/// SEC-23
#[test]
fn an_origin_is_the_same_when_host_and_port_are() {
    let check = |origin: &str, host: &str, expected: bool| {
        assert_eq!(browser::is_same_origin(origin, host), expected, "{origin} {host}");
    };
    check("http://localhost:5380", "localhost:5380", true);
    check("http://LOCALHOST", "localhost:80", true);
    check("https://bus.example", "bus.example", true);
    check("http://[::1]:5380", "[::1]:5380", true);
    check("http://localhost:5380", "localhost", false);
    check("http://localhost.evil.example:5380", "localhost:5380", false);
    check("http://evil.example", "localhost", false);
    check("null", "localhost", false);
    check("file://localhost", "localhost", false);
    check("http://localhost:5380@evil", "localhost:5380", false);
    assert_eq!(browser::split_host("[::1"), None);
    assert_eq!(browser::split_host("::1"), None);
    assert_eq!(browser::split_host("a:+80"), None);
    assert_eq!(browser::split_host("a:99999"), None);
    assert_eq!(browser::split_host(""), None);
}

/// MSG-20
#[test]
fn every_type_comes_back_from_json_exactly() {
    let values = [
        Value::Null,
        Value::Bool(false),
        Value::I8(i8::MIN),
        Value::I16(i16::MIN),
        Value::I32(i32::MIN),
        Value::I64(i64::MIN),
        Value::U8(u8::MAX),
        Value::U16(u16::MAX),
        Value::U32(u32::MAX),
        Value::U64(u64::MAX),
        Value::U64(1),
        Value::F32(0.1),
        Value::F32(f32::NEG_INFINITY),
        Value::F64(0.1 + 0.2),
        Value::F64(2.0),
        Value::F64(f64::MIN_POSITIVE),
        Value::F64(f64::INFINITY),
        Value::Decimal128(*b"0123456789abcdef"),
        Value::Char('🚚'),
        Value::from("text"),
        Value::Uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        Value::Timestamp(noon().unix_ms()),
        Value::Timestamp(i64::MIN),
        Value::Binary(Bytes::from_static(&[0, 255, 10])),
        Value::Uri("urn:x".to_owned()),
        Value::DateTimeOffset(noon().ticks() + 1),
        Value::DateTimeOffset(-1),
        Value::TimeSpan(1),
        Value::TimeSpan(-1),
    ];
    for value in values {
        let text = serde_json::json!({ "key": write_value(&value) }).to_string();
        let PropertyMap(read) = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [("key".to_owned(), value)], "{text}");
    }
    let text = r#"{"key":{"type":"f64","value":"NaN"}}"#;
    let PropertyMap(read) = serde_json::from_str(text).unwrap();
    assert!(matches!(read.as_slice(), [(_, Value::F64(value))] if value.is_nan()));
}

/// MSG-21
#[test]
fn json_values_that_are_no_property_are_refused_by_name() {
    for value in [
        "[1]",
        "{}",
        r#"{"type":"i8","value":128}"#,
        r#"{"type":"u8","value":-1}"#,
        r#"{"type":"uuid","value":"x"}"#,
        r#"{"type":"char","value":"ab"}"#,
        r#"{"type":"list","value":1}"#,
        r#"{"type":"i32","value":[1]}"#,
        r#"{"type":"i32","value":1.5}"#,
        r#"{"type":"decimal128","value":"00"}"#,
        "18446744073709551616e400",
    ] {
        let text = format!(r#"{{"culprit":{value}}}"#);
        let error = serde_json::from_str::<PropertyMap>(&text).unwrap_err().to_string();
        assert!(error.contains("culprit") || error.contains("out of range"), "{error}");
    }
    assert_eq!(header_value::hexadecimal(&[0, 255]), "00ff");
}

#[test]
fn the_openapi_document_has_every_operation() {
    let document: serde_json::Value = serde_json::from_str(&openapi_json()).unwrap();
    // ERR-02: errors are documented with the media type with which they are sent.
    let operations = document["paths"].as_object().unwrap().values();
    for operation in operations.flat_map(|item| item.as_object().unwrap().values()) {
        let content = operation["responses"]["default"]["content"].as_object().unwrap();
        assert_eq!(content.keys().collect::<Vec<_>>(), ["application/problem+json"]);
    }
    let paths = document.get("paths").unwrap().as_object().unwrap();
    let count: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(count, 154);
    // Resources below a queue also exist below topics and subscriptions, with parameters for their
    // names.
    for (path, operation, parameters) in [
        ("/topics/{topic}/messages", "post", vec!["topic"]),
        (
            "/topics/{topic}/subscriptions/{subscription}/locks/{lockToken}/complete",
            "post",
            vec!["topic", "subscription", "lockToken"],
        ),
    ] {
        let operation = &paths[path][operation];
        let named = operation["parameters"].as_array().unwrap().iter();
        let named: Vec<_> = named.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(named, parameters, "{path}");
    }
    assert!(paths["/topics/{topic}/messages"].get("get").is_none());
    let about = document.pointer("/info/description").unwrap().as_str().unwrap();
    for told in ["`%2F`", "`orders%2F$deadletterqueue`", "/{queue}/messages", "lower case"] {
        assert!(about.contains(told), "{told}");
    }
    // A body is required unless an empty one is valid.
    for (path, method, required) in [
        ("/queues/{queue}/messages", "post", false),
        ("/queues/{queue}/messages/receive", "post", false),
        ("/queues/{queue}/messages/batch", "post", true),
        ("/queues/{queue}", "put", false),
        ("/topics/{topic}/subscriptions/{subscription}/explain", "post", true),
        ("/topics/{topic}/what-if", "post", true),
    ] {
        assert_eq!(paths[path][method]["requestBody"]["required"], required, "{path}");
    }
    let ids = paths.values().flat_map(|path| path.as_object().unwrap().values());
    let mut ids: Vec<_> = ids.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "every operation has an id of its own");
    let schemas = document.pointer("/components/schemas").unwrap().as_object().unwrap();
    for name in [
        "NewMessage",
        "ReceivedView",
        "QueueView",
        "TopicView",
        "RuleForm",
        "Problem",
        "PropertyValue",
    ] {
        assert!(schemas.contains_key(name), "{name}");
    }
}
