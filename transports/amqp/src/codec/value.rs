//! Values that stay encoded and are decoded only where a caller looks into them. Performatives
//! contain them.

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Compound, Sink};
use peeklock_words::amqp::{ContentError, Reader, Scalar, Width, check_value, code, width};

/// Maximum number of elements in an array of values without width; no byte count bounds them.
const WIDTHLESS_COUNT_MAX: usize = 1_024;

/// Encoded value of any type. Its lengths and counts were checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raw(Bytes);

/// Encoded map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map(Bytes);

/// Encoded symbol or array of symbols (AMQP-101).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbols(Bytes);

impl Raw {
    /// Reads the value at the start of `reader`, which reads a part of `whole`.
    ///
    /// # Errors
    /// Fails if there is no well-formed value.
    pub(crate) fn read(whole: &Bytes, reader: &mut Reader<'_>) -> Result<Self, ContentError> {
        let before = *reader;
        check_value(reader)?;
        Ok(Self(whole.slice_ref(before.up_to(reader)?)))
    }

    /// Makes a value from the bytes that `write` appends.
    #[must_use]
    pub fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Self(bytes.into())
    }

    /// Returns the encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Decodes the outermost level of the value.
    ///
    /// # Errors
    /// Fails if a text is not UTF-8, or a boolean or character is invalid.
    pub fn scalar(&self) -> Result<Scalar<'_>, ContentError> {
        Reader::new(&self.0).scalar()
    }

    /// Returns the decoded elements of a list or an array.
    ///
    /// # Errors
    /// Fails if the value is neither a list nor an array.
    pub fn items(&self) -> Result<Items<'_>, ContentError> {
        Items::read(&self.0)
    }

    /// Returns the encoded items of a list.
    ///
    /// # Errors
    /// Fails if the value is not a list.
    pub fn raw_items(&self) -> Result<impl Iterator<Item = Self>, ContentError> {
        let (count, mut items) = Reader::new(&self.0).list()?;
        Ok((0..count).map_while(move |_| items.raw().ok()).map(|item| Self(self.0.slice_ref(item))))
    }

    /// Returns the descriptor and the value of a described value; `None` if it is not described.
    #[must_use]
    pub fn described(&self) -> Option<(Self, Self)> {
        match Reader::new(&self.0).scalar() {
            Ok(Scalar::Described(descriptor, value)) => {
                Some((Self(self.0.slice_ref(descriptor)), Self(self.0.slice_ref(value))))
            }
            _ => None,
        }
    }
}

impl Map {
    /// Makes a map from entries whose keys are symbols (AMQP-15).
    #[must_use]
    pub fn of_symbols<'a>(entries: impl IntoIterator<Item = (&'a str, Raw)>) -> Self {
        let mut items = Vec::new();
        let mut count = 0;
        for (key, value) in entries {
            write::symbol(&mut items, key);
            items.put(value.as_bytes());
            count += 2;
        }
        let mut bytes = Vec::with_capacity(items.len() + 9);
        write::compound(&mut bytes, Compound::Map, items.len(), count);
        bytes.extend_from_slice(&items);
        Self(bytes.into())
    }

    /// Converts a value that is a map.
    ///
    /// # Errors
    /// Fails if the value is not a map, or its count is odd.
    pub fn from_raw(raw: Raw) -> Result<Self, ContentError> {
        Reader::new(&raw.0).map()?;
        Ok(Self(raw.0))
    }

    /// Returns the encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Converts the map to a value.
    #[must_use]
    pub fn into_raw(self) -> Raw {
        Raw(self.0)
    }

    /// Returns the entries in their order.
    pub fn entries(&self) -> impl Iterator<Item = (Raw, Raw)> {
        // The map was checked when it was made, so every entry can be read.
        let mut items = Reader::new(&self.0).map().map_or(Reader::new(&[]), |(_, items)| items);
        std::iter::from_fn(move || {
            let (key, value) = (items.raw().ok()?, items.raw().ok()?);
            Some((Raw(self.0.slice_ref(key)), Raw(self.0.slice_ref(value))))
        })
    }

    /// Returns the value of a key, which may be a symbol or a string (AMQP-15).
    #[must_use]
    pub fn get(&self, wanted: &str) -> Option<Raw> {
        self.entries().find_map(|(key, value)| match key.scalar() {
            Ok(Scalar::Symbol(key) | Scalar::Text(key)) if key == wanted => Some(value),
            _ => None,
        })
    }
}

impl Symbols {
    /// Makes an array of symbols. A list would end the connection of some clients (AMQP-101).
    #[must_use]
    pub fn new(symbols: &[&str]) -> Self {
        let mut elements = vec![code::SYMBOL32];
        for symbol in symbols {
            elements.put(&write::length32(symbol.len()));
            elements.put(symbol.as_bytes());
        }
        let mut bytes = vec![code::ARRAY32];
        bytes.put(&write::length32(elements.len() + 4));
        bytes.put(&write::length32(symbols.len()));
        bytes.put(&elements);
        Self(bytes.into())
    }

    /// Converts a value that is one symbol or an array of symbols.
    ///
    /// # Errors
    /// Fails if the value is neither a symbol nor an array of symbols.
    pub fn from_raw(raw: Raw) -> Result<Self, ContentError> {
        let wrong = ContentError::BadValue("symbols");
        if !matches!(raw.scalar()?, Scalar::Symbol(_)) {
            for item in raw.items()? {
                let Scalar::Symbol(_) = item? else {
                    return Err(wrong);
                };
            }
        }
        Ok(Self(raw.0))
    }

    /// Returns the encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the symbols that are also in `known`; `None` if there are none.
    #[must_use]
    pub fn only(&self, known: &[&str]) -> Option<Self> {
        let shared: Vec<_> = known.iter().copied().filter(|known| self.contains(known)).collect();
        (!shared.is_empty()).then(|| Self::new(&shared))
    }

    /// Returns whether the symbol is present.
    #[must_use]
    pub fn contains(&self, wanted: &str) -> bool {
        if let Ok(Scalar::Symbol(symbol)) = Reader::new(&self.0).scalar() {
            return symbol == wanted;
        }
        Items::read(&self.0)
            .is_ok_and(|mut items| items.any(|item| item == Ok(Scalar::Symbol(wanted))))
    }
}

/// Iterator over the decoded elements of a list or an array.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
    /// Constructor that all elements of an array share; `None` for a list.
    shared: Option<u8>,
}

impl<'a> Items<'a> {
    fn read(value: &'a [u8]) -> Result<Self, ContentError> {
        let mut reader = Reader::new(value);
        match value.first() {
            Some(&code::ARRAY8) => {
                reader.byte()?;
                Self::of_array(reader.compound8()?)
            }
            Some(&code::ARRAY32) => {
                reader.byte()?;
                Self::of_array(reader.compound32()?)
            }
            _ => {
                let (left, reader) = reader.list()?;
                Ok(Self { reader, left, shared: None })
            }
        }
    }

    fn of_array((left, mut reader): (usize, Reader<'a>)) -> Result<Self, ContentError> {
        if left == 0 && reader.is_empty() {
            // An array without elements may have no constructor either (AMQP-15).
            return Ok(Self { reader, left, shared: None });
        }
        let shared = reader.byte()?;
        if shared == code::DESCRIBED {
            return Err(ContentError::BadValue("array of described values"));
        }
        if matches!(width(shared)?, Width::Fixed(0)) && left > WIDTHLESS_COUNT_MAX {
            return Err(ContentError::BadCount);
        }
        Ok(Self { reader, left, shared: Some(shared) })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Scalar<'a>, ContentError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let item = match self.shared {
            Some(shared) => self.reader.scalar_of(shared),
            None => self.reader.scalar(),
        };
        if item.is_err() {
            self.left = 0;
        }
        Some(item)
    }
}
