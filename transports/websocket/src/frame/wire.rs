//! The binary form of values: fields in the order of their declaration, numbers in network order.
//!
//! The reader gets untrusted bytes: each length is bounded by the remaining bytes, and a claimed
//! length allocates nothing.

use bytes::Bytes;
use peeklock_core::admission::COMMAND_BYTES;

use crate::error::FrameError;

/// Maximum number of elements in one list, so that a small frame cannot cause a large allocation.
pub(crate) const LIST_COUNT_MAX: usize = 4_096;

/// Cost of requests, computed before they are decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestCost {
    /// Number of list elements; each is a command.
    pub(crate) elements: u64,
    /// Memory that values outside of lists become, in bytes.
    pub(crate) made_bytes: u64,
}

impl RequestCost {
    pub(super) const fn commands(self) -> u64 {
        if self.elements == 0 { 1 } else { self.elements }
    }

    /// Memory that a request needs, in bytes.
    pub(super) const fn bytes(self) -> u64 {
        COMMAND_BYTES.saturating_mul(self.commands()).saturating_add(self.made_bytes)
    }
}

/// A value that has a binary form.
pub(crate) trait Wire: Sized {
    /// Minimum size of a value in bytes; bounds the allocation for a claimed count.
    const BYTES_MIN: usize;

    fn write(&self, out: &mut Vec<u8>);
    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError>;

    /// Skips a value without decoding it, and adds its cost to `cost`.
    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        _ = cost;
        Self::read(reader).map(drop)
    }
}

/// Skips a byte string after its length; returns the length.
pub(crate) fn skip_bytes(reader: &mut Reader<'_>) -> Result<usize, FrameError> {
    let length = reader.length()?;
    reader.take(length).map(<[u8]>::len)
}

/// Reads bytes from the front.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    whole: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(whole: &'a Bytes) -> Self {
        Self { whole, at: 0, end: whole.len() }
    }

    pub(crate) const fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Returns the next bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        if count > self.remaining() {
            return Err(FrameError::Truncated);
        }
        let from = self.at;
        self.at += count;
        self.whole.get(from..self.at).ok_or(FrameError::Truncated)
    }

    /// Returns a reader that is limited to the next `count` bytes.
    pub(crate) fn part(&mut self, count: usize) -> Result<Self, FrameError> {
        if count > self.remaining() {
            return Err(FrameError::Truncated);
        }
        let from = self.at;
        self.at += count;
        Ok(Self { whole: self.whole, at: from, end: self.at })
    }

    /// Returns the next bytes as a separate value. Small parts of large frames are copied, so that
    /// a stored message does not keep a frame in memory.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<Bytes, FrameError> {
        let from = self.at;
        let part = self.take(count)?;
        if count >= self.whole.len() / 2 && count > 0 {
            return Ok(self.whole.slice(from..self.at));
        }
        Ok(Bytes::copy_from_slice(part))
    }

    /// Reads a length or count.
    pub(crate) fn length(&mut self) -> Result<usize, FrameError> {
        usize::try_from(u32::read(self)?).map_err(|_| FrameError::Truncated)
    }

    /// Fails if bytes are left.
    pub(crate) const fn end(&self) -> Result<(), FrameError> {
        if self.remaining() == 0 { Ok(()) } else { Err(FrameError::TooLong) }
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            const BYTES_MIN: usize = size_of::<Self>();

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let bytes = reader.take(size_of::<Self>())?;
                bytes.try_into().map(Self::from_be_bytes).map_err(|_| FrameError::Truncated)
            }
        }
    )*};
}

numbers!(u8, u32, u64, i64, u128, f64);

impl Wire for bool {
    const BYTES_MIN: usize = 1;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        match u8::read(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::BadValue("boolean")),
        }
    }
}

impl Wire for Bytes {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(out, self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let length = reader.length()?;
        reader.bytes(length)
    }

    fn skim(reader: &mut Reader<'_>, _: &mut RequestCost) -> Result<(), FrameError> {
        skip_bytes(reader).map(drop)
    }
}

impl Wire for String {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(out, self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let length = reader.length()?;
        let bytes = reader.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| FrameError::BadValue("text"))
    }

    fn skim(reader: &mut Reader<'_>, _: &mut RequestCost) -> Result<(), FrameError> {
        skip_bytes(reader).map(drop)
    }
}

impl<T: Wire> Wire for Option<T> {
    const BYTES_MIN: usize = 1;

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        if bool::read(reader)? { T::read(reader).map(Some) } else { Ok(None) }
    }

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        if bool::read(reader)? { T::skim(reader, cost) } else { Ok(()) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_length(out, self.len());
        for value in self {
            value.write(out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let count = reader.length()?;
        if count > LIST_COUNT_MAX {
            return Err(FrameError::TooMany);
        }
        if count > reader.remaining() / T::BYTES_MIN.max(1) {
            return Err(FrameError::Truncated);
        }
        let mut values = Self::with_capacity(count);
        for _ in 0..count {
            values.push(T::read(reader)?);
        }
        Ok(values)
    }

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        let count = reader.length()?;
        // Decoding refuses such a list as well, before its first element.
        if count > LIST_COUNT_MAX || count > reader.remaining() / T::BYTES_MIN.max(1) {
            return Err(FrameError::TooMany);
        }
        cost.elements += count as u64;
        for _ in 0..count {
            T::skim(reader, cost)?;
        }
        Ok(())
    }
}

impl<T: Wire> Wire for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        T::read(reader).map(Self::new)
    }

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        T::skim(reader, cost)
    }
}

pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a length of four bytes. Larger values are refused because of their size long before they
/// are written.
pub(crate) fn write_length(out: &mut Vec<u8>, length: usize) {
    u32::try_from(length).unwrap_or(u32::MAX).write(out);
}

/// Writes a part after its length.
pub(crate) fn write_part(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// Gives a struct its binary form: these fields in this order.
macro_rules! wire {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl crate::frame::wire::Wire for $name {
            const BYTES_MIN: usize = 0 $(+ <$type as crate::frame::wire::Wire>::BYTES_MIN)*;

            #[allow(unused_variables, reason = "some structs have no fields")]
            fn write(&self, out: &mut Vec<u8>) {
                $(crate::frame::wire::Wire::write(&self.$field, out);)*
            }

            #[allow(unused_variables, reason = "some structs have no fields")]
            fn read(
                reader: &mut crate::frame::wire::Reader<'_>,
            ) -> Result<Self, crate::error::FrameError> {
                Ok(Self { $($field: <$type as crate::frame::wire::Wire>::read(reader)?),* })
            }

            #[allow(unused_variables, reason = "some structs have no fields")]
            fn skim(
                reader: &mut crate::frame::wire::Reader<'_>,
                cost: &mut crate::frame::wire::RequestCost,
            ) -> Result<(), crate::error::FrameError> {
                $(<$type as crate::frame::wire::Wire>::skim(reader, cost)?;)*
                Ok(())
            }
        }
    };
}

pub(crate) use wire;
