//! Patterns.

use super::*;

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
