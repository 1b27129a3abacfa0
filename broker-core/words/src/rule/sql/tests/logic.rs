//! Tests of three-valued logic, and of values as conditions.

use super::*;

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
