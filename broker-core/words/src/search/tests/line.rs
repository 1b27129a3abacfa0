use super::*;

/// CON-06, CON-49: each kind of clause has a line, and the line of its clauses is the same where.
#[test]
fn line_of_each_clause_is_read_back() {
    for (line, canonical) in [
        ("", ""),
        ("timeout", "text:timeout"),
        ("\"connection reset\"", "text:\"connection reset\""),
        ("text~Timeout body:x body~X", "text~Timeout body:x body~X"),
        ("property:eu property~EU", "property:eu property~EU"),
        ("id=17 correlation=a session:b subject~C", "id=17 correlation=a session:b subject~C"),
        (
            "reason:timeout description=\"\" source=orders",
            "reason:timeout description=\"\" source=orders",
        ),
        ("not   reason:timeout", "not reason:timeout"),
        ("not", "text:not"),
        ("a not ", "text:a text:not"),
        ("body.$.order.id=17 after:-2h", "body.$.order.id=17 enqueued>=2026-05-01T10:00:00Z"),
        ("body.$['a b'][0,2]..x", "body.$['a b'][0,2]..x"),
        (
            "body.$.a=\"17\" body.$.b=true body.$.c!=null",
            "body.$.a=\"17\" body.$.b=true body.$.c!=null",
        ),
        ("body.$.a=x-1 body.$.a<1e3 body.$.a:x", "body.$.a=\"x-1\" body.$.a<1e3 body.$.a:x"),
        ("before:2026-05-01T12:00:00.5Z", "enqueued<2026-05-01T12:00:00.5Z"),
        (
            "scheduled>+90s expires<=+1d",
            "scheduled>2026-05-01T12:01:30Z expires<=2026-05-02T12:00:00Z",
        ),
        ("number>=100 tries!=0 size<1024", "number>=100 tries!=0 size<1024"),
        ("sql:\"price > 5 AND \\\"a\\\" = 'b'\"", "sql:\"price > 5 AND \\\"a\\\" = 'b'\""),
        (r#"subject="a \\ b" id=\"#, r#"subject="a \\ b" id=\"#),
    ] {
        let parsed = parse(line);
        assert_eq!(parsed.to_string(), canonical, "{line}");
        assert_eq!(parse(canonical), parsed, "{line}");
        assert_eq!(Where::new(parsed.clauses().to_vec()).unwrap(), parsed);
    }
}

/// CON-09: a mistake is an error with its place; nothing is ignored.
#[test]
fn mistakes_in_a_line_have_a_place() {
    for (line, part) in [
        ("reason:", "character 8: expected a value"),
        ("a raeson:x", "character 3: `raeson` is none of text, body"),
        ("http://x", "quote a text to find it"),
        ("reason<5", "has only the signs `:`, `~` and `=`"),
        ("number:5", "has only the signs `=`, `!=`"),
        ("number=-5", "expected a number"),
        ("number=9223372036854775808", "expected a number"),
        ("body=x", "has only the signs `:` and `~`"),
        ("after=-2h", "has only the signs `:`"),
        ("after:2h", "expected an instant"),
        ("after:-2y", "expected an instant"),
        ("after:-h", "expected an instant"),
        ("after:-9999999999999h", "expected an instant"),
        ("after:é", "expected an instant"),
        ("\"open", "character 1: the quoted text has no end"),
        ("subject=\"a\\n\"", "character 11: expected \\\" or \\\\"),
        ("subject=\"a\"b", "character 12: expected a blank"),
        ("\"\"", "the text to find is empty"),
        ("body.$.a~\"\"", "the text to find is empty"),
        ("body.$.a<true", "only = and !="),
        ("body.$.order-id=1", "expected a sign such as `=`"),
        ("body.$[", "a quoted name, an index, a slice or `*`"),
        ("body.$[?@.a]", "does not support filters"),
        ("body.$[-1]", "does not support places from the end"),
        ("sql:\"price >\"", "filter"),
    ] {
        let detail = refused(line);
        assert!(detail.contains(part), "{line}: {detail}");
    }
}

/// CON-09, CON-80: the text of a where has at most 4,096 characters and 32 clauses.
#[test]
fn where_is_bounded() {
    let subject = |length: usize| format!("subject={}", "é".repeat(length - 8));
    assert_eq!(parse(&subject(WHERE_CHARS_MAX)).clauses().len(), 1);
    assert!(refused(&subject(WHERE_CHARS_MAX + 1)).contains("4097 characters are too many"));
    let clause = parse("id=1").clauses()[0].clone();
    let long = |length: usize| {
        let test = Test::Field(TextField::Subject, TextTest::Equals("x".repeat(length - 8).into()));
        Where::new(vec![Clause { is_negated: false, test }])
    };
    assert!(long(WHERE_CHARS_MAX).is_ok() && long(WHERE_CHARS_MAX + 1).is_err());
    assert!(Where::new(vec![clause.clone(); CLAUSE_COUNT_MAX]).is_ok());
    assert!(Where::new(vec![clause; CLAUSE_COUNT_MAX + 1]).is_err());
    let path = |count: usize| JsonPath::parse(&format!("$[{}0]", "0,".repeat(count - 1)));
    assert!(path(63).is_ok() && path(64).is_err());
}

/// CON-09: no text makes the parser fail otherwise than with an error, and a where that it accepts
/// is read back from its line.
#[test]
fn any_line_is_read_or_refused() {
    let parts = [
        "reason", "body", ".$", ".a", "[", "]", "'", "\"", "\\", ":", "~", "=", "!=", "<", ">=",
        " ", "not ", "17", "-2h", "after", "number", "*", "..", "?", "é", "null", "sql", "text",
        ",",
    ];
    let mut numbers = Numbers(17);
    let mut accepted = 0;
    for _ in 0..50_000 {
        let count = 1 + numbers.below(12);
        let line: String = (0..count).map(|_| *numbers.pick(&parts)).collect();
        if let Ok(parsed) = Where::parse(&line, NOW) {
            accepted += 1;
            assert_eq!(parse(&parsed.to_string()), parsed, "{line}");
        }
    }
    assert!(accepted > 1_000, "{accepted} lines are accepted");
}
