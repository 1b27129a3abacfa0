//! Described lists, the form of performatives, states and termini: reading and writing.
//!
//! A type implements [`List`]; `read_list` and [`write_list`] do the rest. A list with more fields
//! than the standard defines, or whose size and count disagree, is refused.

use bytes::{Bytes, BytesMut};
use peeklock_words::amqp::write::{self, Compound, Fields, Measure, Sink};
use peeklock_words::amqp::{ContentError, Reader, Scalar, code};

use super::value::{Map, Raw, Symbols};
use crate::error::AmqpError;

/// A described list with its fields in the standard's order.
pub trait List: Sized {
    /// Code of the descriptor, written as a small ulong (AMQP-10).
    const DESCRIPTOR: u8;
    /// Name of the type, for errors.
    const NAME: &'static str;
    /// Maximum number of fields.
    const FIELD_COUNT: usize;

    /// Reads the fields in the order of the standard.
    ///
    /// # Errors
    /// Fails if a required field is missing or a field has a wrong value.
    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError>;

    /// Writes the fields in the order of the standard; trailing missing fields are left out.
    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>);

    /// Returns the list with at least `_bytes` bytes cut from its description for people; `None` if
    /// it has no such description or a shorter one.
    fn shortened(&self, _bytes: usize) -> Option<Self> {
        None
    }
}

/// Reads the list at the start of `reader`, which reads a part of `whole`. The descriptor must have
/// been read already.
pub(crate) fn read_list<'a, L: List>(
    whole: &'a Bytes,
    reader: &mut Reader<'a>,
) -> Result<L, AmqpError> {
    let mut fields = FieldReader::new(whole, reader, L::NAME, L::FIELD_COUNT)?;
    let list = L::read(&mut fields)?;
    fields.end()?;
    Ok(list)
}

/// Reads a described list that fills `value`.
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

/// Bytes of a small list before its fields: descriptor (3), constructor, size and count.
const SMALL_HEAD_BYTES: usize = 6;

/// Appends a described list in the form of [`write_list`]. Nearly all lists are small, so the
/// fields are written without measuring, and size and count are filled in afterwards. A larger list
/// is written a second time.
pub fn append_list<L: List>(bytes: &mut BytesMut, list: &L) {
    let start = bytes.len();
    bytes.put(&[code::DESCRIBED, code::SMALL_ULONG, L::DESCRIPTOR, code::LIST8, 0, 0]);
    let mut fields = Fields::new(bytes);
    list.fields(&mut fields);
    let count = u8::try_from(fields.count());
    // The size includes the byte of the count.
    let size = u8::try_from(bytes.len() - start - SMALL_HEAD_BYTES + 1);
    let place = bytes.get_mut(start + SMALL_HEAD_BYTES - 2..start + SMALL_HEAD_BYTES);
    if let (Ok(size), Ok(count @ 1..), Some(place)) = (size, count, place) {
        return place.copy_from_slice(&[size, count]);
    }
    bytes.truncate(start);
    write_list(bytes, list);
}

/// Number of bytes that [`write_list`] writes.
pub fn list_bytes(list: &impl List) -> usize {
    let mut measure = Measure::default();
    write_list(&mut measure, list);
    measure.bytes
}

/// Writes an encoded value.
pub(crate) fn put<S: Sink>(sink: &mut S, bytes: &Bytes) {
    sink.put(bytes);
}

/// Writes an explicit null, which keeps trailing fields in the list (AMQP-12, AMQP-16).
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

/// Reads the remaining fields of a described list. A null or missing field is `None`.
pub struct FieldReader<'a> {
    whole: &'a Bytes,
    reader: Reader<'a>,
    left: usize,
    /// Name of the list, for errors.
    list: &'static str,
}

/// Reads the descriptor at the start of `reader`, a number or a symbol, and returns its number. The
/// list follows.
pub(crate) fn descriptor(reader: &mut Reader<'_>) -> Result<u64, AmqpError> {
    if reader.byte()? != code::DESCRIBED {
        return Err(AmqpError::decode("value has no descriptor"));
    }
    match reader.scalar()? {
        Scalar::U64(number) => Ok(number),
        Scalar::Symbol(name) => by_name(name)
            .ok_or_else(|| AmqpError::decode(format!("descriptor `{name:.64}` is unknown"))),
        _ => Err(AmqpError::decode("descriptor must be a ulong or a symbol")),
    }
}

/// Number of a descriptor that is a symbol (AMQP 1.0, all types of parts 2 to 5).
fn by_name(name: &str) -> Option<u64> {
    Some(match name {
        "amqp:open:list" => 0x10,
        "amqp:begin:list" => 0x11,
        "amqp:attach:list" => 0x12,
        "amqp:flow:list" => 0x13,
        "amqp:transfer:list" => 0x14,
        "amqp:disposition:list" => 0x15,
        "amqp:detach:list" => 0x16,
        "amqp:end:list" => 0x17,
        "amqp:close:list" => 0x18,
        "amqp:error:list" => 0x1d,
        "amqp:received:list" => 0x23,
        "amqp:accepted:list" => 0x24,
        "amqp:rejected:list" => 0x25,
        "amqp:released:list" => 0x26,
        "amqp:modified:list" => 0x27,
        "amqp:source:list" => 0x28,
        "amqp:target:list" => 0x29,
        "amqp:coordinator:list" => 0x30,
        "amqp:declare:list" => 0x31,
        "amqp:discharge:list" => 0x32,
        "amqp:declared:list" => 0x33,
        "amqp:transactional-state:list" => 0x34,
        "amqp:sasl-mechanisms:list" => 0x40,
        "amqp:sasl-init:list" => 0x41,
        "amqp:sasl-challenge:list" => 0x42,
        "amqp:sasl-response:list" => 0x43,
        "amqp:sasl-outcome:list" => 0x44,
        _ => return None,
    })
}

impl<'a> FieldReader<'a> {
    /// Begins to read the list at the start of `reader`, which reads a part of `whole`. Afterwards
    /// `reader` stands after the list.
    pub(crate) fn new(
        whole: &'a Bytes,
        reader: &mut Reader<'a>,
        list: &'static str,
        fields_max: usize,
    ) -> Result<Self, AmqpError> {
        let (left, fields) = reader.list()?;
        if left > fields_max {
            return Err(AmqpError::decode(format!(
                "{list} has {left} fields, at most {fields_max} are defined"
            )));
        }
        Ok(Self { whole, reader: fields, left, list })
    }

    /// Fails if fields or bytes are left after the last field.
    pub(crate) fn end(&self) -> Result<(), AmqpError> {
        if self.left == 0 && self.reader.is_empty() {
            return Ok(());
        }
        Err(AmqpError::decode(format!("count and size of {} disagree", self.list)))
    }

    fn scalar(&mut self, field: &'static str) -> Result<Option<Scalar<'a>>, AmqpError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        match self.reader.scalar().map_err(|error| self.because(field, error))? {
            Scalar::Null => Ok(None),
            value => Ok(Some(value)),
        }
    }

    fn because(&self, field: &str, error: ContentError) -> AmqpError {
        AmqpError::decode(format!("field {field} of {}: {error}", self.list))
    }

    fn wrong(&self, field: &str) -> AmqpError {
        AmqpError::decode(format!("field {field} of {} has the wrong type", self.list))
    }

    /// Reads a field that must be present.
    pub(crate) fn required<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<Option<T>, AmqpError>,
    ) -> Result<T, AmqpError> {
        read(self, field)?.ok_or_else(|| {
            AmqpError::invalid_field(format!("field {field} of {} is missing", self.list))
        })
    }

    /// Reads a boolean.
    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<Option<bool>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads a ubyte.
    pub(crate) fn ubyte(&mut self, field: &'static str) -> Result<Option<u8>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::U8(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads a ushort.
    pub(crate) fn ushort(&mut self, field: &'static str) -> Result<Option<u16>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::U16(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads a uint.
    pub(crate) fn uint(&mut self, field: &'static str) -> Result<Option<u32>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::U32(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads a ulong.
    pub(crate) fn ulong(&mut self, field: &'static str) -> Result<Option<u64>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::U64(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads a string or a symbol.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<Option<Box<str>>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::Text(text) | Scalar::Symbol(text)) => Ok(Some(text.into())),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads binary data as a part of the frame, without copying.
    pub(crate) fn binary(&mut self, field: &'static str) -> Result<Option<Bytes>, AmqpError> {
        match self.scalar(field)? {
            None => Ok(None),
            Some(Scalar::Binary(bytes)) => Ok(Some(self.whole.slice_ref(bytes))),
            Some(_) => Err(self.wrong(field)),
        }
    }

    /// Reads the binary data of a delivery tag, borrowed from the frame.
    pub(crate) fn tag(&mut self) -> Result<Option<Scalar<'a>>, AmqpError> {
        match self.scalar("delivery-tag")? {
            value @ (None | Some(Scalar::Binary(_))) => Ok(value),
            Some(_) => Err(self.wrong("delivery-tag")),
        }
    }

    /// Reads a value of any type and keeps its encoding.
    pub(crate) fn raw(&mut self, field: &'static str) -> Result<Option<Raw>, AmqpError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let value = Raw::read(self.whole, &mut self.reader);
        let value = value.map_err(|error| self.because(field, error))?;
        let null = value.as_bytes().first() == Some(&peeklock_words::amqp::code::NULL);
        Ok((!null).then_some(value))
    }

    /// Reads a map.
    pub(crate) fn map(&mut self, field: &'static str) -> Result<Option<Map>, AmqpError> {
        let map = self.raw(field)?.map(Map::from_raw).transpose();
        map.map_err(|error| self.because(field, error))
    }

    /// Reads one symbol or an array of symbols.
    pub(crate) fn symbols(&mut self, field: &'static str) -> Result<Option<Symbols>, AmqpError> {
        let symbols = self.raw(field)?.map(Symbols::from_raw).transpose();
        symbols.map_err(|error| self.because(field, error))
    }

    /// Reads a described value with `read`, which gets the encoded value.
    pub(crate) fn described<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&Bytes) -> Result<T, AmqpError>,
    ) -> Result<Option<T>, AmqpError> {
        self.raw(field)?.map(|raw| read(raw.as_bytes())).transpose()
    }
}
