//! Writes values in their smallest encodings.
//!
//! Callers write each compound value twice: once into [`Measure`], which returns the sizes that
//! precede the items, then into a buffer of exactly the right capacity.

use bytes::BytesMut;

use super::code;

/// Destination of encoded bytes.
pub trait Sink {
    /// Takes bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Takes one byte.
    fn put_byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }
}

/// Counts bytes instead of storing them.
#[derive(Debug, Default)]
pub struct Measure {
    /// Number of bytes counted.
    pub bytes: usize,
}

impl Sink for Measure {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
    }
}

impl Sink for BytesMut {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

/// A list of fields, in which unset fields are null and trailing unset fields are left out.
#[derive(Debug)]
pub struct Fields<'s, S> {
    sink: &'s mut S,
    nulls_pending: usize,
    count: usize,
}

impl<'s, S: Sink> Fields<'s, S> {
    /// Starts a list without fields.
    pub const fn new(sink: &'s mut S) -> Self {
        Self { sink, nulls_pending: 0, count: 0 }
    }

    /// Adds the next field; `None` is null.
    #[inline]
    pub fn field<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut S, T)) {
        let Some(value) = value else {
            self.nulls_pending += 1;
            return;
        };
        self.count += self.nulls_pending + 1;
        for _ in 0..std::mem::take(&mut self.nulls_pending) {
            self.sink.put_byte(code::NULL);
        }
        write(self.sink, value);
    }

    /// The number of fields, without trailing unset ones.
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// The kinds of compound values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compound {
    /// A list.
    List,
    /// A map, whose items are its keys and values in turn.
    Map,
}

/// Starts a list or map whose `count` items take `items_bytes`.
pub fn compound(sink: &mut impl Sink, kind: Compound, items_bytes: usize, count: usize) {
    if count == 0 && kind == Compound::List {
        return sink.put_byte(code::LIST0);
    }
    let (code8, code32) = match kind {
        Compound::List => (code::LIST8, code::LIST32),
        Compound::Map => (code::MAP8, code::MAP32),
    };
    if let (Ok(size), Ok(count)) = (u8::try_from(items_bytes + 1), u8::try_from(count)) {
        return sink.put(&[code8, size, count]);
    }
    sink.put_byte(code32);
    sink.put(&length32(items_bytes + 4));
    sink.put(&length32(count));
}

/// The number of bytes that a list or map takes, including its start.
pub fn compound_bytes(kind: Compound, items_bytes: usize, count: usize) -> usize {
    let mut start = Measure::default();
    compound(&mut start, kind, items_bytes, count);
    start.bytes + items_bytes
}

/// Encodes a length in four bytes. Longer values are refused for their size before they reach this
/// function.
pub fn length32(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[inline]
fn variable(sink: &mut impl Sink, code8: u8, code32: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length) => sink.put(&[code8, length]),
        Err(_) => {
            sink.put_byte(code32);
            sink.put(&length32(bytes.len()));
        }
    }
    sink.put(bytes);
}

/// Writes a string.
pub fn text(sink: &mut impl Sink, text: &str) {
    variable(sink, code::STRING8, code::STRING32, text.as_bytes());
}

/// Writes a symbol.
pub fn symbol(sink: &mut impl Sink, text: &str) {
    variable(sink, code::SYMBOL8, code::SYMBOL32, text.as_bytes());
}

/// Writes bytes.
pub fn binary(sink: &mut impl Sink, bytes: &[u8]) {
    variable(sink, code::BINARY8, code::BINARY32, bytes);
}

/// Writes the list without items.
pub fn empty_list(sink: &mut impl Sink) {
    sink.put_byte(code::LIST0);
}

/// Writes a boolean.
pub fn boolean(sink: &mut impl Sink, value: bool) {
    sink.put_byte(if value { code::TRUE } else { code::FALSE });
}

/// Writes an unsigned number of 32 bits.
pub fn uint(sink: &mut impl Sink, value: u32) {
    match u8::try_from(value) {
        Ok(0) => sink.put_byte(code::UINT0),
        Ok(small) => sink.put(&[code::SMALL_UINT, small]),
        Err(_) => fixed(sink, code::UINT, value.to_be_bytes()),
    }
}

/// Writes an instant in milliseconds since 1970.
pub fn timestamp(sink: &mut impl Sink, unix_ms: i64) {
    fixed(sink, code::TIMESTAMP, unix_ms.to_be_bytes());
}

/// Writes a signed number of 64 bits.
pub fn long(sink: &mut impl Sink, value: i64) {
    match i8::try_from(value) {
        Ok(small) => fixed(sink, code::SMALL_LONG, small.to_be_bytes()),
        Err(_) => fixed(sink, code::LONG, value.to_be_bytes()),
    }
}

/// Writes an unsigned number of 64 bits.
pub fn ulong(sink: &mut impl Sink, value: u64) {
    match u8::try_from(value) {
        Ok(0) => sink.put_byte(code::ULONG0),
        Ok(small) => sink.put(&[code::SMALL_ULONG, small]),
        Err(_) => fixed(sink, code::ULONG, value.to_be_bytes()),
    }
}

/// Writes a constructor and the bytes of its fixed width.
pub fn fixed<const N: usize>(sink: &mut impl Sink, code: u8, bytes: [u8; N]) {
    sink.put_byte(code);
    sink.put(&bytes);
}
