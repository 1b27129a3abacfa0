//! Maps of application properties: their entries and the decoding of values. Content, overlays and
//! views use them.

use super::{code, described};
use crate::amqp::{Reader, Scalar};
use crate::message::{ContentError, Value, ValueRef};

/// One encoded entry of a map of application properties.
#[derive(Clone, Copy)]
pub(crate) struct PropertyEntry<'a> {
    key: &'a [u8],
    /// The encoded value.
    pub(crate) value: &'a [u8],
}

impl<'a> PropertyEntry<'a> {
    /// The key, if it is text.
    pub(crate) fn key(&self) -> Option<&'a str> {
        let mut key = Reader::new(self.key);
        if let Some(text) = key.plain_text() {
            return text.ok()?;
        }
        match key.scalar() {
            Ok(Scalar::Text(key) | Scalar::Symbol(key)) => Some(key),
            _ => None,
        }
    }

    /// Whether the key is a symbol, which names a broker property in an overlay.
    pub(crate) fn has_symbol_key(&self) -> bool {
        matches!(self.key.first(), Some(&code::SYMBOL8 | &code::SYMBOL32))
    }

    /// Whether the value is the empty list, which removes a property in an overlay.
    pub(crate) fn is_removal(&self) -> bool {
        self.value == [code::LIST0]
    }

    /// The encoded key.
    pub(crate) const fn key_bytes(&self) -> &'a [u8] {
        self.key
    }

    /// Number of bytes that count against the limit of a property (MSG-26).
    pub(crate) const fn size_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// The entries of an encoded map in order. The iterator ends early where the map is malformed.
pub(crate) fn entries(map: &[u8]) -> impl Iterator<Item = PropertyEntry<'_>> {
    let mut items = match Reader::new(map).map() {
        Ok((_, items)) => items,
        Err(_) => Reader::new(&[]),
    };
    std::iter::from_fn(move || {
        Some(PropertyEntry { key: items.raw().ok()?, value: items.raw().ok()? })
    })
}

/// Decodes the value of an application property.
pub(crate) fn read_value(encoded: &[u8]) -> Result<Value, ContentError> {
    read_value_ref(encoded).map(ValueRef::to_value)
}

/// Decodes the value of an application property in place.
pub(crate) fn read_value_ref(encoded: &[u8]) -> Result<ValueRef<'_>, ContentError> {
    Ok(match Reader::new(encoded).scalar()? {
        Scalar::Null => ValueRef::Null,
        Scalar::Bool(value) => ValueRef::Bool(value),
        Scalar::I8(value) => ValueRef::I8(value),
        Scalar::I16(value) => ValueRef::I16(value),
        Scalar::I32(value) => ValueRef::I32(value),
        Scalar::I64(value) => ValueRef::I64(value),
        Scalar::U8(value) => ValueRef::U8(value),
        Scalar::U16(value) => ValueRef::U16(value),
        Scalar::U32(value) => ValueRef::U32(value),
        Scalar::U64(value) => ValueRef::U64(value),
        Scalar::F32(value) => ValueRef::F32(value),
        Scalar::F64(value) => ValueRef::F64(value),
        Scalar::Decimal128(value) => ValueRef::Decimal128(value),
        Scalar::Char(value) => ValueRef::Char(value),
        Scalar::Text(text) | Scalar::Symbol(text) => ValueRef::String(text),
        Scalar::Uuid(value) => ValueRef::Uuid(value),
        Scalar::Timestamp(value) => ValueRef::Timestamp(value),
        Scalar::Binary(bytes) => ValueRef::Binary(bytes),
        Scalar::Described(descriptor, value) => read_described(descriptor, value)?,
        Scalar::Compound | Scalar::Other => return Err(ContentError::UnsupportedValue),
    })
}

fn read_described<'a>(descriptor: &[u8], value: &'a [u8]) -> Result<ValueRef<'a>, ContentError> {
    let Scalar::Symbol(descriptor) = Reader::new(descriptor).scalar()? else {
        return Err(ContentError::UnsupportedValue);
    };
    match (descriptor, Reader::new(value).scalar()?) {
        (described::URI, Scalar::Text(uri)) => Ok(ValueRef::Uri(uri)),
        (described::DATE_TIME_OFFSET, Scalar::I64(ticks)) => Ok(ValueRef::DateTimeOffset(ticks)),
        (described::TIME_SPAN, Scalar::I64(ticks)) => Ok(ValueRef::TimeSpan(ticks)),
        _ => Err(ContentError::UnsupportedValue),
    }
}
