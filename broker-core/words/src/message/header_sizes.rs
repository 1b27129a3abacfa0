//! The size that the header of a message has with different overlays (DLQ-20). The message is
//! measured once, and each overlay takes time in proportion to its changes. Topics use it before
//! they make copies.

use std::collections::BTreeMap;

use super::changes::ChangesByKey;
use super::codec;
use super::content::length;
use super::overlay::{id_of, text_of};
use super::settable::set_broker;
use super::{Content, Message, Overlay};

/// The measurements that all header sizes of a message share.
#[derive(Debug)]
pub struct HeaderSizes {
    /// The message without body and application properties.
    message: Message,
    properties: BTreeMap<String, PropertyBytes>,
    all: Sum,
    /// Header bytes of the content that the typed view lacks.
    unread_bytes: u32,
}

/// The size of the application properties with one key.
#[derive(Debug)]
struct PropertyBytes {
    /// Bytes of the first property's value, which a change replaces.
    first_value: usize,
    sum: Sum,
}

/// A number of application properties, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: usize,
    bytes: usize,
}

impl Content {
    /// Measures this message with the overlay that it has already, for further overlays on top.
    /// `None` if [`Message`] cannot hold its properties. Takes time in proportion to the header and
    /// that overlay.
    #[must_use]
    pub fn header_sizes(&self, set_before: Option<&Overlay>) -> Option<HeaderSizes> {
        let mut message = self.decode_header().ok()?;
        let read_bytes = codec::header_bytes(&message);
        if let Some(set_before) = set_before {
            set_before.apply_to(&mut message);
        }
        let mut properties = BTreeMap::<String, PropertyBytes>::new();
        let mut all = Sum::default();
        for (key, value) in std::mem::take(&mut message.application_properties) {
            let (key_bytes, value_bytes) = (codec::text_bytes(&key), codec::value_bytes(&value));
            all.add(key_bytes + value_bytes);
            properties
                .entry(key)
                .or_insert(PropertyBytes { first_value: value_bytes, sum: Sum::default() })
                .sum
                .add(key_bytes + value_bytes);
        }
        let unread_bytes = self.header_size().saturating_sub(length(read_bytes));
        Some(HeaderSizes { message, properties, all, unread_bytes })
    }

    /// The header size of this message with `overlay` on top (DLQ-20), exact for the changes of the
    /// overlay. If [`Message`] cannot hold the properties, the whole overlay is added.
    #[must_use]
    pub fn header_size_with(&self, overlay: &Overlay) -> u32 {
        self.header_sizes(None).map_or_else(
            || self.header_size().saturating_add(overlay.size_bytes()),
            |sizes| sizes.with(overlay),
        )
    }
}

impl HeaderSizes {
    /// The header size without a further overlay.
    #[must_use]
    pub fn plain(&self) -> u32 {
        self.size(&self.message, self.all)
    }

    /// The header size with `overlay` on top.
    #[must_use]
    pub fn with(&self, overlay: &Overlay) -> u32 {
        let mut message: Option<Message> = None;
        let changes = ChangesByKey::of(overlay, |property, value| {
            let message = message.get_or_insert_with(|| self.message.clone());
            set_broker!(message, property, value, id_of, text_of);
        });
        let mut all = self.all;
        for change in changes.iter() {
            let before = self.properties.get(change.key);
            let value_bytes = change.value().map(|value| codec::value_bytes(&value.to_value()));
            match (before.filter(|_| !change.removes), value_bytes) {
                (Some(before), Some(value_bytes)) => {
                    all.bytes = all.bytes.saturating_sub(before.first_value) + value_bytes;
                }
                (Some(_), None) => {}
                (None, value_bytes) => {
                    if let Some(before) = before {
                        all.take(before.sum);
                    }
                    if let Some(value_bytes) = value_bytes {
                        all.add(codec::text_bytes(change.key) + value_bytes);
                    }
                }
            }
        }
        self.size(message.as_ref().unwrap_or(&self.message), all)
    }

    fn size(&self, message: &Message, all: Sum) -> u32 {
        let broker_properties = codec::broker_properties_bytes(message);
        let bytes = broker_properties + codec::application_properties_bytes(all.count, all.bytes);
        self.unread_bytes.saturating_add(length(bytes))
    }
}

impl Sum {
    const fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    const fn take(&mut self, other: Self) {
        self.count = self.count.saturating_sub(other.count);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}
