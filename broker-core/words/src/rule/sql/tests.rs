//! Helpers for tests of the SQL of rules, and tests of bounds and error positions.

mod arithmetic;
mod comparison;
mod grammar;
mod like;
mod logic;
mod names;

use super::*;
use crate::ids::SequenceNumber;
use crate::message::Message;
use crate::rule::{Facts, PublishedMessage};
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
    let published = PublishedMessage::new(content.property_view(), facts);
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

/// Checks the truth of a filter on a message; `None` is Unknown.
fn check_on(message: &Message, text: &str, expected: Option<bool>) {
    let result = evaluate(text, &Parameters::new(), message, facts());
    assert_eq!(result, Ok(expected), "{text}");
}

/// Checks the truth of a filter that needs no message.
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

fn value_of(text: &str, properties: &[(&str, Value)]) -> Result<Value, Fault> {
    let program = parser::action(&format!("SET x = {text}"), &Parameters::new(), 1).unwrap();
    let message = with(properties);
    let content = message.encode();
    let published = PublishedMessage::new(content.property_view(), facts());
    let expression = program[0].expression.as_ref().unwrap();
    let value = expression.value(&published, &mut || 0, &mut Unobserved);
    value.map(|value| value.to_value()).map_err(|error| error.fault)
}

/// SQL-41: the work is bounded.
#[test]
fn evaluation_is_bounded() {
    let message = with(&[("a", Value::from("a".repeat(30_000)))]);
    assert!(matches!(fails_on(&message, "a + a + a = a"), Fault::TextSize { .. }));
    check_on(&message, "a + a = a", FALSE);
    // A pattern that takes exponential time in a search with restarts at every wildcard.
    let pattern = "%a".repeat(300) + "b";
    check_on(&message, &format!("a LIKE '{pattern}'"), FALSE);
}

/// SQL-40: the error of a dead letter names the operation and its position.
#[test]
fn an_error_names_its_place() {
    let text = "x = 1 OR\n  'a' < 5";
    let program = compile_filter(text, &Parameters::new()).unwrap();
    let content = message().encode();
    let published = PublishedMessage::new(content.property_view(), facts());
    let error = program.test(&published, &mut || 0, &mut Unobserved).unwrap_err();
    assert_eq!(
        error.describe(text),
        "`<` cannot be applied to text and a number, line 2, column 3: `'a' < 5`"
    );
}

/// Evaluations borrow values of the message and of the rule instead of copying them.
#[test]
fn operands_are_small() {
    assert!(size_of::<Operand<'_>>() <= 32);
    assert!(size_of::<program::Step>() <= 8);
}
