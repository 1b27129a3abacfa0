//! How long a value is as JSON, before it is written: room for it is taken first.
//!
//! What a client has written may become six times as long, since a control character is `\u0001` in JSON. A body that would
//! and is large is Base64 instead; for the rest there is a bound that is known before a message is read.

use std::io;

use serde::Serialize;

/// Counts what is written to it.
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

/// How many bytes a value has as JSON, of which none is made; none for what cannot be written.
#[must_use]
pub fn size_in_json(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // To count never fails.
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

/// A body of no more is text whatever is escaped in it.
const ESCAPED_BYTES_MAX: usize = 64 << 10;
/// By how much what a message has is longer in JSON at most than it is stored. An escape makes six bytes of one; properties
/// have names of types beside that, each of which is one byte in AMQP.
pub const IN_JSON_FACTOR: u64 = 8;
/// What a body takes that is larger than that.
const BODY_FACTOR: u64 = 2;
/// What a message takes in JSON besides: the names of its properties, and what the broker says of it.
const NAMES_BYTES: u64 = 2 << 10;
/// What is stored with a header beyond its own bound: why and where a message was dead-lettered.
const REASON_BYTES: u64 = 16 << 10;

/// Bytes as the text that they are in JSON. None for what is told in Base64: what is no UTF-8, and what is large and would
/// become more than twice as long by what has to be escaped in it.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= ESCAPED_BYTES_MAX || escape_bytes(bytes) <= bytes.len()).then_some(text)
}

/// By how much escapes make a text longer.
fn escape_bytes(text: &[u8]) -> usize {
    let more = text.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..=0x1f => 5,
        _ => 0,
    });
    more.sum()
}

/// How long a message may be in JSON at most that is stored in so many bytes, where properties have so many at most.
#[must_use]
pub fn message_in_json_max(size_bytes: u64, header_bytes_max: u64) -> u64 {
    let header_bytes = header_bytes_max.saturating_add(REASON_BYTES);
    let of_header = header_bytes.saturating_mul(IN_JSON_FACTOR - BODY_FACTOR);
    let of_escapes = ESCAPED_BYTES_MAX as u64 * (6 - BODY_FACTOR);
    let small = size_bytes.saturating_mul(IN_JSON_FACTOR);
    let large = size_bytes.saturating_mul(BODY_FACTOR).saturating_add(of_header);
    small.min(large.saturating_add(of_escapes)).saturating_add(NAMES_BYTES)
}
