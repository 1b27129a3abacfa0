//! Values that are kept as they are encoded, and looked into where that is needed.

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Compound, Sink};
use peeklock_words::amqp::{ContentError, Reader, Scalar, Width, check_value, code, width};

/// Arrays of values without width have no more elements than this: nothing else bounds their count.
const WIDTHLESS_COUNT_MAX: usize = 1_024;

/// One value of any type, as it is encoded. Its lengths and counts were checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raw(Bytes);

/// A map, as it is encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map(Bytes);

/// One symbol or an array of them, as it is encoded (AMQP-101).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbols(Bytes);

impl Raw {
    /// The value at the start of `reader`, which reads a part of `whole`.
    ///
    /// # Errors
    /// When there is no well-formed value.
    pub(crate) fn read(whole: &Bytes, reader: &mut Reader<'_>) -> Result<Self, ContentError> {
        let before = *reader;
        check_value(reader)?;
        Ok(Self(whole.slice_ref(before.up_to(reader)?)))
    }

    /// A value that this program encoded.
    #[must_use]
    pub fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Self(bytes.into())
    }

    /// Its encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// What it is, as far as one look tells.
    ///
    /// # Errors
    /// When its text is not UTF-8 or a boolean or character is none.
    pub fn scalar(&self) -> Result<Scalar<'_>, ContentError> {
        Reader::new(&self.0).scalar()
    }

    /// Its elements, if it is a list or an array.
    ///
    /// # Errors
    /// When it is neither.
    pub fn items(&self) -> Result<Items<'_>, ContentError> {
        Items::read(&self.0)
    }

    /// The items of a list, as they are encoded.
    ///
    /// # Errors
    /// When it is none.
    pub fn raw_items(&self) -> Result<impl Iterator<Item = Self>, ContentError> {
        let (count, mut items) = Reader::new(&self.0).list()?;
        Ok((0..count).map_while(move |_| items.raw().ok()).map(|item| Self(self.0.slice_ref(item))))
    }

    /// What a described value is: its descriptor and the value under it. None if it is not described.
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
    /// A map of these entries, with symbols for keys (AMQP-15).
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

    /// The map that a value is.
    ///
    /// # Errors
    /// When it is none, or its count is odd.
    pub fn from_raw(raw: Raw) -> Result<Self, ContentError> {
        Reader::new(&raw.0).map()?;
        Ok(Self(raw.0))
    }

    /// Its encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The same as a value.
    #[must_use]
    pub fn into_raw(self) -> Raw {
        Raw(self.0)
    }

    /// Its entries in their order.
    pub fn entries(&self) -> impl Iterator<Item = (Raw, Raw)> {
        // It was checked when it was made, so what cannot be read is not there.
        let mut items = Reader::new(&self.0).map().map_or(Reader::new(&[]), |(_, items)| items);
        std::iter::from_fn(move || {
            let (key, value) = (items.raw().ok()?, items.raw().ok()?);
            Some((Raw(self.0.slice_ref(key)), Raw(self.0.slice_ref(value))))
        })
    }

    /// The value under a key, which is a symbol or a string (AMQP-15).
    #[must_use]
    pub fn get(&self, wanted: &str) -> Option<Raw> {
        self.entries().find_map(|(key, value)| match key.scalar() {
            Ok(Scalar::Symbol(key) | Scalar::Text(key)) if key == wanted => Some(value),
            _ => None,
        })
    }
}

impl Symbols {
    /// These symbols, as an array: a list ends the connection of some clients (AMQP-101).
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

    /// The symbols that a value is.
    ///
    /// # Errors
    /// When it is neither a symbol nor an array of symbols.
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

    /// Its encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Those of these that are among them; none if there are none.
    #[must_use]
    pub fn only(&self, known: &[&str]) -> Option<Self> {
        let shared: Vec<_> = known.iter().copied().filter(|known| self.contains(known)).collect();
        (!shared.is_empty()).then(|| Self::new(&shared))
    }

    /// Whether a symbol is among them.
    #[must_use]
    pub fn contains(&self, wanted: &str) -> bool {
        if let Ok(Scalar::Symbol(symbol)) = Reader::new(&self.0).scalar() {
            return symbol == wanted;
        }
        Items::read(&self.0)
            .is_ok_and(|mut items| items.any(|item| item == Ok(Scalar::Symbol(wanted))))
    }
}

/// The elements of a list or an array, one after the other.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
    /// The constructor that all elements of an array share.
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
            // Without elements it may have no constructor either (AMQP-15).
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
