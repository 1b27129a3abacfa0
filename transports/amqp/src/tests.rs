//! Helpers of the unit tests: bytes and their digits.

use bytes::Bytes;

/// The bytes that hexadecimal digits stand for; anything else between them is for the reader.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The same, to be read from.
pub(crate) fn bytes(text: &str) -> Bytes {
    hex(text).into()
}

/// The digits of bytes.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digits of a text.
pub(crate) fn ascii(text: &str) -> String {
    digits(text.as_bytes())
}
