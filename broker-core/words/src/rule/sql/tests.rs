use super::*;
use crate::ids::SequenceNumber;
use crate::message::Message;
use crate::rule::{Facts, Published};
use crate::time::{TimeSpan, Timestamp};

const NOW: i64 = 1_800_000_000_000;

fn facts() -> Facts<'static> {
    Facts {
        sequence: SequenceNumber(7),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::from_unix_ms(NOW),
        expires_at: None,
        time_to_live: None,
        size: 100,
        dead_letter_source: None,
    }
}

fn message() -> Message {
    Message::new("body")
}

fn evaluate(
    text: &str,
    parameters: &Parameters,
    message: &Message,
    facts: Facts<'_>,
) -> Result<Option<bool>, Fault> {
    let program =
        compile_filter(text, parameters).unwrap_or_else(|error| panic!("{text}: {error}"));
    let content = message.encode();
    let published = Published::new(content.property_view(), facts);
    let mut bits = 1;
    let mut random = || {
        bits += 1;
        bits
    };
    let result = program.test(&published, &mut random, &mut Unobserved);
    result.map_err(|error| error.fault)
}

fn with(properties: &[(&str, Value)]) -> Message {
    let mut message = message();
    message.application_properties =
        properties.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    message
}

/// Expects the truth of a filter on a message; none is Unknown.
fn check_on(message: &Message, text: &str, expected: Option<bool>) {
    let result = evaluate(text, &Parameters::new(), message, facts());
    assert_eq!(result, Ok(expected), "{text}");
}

/// Expects the truth of a filter that needs no message.
fn check(text: &str, expected: Option<bool>) {
    check_on(&message(), text, expected);
}

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);
const UNKNOWN: Option<bool> = None;

fn fails_on(message: &Message, text: &str) -> Fault {
    let result = evaluate(text, &Parameters::new(), message, facts());
    result.expect_err(text)
}

fn fails(text: &str) -> Fault {
    fails_on(&message(), text)
}

fn refused(text: &str) -> SyntaxError {
    compile_filter(text, &Parameters::new()).expect_err(text)
}

/// SQL-01: what follows the grammar is accepted, keywords and functions in any case.
#[test]
fn texts_of_the_grammar_are_accepted() {
    for text in [
        "a = 1",
        "a<>1 aNd b!=2",
        "a > 1 OR b >= 2 AND c < 3 OR d <= 4",
        "NOT a IS NULL",
        "not not a is NOT null",
        "a IN (1)",
        "a not in (1, 'x', NULL, b + 1)",
        "a LIKE '%x'",
        "a NOT LIKE b ESCAPE c",
        "a + b LIKE 'x' + '%' ESCAPE '\\'",
        "EXISTS(a)",
        "exists ( sys.Label )",
        "(EXISTS(user.[a b]))",
        "((a = 1))",
        "(a) = (1)",
        "((a + 1) * 2) > 3",
        "(a)",
        "NOT (a = 1) AND (b)",
        "-a = + - +1",
        "a = 1.5 OR a = .5 OR a = 1. OR a = 2E-3 OR a = 101.5e5",
        "newid() <> NEWID ( )",
        "property('a') = P('user.b')",
        "p(property('a' + 'b')) = 1",
        "p = 1 AND property = 2 AND newid = 3 AND sys = 4 AND user = 5",
        "TRUE",
        "false OR NULL",
        "a = TRUE AND b = NULL",
        "\"a\"\"b\" = 1",
        "[a]]b] = 1",
        "größe = 1 AND Ω_1x = 2",
        " \t\r\n a\n=\n1 ",
        "a--1 = 2",
        "a*-1 = 2",
        "sys . Label = 'x'",
    ] {
        compile_filter(text, &Parameters::new()).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

/// SQL-01, TOP-16: what does not is refused, at the place where it stops making sense.
#[test]
fn other_texts_are_refused_with_their_place() {
    for (text, column) in [
        ("", 1),
        ("   ", 4),
        ("a =", 4),
        ("a = 1 b", 7),
        ("a = = 1", 5),
        ("= 1", 1),
        ("a = 1 AND", 10),
        ("AND a", 1),
        ("a = 1 = 2", 7),
        ("a IS 1", 6),
        ("a IS NOT 1", 10),
        ("a NOT 1", 7),
        ("a IN 1", 6),
        ("a IN ()", 7),
        ("a IN (1,)", 9),
        ("a IN (1", 8),
        ("a LIKE", 7),
        ("a LIKE 'x' ESCAPE", 18),
        ("EXISTS a", 8),
        ("EXISTS('a')", 8),
        ("EXISTS(a + 1)", 10),
        ("EXISTS(property('a'))", 16),
        ("(a = 1", 7),
        ("a = 1)", 6),
        ("1 + (a = 2)", 5),
        ("(a = 2) + 1 = 3", 1),
        ("-(a = 1) = 2", 2),
        ("(a = 1) = TRUE", 9),
        ("a = (b = 1)", 5),
        ("a IN ((b = 1))", 7),
        ("(a IS NULL) IS NULL", 13),
        ("a = NOT b", 5),
        ("a = 'x", 5),
        ("[a = 1", 1),
        ("\"a = 1", 1),
        ("[] = 1", 1),
        ("_a = 1", 1),
        ("a = #", 5),
        ("a = 1x", 5),
        ("a = 1.5.2", 8),
        ("a = 1e", 5),
        ("a = 0x10", 5),
        ("a = 9223372036854775808", 5),
        ("a = 1E999", 5),
        ("a = @x", 5),
        ("a = @", 5),
        ("foo.bar = 1", 1),
        ("sys. = 1", 6),
        ("[sys].Label = 'x'", 6),
        ("sys.Label.x = 1", 10),
        ("foo(1) = 1", 1),
        ("newid(1) = 1", 7),
        ("property() = 1", 10),
        ("property('a', 'b') = 1", 13),
        ("SET = 1", 1),
        ("a = SET", 5),
        ("a ! 1", 3),
        ("a = 1;", 6),
        ("a = 1 /* x */", 8),
    ] {
        let error = refused(text);
        assert_eq!((error.position.line, error.position.column), (1, column), "{text}: {error}");
    }
    let error = refused("a = 1 AND\n  ü <> ß AND\n  oops oops");
    assert_eq!((error.position.line, error.position.column), (3, 8));
    assert_eq!(
        error.to_string(),
        "line 3, column 8: expected an operator, AND, OR or the end of the text, found `oops`"
    );
    let rejection = error.to_rejection("filter", "big");
    assert_eq!(rejection.condition(), crate::condition::Condition::ArgumentError);
    assert!(rejection.detail().starts_with("filter of rule `big`, line 3, column 8: "));
}

/// SQL-02: the first character too many is named.
#[test]
fn a_text_that_is_too_long_is_refused() {
    assert_eq!(check_length("ää", 2), Ok(()));
    let error = check_length("ä\näx", 3).unwrap_err();
    assert_eq!(error.position, Position { byte: 5, line: 2, column: 2 });
    assert_eq!(error.problem, Problem::TooLong { characters: 4, limit: 3 });
}

/// SQL-42: depth is bounded, and what is below the bound works.
#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}1 = 1{}", "(".repeat(depth), ")".repeat(depth));
    check(&nested(parser::DEPTH_MAX), TRUE);
    let error = refused(&nested(parser::DEPTH_MAX + 1));
    assert_eq!(error.problem, Problem::TooDeep(parser::DEPTH_MAX));
    assert_eq!(error.position.column, parser::DEPTH_MAX + 1);
    refused(&"(".repeat(1_000_000));
    refused(&"p(".repeat(1_000_000));
    check(&format!("{}TRUE", "NOT ".repeat(100_000)), TRUE);
    check(&format!("{}1 = 1", "-".repeat(100_000)), TRUE);
}

/// SQL-03
#[test]
fn operators_bind_as_the_table_says() {
    check("2 + 3 * 4 = 14", TRUE);
    check("(2 + 3) * 4 = 20", TRUE);
    check("10 - 4 - 3 = 3", TRUE);
    check("100 / 10 / 5 = 2", TRUE);
    check("2 * 7 % 4 = 2", TRUE);
    check("-2 * -3 = 6", TRUE);
    check("-2 + 3 = 1", TRUE);
    check("1 = 1 OR 1 = 1 AND 1 = 2", TRUE);
    check("(1 = 1 OR 1 = 1) AND 1 = 2", FALSE);
    check("NOT 1 = 2 AND 1 = 1", TRUE);
    check("NOT 1 = 1 OR 1 = 1", TRUE);
    check("NOT (1 = 1 OR 1 = 1)", FALSE);
    check("1 + 1 IN (2)", TRUE);
    check("'a' + 'b' LIKE 'a' + '_'", TRUE);
    check("1 + NULL IS NULL", TRUE);
}

/// SQL-04
#[test]
fn a_bare_value_is_a_condition_if_it_is_a_bool() {
    check("TRUE", TRUE);
    check("FALSE", FALSE);
    check("NULL", UNKNOWN);
    let message = with(&[("yes", Value::Bool(true)), ("n", Value::I32(1))]);
    check_on(&message, "yes", TRUE);
    check_on(&message, "NOT yes", FALSE);
    check_on(&message, "absent", UNKNOWN);
    check_on(&message, "yes AND (yes)", TRUE);
    assert_eq!(fails_on(&message, "n"), Fault::NotACondition(Kind::Number));
    assert_eq!(fails_on(&message, "NOT n"), Fault::NotACondition(Kind::Number));
    assert_eq!(fails_on(&message, "n AND yes"), Fault::NotACondition(Kind::Number));
    assert_eq!(fails_on(&message, "yes AND n"), Fault::NotACondition(Kind::Number));
    assert_eq!(fails_on(&message, "'x' OR yes"), Fault::NotACondition(Kind::Text));
    assert_eq!(fails_on(&message, "absent OR 5"), Fault::NotACondition(Kind::Number));
}

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
    // Of those that differ, the first in byte order.
    check_on(&message, "cOLOR = 3", TRUE);
    check_on(&message, "STRAßE = 4", TRUE);
    check_on(&message, "strasse = 4", UNKNOWN);
}

/// SQL-08, SQL-09
#[test]
fn system_properties_are_those_of_the_message_as_accepted() {
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
        if text == "absent = 'x' + 1" {
            result.expect_err(text);
        } else {
            assert_eq!(result, Ok(UNKNOWN), "{text}");
        }
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
    let published = Published::new(content.property_view(), facts());
    let expression = program[0].expression.as_ref().unwrap();
    let value = expression.value(&published, &mut || u64::MAX, &mut Unobserved).unwrap();
    assert_eq!(value, Operand::Uuid(0xffffffff_ffff_4fff_bfff_ffffffffffff));
    let value = expression.value(&published, &mut || 0, &mut Unobserved).unwrap();
    assert_eq!(value, Operand::Uuid(0x00000000_0000_4000_8000_000000000000));
}

/// SQL-13
#[test]
fn constants_have_their_types() {
    check("9223372036854775807 > 0", TRUE);
    check("'it''s' = 'it' + '''' + 's'", TRUE);
    check("1.0 = 1 AND 1e2 = 100 AND .5 = 0.5 AND 2E-1 = 0.2", TRUE);
    check("TRUE = true AND FALSE <> TRUE", TRUE);
    check("7 / 2 = 3 AND 7.0 / 2 = 3.5", TRUE);
}

/// SQL-14
#[test]
fn parameters_have_the_type_of_their_value() {
    let parameters = Parameters::new()
        .with("@n", Value::U8(200))
        .with("text", "x")
        .with("Null", Value::Null)
        .with("flag", true);
    let test = |text: &str| evaluate(text, &parameters, &message(), facts());
    assert_eq!(test("@n + 100 = 300 AND @N = 200"), Ok(TRUE));
    assert_eq!(test("@text = 'x' AND @flag"), Ok(TRUE));
    assert_eq!(test("@null = 1"), Ok(UNKNOWN));
    let error = compile_filter("1 = 1 AND a = @nope", &parameters).unwrap_err();
    assert_eq!(error.problem, Problem::UnknownParameter("`@nope`".into()));
    assert_eq!(error.position.column, 15);
}

/// SQL-15, SQL-18, SQL-19, SQL-20: the three tables.
#[test]
fn logic_has_three_values() {
    let word = |value: Option<bool>| match value {
        Some(true) => "TRUE",
        Some(false) => "FALSE",
        None => "absent",
    };
    for left in [TRUE, FALSE, UNKNOWN] {
        check(&format!("NOT {}", word(left)), left.map(|value| !value));
        for right in [TRUE, FALSE, UNKNOWN] {
            let and = match (left, right) {
                (FALSE, _) | (_, FALSE) => FALSE,
                (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
                _ => TRUE,
            };
            let or = match (left, right) {
                (TRUE, _) | (_, TRUE) => TRUE,
                (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
                _ => FALSE,
            };
            check(&format!("{} AND {}", word(left), word(right)), and);
            check(&format!("{} OR {}", word(left), word(right)), or);
            check(&format!("({}) AND (({}))", word(left), word(right)), and);
        }
    }
}

/// SQL-22, SQL-23
#[test]
fn null_and_absent_differ_for_exists_only() {
    let message = with(&[("null", Value::Null), ("n", Value::I32(1))]);
    check_on(&message, "n IS NULL", FALSE);
    check_on(&message, "n IS NOT NULL", TRUE);
    check_on(&message, "[null] IS NULL AND absent IS NULL", TRUE);
    check_on(&message, "[null] IS NOT NULL OR absent IS NOT NULL", FALSE);
    check_on(&message, "EXISTS(n) AND EXISTS([null]) AND EXISTS(N)", TRUE);
    check_on(&message, "EXISTS(absent)", FALSE);
    check_on(&message, "EXISTS(sys.Label)", FALSE);
    check_on(&message, "EXISTS(sys.SequenceNumber)", TRUE);
}

/// SQL-24
#[test]
fn in_finds_an_equal_element() {
    let message = with(&[("n", Value::I32(2)), ("s", "x".into())]);
    check_on(&message, "n IN (1, 2, 3)", TRUE);
    check_on(&message, "n IN (1, 3)", FALSE);
    check_on(&message, "n NOT IN (1, 3)", TRUE);
    check_on(&message, "n NOT IN (1, 2)", FALSE);
    check_on(&message, "n IN (1, NULL)", UNKNOWN);
    check_on(&message, "n IN (NULL, 2)", TRUE);
    check_on(&message, "n NOT IN (1, NULL)", UNKNOWN);
    check_on(&message, "absent IN (1)", UNKNOWN);
    check_on(&message, "absent NOT IN (1)", UNKNOWN);
    check_on(&message, "n IN ('x', TRUE, 2.0)", TRUE);
    check_on(&message, "s IN ('X', 'y', 'x')", TRUE);
    check_on(&message, "s IN ('X')", FALSE);
    check_on(&message, "n IN (n + 1, n * 1)", TRUE);
    check_on(&message, "n IN (1) OR s IN ('x') AND n IN (2)", TRUE);
}

/// SQL-25, SQL-26, SQL-27, SQL-28
#[test]
fn like_matches_the_whole_text() {
    for (text, pattern, expected) in [
        ("abc", "abc", true),
        ("abc", "ABC", false),
        ("abc", "a%", true),
        ("abc", "%c", true),
        ("abc", "%b%", true),
        ("abc", "%%", true),
        ("abc", "a_c", true),
        ("abc", "a_", false),
        ("abc", "a__", true),
        ("abc", "____", false),
        ("abc", "%_%_%_%", true),
        ("abc", "%_%_%_%_%", false),
        ("", "", true),
        ("", "%", true),
        ("", "_", false),
        ("abcabd", "%ab_", true),
        ("abcabd", "%abc", false),
        ("aXbXc", "a%X%c", true),
        ("mississippi", "m%iss%ip%i", true),
        ("mississippi", "m%issip%iss%", false),
        ("größe", "gr__e", true),
        ("日本語", "___", true),
        ("a.c", "a.c", true),
        ("abc", "a.c", false),
        ("a[b]c", "a[b]c", true),
    ] {
        check(&format!("'{text}' LIKE '{pattern}'"), Some(expected));
        check(&format!("'{text}' NOT LIKE '{pattern}'"), Some(!expected));
        let message = with(&[("t", text.into()), ("p", pattern.into())]);
        check_on(&message, "t LIKE p", Some(expected));
    }
    let message = with(&[("t", "x".into())]);
    for text in ["t LIKE NULL", "absent LIKE 'x'", "t LIKE 'x' ESCAPE NULL", "absent NOT LIKE 'x'"]
    {
        check_on(&message, text, UNKNOWN);
    }
}

/// SQL-27
#[test]
fn an_escape_makes_the_next_character_literal() {
    check(r"'ABC%' LIKE 'ABC\%' ESCAPE '\'", TRUE);
    check(r"'ABCD' LIKE 'ABC\%' ESCAPE '\'", FALSE);
    check(r"'a_b' LIKE 'a!_b' ESCAPE '!' AND NOT 'axb' LIKE 'a!_b' ESCAPE '!'", TRUE);
    check(r"'a\b' LIKE 'a\\b' ESCAPE '\'", TRUE);
    check(r"'a\bc' LIKE 'a\b_' ESCAPE '\'", TRUE);
    check("'%' LIKE '%%' ESCAPE '%'", TRUE);
    check("'x' LIKE '%%' ESCAPE '%'", FALSE);
    assert_eq!(fails("'a' LIKE 'a' ESCAPE ''"), Fault::EscapeLength(0));
    assert_eq!(fails("'a' LIKE 'a' ESCAPE 'xy'"), Fault::EscapeLength(2));
    assert_eq!(fails(r"'a' LIKE 'a\' ESCAPE '\'"), Fault::DanglingEscape);
    check("'a' LIKE 'a' ESCAPE 'ä'", TRUE);
}

/// SQL-29
#[test]
fn like_is_for_text_only() {
    let message = with(&[("n", Value::I32(1)), ("c", Value::Char('a'))]);
    assert_eq!(fails_on(&message, "n LIKE '1'"), Fault::LikeType(Kind::Number));
    assert_eq!(fails_on(&message, "'1' LIKE n"), Fault::LikeType(Kind::Number));
    assert_eq!(fails_on(&message, "'1' LIKE '1' ESCAPE n"), Fault::LikeType(Kind::Number));
    assert_eq!(fails_on(&message, "c LIKE 'a'"), Fault::LikeType(Kind::Char));
}

/// SQL-28
#[test]
fn texts_compare_by_code_point() {
    check("'a' = 'A'", FALSE);
    check("'B' < 'a' AND 'Z' < 'a' AND 'a' < 'ä'", TRUE);
    // U+FFFD is before U+10000, though UTF-16 orders them the other way.
    check("'\u{fffd}' < '\u{10000}'", TRUE);
    check("'a' < 'ab' AND '' < 'a' AND 'a' <= 'a' AND 'b' >= 'a' AND 'b' > 'a'", TRUE);
}

fn value_of(text: &str, properties: &[(&str, Value)]) -> Result<Value, Fault> {
    let program = parser::action(&format!("SET x = {text}"), &Parameters::new(), 1).unwrap();
    let message = with(properties);
    let content = message.encode();
    let published = Published::new(content.property_view(), facts());
    let expression = program[0].expression.as_ref().unwrap();
    let value = expression.value(&published, &mut || 0, &mut Unobserved);
    value.map(|value| value.to_value()).map_err(|error| error.fault)
}

/// Expects the type and value of `a operator b`.
fn check_value(
    a: impl Into<Value>,
    operator: &str,
    b: impl Into<Value>,
    expected: impl Into<Value>,
) {
    let (a, b) = (a.into(), b.into());
    let context = format!("{a:?} {operator} {b:?}");
    let value = value_of(&format!("a {operator} b"), &[("a", a), ("b", b)]);
    assert_eq!(value, Ok(expected.into()), "{context}");
}

fn check_fault(a: impl Into<Value>, operator: &str, b: impl Into<Value>, expected: Fault) {
    let (a, b) = (a.into(), b.into());
    let context = format!("{a:?} {operator} {b:?}");
    let value = value_of(&format!("a {operator} b"), &[("a", a), ("b", b)]);
    assert_eq!(value, Err(expected), "{context}");
}

/// SQL-30
#[test]
fn numbers_widen_as_in_c_sharp() {
    check_value(100i8, "+", 100i8, 200i32);
    check_value(60_000u16, "+", 60_000u16, 120_000i32);
    check_value(1i16, "*", 2u8, 2i32);
    check_value(1i32, "+", 2i32, 3i32);
    check_value(1u32, "+", 2u32, 3u32);
    check_value(1u32, "+", 2u16, 3i64);
    check_value(1u32, "-", 2i32, -1i64);
    check_value(1i32, "+", 2i64, 3i64);
    check_value(1u32, "+", 2u64, 3u64);
    check_value(1i64, "+", 2f32, 3f32);
    check_value(1u64, "+", 2f64, 3f64);
    check_value(1f32, "+", 2f64, 3f64);
    check_value(16_777_217i32, "+", 0f32, 16_777_216f32);
    assert_eq!(value_of("-a", &[("a", Value::U32(1))]), Ok(Value::I64(-1)));
    assert_eq!(value_of("-a", &[("a", Value::U8(1))]), Ok(Value::I32(-1)));
    assert_eq!(value_of("+a", &[("a", Value::I8(1))]), Ok(Value::I32(1)));
    assert_eq!(value_of("-a", &[("a", Value::F32(1.0))]), Ok(Value::F32(-1.0)));
}

/// SQL-31
#[test]
fn unsigned_64_bits_with_a_sign_is_computed_in_128() {
    check_value(u64::MAX, "+", 0i32, u64::MAX);
    check_value(u64::MAX, "+", -1i32, u64::MAX - 1);
    check_value(5u64, "-", 6i64, -1i64);
    check_value(5u64, "+", 6i64, 11i64);
    check_fault(u64::MAX, "+", 1i32, Fault::Overflow("+"));
    check_fault(5u64, "-", 6u64, Fault::Overflow("-"));
    check_fault(u64::MAX, "*", -1i64, Fault::Overflow("*"));
    assert_eq!(value_of("-a", &[("a", Value::U64(1 << 63))]), Ok(Value::I64(i64::MIN)));
    let minus = value_of("-a", &[("a", Value::U64((1 << 63) + 1))]);
    assert_eq!(minus, Err(Fault::Overflow("-")));
}

/// SQL-32, SQL-33
#[test]
fn integers_do_not_wrap_and_floats_follow_ieee() {
    check_fault(i32::MAX, "+", 1i32, Fault::Overflow("+"));
    check_fault(i64::MAX, "*", 2i64, Fault::Overflow("*"));
    check_fault(i32::MIN, "/", -1i32, Fault::Overflow("/"));
    check_value(i32::MIN, "%", -1i32, 0i32);
    check_fault(1i32, "/", 0i32, Fault::DivisionByZero("/"));
    check_fault(1u64, "%", 0i64, Fault::DivisionByZero("%"));
    check_value(1f64, "/", 0i32, f64::INFINITY);
    check_value(-1f32, "/", 0f32, f32::NEG_INFINITY);
    check_value(f64::MAX, "*", 2f64, f64::INFINITY);
    check_value(5i32, "/", 2i32, 2i32);
    check_value(-5i32, "/", 2i32, -2i32);
    check_value(-5i32, "%", 3i32, -2i32);
    check_value(5i32, "%", -3i32, 2i32);
    check_value(-5.5f64, "%", 2f64, -1.5f64);
    assert_eq!(value_of("-a", &[("a", Value::I32(i32::MIN))]), Err(Fault::Overflow("-")));
    let nan = value_of("a / b", &[("a", Value::F64(0.0)), ("b", Value::F64(0.0))]);
    assert!(matches!(nan, Ok(Value::F64(nan)) if nan.is_nan()));
    // An error of constants is one of the evaluation, and only if it comes to it.
    assert_eq!(fails("9223372036854775807 + 1 > 0"), Fault::Overflow("+"));
    check("1 = 1 OR 1 / 0 = 1", TRUE);
}

/// SQL-34, SQL-37
#[test]
fn texts_and_times_add() {
    let instant = Value::Timestamp;
    let span = Value::TimeSpan;
    check_value("a", "+", "b", "ab");
    check_value("a", "+", 'b', "ab");
    check_value('a', "+", "b", "ab");
    check_value('a', "+", 'b', "ab");
    check_value(instant(5_000), "-", instant(3_000), span(20_000_000));
    check_value(instant(3_000), "-", instant(5_000), span(-20_000_000));
    check_value(instant(3_000), "+", span(10_000), instant(3_001));
    check_value(span(10_000), "+", instant(3_000), instant(3_001));
    check_value(instant(3_000), "-", span(10_000), instant(2_999));
    check_value(span(1), "+", span(2), span(3));
    check_value(span(1), "-", span(2), span(-1));
    let offset = Value::DateTimeOffset;
    check_value(offset(50), "+", span(5), offset(55));
    check_value(offset(50), "-", offset(20), span(30));
    assert_eq!(value_of("-a", &[("a", span(5))]), Ok(span(-5)));
    check_fault(span(i64::MAX), "+", span(1), Fault::Overflow("+"));
    check_fault(instant(i64::MAX), "+", span(10_000), Fault::Overflow("+"));
    check_fault(instant(i64::MAX), "-", instant(i64::MIN), Fault::Overflow("-"));
    let message = with(&[("t", instant(NOW)), ("s", span(1))]);
    // Computed instants keep their ticks.
    check_on(&message, "(t + s) - t = s AND t + s > t AND t - s < t", TRUE);
}

/// SQL-35, SQL-36, SQL-37
#[test]
fn incompatible_types_are_unequal_and_have_no_order() {
    let values = [
        ("bool", Value::Bool(true)),
        ("number", Value::I32(1)),
        ("char", Value::Char('1')),
        ("text", Value::from("1")),
        ("uuid", Value::Uuid(1)),
        ("instant", Value::Timestamp(1)),
        ("span", Value::TimeSpan(1)),
        ("bytes", Value::Binary(vec![1].into())),
        ("uri", Value::Uri("1".into())),
    ];
    let compatible = |a: &str, b: &str| {
        let pair = |x, y| (a, b) == (x, y) || (b, a) == (x, y);
        a == b || pair("text", "char") || pair("text", "uuid")
    };
    for (a, left) in &values {
        for (b, right) in &values {
            let test = |operator: &str| {
                let message = with(&[("a", left.clone()), ("b", right.clone())]);
                evaluate(&format!("a {operator} b"), &Parameters::new(), &message, facts())
            };
            let context = format!("{a} and {b}");
            if matches!((*a, *b), ("char", "number") | ("number", "char")) {
                for operator in ["=", "<>", "<", ">="] {
                    assert!(matches!(test(operator), Err(Fault::Types { .. })), "{context}");
                }
                continue;
            }
            if compatible(a, b) {
                let equal = test("=").unwrap();
                assert_eq!(test("<>"), Ok(equal.map(|equal| !equal)), "{context}");
            } else {
                assert_eq!((test("="), test("<>")), (Ok(FALSE), Ok(TRUE)), "{context}");
            }
            let ordered = compatible(a, b) && *a != "bool";
            for operator in ["<", "<=", ">", ">="] {
                assert_eq!(test(operator).is_ok(), ordered, "{context} {operator}");
            }
            for operator in ["+", "-", "*", "/", "%"] {
                let value = value_of(
                    &format!("a {operator} b"),
                    &[("a", left.clone()), ("b", right.clone())],
                );
                let text = |kind: &str| matches!(kind, "text" | "char");
                let allowed = match operator {
                    "+" => {
                        (text(a) && text(b))
                            || matches!((*a, *b), ("number", "number") | ("span", "span"))
                            || matches!((*a, *b), ("instant", "span") | ("span", "instant"))
                    }
                    "-" => matches!(
                        (*a, *b),
                        ("number", "number") | ("span", "span") | ("instant", "instant" | "span")
                    ),
                    _ => (*a, *b) == ("number", "number"),
                };
                assert_eq!(value.is_ok(), allowed, "{context} {operator}");
            }
        }
    }
}

/// SQL-36
#[test]
fn a_uuid_compares_with_its_canonical_text() {
    let uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
    let message = with(&[("u", Value::Uuid(uuid)), ("v", Value::Uuid(uuid + 1))]);
    check_on(&message, "u = '00112233-4455-6677-8899-aabbccddeeff'", TRUE);
    check_on(&message, "u = '00112233-4455-6677-8899-AABBCCDDEEFF'", FALSE);
    check_on(&message, "'00112233-4455-6677-8899-aabbccddeeff' = u AND u < v AND u < '1'", TRUE);
}

/// SQL-37
#[test]
fn a_char_is_a_text_of_one_character() {
    let message = with(&[("c", Value::Char('ä'))]);
    check_on(&message, "c = 'ä' AND 'ä' = c AND c <> 'ää' AND c > 'a' AND c IN ('ä')", TRUE);
}

/// SQL-38, SQL-39
#[test]
fn not_a_number_is_unequal_to_everything() {
    let message = with(&[("nan", Value::F64(f64::NAN)), ("n", Value::F32(f32::NAN))]);
    for text in
        ["nan = nan", "nan = 1", "nan < 1", "nan > 1", "nan <= nan", "n >= n", "nan IN (nan)"]
    {
        check_on(&message, text, FALSE);
    }
    for text in ["nan <> nan", "nan != 1", "n != n", "nan <> 'x'"] {
        check_on(&message, text, TRUE);
    }
}

/// TOP-21: numbers of different types are equal if they are numerically.
#[test]
fn numbers_of_all_types_compare() {
    let two = [
        Value::I8(2),
        Value::I16(2),
        Value::I32(2),
        Value::I64(2),
        Value::U8(2),
        Value::U16(2),
        Value::U32(2),
        Value::U64(2),
        Value::F32(2.0),
        Value::F64(2.0),
        Value::Decimal128(Decimal::from(2).to_bits()),
        Value::Decimal128(Decimal::parse("2.00").unwrap().to_bits()),
    ];
    for left in &two {
        for right in &two {
            let message = with(&[("a", left.clone()), ("b", right.clone())]);
            check_on(&message, "a = b AND a <= b AND a >= b AND NOT a <> b AND a IN (b)", TRUE);
            check_on(&message, "a < b OR a > b OR a <> b", FALSE);
        }
        let message = with(&[("a", left.clone())]);
        check_on(&message, "a < 3 AND a > 1 AND a < 2.5 AND a > -1e3", TRUE);
    }
    let message =
        with(&[("u", Value::U64(u64::MAX)), ("i", Value::I64(-1)), ("f", Value::F32(0.1))]);
    check_on(&message, "u > i AND u <> i AND i < u AND u > 9223372036854775807", TRUE);
    check_on(&message, "f <> 0.1 AND f > 0.1", TRUE);
}

/// SQL-41: work stays in proportion.
#[test]
fn evaluation_is_bounded() {
    let message = with(&[("a", Value::from("a".repeat(30_000)))]);
    assert!(matches!(fails_on(&message, "a + a + a = a"), Fault::TextSize { .. }));
    check_on(&message, "a + a = a", FALSE);
    // A pattern that makes a search with restarts at every wildcard explode.
    let pattern = "%a".repeat(300) + "b";
    check_on(&message, &format!("a LIKE '{pattern}'"), FALSE);
}

/// SQL-40: what is dead-lettered names the operation and its place.
#[test]
fn an_error_names_its_place() {
    let text = "x = 1 OR\n  'a' < 5";
    let program = compile_filter(text, &Parameters::new()).unwrap();
    let content = message().encode();
    let published = Published::new(content.property_view(), facts());
    let error = program.test(&published, &mut || 0, &mut Unobserved).unwrap_err();
    assert_eq!(
        error.describe(text),
        "`<` cannot be applied to text and a number, line 2, column 3: `'a' < 5`"
    );
}

/// Evaluations borrow: values of the message and of the rule are not copied.
#[test]
fn operands_are_small() {
    assert!(size_of::<Operand<'_>>() <= 32);
    assert!(size_of::<program::Step>() <= 8);
}
