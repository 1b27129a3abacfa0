//! Tests of the changes that actions make.

use super::*;

fn run(message: &Message, action: &str) -> Result<Message, String> {
    run_with(message, action.into())
}

fn run_with(message: &Message, action: SqlText) -> Result<Message, String> {
    let matcher = topic(vec![sql("r", "1 = 1").with_action(action)]);
    let selection = publish(&matcher, message);
    let [copy] = selection.copies.as_slice() else { panic!("one copy: {selection:?}") };
    match &copy.refusal {
        Some(refusal) => Err(refusal.description.to_string()),
        None => {
            let mut copied = copy_of(message, copy);
            let (name, value) = copied.application_properties.pop().unwrap();
            assert_eq!((name.as_str(), value), ("RuleName", "r".into()));
            Ok(copied)
        }
    }
}

fn check(before: &[(&str, Value)], action: &str, after: &[(&str, Value)]) {
    let copied = run(&with(before), action).unwrap_or_else(|error| panic!("{action}: {error}"));
    assert_eq!(copied, with(after), "{action}");
}

fn fails(message: &Message, action: &str, part: &str) {
    let error = run(message, action).expect_err(action);
    assert!(error.contains(part), "{action}: {error}");
}

/// ACT-02, ACT-03
#[test]
fn statements_run_in_order_and_see_earlier_changes() {
    let before = [("quantity", Value::I32(5)), ("priority", Value::I32(1))];
    let copied = run(
        &with(&before),
        "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low';",
    );
    let expected = with(&[("quantity", Value::I32(2))]).with_correlation_id("low");
    assert_eq!(copied.unwrap(), expected);
    let one = [("a", Value::I32(1))];
    check(&one, "SET a = a + 1 SET a = a * 10", &[("a", Value::I32(20))]);
    check(&one, "REMOVE a; SET a = 'x'", &[("a", "x".into())]);
    check(&one, "SET b = a; REMOVE a", &[("b", Value::I32(1))]);
    check(&one, "SET b = 2; REMOVE b; SET c = b", &[("a", Value::I32(1)), ("c", Value::Null)]);
    let copied = run(&message(), "SET sys.Label = 'x'; SET sys.To = sys.Subject + '!'").unwrap();
    assert_eq!(copied, message().with_subject("x").with_to("x!"));
}

/// ACT-02, SQL-34: text is joined with a new id, and later statements see the expiry of a changed
/// time to live.
#[test]
fn statements_see_consequences_of_earlier_ones() {
    let before = with(&[("x", "order-".into())]);
    let copied = run(&before, "SET sys.SessionId = user.x + newid()").unwrap();
    let session = copied.session_id.unwrap();
    assert!(session.starts_with("order-") && session.len() == 42, "{session}");
    let action = "SET sys.TimeToLive = 'PT1H'; SET lives = sys.ExpiresAtUtc - sys.EnqueuedTimeUtc; \
                  REMOVE sys.TimeToLive; SET ends = sys.ExpiresAtUtc";
    let copied = run(&message(), action).unwrap();
    let hour = Value::TimeSpan(36_000_000_000);
    assert_eq!(copied.application_property("lives"), Some(&hour));
    assert_eq!(copied.application_property("ends"), Some(&Value::Null));
}

/// ACT-02, SQL-07: names ignore case, and the property keeps its spelling.
#[test]
fn names_of_properties_ignore_case() {
    check(&[("Color", "red".into())], "SET cOLOR = 'blue'", &[("Color", "blue".into())]);
    let both = [("color", Value::I32(1)), ("COLOR", Value::I32(2))];
    check(&both, "REMOVE color", &[("COLOR", Value::I32(2))]);
    check(&both, "REMOVE Color", &[("color", Value::I32(1))]);
    check(&both, "REMOVE Color; REMOVE Color", &[]);
    let first = ("color", Value::I32(1));
    check(&both, "SET COLOR = 7; REMOVE Color", std::slice::from_ref(&first));
    check(&both, "SET COLOR = 7; REMOVE color", &[("COLOR", Value::I32(7))]);
    check(&both, "REMOVE Color; SET Color = 5", &[("color", Value::I32(5))]);
    check(&[], "SET New = 1; SET nEW = 2", &[("New", Value::I64(2))]);
}

/// ACT-04
#[test]
fn absent_application_properties_are_no_error_and_absent_system_properties_are() {
    check(&[], "REMOVE nothing", &[]);
    check(&[], "SET a = nothing", &[("a", Value::Null)]);
    for action in ["REMOVE sys.Nope", "SET sys.Nope = 1", "SET a = sys.Nope"] {
        fails(&message(), action, "there is no such system property");
    }
}

/// ACT-05
#[test]
fn value_is_converted_to_the_type_of_the_property() {
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let uuid_value = Value::Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let decimal = |text: &str| Value::Decimal128(sql::Decimal::parse(text).unwrap().to_bits());
    let moment = Value::Timestamp(1_800_000_000_500);
    for (old, text, new) in [
        // number to number in range
        (Value::I8(1), "100", Value::I8(100)),
        (Value::I8(1), "200", Value::I64(200)),
        (Value::U8(1), "-1", Value::I64(-1)),
        (Value::U16(1), "65535", Value::U16(65_535)),
        (Value::I16(1), "2.5", Value::I16(2)),
        (Value::I16(1), "3.5", Value::I16(4)),
        (Value::U32(1), "4294967296", Value::I64(4_294_967_296)),
        (Value::U64(1), "7", Value::U64(7)),
        (Value::I32(1), "1e300", Value::F64(1e300)),
        (Value::I64(1), "0e0 / 0", Value::F64(f64::NAN)),
        (Value::F32(1.0), "0.5", Value::F32(0.5)),
        (Value::F32(1.0), "1e300", Value::F64(1e300)),
        (Value::F64(1.0), "7", Value::F64(7.0)),
        (decimal("1"), "0.1", decimal("0.1")),
        (decimal("1"), "7", decimal("7")),
        // anything scalar to string
        ("x".into(), "7", "7".into()),
        ("x".into(), "0.5", "0.5".into()),
        ("x".into(), "1e20", "1E20".into()),
        ("x".into(), "TRUE", "true".into()),
        ("x".into(), "@uuid", uuid.into()),
        ("x".into(), "@moment", "2027-01-15T08:00:00.5Z".into()),
        ("x".into(), "@span", "-PT1M".into()),
        ("x".into(), "@char", "ä".into()),
        ("x".into(), "@bytes", "00ff".into()),
        ("x".into(), "@uri", "u:x".into()),
        ("x".into(), "@decimal", "1.50".into()),
        // string to number, bool, UUID or timestamp when it parses
        (Value::I32(1), "'-42'", Value::I32(-42)),
        (Value::I32(1), "'4x'", "4x".into()),
        (Value::I32(1), "''", "".into()),
        (Value::F64(1.0), "'1e3'", Value::F64(1000.0)),
        (Value::F64(1.0), "'inf'", "inf".into()),
        (decimal("1"), "'1.50'", decimal("1.50")),
        (Value::Bool(true), "'False'", Value::Bool(false)),
        (Value::Bool(true), "'no'", "no".into()),
        (Value::Bool(true), "1", Value::I64(1)),
        (Value::Uuid(1), "'00112233-4455-6677-8899-AABBCCDDEEFF'", uuid_value),
        (Value::Uuid(1), "'x'", "x".into()),
        (Value::Timestamp(1), "'2027-01-15T08:00:00.5Z'", moment.clone()),
        (Value::Timestamp(1), "@moment", moment),
        (Value::Timestamp(1), "5", Value::I64(5)),
        // a value without another form is replaced
        (Value::Char('x'), "'y'", "y".into()),
        (Value::Char('x'), "@char", Value::Char('ä')),
        (Value::TimeSpan(1), "@span", Value::TimeSpan(-600_000_000)),
        (Value::TimeSpan(1), "'PT1S'", "PT1S".into()),
        (Value::Null, "5", Value::I64(5)),
    ] {
        let parameters = sql::Parameters::new()
            .with("uuid", Value::Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff))
            .with("moment", Value::Timestamp(1_800_000_000_500))
            .with("span", Value::TimeSpan(-600_000_000))
            .with("char", 'ä')
            .with("bytes", vec![0, 255])
            .with("uri", Value::Uri("u:x".into()))
            .with("decimal", decimal("1.50"));
        let action = SqlText { text: format!("SET a = {text}").into(), parameters };
        let copied = run_with(&with(&[("a", old.clone())]), action).unwrap();
        let value = copied.application_property("a").unwrap();
        // NaN is not even equal to itself.
        let same = format!("{value:?}") == format!("{new:?}");
        assert!(same, "{old:?} SET {text}: {value:?} instead of {new:?}");
    }
}

/// ACT-06
#[test]
fn null_is_stored_as_null() {
    check(&[("a", 1.into())], "SET a = NULL", &[("a", Value::Null)]);
    check(&[("a", 1.into())], "SET a = absent + 1", &[("a", Value::Null)]);
    let matcher = topic(vec![sql("r", "1 = 1").with_action("SET a = NULL")]);
    let message = with(&[("a", 1.into())]);
    let copied = copy_of(&message, &publish(&matcher, &message).copies[0]);
    let filter = topic(vec![sql("r", "EXISTS(a) AND a IS NULL")]);
    assert_eq!(publish(&filter, &copied).copies.len(), 1);
    // A broker property with the value null is unset.
    let labelled = message.with_subject("x");
    assert_eq!(run(&labelled, "SET sys.Label = NULL").unwrap().subject, None);
    assert_eq!(run(&labelled, "REMOVE sys.Subject").unwrap().subject, None);
}

/// ACT-07
#[test]
fn the_writable_system_properties_can_be_set_and_removed() {
    let set = "SET sys.MessageId = 'm2' SET sys.CorrelationId = 5 SET sys.Subject = 's' SET sys.To = 't' \
               SET sys.ReplyTo = 'r' SET sys.ReplyToSessionId = 'rs' SET sys.SessionId = 'x' \
               SET sys.ContentType = 'c' SET sys.PartitionKey = 'x' SET sys.TimeToLive = 'PT1M' \
               SET sys.ScheduledEnqueueTimeUtc = '2027-01-15T08:00:00Z'";
    let expected = Message::new("body")
        .with_message_id("m2")
        .with_correlation_id("5")
        .with_subject("s")
        .with_to("t")
        .with_reply_to("r")
        .with_reply_to_session_id("rs")
        .with_session_id("x")
        .with_content_type("c")
        .with_partition_key("x")
        .with_time_to_live(TimeSpan::from_minutes(1))
        .with_scheduled_enqueue_time(Timestamp::from_unix_ms(1_800_000_000_000));
    assert_eq!(run(&message(), set).unwrap(), expected);
    let remove = SystemProperty::all()
        .filter(|property| matches!(property, SystemProperty::Settable(_)))
        .fold(String::new(), |text, property| format!("{text} REMOVE sys.{property};"));
    assert_eq!(run(&expected, &remove).unwrap(), Message::new("body"));
    assert_eq!(
        run(&expected, "SET sys.TimeToLive = '1.00:00:01.5'").unwrap().time_to_live,
        Some(TimeSpan::from_ms(86_401_500))
    );
    assert_eq!(
        run(&expected, "SET sys.TimeToLive = sys.TimeToLive + sys.TimeToLive")
            .unwrap()
            .time_to_live,
        Some(TimeSpan::from_minutes(2))
    );
}

/// ACT-07, MSG-05, EXP-09
#[test]
fn other_system_properties_and_bad_values_are_errors() {
    for property in SystemProperty::all() {
        if !matches!(property, SystemProperty::Settable(_)) {
            fails(&message(), &format!("SET sys.{property} = 1"), "cannot be changed");
            fails(&message(), &format!("REMOVE sys.{property}"), "cannot be changed");
        }
    }
    for (action, part) in [
        ("SET sys.TimeToLive = 5", "cannot be set to a number"),
        ("SET sys.TimeToLive = 'soon'", "cannot be set to text"),
        ("SET sys.TimeToLive = 'PT0S'", "zero or less"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'soon'", "cannot be set to text"),
        ("SET sys.ScheduledEnqueueTimeUtc = 5", "cannot be set to a number"),
    ] {
        fails(&message(), action, part);
    }
    for name in ["MessageId", "SessionId", "PartitionKey", "ReplyToSessionId"] {
        let set = |length| format!("SET sys.{name} = '{}'", "ä".repeat(length));
        run(&message(), &set(128)).unwrap();
        fails(&message(), &set(129), "129 characters, more than the 128");
    }
    run(&message(), &format!("SET sys.To = '{}'", "ä".repeat(129))).unwrap();
}

/// MSG-26, SQL-41: no action can make a property over the limits of senders, even by doubling.
#[test]
fn an_action_cannot_grow_a_property_without_end() {
    let half = with(&[("a", Value::from("x".repeat(16_000)))]);
    run(&half, "SET a = a + a").unwrap();
    fails(&half, "SET a = a + a + a", "more than the 32768 allowed");
    let doubling = "SET a = a + a ".repeat(32);
    fails(&with(&[("a", "x".into())]), &doubling, "more than the 32768 allowed");
}

/// ACT-09: a copy reports the session and the time to live that the subscription needs.
#[test]
fn copy_reports_its_session_and_time_to_live() {
    let session_and_ttl = |message: &Message, action: &str| {
        let matcher = topic(vec![sql("r", "1 = 1").with_action(action)]);
        let selection = publish(&matcher, message);
        let changed = selection.copies[0].changed.clone().unwrap();
        (changed.session_id.map(String::from), changed.time_to_live)
    };
    let minute = TimeSpan::from_minutes(1);
    let sent = message().with_session_id("s").with_time_to_live(minute);
    assert_eq!(session_and_ttl(&sent, "SET a = 1"), (Some("s".into()), Some(minute)));
    assert_eq!(session_and_ttl(&sent, "REMOVE sys.SessionId; REMOVE sys.TimeToLive"), (None, None));
    let second = Some(TimeSpan::from_seconds(1));
    assert_eq!(
        session_and_ttl(&sent, "SET sys.SessionId = 5 SET sys.TimeToLive = 'PT1S'"),
        (Some("5".into()), second)
    );
}

/// TOP-03: the name of the rule overrides a value of the action or the sender.
#[test]
fn the_name_of_the_rule_is_set_last() {
    let matcher = topic(vec![sql("Mine", "1 = 1").with_action("SET RuleName = 'x'")]);
    let sent = with(&[("RuleName", "y".into())]);
    let copied = copy_of(&sent, &publish(&matcher, &sent).copies[0]);
    assert_eq!(copied, with(&[("RuleName", "Mine".into())]));
}

/// SQL-34: an instant stored as a timestamp is rounded down, also before 1970.
#[test]
fn timestamps_are_kept_in_whole_milliseconds() {
    for (unix_ms, ticks, kept) in [(0, -1, -1), (5, 9_999, 5), (5, 10_000, 6), (-5, 1, -5)] {
        let before = [("s", Value::TimeSpan(ticks)), ("t", Value::Timestamp(unix_ms))];
        let copied = run(&with(&before), "SET x = t + s").unwrap();
        assert_eq!(copied.application_property("x"), Some(&Value::Timestamp(kept)));
    }
}
