//! Size of a value in JSON, computed before the value is written, so that transports can reserve
//! memory first.
//!
//! A client's text may become six times as long, since JSON writes a control character as `\u0001`.
//! A large body with that effect is written as Base64 instead. For the rest of a message
//! [`message_in_json_max`] gives a bound before the message is read.

use std::io;

use serde::Serialize;

/// Writer that only counts bytes.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the size of a value in JSON in bytes, without building the text; 0 for a value that
/// cannot be written.
#[must_use]
pub fn size_in_json(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Counting cannot fail.
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

/// Maximum size of a body that is text regardless of escapes.
const ESCAPED_BYTES_MAX: usize = 64 << 10;
/// Upper bound on the ratio of JSON size to stored size. An escape makes six bytes from one;
/// properties also have type names, which are one byte in AMQP.
pub const IN_JSON_FACTOR: u64 = 8;
/// The same ratio for a larger body.
const BODY_FACTOR: u64 = 2;
/// Maximum bytes of the property names and the broker's own properties in a message.
const NAMES_BYTES: u64 = 2 << 10;
/// Bytes stored beyond the header limit: reason, description and source of dead-lettering.
const REASON_BYTES: u64 = 16 << 10;

/// Returns bytes as JSON text. Returns `None` if Base64 is needed: for bytes that are not UTF-8,
/// and for a large body that escapes would more than double.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= ESCAPED_BYTES_MAX || escape_bytes(bytes) <= bytes.len()).then_some(text)
}

/// Returns the number of bytes that escapes add to a text.
fn escape_bytes(text: &[u8]) -> usize {
    let more = text.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..=0x1f => 5,
        _ => 0,
    });
    more.sum()
}

/// Returns the maximum size in JSON of a message with a stored size of `size_bytes`, where headers
/// are limited to `header_bytes_max`.
#[must_use]
pub fn message_in_json_max(size_bytes: u64, header_bytes_max: u64) -> u64 {
    let header_bytes = header_bytes_max.saturating_add(REASON_BYTES);
    let of_header = header_bytes.saturating_mul(IN_JSON_FACTOR - BODY_FACTOR);
    let of_escapes = ESCAPED_BYTES_MAX as u64 * (6 - BODY_FACTOR);
    let small = size_bytes.saturating_mul(IN_JSON_FACTOR);
    let large = size_bytes.saturating_mul(BODY_FACTOR).saturating_add(of_header);
    small.min(large.saturating_add(of_escapes)).saturating_add(NAMES_BYTES)
}
