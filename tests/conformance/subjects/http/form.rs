//! Encoding and decoding of the JSON API, by its document.

use super::*;

/// Reads an error, whose status must match its condition (ERR-01, ERR-02).
pub(super) fn refusal(response: &Response, path: &str) -> Refusal {
    let text = String::from_utf8_lossy(&response.body).into_owned();
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{text}");
    let problem: Json = serde_json::from_slice(&response.body).expect(&text);
    let condition = text_of(&problem, "code").expect(&text);
    let on_messages = path.contains("/messages") || path.contains("/locks/");
    let expected: &[u16] = match condition.as_str() {
        "ArgumentError" | "ArgumentOutOfRange" | "InvalidOperation" | "EntityDisabled" => &[400],
        "Unauthorized" => &[401],
        "QuotaExceeded" | "MessageSizeExceeded" => &[403],
        "EntityNotFound" if on_messages => &[410],
        "EntityNotFound" | "MessageNotFound" => &[404],
        "MessageLockLost" if path.contains("/locks/") => &[404],
        "MessageLockLost" => &[410],
        "EntityAlreadyExists" | "UpdateConflict" => &[409],
        "NotImplemented" => &[501],
        "ServerBusy" => &[503],
        _ => &[],
    };
    assert!(
        expected.is_empty() || expected.contains(&response.status),
        "{} {text}",
        response.status
    );
    Refusal {
        condition,
        retryable: problem["retryable"].as_bool().expect(&text),
        tracking_id: Some(text_of(&problem, "trackingId").expect(&text)),
        text: text_of(&problem, "message").expect(&text),
    }
}

pub(super) fn text_of(object: &Json, key: &str) -> Option<String> {
    object[key].as_str().map(str::to_owned)
}

pub(super) fn instant_of(object: &Json, key: &str) -> Option<Timestamp> {
    object[key].as_str().map(|text| Timestamp::parse(text).unwrap())
}

pub(super) fn span_of(object: &Json, key: &str) -> Option<TimeSpan> {
    object[key].as_str().map(|text| TimeSpan::parse(text).unwrap())
}

pub(super) fn number_of(object: &Json, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is missing in {object}"))
}

pub(super) fn flag_of(object: &Json, key: &str) -> bool {
    object[key].as_bool().unwrap_or_else(|| panic!("{key} is missing in {object}"))
}

pub(super) fn numbers_of(object: &Json) -> Vec<u64> {
    let numbers = object["sequenceNumbers"].as_array().unwrap();
    numbers.iter().map(|number| number.as_u64().unwrap()).collect()
}

/// The properties that an update names. A retry policy that is not named stays; `null` removes it.
pub(super) fn write_entity<D: Description>(properties: &D::Update) -> Map<String, Json> {
    let named = D::FIELDS.iter().filter_map(|field| {
        let value = match field.named(properties)? {
            FieldValue::Flag(flag) => json!(flag),
            FieldValue::Count(count) => json!(count),
            FieldValue::Size(size) => json!(size),
            FieldValue::Span(span) => json!(span.to_string()),
            FieldValue::Status(status) => json!(status.name()),
            FieldValue::Order(order) => json!(order.name()),
            FieldValue::Text(text) => json!(text),
            FieldValue::Retry(policy) => policy.map_or(Json::Null, write_retry_policy),
        };
        Some((field.json.to_owned(), value))
    });
    named.collect()
}

fn write_retry_policy(policy: RetryPolicy) -> Json {
    json!({
        "kind": policy.kind.name(),
        "delay": policy.delay.to_string(),
        "delayMax": policy.delay_max.map(|most| most.to_string()),
        "jitter": policy.jitter.part(),
    })
}

fn read_retry_policy(entity: &Json) -> Option<RetryPolicy> {
    let policy = entity.get("retryPolicy").filter(|policy| policy.is_object())?;
    Some(RetryPolicy {
        kind: RetryKind::parse(&text_of(policy, "kind").unwrap()).unwrap(),
        delay: span_of(policy, "delay").unwrap(),
        delay_max: span_of(policy, "delayMax"),
        jitter: Jitter::of(policy["jitter"].as_f64().unwrap_or(0.0)).unwrap(),
    })
}

/// Reads a description. Only properties that Azure does not have may be absent, with their
/// defaults.
pub(super) fn read_entity<D: Description>(entity: &Json) -> D {
    let names =
        if D::KIND == EntityKind::Subscription { &["topic", "name"][..] } else { &["path"] };
    let mut names = names.iter();
    let mut description: D = D::named_by(|| {
        let name = names.next().and_then(|name| text_of(entity, name));
        name.map(Into::into).ok_or("a name is missing")
    })
    .unwrap();
    for field in D::FIELDS {
        let name = field.json;
        if !field.is_in_azure && entity.get(name).is_none() {
            continue;
        }
        let value = match field.kind {
            FieldKind::Flag => FieldValue::Flag(flag_of(entity, name)),
            FieldKind::Count => FieldValue::Count(u32::try_from(number_of(entity, name)).unwrap()),
            FieldKind::Megabytes | FieldKind::Kilobytes => {
                FieldValue::Size(number_of(entity, name))
            }
            FieldKind::Span => FieldValue::Span(span_of(entity, name).unwrap()),
            FieldKind::Status => {
                let status = text_of(entity, name).unwrap();
                FieldValue::Status(EntityStatus::parse(&status).unwrap())
            }
            FieldKind::Order => {
                let order = text_of(entity, name).unwrap();
                FieldValue::Order(SessionRetryOrder::parse(&order).unwrap())
            }
            FieldKind::Destination | FieldKind::Text => {
                FieldValue::Text(text_of(entity, name).map(Into::into))
            }
            FieldKind::Retry => FieldValue::Retry(read_retry_policy(entity)),
        };
        field.set(&mut description, value);
    }
    description
}

pub(super) fn read_queue(queue: &Json) -> Described {
    let runtime = &queue["runtime"];
    let counts = Counts {
        active: number_of(runtime, "activeMessageCount"),
        deferred: number_of(runtime, "deferredMessageCount"),
        scheduled: number_of(runtime, "scheduledMessageCount"),
        dead_letter: number_of(runtime, "deadLetterMessageCount"),
        transfer: number_of(runtime, "transferMessageCount"),
        transfer_dead_letter: number_of(runtime, "transferDeadLetterMessageCount"),
        delayed: runtime["delayedMessageCount"].as_u64().unwrap_or(0),
    };
    assert_eq!(number_of(runtime, "totalMessageCount"), counts.total());
    Described {
        description: read_entity(queue),
        counts,
        size_bytes: number_of(runtime, "sizeInBytes"),
        last_sequence: SequenceNumber(number_of(runtime, "lastSequenceNumber")),
        created_at: instant_of(runtime, "createdAt").unwrap(),
        updated_at: instant_of(runtime, "updatedAt").unwrap(),
        accessed_at: instant_of(runtime, "accessedAt").unwrap(),
        sessions: read_sessions(runtime),
    }
}

pub(super) fn write_message(message: &Message) -> Json {
    // A body is sent as text if it is valid UTF-8, and in Base64 otherwise.
    let bytes = message.body.as_bytes();
    let (body, base64) = match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    };
    json!({
        "body": body,
        "bodyBase64": base64,
        "messageId": message.message_id.as_ref().map(ToString::to_string),
        "sessionId": message.session_id,
        "partitionKey": message.partition_key,
        "transactionPartitionKey": message.transaction_partition_key,
        "replyToSessionId": message.reply_to_session_id,
        "correlationId": message.correlation_id.as_ref().map(ToString::to_string),
        "contentType": message.content_type,
        "subject": message.subject,
        "to": message.to,
        "replyTo": message.reply_to,
        "timeToLive": message.time_to_live.map(|span| span.to_string()),
        "scheduledEnqueueTimeUtc": message.scheduled_enqueue_time.map(|at| at.to_string()),
        "forcePersistence": message.force_persistence,
        "applicationProperties": write_properties(&message.application_properties),
    })
}

pub(super) fn write_messages(messages: &[Message]) -> Json {
    messages.iter().map(write_message).collect()
}

pub(super) fn write_properties(properties: &[(String, Value)]) -> Json {
    properties.iter().map(|(key, value)| (key.clone(), write_value(value))).collect()
}

/// A value is plain if JSON has its type, and named otherwise.
pub(super) fn write_value(value: &Value) -> Json {
    let typed = |name: &str, value: Json| json!({ "type": name, "value": value });
    let guid = |value: u128| {
        let mut text = String::new();
        for (position, digit) in format!("{value:032x}").chars().enumerate() {
            if matches!(position, 8 | 12 | 16 | 20) {
                text.push('-');
            }
            text.push(digit);
        }
        text
    };
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::String(text) => json!(text),
        Value::I8(value) => typed("i8", json!(value)),
        Value::I16(value) => typed("i16", json!(value)),
        Value::I32(value) => typed("i32", json!(value)),
        Value::U8(value) => typed("u8", json!(value)),
        Value::U16(value) => typed("u16", json!(value)),
        Value::U32(value) => typed("u32", json!(value)),
        Value::U64(value) => typed("u64", json!(value)),
        Value::F32(value) => typed("f32", json!(value)),
        Value::F64(value) if value.is_finite() => typed("f64", json!(value)),
        Value::F64(value) if value.is_nan() => typed("f64", json!("NaN")),
        Value::F64(value) => {
            typed("f64", json!(if *value > 0.0 { "Infinity" } else { "-Infinity" }))
        }
        Value::Decimal128(bytes) => {
            typed("decimal128", json!(format!("{:032x}", u128::from_be_bytes(*bytes))))
        }
        Value::Char(value) => typed("char", json!(value)),
        Value::Uuid(value) => typed("uuid", json!(guid(*value))),
        Value::Timestamp(ms) => typed("timestamp", json!(ms)),
        Value::Binary(bytes) => typed("binary", json!(STANDARD.encode(bytes))),
        Value::Uri(text) => typed("uri", json!(text)),
        Value::DateTimeOffset(ticks) => typed("dateTimeOffset", json!(ticks)),
        Value::TimeSpan(ticks) => typed("timeSpan", json!(ticks)),
    }
}

pub(super) fn read_value(json: &Json) -> Value {
    let integer = |json: &Json| json.as_i64().unwrap_or_else(|| panic!("{json} is no integer"));
    let unsigned = |json: &Json| json.as_u64().unwrap_or_else(|| panic!("{json} is no integer"));
    let text =
        |json: &Json| json.as_str().unwrap_or_else(|| panic!("{json} is no text")).to_owned();
    let float = |json: &Json| match json.as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        Some(other) => panic!("{other} is no number"),
        None => json.as_f64().unwrap(),
    };
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::String(text) => Value::String(text.clone()),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::I64(value),
            None => Value::F64(number.as_f64().unwrap()),
        },
        Json::Array(_) => panic!("a property is a list: {json}"),
        Json::Object(_) => {
            let value = &json["value"];
            match json["type"].as_str().unwrap() {
                "i8" => Value::I8(integer(value).try_into().unwrap()),
                "i16" => Value::I16(integer(value).try_into().unwrap()),
                "i32" => Value::I32(integer(value).try_into().unwrap()),
                "i64" => Value::I64(integer(value)),
                "u8" => Value::U8(unsigned(value).try_into().unwrap()),
                "u16" => Value::U16(unsigned(value).try_into().unwrap()),
                "u32" => Value::U32(unsigned(value).try_into().unwrap()),
                "u64" => Value::U64(unsigned(value)),
                "f32" => Value::F32(float(value).to_string().parse().unwrap()),
                "f64" => Value::F64(float(value)),
                "decimal128" => Value::Decimal128(parse_guid(&text(value)).unwrap().to_be_bytes()),
                "char" => Value::Char(text(value).parse().unwrap()),
                "string" => Value::String(text(value)),
                "uuid" => Value::Uuid(parse_guid(&text(value)).unwrap()),
                "timestamp" => match value.as_i64() {
                    Some(ms) => Value::Timestamp(ms),
                    None => Timestamp::parse(&text(value)).unwrap().into(),
                },
                "binary" => Value::Binary(Bytes::from(STANDARD.decode(text(value)).unwrap())),
                "uri" => Value::Uri(text(value)),
                "dateTimeOffset" => Value::DateTimeOffset(
                    value
                        .as_i64()
                        .unwrap_or_else(|| Timestamp::parse(&text(value)).unwrap().ticks()),
                ),
                "timeSpan" => Value::TimeSpan(
                    value
                        .as_i64()
                        .unwrap_or_else(|| TimeSpan::parse(&text(value)).unwrap().ticks()),
                ),
                other => panic!("unknown type {other}"),
            }
        }
    }
}

pub(super) fn read_messages(answer: &Json) -> Vec<Seen> {
    answer["messages"].as_array().unwrap().iter().map(read_message).collect()
}

pub(super) fn read_message(json: &Json) -> Seen {
    let text = |key| text_of(json, key);
    let body = match (&json["body"], &json["bodyBase64"]) {
        (Json::String(text), Json::Null) => Bytes::from(text.clone()),
        (Json::Null, Json::String(base64)) => Bytes::from(STANDARD.decode(base64).unwrap()),
        other => panic!("a message has one body: {other:?}"),
    };
    let properties = json.get("applicationProperties").map(|it| it.as_object().unwrap());
    assert!(properties.is_none_or(|it| !it.is_empty()), "left out if there are none: {json}");
    let mut application_properties: Vec<(String, Value)> = properties
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), read_value(value)))
        .collect();
    application_properties.sort_by(|left, right| left.0.cmp(&right.0));
    let message = Message {
        body: Body::Data(body),
        message_id: text("messageId").map(Into::into),
        session_id: text("sessionId"),
        partition_key: text("partitionKey"),
        transaction_partition_key: text("transactionPartitionKey"),
        reply_to_session_id: text("replyToSessionId"),
        correlation_id: text("correlationId").map(Into::into),
        content_type: text("contentType"),
        subject: text("subject"),
        to: text("to"),
        reply_to: text("replyTo"),
        time_to_live: span_of(json, "timeToLive"),
        scheduled_enqueue_time: instant_of(json, "scheduledEnqueueTimeUtc"),
        force_persistence: json["forcePersistence"].as_bool().unwrap_or_default(),
        application_properties,
    };
    Seen {
        message,
        sequence: number_of(json, "sequenceNumber"),
        enqueued_sequence: number_of(json, "enqueuedSequenceNumber"),
        enqueued_at: instant_of(json, "enqueuedTimeUtc").unwrap(),
        expires_at: instant_of(json, "expiresAtUtc"),
        delivery_count: u32::try_from(number_of(json, "deliveryCount")).unwrap(),
        state: match text("state").unwrap().as_str() {
            "Active" => MessageState::Active,
            "Deferred" => MessageState::Deferred,
            "Scheduled" => MessageState::Scheduled,
            "Delayed" => MessageState::Delayed,
            other => panic!("unknown state {other}"),
        },
        lock_token: text("lockToken"),
        locked_until: instant_of(json, "lockedUntilUtc"),
        dead_letter_source: text("deadLetterSource"),
    }
}

/// Numbers of sessions of an entity that requires sessions.
pub(super) fn read_sessions(runtime: &Json) -> Option<SessionCounts> {
    let existing = runtime["sessionCount"].as_u64()?;
    Some(SessionCounts { existing, locked: number_of(runtime, "lockedSessionCount") })
}
