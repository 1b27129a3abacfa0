//! Names: of properties, scopes and functions.

use super::*;

/// SQL-05, SQL-06, SQL-08
#[test]
fn names_have_scopes_and_delimiters() {
    let mut message = with(&[
        ("Label", Value::I32(1)),
        ("a b", Value::I32(2)),
        ("a]b", Value::I32(3)),
        ("a\"b", Value::I32(4)),
        ("a.b", Value::I32(5)),
        ("and", Value::I32(6)),
        ("grün", Value::I32(7)),
    ]);
    message.subject = Some("s".into());
    check_on(&message, "sys.Label = 's' AND sys.SUBJECT = 's' AND SYS.[label] = 's'", TRUE);
    check_on(&message, "Label = 1 AND user.Label = 1 AND USER.\"Label\" = 1", TRUE);
    check_on(&message, "[a b] = 2 AND \"a b\" = 2", TRUE);
    check_on(&message, "[a]]b] = 3 AND \"a]b\" = 3", TRUE);
    check_on(&message, "\"a\"\"b\" = 4 AND [a\"b] = 4", TRUE);
    check_on(&message, "[a.b] = 5 AND [And] = 6 AND GRÜN = 7", TRUE);
    // A reserved word is a name only between delimiters.
    for (text, column) in [("and = 1", 1), ("in = 1", 1), ("LIKE = 1", 1), ("user.and = 1", 6)] {
        assert_eq!(refused(text).position.column, column, "{text}");
    }
}

/// SQL-07
#[test]
fn names_ignore_case_and_an_exact_match_wins() {
    let message = with(&[
        ("color", Value::I32(1)),
        ("Color", Value::I32(2)),
        ("COLOR", Value::I32(3)),
        ("Straße", Value::I32(4)),
    ]);
    check_on(&message, "color = 1 AND Color = 2 AND COLOR = 3", TRUE);
    // Among names that differ only in case, the first in byte order.
    check_on(&message, "cOLOR = 3", TRUE);
    check_on(&message, "STRAßE = 4", TRUE);
    check_on(&message, "strasse = 4", UNKNOWN);
}

/// SQL-08, SQL-09
#[test]
fn system_properties_match_the_accepted_message() {
    let mut message = message();
    check_on(&message, "sys.MessageId IS NULL AND sys.SessionId IS NULL", TRUE);
    message = Message::new("body")
        .with_message_id("m")
        .with_correlation_id(MessageIdOf::ulong(5))
        .with_session_id("s")
        .with_partition_key("k")
        .with_transaction_partition_key("v")
        .with_reply_to_session_id("rs")
        .with_content_type("text/plain")
        .with_subject("label")
        .with_to("to")
        .with_reply_to("reply")
        .with_scheduled_enqueue_time(Timestamp::from_unix_ms(NOW));
    let facts = Facts {
        expires_at: Some(Timestamp::from_unix_ms(NOW + 1000)),
        time_to_live: Some(TimeSpan::from_ms(1000)),
        dead_letter_source: Some("q"),
        ..facts()
    };
    let parameters = Parameters::new()
        .with("now", Value::Timestamp(NOW))
        .with("later", Value::Timestamp(NOW + 1000))
        .with("second", Value::TimeSpan(10_000_000));
    for text in [
        "sys.MessageId = 'm'",
        "sys.CorrelationId = '5'",
        "sys.SessionId = 's'",
        "sys.PartitionKey = 'k'",
        "sys.ViaPartitionKey = 'v' AND sys.TransactionPartitionKey = 'v'",
        "sys.ReplyToSessionId = 'rs'",
        "sys.ContentType = 'text/plain'",
        "sys.Label = 'label' AND sys.Subject = 'label'",
        "sys.To = 'to' AND sys.ReplyTo = 'reply'",
        "sys.TimeToLive = @second",
        "sys.ScheduledEnqueueTimeUtc = @now AND sys.EnqueuedTimeUtc = @now",
        "sys.ExpiresAtUtc = @later",
        "sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = @second",
        "sys.SequenceNumber = 7 AND sys.EnqueuedSequenceNumber = 0",
        "sys.DeliveryCount = 0 AND sys.Size = 100 AND sys.State = 'Active'",
        "sys.DeadLetterSource = 'q' AND NOT sys.ForcePersistence",
        "sys.LockedUntilUtc IS NULL AND sys.LockToken IS NULL",
    ] {
        assert_eq!(evaluate(text, &parameters, &message, facts), Ok(TRUE), "{text}");
    }
}

struct MessageIdOf;

impl MessageIdOf {
    fn ulong(value: u64) -> crate::message::MessageId {
        crate::message::MessageId::Ulong(value)
    }
}

/// SQL-10, SQL-21: an unknown system property is an error where it is read, and only there.
#[test]
fn unknown_system_properties_fail_when_they_are_read() {
    for text in [
        "sys.Nope = 1",
        "sys.Nope IS NULL",
        "EXISTS(sys.Nope)",
        "property('sys.Nope') = 1",
        "p('sys.' + 'Nope') = 1",
        "FALSE OR sys.Nope = 1",
        "TRUE AND sys.Nope = 1",
        "NULL AND sys.Nope = 1",
        "NULL OR sys.Nope = 1",
    ] {
        assert_eq!(fails(text), Fault::NoSuchProperty, "{text}");
    }
    check("1 = 2 AND sys.Nope = 1", FALSE);
    check("1 = 1 OR sys.Nope = 1", TRUE);
    check("(1 = 2 AND sys.Nope = 1) OR 1 = 1", TRUE);
}

/// SQL-11, SQL-16, SQL-17
#[test]
fn an_absent_property_is_unknown() {
    let message = with(&[("null", Value::Null), ("n", Value::I32(1))]);
    for text in [
        "absent = 1",
        "absent <> 1",
        "1 < absent",
        "[null] = 1",
        "[null] = [null]",
        "absent = absent",
        "absent + 1 = 1",
        "n * absent = 0",
        "-absent = 1",
        "+absent = 1",
        "absent / 0 = 1",
        "'a' + absent = 'a'",
        "NULL = NULL",
        "NULL <> 1",
        "1 + NULL = 1",
        "-NULL = 1",
        "absent = 'x' + 1",
    ] {
        let result = evaluate(text, &Parameters::new(), &message, facts());
        assert_eq!(result, Ok(UNKNOWN), "{text}");
    }
}

/// SQL-12
#[test]
fn functions_read_properties_by_computed_names() {
    let message = with(&[
        ("a", Value::I32(1)),
        ("name", "a".into()),
        ("x.y", Value::I32(2)),
        ("initial", Value::Char('a')),
    ]);
    check_on(&message, "property('a') = 1 AND p('A') = 1", TRUE);
    check_on(&message, "p('user.a') = 1 AND p('USER.A') = 1", TRUE);
    check_on(&message, "p(name) = 1 AND p('na' + 'me') = 'a' AND p(initial) = 1", TRUE);
    check_on(&message, "p('sys.sequencenumber') = 7 AND p('SYS.State') = 'Active'", TRUE);
    // Any other dot belongs to the name.
    check_on(&message, "p('x.y') = 2 AND p('user.x.y') = 2", TRUE);
    check_on(&message, "p('absent') = 1", UNKNOWN);
    check_on(&message, "p(absent) IS NULL", TRUE);
    assert_eq!(fails_on(&message, "p(1) = 1"), Fault::NameType(Kind::Number));
    check("newid() = newid()", FALSE);
}

/// SQL-12
#[test]
fn newid_gives_random_uuids() {
    let program = parser::action("SET a = newid()", &Parameters::new(), 1).unwrap();
    let content = message().encode();
    let published = PublishedMessage::new(content.property_view(), facts());
    let expression = program[0].expression.as_ref().unwrap();
    let value = expression.value(&published, &mut || u64::MAX, &mut Unobserved).unwrap();
    assert_eq!(value, Operand::Uuid(0xffffffff_ffff_4fff_bfff_ffffffffffff));
    let value = expression.value(&published, &mut || 0, &mut Unobserved).unwrap();
    assert_eq!(value, Operand::Uuid(0x00000000_0000_4000_8000_000000000000));
}
