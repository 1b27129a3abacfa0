//! Tests of arithmetic on numbers, texts and times.

use super::*;

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
    // An error of constants is an error of the evaluation, if the evaluation reaches it.
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

/// SQL-34, ACT-05: text is concatenated with values of other types, before and after, through their
/// text. Bytes are refused.
#[test]
fn text_is_put_together_with_values_of_other_types() {
    let (instant, span) = (Value::Timestamp, Value::TimeSpan);
    let uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128;
    for (value, text) in [
        (Value::I32(-5), "-5"),
        (Value::U64(u64::MAX), "18446744073709551615"),
        (Value::F64(1.5), "1.5"),
        (Value::Bool(true), "true"),
        (Value::Char('c'), "c"),
        (Value::Uuid(uuid), "00112233-4455-6677-8899-aabbccddeeff"),
        (span(10_000_000), "PT1S"),
        (instant(0), "1970-01-01T00:00:00Z"),
    ] {
        check_value("a", "+", value.clone(), format!("a{text}").as_str());
        check_value(value, "+", "a", format!("{text}a").as_str());
    }
    let bytes = Value::Binary(vec![1].into());
    for (left, right) in [(Value::from("a"), bytes.clone()), (bytes, Value::from("a"))] {
        let failed = value_of("a + b", &[("a", left), ("b", right)]);
        assert!(matches!(failed, Err(Fault::Types { .. })), "{failed:?}");
    }
}
