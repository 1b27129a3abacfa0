//! Described lists, which is what performatives, states and termini are: how they are written and read.

use bytes::{Bytes, BytesMut};
use peeklock_words::amqp::write::{self, Compound, Fields, Measure, Sink};
use peeklock_words::amqp::{Reader, code};

use super::fields::{FieldReader, descriptor};
use crate::error::AmqpError;

/// A described list with its fields in the standard's order.
pub trait List: Sized {
    /// The code of its descriptor, which is written as a small ulong (AMQP-10).
    const DESCRIPTOR: u8;
    /// What it is called, for errors.
    const NAME: &'static str;
    /// How many fields the standard gives it.
    const FIELD_COUNT: usize;

    /// Takes its fields.
    ///
    /// # Errors
    /// When one is missing or is not what it must be.
    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError>;

    /// Gives its fields; those that are missing at the end are left out.
    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>);

    /// The same with a text for people that is at least so many bytes shorter, if it has one that long.
    fn shortened(&self, _bytes: usize) -> Option<Self> {
        None
    }
}

/// Reads the list at the start of `reader`, whose descriptor was read, and which reads a part of `whole`.
pub(crate) fn read_list<'a, L: List>(
    whole: &'a Bytes,
    reader: &mut Reader<'a>,
) -> Result<L, AmqpError> {
    let mut fields = FieldReader::new(whole, reader, L::NAME, L::FIELD_COUNT)?;
    let list = L::read(&mut fields)?;
    fields.end()?;
    Ok(list)
}

/// Reads a described list that is the whole of `value`.
pub(crate) fn read_described<L: List>(value: &Bytes) -> Result<L, AmqpError> {
    let mut reader = Reader::new(value);
    if descriptor(&mut reader)? != u64::from(L::DESCRIPTOR) {
        return Err(AmqpError::decode(format!("value is not of type {}", L::NAME)));
    }
    read_list(value, &mut reader)
}

/// Writes a described list in its smallest form.
pub fn write_list<S: Sink, L: List>(sink: &mut S, list: &L) {
    let mut measure = Measure::default();
    let mut fields = Fields::new(&mut measure);
    list.fields(&mut fields);
    let count = fields.count();
    sink.put(&[code::DESCRIBED, code::SMALL_ULONG, L::DESCRIPTOR]);
    write::compound(sink, Compound::List, measure.bytes, count);
    list.fields(&mut Fields::new(sink));
}

/// What stands before the fields of a small list: its descriptor, its constructor, its size, their count.
const SMALL_HEAD_BYTES: usize = 6;

/// Appends a described list as [`write_list`] writes it. A small one, as nearly all are, is not measured before:
/// its size is put in when it is there.
pub fn append_list<L: List>(bytes: &mut BytesMut, list: &L) {
    let start = bytes.len();
    bytes.put(&[code::DESCRIBED, code::SMALL_ULONG, L::DESCRIPTOR, code::LIST8, 0, 0]);
    let mut fields = Fields::new(bytes);
    list.fields(&mut fields);
    let count = u8::try_from(fields.count());
    // The count is part of what the size is of.
    let size = u8::try_from(bytes.len() - start - SMALL_HEAD_BYTES + 1);
    let place = bytes.get_mut(start + SMALL_HEAD_BYTES - 2..start + SMALL_HEAD_BYTES);
    if let (Ok(size), Ok(count @ 1..), Some(place)) = (size, count, place) {
        return place.copy_from_slice(&[size, count]);
    }
    bytes.truncate(start);
    write_list(bytes, list);
}

/// How many bytes [`write_list`] writes.
pub fn list_bytes(list: &impl List) -> usize {
    let mut measure = Measure::default();
    write_list(&mut measure, list);
    measure.bytes
}

/// Writes what is kept as it is encoded.
pub(crate) fn put<S: Sink>(sink: &mut S, bytes: &Bytes) {
    sink.put(bytes);
}

/// Writes an explicit null, which keeps a list from ending before it (AMQP-12, AMQP-16).
pub(crate) fn null<S: Sink>(sink: &mut S, (): ()) {
    sink.put_byte(code::NULL);
}

/// Writes a ubyte.
pub(crate) fn ubyte<S: Sink>(sink: &mut S, value: u8) {
    sink.put(&[code::UBYTE, value]);
}

/// Writes a ushort.
pub(crate) fn ushort<S: Sink>(sink: &mut S, value: u16) {
    write::fixed(sink, code::USHORT, value.to_be_bytes());
}
