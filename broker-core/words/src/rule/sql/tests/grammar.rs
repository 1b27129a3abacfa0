//! Tests of the grammar: accepted texts, their meaning, and the positions of errors.

use super::*;

/// SQL-01: texts of the grammar are accepted, with keywords and functions in any case.
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

/// SQL-01, TOP-16: other texts are refused, at the first position that cannot be parsed.
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

/// SQL-02: the error names the first character over the limit.
#[test]
fn text_over_the_length_limit_is_refused() {
    assert_eq!(check_length("ää", 2), Ok(()));
    let error = check_length("ä\näx", 3).unwrap_err();
    assert_eq!(error.position, Position { byte: 5, line: 2, column: 2 });
    assert_eq!(error.problem, Problem::TooLong { characters: 4, limit: 3 });
}

/// SQL-42: depth is bounded, and texts within the bound work.
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
fn operators_have_the_precedence_of_the_table() {
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
