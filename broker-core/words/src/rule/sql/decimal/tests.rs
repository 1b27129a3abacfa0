//! Tests of decimal arithmetic against vectors of another implementation.

use super::*;

/// Two numbers, their order (`?` is none), sum, difference, product, quotient and rest, from
/// another implementation of the standard.
const VECTORS: &str = include_str!("vectors.tsv");

fn number(text: &str) -> Decimal {
    match text {
        "NaN" => Decimal::NAN,
        "Infinity" => Decimal { negative: false, magnitude: Infinity },
        "-Infinity" => Decimal { negative: true, magnitude: Infinity },
        _ => Decimal::parse(text).unwrap_or_else(|| panic!("{text}")),
    }
}

/// SQL-31, SQL-32: every digit and every exponent matches IEEE 754.
#[test]
fn arithmetic_matches_the_standard() {
    for line in VECTORS.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [left, right, order, results @ ..] = columns.as_slice() else { panic!("{line}") };
        let (a, b) = (number(left), number(right));
        assert_eq!((a.to_string().as_str(), b.to_string().as_str()), (*left, *right));
        let sign = match a.order(b) {
            None => "?",
            Some(Ordering::Less) => "<",
            Some(Ordering::Equal) => "=",
            Some(Ordering::Greater) => ">",
        };
        assert_eq!(sign, *order, "{left} and {right}");
        let own = [a.plus(b), a.plus(b.negate()), a.times(b), a.divided_by(b), a.remainder(b)];
        for ((own, expected), operator) in own.iter().zip(results).zip(["+", "-", "*", "/", "%"]) {
            assert_eq!(own.to_string(), *expected, "{left} {operator} {right}");
        }
        for number in [a, b] {
            let back = Decimal::from_bits(number.to_bits());
            assert_eq!(back.to_string(), number.to_string());
        }
    }
}

/// The binary integer encoding: 1 is a coefficient of 1 with the exponent 0, biased by 6176.
#[test]
fn bits_match_the_standard() {
    let bits = |number: Decimal| u128::from_be_bytes(number.to_bits());
    assert_eq!(bits(Decimal::from(1)), 0x3040_0000_0000_0000_0000_0000_0000_0001);
    assert_eq!(bits(number("-0.5")), 0xb03e_0000_0000_0000_0000_0000_0000_0005);
    assert_eq!(bits(number("Infinity")), 0x7800_0000_0000_0000_0000_0000_0000_0000);
    // A coefficient of more than 34 digits is zero, in both forms of the encoding.
    for bits in [(0x3041u128 << 112) | (u128::MAX >> 16), 0x6c10_0000_0000_0000_0000_0000_0000_0001]
    {
        assert_eq!(
            Decimal::from_bits(bits.to_be_bytes()).order(Decimal::from(0)),
            Some(Ordering::Equal)
        );
    }
}

/// TOP-21: equal decimals are equal in the 64 bits of the index.
#[test]
fn the_nearest_binary_number_is_the_same_for_equal_numbers() {
    for value in [0, 1, -1, 10, (1 << 53) + 1, i128::from(i64::MAX), i128::from(u64::MAX)] {
        assert_eq!(Decimal::from(value).to_f64().to_bits(), (value as f64).to_bits(), "{value}");
        assert_eq!(Decimal::from(value).to_integer(), Some(value));
        let spread = number(&format!("{value}.00"));
        assert_eq!(spread.order(Decimal::from(value)), Some(Ordering::Equal));
        assert_eq!(spread.to_f64(), value as f64);
    }
    for (text, whole) in
        [("2.5", 2), ("3.5", 4), ("-2.51", -3), ("0.49", 0), ("1E-6000", 0), ("1E+3", 1000)]
    {
        assert_eq!(number(text).to_integer(), Some(whole), "{text}");
    }
    for text in ["1E+40", "Infinity", "NaN"] {
        assert_eq!(number(text).to_integer(), None, "{text}");
    }
}

/// ACT-05: only numbers are accepted, and excess digits are rounded.
#[test]
fn texts_are_read_as_numbers() {
    for text in ["", "-", "x", "1x", "1e", "1e5000000000", "1.2.3", "--1", "NaN", ".", "1,5"] {
        assert_eq!(Decimal::parse(text), None, "{text}");
    }
    for (text, expected) in [
        ("+1", "1"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e3", "1E+3"),
        ("12345678901234567890123456789012345", "1.234567890123456789012345678901234E+34"),
        (
            "12345678901234567890123456789012345000000000000001",
            "1.234567890123456789012345678901235E+49",
        ),
        ("1E+7000", "Infinity"),
        ("1E-7000", "0E-6176"),
        ("0.0000001", "1E-7"),
    ] {
        assert_eq!(number(text).to_string(), expected, "{text}");
    }
}
