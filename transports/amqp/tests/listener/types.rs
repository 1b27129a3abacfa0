//! Checks of the types that the broker sends (AMQP-13): some clients cannot decode all types, and
//! then receive nothing more.

use peeklock_words::amqp::{Reader, Width, code, width};

/// Constructors of char, decimal32 and decimal64.
const NOT_READ: [u8; 3] = [0x73, 0x74, 0x84];

/// Panics if one of these types occurs in consecutive values or inside them (AMQP-13).
pub fn check(values: &[u8]) {
    let mut reader = Reader::new(values);
    while !reader.is_empty() {
        check_value(&mut reader);
    }
}

/// Panics if one of these types occurs in the first value.
pub fn check_first(values: &[u8]) {
    check_value(&mut Reader::new(values));
}

fn check_value(reader: &mut Reader<'_>) {
    let code = reader.byte().unwrap();
    if code == code::DESCRIBED {
        check_value(reader);
        return check_value(reader);
    }
    check_behind(code, reader);
}

/// Checks a value whose constructor was read.
fn check_behind(code: u8, reader: &mut Reader<'_>) {
    assert!(!NOT_READ.contains(&code), "a value of type 0x{code:x} is sent");
    let (count, mut items) = match code {
        code::LIST8 | code::MAP8 | code::ARRAY8 => reader.compound8().unwrap(),
        code::LIST32 | code::MAP32 | code::ARRAY32 => reader.compound32().unwrap(),
        _ => {
            let length = match width(code).unwrap() {
                Width::Fixed(bytes) => bytes,
                Width::Length8 => usize::from(reader.byte().unwrap()),
                Width::Length32 => reader.length32().unwrap(),
            };
            reader.take(length).unwrap();
            return;
        }
    };
    if !matches!(code, code::ARRAY8 | code::ARRAY32) {
        return (0..count).for_each(|_| check_value(&mut items));
    }
    let shared = if count == 0 && items.is_empty() { return } else { items.byte().unwrap() };
    (0..count).for_each(|_| check_behind(shared, &mut items));
}

#[test]
#[should_panic(expected = "0x73")]
fn a_char_in_a_list_is_found() {
    check(&[0x40, 0x00, 0x53, 0x77, 0xc0, 6, 1, 0x73, 0, 0, 0, 65]);
}

#[test]
#[should_panic(expected = "0x84")]
fn a_decimal_in_an_array_is_found() {
    check(&[0xe0, 10, 1, 0x84, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn readable_types_pass() {
    check(&[0x45, 0xa1, 1, 0x73, 0xe0, 1, 0, 0xe0, 4, 1, 0xa1, 1, 0x74, 0xc1, 3, 2, 0x40, 0x41]);
}
