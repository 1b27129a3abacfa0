//! Application properties: maps of keys to values.

use bytes::Bytes;

use super::described;
use super::read::{Reader, Scalar};
use crate::message::{ContentError, Value};

/// One entry of a map of application properties, as it is encoded.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    key: &'a [u8],
    /// The encoded value.
    pub(crate) value: &'a [u8],
}

impl<'a> Entry<'a> {
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

    /// The encoded key.
    pub(crate) const fn key_bytes(&self) -> &'a [u8] {
        self.key
    }

    /// What counts against the limit of one property (MSG-26).
    pub(crate) const fn size_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// The entries of an encoded map in their order; ends early where the map is malformed.
pub(crate) fn entries(map: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut items = match Reader::new(map).map() {
        Ok((_, items)) => items,
        Err(_) => Reader::new(&[]),
    };
    std::iter::from_fn(move || Some(Entry { key: items.raw().ok()?, value: items.raw().ok()? }))
}

/// Understands one encoded value of an application property.
pub(crate) fn read_value(encoded: &[u8]) -> Result<Value, ContentError> {
    Ok(match Reader::new(encoded).scalar()? {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::I8(value) => Value::I8(value),
        Scalar::I16(value) => Value::I16(value),
        Scalar::I32(value) => Value::I32(value),
        Scalar::I64(value) => Value::I64(value),
        Scalar::U8(value) => Value::U8(value),
        Scalar::U16(value) => Value::U16(value),
        Scalar::U32(value) => Value::U32(value),
        Scalar::U64(value) => Value::U64(value),
        Scalar::F32(value) => Value::F32(value),
        Scalar::F64(value) => Value::F64(value),
        Scalar::Decimal128(value) => Value::Decimal128(value),
        Scalar::Char(value) => Value::Char(value),
        Scalar::Text(text) | Scalar::Symbol(text) => Value::String(text.to_owned()),
        Scalar::Uuid(value) => Value::Uuid(value),
        Scalar::Timestamp(value) => Value::Timestamp(value),
        Scalar::Binary(bytes) => Value::Binary(Bytes::copy_from_slice(bytes)),
        Scalar::Described(descriptor, value) => read_described(descriptor, value)?,
        Scalar::Compound | Scalar::Other => return Err(ContentError::UnsupportedValue),
    })
}

fn read_described(descriptor: &[u8], value: &[u8]) -> Result<Value, ContentError> {
    let Scalar::Symbol(descriptor) = Reader::new(descriptor).scalar()? else {
        return Err(ContentError::UnsupportedValue);
    };
    match (descriptor, Reader::new(value).scalar()?) {
        (described::URI, Scalar::Text(uri)) => Ok(Value::Uri(uri.to_owned())),
        (described::DATE_TIME_OFFSET, Scalar::I64(ticks)) => Ok(Value::DateTimeOffset(ticks)),
        (described::TIME_SPAN, Scalar::I64(ticks)) => Ok(Value::TimeSpan(ticks)),
        _ => Err(ContentError::UnsupportedValue),
    }
}
