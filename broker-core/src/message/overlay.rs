//! Properties that settlements add to a message, kept beside its content (SET-08, DESIGN D8).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::codec::{self, Compound};
use super::envelope::{check_property_size, doubled_key, empty_key};
use super::{Message, PropertyLimits, Value};
use crate::error::Rejection;

/// The application property that tells why a message was dead-lettered (DLQ-14).
pub const DEAD_LETTER_REASON: &str = "DeadLetterReason";
/// The application property that explains why a message was dead-lettered (DLQ-14).
pub const DEAD_LETTER_ERROR_DESCRIPTION: &str = "DeadLetterErrorDescription";

/// Application properties to add or overwrite, as an encoded AMQP map. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay {
    map: Bytes,
}

impl Overlay {
    /// An overlay of these properties.
    ///
    /// # Errors
    /// `ArgumentError` when a key is empty or given twice (MSG-22), `MessageSizeExceeded` when one
    /// property or all of them are larger than a message may have (MSG-26).
    pub fn encode(properties: &[(String, Value)]) -> Result<Self, Rejection> {
        Self::from_properties(properties.iter().map(|(key, value)| (key.as_str(), value)))
    }

    /// An overlay of a dead-letter reason and description (DLQ-14), each left out if not given
    /// (DLQ-19), and of further properties. A reason or description given wins over a further
    /// property of the same name.
    ///
    /// # Errors
    /// Those of [`Overlay::encode`].
    pub fn dead_letter(
        reason: Option<&str>,
        description: Option<&str>,
        further: &[(String, Value)],
    ) -> Result<Self, Rejection> {
        let given = [(DEAD_LETTER_REASON, reason), (DEAD_LETTER_ERROR_DESCRIPTION, description)]
            .map(|(key, text)| (key, text.map(Value::from)));
        let is_given = |key: &str| given.iter().any(|(name, text)| text.is_some() && key == *name);
        let further = further.iter().map(|(key, value)| (key.as_str(), value));
        Self::from_properties(
            given
                .iter()
                .filter_map(|(key, text)| Some((*key, text.as_ref()?)))
                .chain(further.filter(|(key, _)| !is_given(key))),
        )
    }

    fn from_properties<'a>(
        properties: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, Rejection> {
        let mut items = Vec::new();
        let mut keys = BTreeSet::new();
        for (key, value) in properties {
            if key.is_empty() {
                return Err(empty_key());
            }
            if !keys.insert(key) {
                return Err(doubled_key(key));
            }
            codec::text(&mut items, key);
            codec::write_value(&mut items, value);
        }
        let overlay = Self::from_items(&items, keys.len() * 2);
        overlay.check_size(&PropertyLimits::default())?;
        Ok(overlay)
    }

    fn from_items(items: &[u8], count: usize) -> Self {
        let bytes = codec::compound_bytes(Compound::Map, items.len(), count);
        let mut map = Vec::with_capacity(bytes);
        codec::compound(&mut map, Compound::Map, items.len(), count);
        map.extend_from_slice(items);
        Self { map: map.into() }
    }

    fn check_size(&self, limits: &PropertyLimits) -> Result<(), Rejection> {
        for entry in codec::entries(&self.map) {
            check_property_size(entry, limits)?;
        }
        if self.size_bytes() > limits.header_bytes_max {
            return Err(Rejection::message_size_exceeded(
                "map of properties to set",
                u64::from(self.size_bytes()),
                u64::from(limits.header_bytes_max),
            ));
        }
        Ok(())
    }

    /// An overlay from the bytes that [`Overlay::as_bytes`] gave. Bytes of any other origin do no
    /// harm; what is not an encoded property in them is not applied.
    #[must_use]
    pub const fn from_bytes(map: Bytes) -> Self {
        Self { map }
    }

    /// The encoded map.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.map
    }

    /// The length of the encoded map.
    #[must_use]
    pub fn size_bytes(&self) -> u32 {
        u32::try_from(self.map.len()).unwrap_or(u32::MAX)
    }

    /// Whether it sets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.properties().next().is_none()
    }

    /// The properties in the order in which they were given.
    pub fn properties(&self) -> impl Iterator<Item = (&str, Value)> {
        codec::entries(&self.map)
            .filter_map(|entry| Some((entry.key()?, codec::read_value(entry.value).ok()?)))
    }

    /// One overlay that does what `earlier` and then this one do.
    #[must_use]
    pub fn on_top_of(&self, earlier: &Self) -> Self {
        let keys: BTreeSet<_> = codec::entries(&self.map).filter_map(|entry| entry.key()).collect();
        let mut items = Vec::with_capacity(earlier.map.len() + self.map.len());
        let mut count = 0;
        for entry in codec::entries(&earlier.map) {
            if entry.key().is_some_and(|key| !keys.contains(key)) {
                items.extend_from_slice(entry.key_bytes());
                items.extend_from_slice(entry.value);
                count += 2;
            }
        }
        for entry in codec::entries(&self.map) {
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
            count += 2;
        }
        Self::from_items(&items, count)
    }

    /// Adds or overwrites the application properties of `message`, byte-exact keys deciding; those
    /// it had keep their places and all others are kept (SET-08).
    pub fn apply_to(&self, message: &mut Message) {
        for (key, value) in self.properties() {
            let properties = &mut message.application_properties;
            match properties.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value,
                None => properties.push((key.to_owned(), value)),
            }
        }
    }
}
