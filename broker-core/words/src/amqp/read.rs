//! Reads encoded values, one at a time, from unchecked bytes. No read goes past the end, and none
//! panics.

use super::check::DEPTH_MAX;
use super::{ContentError, code};

type Result<T> = std::result::Result<T, ContentError>;

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// One value, in the detail that content needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A byte.
    I8(i8),
    /// A short.
    I16(i16),
    /// An int.
    I32(i32),
    /// A long.
    I64(i64),
    /// A ubyte.
    U8(u8),
    /// A ushort.
    U16(u16),
    /// A uint.
    U32(u32),
    /// A ulong.
    U64(u64),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
    /// A decimal of 128 bits, in its encoding.
    Decimal128([u8; 16]),
    /// A character.
    Char(char),
    /// A string.
    Text(&'a str),
    /// A symbol.
    Symbol(&'a str),
    /// A UUID; its first byte on the wire is the most significant.
    Uuid(u128),
    /// An instant in milliseconds since 1970.
    Timestamp(i64),
    /// Bytes.
    Binary(&'a [u8]),
    /// A descriptor and a value, each encoded.
    Described(&'a [u8], &'a [u8]),
    /// A list, a map or an array.
    Compound,
    /// A type without a place in the message model.
    Other,
}

impl<'a> Reader<'a> {
    /// A reader of all these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether no bytes are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes that are left.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes that are left.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or(ContentError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Takes `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(ContentError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Takes `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or(ContentError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// Takes a length or a count of four bytes.
    #[inline]
    pub fn length32(&mut self) -> Result<usize> {
        let length = u32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| ContentError::Truncated)
    }

    /// Takes the encoding of the next value, with its constructor.
    #[inline]
    pub fn raw(&mut self) -> Result<&'a [u8]> {
        let whole = *self;
        let mut values_left = 1;
        while values_left > 0 {
            let code = self.byte()?;
            if code == code::DESCRIBED {
                // A descriptor and a value replace one value.
                values_left += 1;
                // The same bound as in the check, so that accepted content can be read again.
                if values_left > DEPTH_MAX {
                    return Err(ContentError::TooDeep);
                }
                continue;
            }
            self.skip(code)?;
            values_left -= 1;
        }
        whole.up_to(self)
    }

    /// The bytes between this position and a later one.
    #[inline]
    pub fn up_to(&self, later: &Self) -> Result<&'a [u8]> {
        let length = self.rest.len().saturating_sub(later.rest.len());
        self.rest.get(..length).ok_or(ContentError::Truncated)
    }

    /// Skips the value whose constructor `code` was read already.
    #[inline]
    fn skip(&mut self, code: u8) -> Result<()> {
        let length = match width(code)? {
            Width::Fixed(length) => length,
            Width::Length8 => usize::from(self.byte()?),
            Width::Length32 => self.length32()?,
        };
        self.take(length).map(|_| ())
    }

    /// Takes the next value and decodes it. Text is checked to be UTF-8.
    pub fn scalar(&mut self) -> Result<Scalar<'a>> {
        let code = self.byte()?;
        self.scalar_of(code)
    }

    /// Takes a value whose constructor `code` was read already, for example an element of an array.
    #[inline]
    pub fn scalar_of(&mut self, code: u8) -> Result<Scalar<'a>> {
        Ok(match code {
            code::NULL => Scalar::Null,
            code::STRING8 => Scalar::Text(self.text8()?),
            code::STRING32 => Scalar::Text(self.text32()?),
            code::SYMBOL8 => Scalar::Symbol(self.text8()?),
            code::SYMBOL32 => Scalar::Symbol(self.text32()?),
            code::TRUE => Scalar::Bool(true),
            code::FALSE => Scalar::Bool(false),
            code::BOOLEAN => match self.byte()? {
                0 => Scalar::Bool(false),
                1 => Scalar::Bool(true),
                _ => return Err(ContentError::BadValue("boolean")),
            },
            code::UBYTE => Scalar::U8(self.byte()?),
            code::BYTE => Scalar::I8(i8::from_be_bytes(self.array()?)),
            code::USHORT => Scalar::U16(u16::from_be_bytes(self.array()?)),
            code::SHORT => Scalar::I16(i16::from_be_bytes(self.array()?)),
            code::UINT0 => Scalar::U32(0),
            code::SMALL_UINT => Scalar::U32(u32::from(self.byte()?)),
            code::UINT => Scalar::U32(u32::from_be_bytes(self.array()?)),
            code::SMALL_INT => Scalar::I32(i32::from(i8::from_be_bytes(self.array()?))),
            code::INT => Scalar::I32(i32::from_be_bytes(self.array()?)),
            code::ULONG0 => Scalar::U64(0),
            code::SMALL_ULONG => Scalar::U64(u64::from(self.byte()?)),
            code::ULONG => Scalar::U64(u64::from_be_bytes(self.array()?)),
            code::SMALL_LONG => Scalar::I64(i64::from(i8::from_be_bytes(self.array()?))),
            code::LONG => Scalar::I64(i64::from_be_bytes(self.array()?)),
            code::FLOAT => Scalar::F32(f32::from_be_bytes(self.array()?)),
            code::DOUBLE => Scalar::F64(f64::from_be_bytes(self.array()?)),
            code::CHAR => Scalar::Char(
                char::from_u32(u32::from_be_bytes(self.array()?))
                    .ok_or(ContentError::BadValue("char"))?,
            ),
            code::TIMESTAMP => Scalar::Timestamp(i64::from_be_bytes(self.array()?)),
            code::DECIMAL128 => Scalar::Decimal128(self.array()?),
            code::UUID => Scalar::Uuid(u128::from_be_bytes(self.array()?)),
            code::BINARY8 => {
                let length = usize::from(self.byte()?);
                Scalar::Binary(self.take(length)?)
            }
            code::BINARY32 => {
                let length = self.length32()?;
                Scalar::Binary(self.take(length)?)
            }
            code::DESCRIBED => Scalar::Described(self.raw()?, self.raw()?),
            _ => {
                self.skip(code)?;
                if code == code::DECIMAL32 || code == code::DECIMAL64 {
                    Scalar::Other
                } else {
                    Scalar::Compound
                }
            }
        })
    }

    #[inline]
    fn text8(&mut self) -> Result<&'a str> {
        let length = usize::from(self.byte()?);
        utf8(self.take(length)?)
    }

    /// Takes the next value if it is null or a short string, the usual case for fields.
    #[inline]
    pub fn plain_text(&mut self) -> Option<Result<Option<&'a str>>> {
        match *self.rest.first()? {
            code::NULL => Some(self.byte().map(|_| None)),
            code::STRING8 => Some(self.byte().and_then(|_| self.text8()).map(Some)),
            _ => None,
        }
    }

    fn text32(&mut self) -> Result<&'a str> {
        let length = self.length32()?;
        utf8(self.take(length)?)
    }

    /// The count of a list's fields, and a reader for the fields.
    #[inline]
    pub fn list(&mut self) -> Result<(usize, Self)> {
        match self.byte()? {
            code::LIST0 => Ok((0, Self::new(&[]))),
            code::LIST8 => self.compound8(),
            code::LIST32 => self.compound32(),
            _ => Err(ContentError::BadValue("list")),
        }
    }

    /// The count of a map's keys and values, which is even, and a reader for these in turn.
    #[inline]
    pub fn map(&mut self) -> Result<(usize, Self)> {
        let (count, entries) = match self.byte()? {
            code::MAP8 => self.compound8()?,
            code::MAP32 => self.compound32()?,
            _ => return Err(ContentError::BadValue("map")),
        };
        if count % 2 != 0 {
            return Err(ContentError::BadValue("map"));
        }
        Ok((count, entries))
    }

    /// The count and the items after a constructor with one-byte sizes.
    #[inline]
    pub fn compound8(&mut self) -> Result<(usize, Self)> {
        let size = usize::from(self.byte()?);
        let mut items = Self::new(self.take(size)?);
        let count = usize::from(items.byte()?);
        Ok((count, items))
    }

    /// The count and the items after a constructor with sizes of four bytes.
    pub fn compound32(&mut self) -> Result<(usize, Self)> {
        let size = self.length32()?;
        let mut items = Self::new(self.take(size)?);
        let count = items.length32()?;
        Ok((count, items))
    }

    /// Takes the descriptor of the section that begins here. The section value is next.
    #[inline]
    pub fn section(&mut self) -> Result<u8> {
        if let Some(([code::DESCRIBED, code::SMALL_ULONG, section], rest)) =
            self.rest.split_first_chunk::<3>()
        {
            self.rest = rest;
            return Ok(*section);
        }
        self.section_spelled_out()
    }

    /// Takes a descriptor that is not in its smallest form.
    #[cold]
    fn section_spelled_out(&mut self) -> Result<u8> {
        if self.byte()? != code::DESCRIBED {
            return Err(ContentError::NoSection);
        }
        match self.scalar()? {
            Scalar::U64(number) => u8::try_from(number).map_err(|_| ContentError::NoSection),
            Scalar::Symbol(name) => section_by_name(name),
            _ => Err(ContentError::NoSection),
        }
    }
}

/// The length of a value, by its constructor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// A fixed number of bytes.
    Fixed(usize),
    /// A one-byte length precedes it.
    Length8,
    /// A length of four bytes precedes it.
    Length32,
}

/// The width for a constructor. `DESCRIBED` has none and is refused.
#[inline]
pub const fn width(code: u8) -> Result<Width> {
    Ok(match code {
        code::NULL..=code::LIST0 => Width::Fixed(0),
        code::UBYTE..=code::BOOLEAN => Width::Fixed(1),
        code::USHORT | code::SHORT => Width::Fixed(2),
        code::UINT..=code::DECIMAL32 => Width::Fixed(4),
        code::ULONG..=code::DECIMAL64 => Width::Fixed(8),
        code::DECIMAL128 | code::UUID => Width::Fixed(16),
        code::BINARY8 | code::STRING8 | code::SYMBOL8 | code::LIST8 | code::MAP8 | code::ARRAY8 => {
            Width::Length8
        }
        code::BINARY32
        | code::STRING32
        | code::SYMBOL32
        | code::LIST32
        | code::MAP32
        | code::ARRAY32 => Width::Length32,
        _ => return Err(ContentError::UnknownType(code)),
    })
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| ContentError::NotUtf8)
}

fn section_by_name(name: &str) -> Result<u8> {
    use super::descriptor as d;
    Ok(match name {
        "amqp:header:list" => d::HEADER,
        "amqp:delivery-annotations:map" => d::DELIVERY_ANNOTATIONS,
        "amqp:message-annotations:map" => d::MESSAGE_ANNOTATIONS,
        "amqp:properties:list" => d::PROPERTIES,
        "amqp:application-properties:map" => d::APPLICATION_PROPERTIES,
        "amqp:data:binary" => d::DATA,
        "amqp:amqp-sequence:list" => d::SEQUENCE,
        "amqp:amqp-value:*" => d::VALUE,
        "amqp:footer:map" => d::FOOTER,
        _ => return Err(ContentError::NoSection),
    })
}
