use bytes::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::declaration::{
    Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic, Existing, OtherRules,
};
use peeklock_core::description::{Cleared, QueueUpdate};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::rule::sql::Parameters;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock_core::time::{TimeSpan, Timestamp};

use super::*;

const AT: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

/// Checks that a rule is written as `text`, and that reading gives the rule back.
#[track_caller]
fn check(rule: RuleDescription, text: &str) {
    let written = serde_json::to_string(&RuleForm::from(&rule)).unwrap();
    assert_eq!(written, text);
    let read: RuleForm = serde_json::from_str(text).unwrap();
    assert_eq!(RuleDescription::try_from(&read).unwrap(), rule);
}

/// TOP-14, TOP-15, TOP-18, SQL-14: rules survive a round trip.
#[test]
fn rules_come_back_as_they_were() {
    check(
        RuleDescription::default_rule(AT),
        r#"{"name":"$Default","filter":{"type":"true"},"createdAt":"2027-01-15T08:00:00Z"}"#,
    );
    check(
        RuleDescription::new("none", Filter::False, Timestamp::NONE),
        r#"{"name":"none","filter":{"type":"false"}}"#,
    );
    let parameters = Parameters::new().with("@limit", Value::I32(7)).with("who", "ann");
    let sql = SqlText { text: "price > @limit".into(), parameters };
    check(
        RuleDescription::new("dear", Filter::Sql(sql), Timestamp::NONE)
            .with_action(SqlText::new("SET a = 1")),
        concat!(
            r#"{"name":"dear","filter":{"type":"sql","sql":"price > @limit","parameters":"#,
            r#"{"@limit":{"type":"i32","value":7},"@who":"ann"}},"action":{"sql":"SET a = 1"}}"#,
        ),
    );
    let filter = CorrelationFilter { subject: Some("order".into()), ..Default::default() };
    let filter = filter.and_property("region", "eu").and_property("paid", true);
    check(
        RuleDescription::new("eu", Filter::Correlation(filter), Timestamp::NONE),
        concat!(
            r#"{"name":"eu","filter":{"type":"correlation","subject":"order","#,
            r#""properties":{"region":"eu","paid":true}}}"#,
        ),
    );
}

/// Absent properties, including `applicationProperties`, are left out in both views.
#[test]
fn a_bare_message_has_only_its_properties() {
    let message = Message::new("a");
    let sent = serde_json::to_string(&MessageView::new(&message)).unwrap();
    assert_eq!(sent, r#"{"body":"a"}"#);
    let facts = MessageFacts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: AT,
        expires_at: None,
        time_to_live: None,
        delivery_count: 0,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: None,
        size: 7,
        overlay_count: 0,
        was_scheduled: false,
    };
    let received = serde_json::to_string(&ReceivedView::new(&message, &facts, None)).unwrap();
    assert_eq!(
        received,
        concat!(
            r#"{"body":"a","sequenceNumber":1,"enqueuedSequenceNumber":0,"#,
            r#""enqueuedTimeUtc":"2027-01-15T08:00:00Z","deliveryCount":0,"state":"Active","size":7}"#,
        )
    );
}

/// A rule without a filter selects every message.
#[test]
fn a_filter_may_be_left_out() {
    let form: RuleForm = serde_json::from_str(r#"{"name":"all"}"#).unwrap();
    assert_eq!(form.to_description().unwrap().filter, Filter::True);
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = match serde_json::from_str::<RuleForm>(text) {
        Err(error) => error.to_string(),
        Ok(form) => form.to_description().unwrap_err().detail().to_owned(),
    };
    assert!(error.contains(part), "{text}: {error}");
}

/// Properties of another filter type and misspelt properties are rejected.
#[test]
fn properties_of_another_filter_are_refused() {
    refused(r#"{"name":"a","filter":{"type":"sql"}}"#, "no `sql`");
    refused(r#"{"name":"a","filter":{"type":"sql","sql":"1=1","subject":"x"}}"#, "only");
    refused(r#"{"name":"a","filter":{"type":"correlation","sql":"1=1"}}"#, "must not have");
    refused(r#"{"name":"a","filter":{"type":"true","subject":"x"}}"#, "no other");
    refused(r#"{"name":"a","filter":{"type":"true","label":"x"}}"#, "unknown field");
    refused(r#"{"name":"a","filter":{"type":"like"}}"#, "unknown variant");
    refused(r#"{"name":"a","filter":{}}"#, "missing field");
    refused(r#"{"filter":{"type":"true"}}"#, "no name");
    let form: RuleForm = serde_json::from_str(r#"{"name":"a"}"#).unwrap();
    assert!(form.clone().named("A").is_ok());
    assert!(form.named("b").is_err());
}

/// ENT-17: an absent property is kept, a null property is cleared.
#[test]
fn updates_distinguish_absent_from_null() {
    let keep: SubscriptionProperties = serde_json::from_str("{}").unwrap();
    let clear: SubscriptionProperties = serde_json::from_str(r#"{"forwardTo":null}"#).unwrap();
    assert_ne!(keep, clear);
    assert_eq!(
        serde_json::to_string(&clear).unwrap(),
        r#"{"forwardTo":null}"#,
        "a clear is written as one"
    );
    let topic: TopicProperties = serde_json::from_str(r#"{"userMetadata":null}"#).unwrap();
    assert_eq!(topic, TopicProperties::default().replacing());
}

/// ENT-21, ENT-22: status names are checked here; the broker decides which statuses an entity may
/// have.
#[test]
fn unknown_statuses_and_durations_are_refused() {
    for text in [r#"{"status":"Asleep"}"#, r#"{"defaultMessageTimeToLive":"soon"}"#] {
        let topic: TopicProperties = serde_json::from_str(text).unwrap();
        assert!(topic.to_update().is_err(), "{text}");
        let subscription: SubscriptionProperties = serde_json::from_str(text).unwrap();
        assert!(subscription.to_update().is_err(), "{text}");
    }
}

/// DEC-02, DEC-03, DEC-13: named, cleared and absent properties of a declaration survive a round
/// trip.
#[test]
fn declarations_come_back_as_they_were_sent() {
    let cleared = Cleared { forward_to: true, user_metadata: true, ..Cleared::default() };
    let queue = DeclaredQueue {
        cleared,
        ..DeclaredQueue::new("q").with(QueueUpdate {
            max_delivery_count: Some(5),
            forward_dead_lettered_messages_to: Some("d".into()),
            retry_policy: Some(None),
            ..QueueUpdate::default()
        })
    };
    let rule = RuleDescription::new("r", Filter::sql("a = @b"), Timestamp::NONE);
    let rules = [None, Some(Vec::new()), Some(vec![rule.with_action("SET a = 1")])];
    let mut topic = DeclaredTopic::new("t");
    topic.cleared.user_metadata = true;
    for (index, rules) in rules.into_iter().enumerate() {
        let other_rules = if index == 2 { OtherRules::Keep } else { OtherRules::Remove };
        let name = format!("s{index}").into();
        let one = DeclaredSubscription { name, rules, other_rules, cleared, ..Default::default() };
        topic = topic.with_subscription(one);
    }
    let declaration = Declaration::new()
        .with_queue(queue)
        .with_queue(DeclaredQueue::new("bare"))
        .with_topic(topic);
    for existing in [Existing::Update, Existing::Keep] {
        let declaration = declaration.clone().existing(existing);
        let text = serde_json::to_string(&DeclarationForm::from(&declaration)).unwrap();
        let form: DeclarationForm = serde_json::from_str(&text).unwrap();
        assert_eq!(form.to_declaration().unwrap(), declaration, "{text}");
    }
    for (text, place) in [
        (r#"{"queues":[{"path":"q","properties":{"status":"Odd"}}]}"#, "queues[0]: "),
        (
            r#"{"topics":[{"path":"t","subscriptions":[{"name":"s","rules":[{}]}]}]}"#,
            "topics[0].subscriptions[0]: ",
        ),
    ] {
        let form: DeclarationForm = serde_json::from_str(text).unwrap();
        let refused = form.to_declaration().unwrap_err();
        assert!(refused.detail().starts_with(place), "{refused}");
    }
}

/// DESIGN D6: the size of a value in JSON, including escapes, is known before it is written.
#[test]
fn a_value_has_its_size_before_it_is_written() {
    let filter = Filter::sql("p LIKE 'a\"\\\u{1}\u{e9}%'");
    let rules = [RuleDescription::default_rule(AT), RuleDescription::new("r", filter, AT)];
    for form in rules.iter().map(RuleForm::from) {
        assert_eq!(size_in_json(&form), serde_json::to_vec(&form).unwrap().len());
    }
    assert_eq!(size_in_json(&"\u{1}"), 8);
}

/// DESIGN D6: the stored size of a message bounds its size in JSON, for any content.
#[test]
fn the_stored_size_bounds_the_size_in_json() {
    const HEADER_BYTES_MAX: u64 = 64 << 10;
    let most = SequenceNumber(u64::MAX);
    let facts = MessageFacts {
        sequence: most,
        enqueued_sequence: most,
        enqueued_at: AT,
        expires_at: Some(AT),
        time_to_live: Some(TimeSpan::from_ticks(i64::MAX)),
        delivery_count: u32::MAX,
        state: MessageState::Delayed,
        delayed_until: Some(AT),
        sub_queue: SubQueue::Main,
        lock: Some(LockGrant { token: LockToken::new(most, u64::MAX), until: AT }),
        size: u32::MAX,
        overlay_count: 0,
        was_scheduled: false,
    };
    let check = |message: &Message, what: &str| {
        let size = u64::from(message.encode().size());
        let bytes = size_in_json(&ReceivedView::new(message, &facts, Some("orders"))) as u64;
        let most = message_in_json_max(size, HEADER_BYTES_MAX);
        assert!(bytes <= most, "{what} of {size} bytes: {bytes}, more than {most}");
        assert!(most <= 8 * size + 4_096, "{what} of {size} bytes: {most}");
    };
    for text in ["x", "\u{1}", "\"", "\u{e9}"] {
        for count in [0, 1, 1_000, 65_536, 65_537, 1 << 20] {
            check(&Message::new(text.repeat(count)), text);
        }
    }
    check(&Message::new(vec![0xff; 1 << 20]), "bytes");
    for value in [
        Value::Null,
        Value::Bool(false),
        Value::I8(i8::MIN),
        Value::I32(i32::MIN),
        Value::U8(0),
        Value::U32(0),
        Value::U64(0),
        Value::F32(-f32::MIN_POSITIVE),
        Value::F64(f64::NEG_INFINITY),
        Value::Char('\u{1}'),
        Value::String("\u{1}".repeat(20)),
        Value::Uuid(u128::MAX),
        Value::Timestamp(1),
        Value::Binary(Bytes::new()),
        Value::Uri("\u{1}".to_owned()),
        Value::DateTimeOffset(1),
        Value::TimeSpan(i64::MAX),
        Value::Decimal128([0xff; 16]),
    ] {
        let mut message = Message::new("");
        // Fill the header, with short names of characters that must all be escaped.
        for number in 0..1_024_u32 {
            let letter = |number: u32| char::from_u32(number % 32).unwrap();
            let name = String::from_iter([letter(number / 32), letter(number)]);
            message.application_properties.push((name, value.clone()));
        }
        check(&message, &format!("{value:?}"));
    }
}

/// HTP-10: a UTF-8 body is text while it is small or escapes at most double it; otherwise it is
/// Base64. Reading gives the same bytes back.
#[test]
fn a_large_body_with_many_escapes_is_base64() {
    for (text, count, is_text) in [
        ("x", 1 << 20, true),
        ("\"", 1 << 20, true),
        ("8=FIX\u{1}", 1 << 20, true),
        ("\u{1}", 65_536, true),
        ("\u{1}", 65_537, false),
    ] {
        let body = text.repeat(count);
        let written =
            serde_json::to_string(&MessageView::new(&Message::new(body.clone()))).unwrap();
        assert_eq!(written.starts_with(r#"{"body":"#), is_text, "{text}");
        assert_eq!(written.starts_with(r#"{"bodyBase64":"#), !is_text, "{text}");
        let read: NewMessage = serde_json::from_str(&written).unwrap();
        assert!(read.into_message().unwrap().body.as_bytes() == body.as_bytes(), "{text}");
    }
}

/// TOP-18: each broker property of a correlation filter has a name of its own in JSON, and comes back.
#[test]
fn correlation_filters_come_back_with_each_broker_property() {
    for field in CorrelationFilter::FIELDS {
        let mut filter = CorrelationFilter::default();
        field.set(&mut filter, Some("x".into()));
        let rule = RuleDescription::new("r", Filter::Correlation(filter), AT);
        let form = RuleForm::from(&rule);
        let json = serde_json::to_value(&form).unwrap();
        let names = json["filter"].as_object().unwrap().keys().filter(|name| *name != "type");
        assert_eq!(names.collect::<Vec<_>>(), [field.json]);
        assert_eq!(RuleDescription::try_from(&form).unwrap(), rule);
    }
}

/// CON-16: changes of messages come back as they were sent; contradictory changes are
/// refused.
#[test]
fn edits_come_back_as_they_were_sent() {
    for text in [
        r#"{"set":{"n":{"type":"i32","value":7},"t":"x"},"remove":["gone"],"newMessageId":true}"#,
        r#"{"subject":"s","correlationId":null,"contentType":"text/plain","sessionId":"a"}"#,
        r#"{"timeToLive":"PT1H"}"#,
        r#"{"sessionId":null,"timeToLive":null}"#,
        r#"{"newMessageId":true,"body":"new"}"#,
        r#"{"body":""}"#,
        r#"{"bodyBase64":"/w=="}"#,
        r#"{"mergePatch":"{\"a\":12345678901234567890.5}"}"#,
    ] {
        let form: EditForm = serde_json::from_str(text).unwrap();
        let edit = form.clone().into_edit().unwrap().unwrap();
        assert_eq!(EditForm::from(&*edit), form, "{text}");
        assert_eq!(serde_json::to_string(&form).unwrap(), text);
    }
    assert_eq!(EditForm::default().into_edit().unwrap(), None);
    for text in [
        r#"{"set":{"a":1},"remove":["a"]}"#,
        r#"{"remove":["a","a"]}"#,
        r#"{"remove":[""]}"#,
        r#"{"timeToLive":"PT0S"}"#,
        r#"{"body":"a","mergePatch":"{}"}"#,
        r#"{"bodyBase64":"?"}"#,
    ] {
        let form: EditForm = serde_json::from_str(text).unwrap();
        assert!(form.into_edit().is_err(), "{text}");
    }
    assert!(serde_json::from_str::<EditForm>(r#"{"schedule":"x"}"#).is_err());
}
