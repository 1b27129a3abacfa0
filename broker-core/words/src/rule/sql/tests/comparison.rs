//! Tests of equality and order.

use super::*;

/// SQL-28
#[test]
fn texts_compare_by_code_point() {
    check("'a' = 'A'", FALSE);
    check("'B' < 'a' AND 'Z' < 'a' AND 'a' < 'ä'", TRUE);
    // U+FFFD is before U+10000, though UTF-16 orders them the other way.
    check("'\u{fffd}' < '\u{10000}'", TRUE);
    check("'a' < 'ab' AND '' < 'a' AND 'a' <= 'a' AND 'b' >= 'a' AND 'b' > 'a'", TRUE);
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
                // SQL-34: text is concatenated with values of these kinds.
                let joins = |kind: &str| {
                    matches!(kind, "bool" | "number" | "uuid" | "instant" | "span" | "uri")
                };
                let allowed = match operator {
                    "+" => {
                        (text(a) && text(b))
                            || (*a == "text" && joins(b))
                            || (*b == "text" && joins(a))
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
