//! The content of a message: its bytes as they are stored, measured and sent (DESIGN D8).
//!
//! [`Message::encode`] or [`Content::parse`] makes it once, when a transport takes the message in.
//! It is never altered. Sections that the broker does not read, delivery annotations included, are
//! kept byte for byte (AMQP-45).

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};

use super::codec::{
    self, Annotations, Compound, Layout, PropertiesSection, Reader, Scalar, code, descriptor,
};
use super::{Body, ContentError, Message, MessageId, Overlay, Value};
use crate::amqp::ItemBounds;
use crate::error::Rejection;
use crate::time::{TimeSpan, Timestamp};

/// Place of the content encoding in the properties section.
const CONTENT_ENCODING_PLACE: usize = 7;

/// A bare message in AMQP section encoding. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    bytes: Bytes,
    layout: Layout,
}

/// The sections of content, each with its descriptor, and empty where the section is missing.
/// Joined in this order they are the whole content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sections<'a> {
    /// The header.
    pub header: &'a [u8],
    /// The delivery annotations.
    pub delivery_annotations: &'a [u8],
    /// The message annotations.
    pub message_annotations: &'a [u8],
    /// The properties.
    pub properties: &'a [u8],
    /// The application properties.
    pub application_properties: &'a [u8],
    /// All body sections.
    pub body: &'a [u8],
    /// The footer.
    pub footer: &'a [u8],
}

/// The fields of all sections but the body that the broker reads.
pub(super) struct View<'a> {
    pub(super) time_to_live: Option<TimeSpan>,
    pub(super) annotations: Annotations<'a>,
    pub(super) properties: PropertiesSection<'a>,
}

impl Content {
    pub(super) const fn new(bytes: Bytes, layout: Layout) -> Self {
        Self { bytes, layout }
    }

    /// Checks untrusted bytes: every section and every length in it, in time and memory
    /// proportional to the input. Each section is kept byte for byte (AMQP-45). Some clients write
    /// sections in another order than the standard; they are put in order. A missing body reads as
    /// an empty one (MSG-01).
    ///
    /// # Errors
    /// If the bytes are not one message in AMQP section encoding. [`Content::envelope`] checks
    /// limits and the validity of properties, not this function.
    pub fn parse(bytes: Bytes) -> Result<Self, ContentError> {
        Self::parse_within(bytes, ItemBounds::stored())
    }

    fn parse_within(bytes: Bytes, bounds: ItemBounds) -> Result<Self, ContentError> {
        match codec::layout(&bytes, bounds) {
            Ok(layout) => Ok(Self { bytes, layout }),
            Err(ContentError::SectionOrder) => {
                let bytes = Bytes::from(codec::in_order(&bytes)?);
                let layout = codec::layout(&bytes, bounds)?;
                Ok(Self { bytes, layout })
            }
            Err(error) => Err(error),
        }
    }

    /// Checks bytes from a sender: like [`Content::parse`], and more strictly. Fields that the
    /// broker passes on unread must have the types of the standard, and values at most as many
    /// items as receivers in the field accept. Those receivers end their connection over such
    /// content, or receive nothing more, at every delivery.
    ///
    /// # Errors
    /// As [`Content::parse`], and [`ContentError::BadValue`] for such a field.
    pub fn from_sender(bytes: Bytes) -> Result<Self, ContentError> {
        let content = Self::parse_within(bytes, ItemBounds::of_sender())?;
        let sections = content.sections();
        codec::check_unread(sections.header, sections.properties)?;
        Ok(content)
    }

    /// The whole encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The size of the message in bytes (MSG-24, MSG-25).
    #[must_use]
    pub fn size(&self) -> u32 {
        length(self.bytes.len())
    }

    /// The size without the body sections (MSG-25).
    #[must_use]
    pub fn header_size(&self) -> u32 {
        length(self.bytes.len().saturating_sub(self.sections().body.len()))
    }

    /// The encoded sections.
    #[must_use]
    #[inline]
    pub fn sections(&self) -> Sections<'_> {
        let Layout { delivery_at, annotations_at, properties_at, application_at, body_at } =
            self.layout;
        let rest = self.bytes.get(place(body_at)..).unwrap_or_default();
        let (body, footer) = rest.split_at_checked(body_end(rest)).unwrap_or_default();
        Sections {
            header: self.between(0, delivery_at),
            delivery_annotations: self.between(delivery_at, annotations_at),
            message_annotations: self.between(annotations_at, properties_at),
            properties: self.between(properties_at, application_at),
            application_properties: self.between(application_at, body_at),
            body,
            footer,
        }
    }

    #[inline]
    fn between(&self, from: u32, to: u32) -> &[u8] {
        self.bytes.get(place(from)..place(to)).unwrap_or_default()
    }

    /// The body, in its kind of section (MSG-03). Several data sections are joined; a single one is
    /// not copied.
    #[must_use]
    pub fn body(&self) -> Body {
        let sections = self.sections().body;
        let mut reader = Reader::new(sections);
        match reader.section() {
            Ok(descriptor::SEQUENCE) => Body::Sequence(self.bytes.slice_ref(sections)),
            Ok(descriptor::VALUE) => Body::Value(self.bytes.slice_ref(sections)),
            Ok(_) => Body::Data(self.data(sections)),
            Err(_) => Body::default(),
        }
    }

    /// The body as transports without AMQP sections deliver it (MSG-03).
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        match self.body() {
            Body::Data(bytes) | Body::Value(bytes) | Body::Sequence(bytes) => bytes,
        }
    }

    /// The bytes of a body of data sections; none for a body of another kind or of more than
    /// `length_max` bytes, of which nothing is copied.
    #[must_use]
    pub fn data_within(&self, length_max: usize) -> Option<Bytes> {
        let sections = self.sections().body;
        let is_data = matches!(Reader::new(sections).section(), Ok(descriptor::DATA) | Err(_));
        let mut lengths = data_sections(sections).map(<[u8]>::len);
        let fits = lengths.try_fold(length_max, usize::checked_sub).is_some();
        (is_data && fits).then(|| self.data(sections))
    }

    fn data(&self, sections: &[u8]) -> Bytes {
        let mut parts = data_sections(sections);
        let first = parts.next().unwrap_or_default();
        let Some(second) = parts.next() else {
            return self.bytes.slice_ref(first);
        };
        let mut joined = BytesMut::with_capacity(sections.len());
        joined.extend_from_slice(first);
        joined.extend_from_slice(second);
        for bytes in parts {
            joined.extend_from_slice(bytes);
        }
        joined.freeze()
    }

    /// The text form of the message id (AMQ-21).
    #[must_use]
    pub fn message_id(&self) -> Option<Cow<'_, str>> {
        let section = self.between(self.layout.properties_at, self.layout.application_at);
        let id = PropertiesSection::message_id(section).unwrap_or_default();
        id.map(codec::IdRef::text)
    }

    /// The session id in the sender's spelling.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.properties().group_id
    }

    /// The sender's time to live. An AMQP ttl of 0 means none (EXP-09, AMQ-19).
    #[must_use]
    pub fn time_to_live(&self) -> Option<TimeSpan> {
        self.view().time_to_live
    }

    /// The application properties in the sender's order, without those whose type or key an
    /// [`Envelope`](super::Envelope) reports as a defect.
    pub fn application_properties(&self) -> impl Iterator<Item = (&str, Value)> {
        self.application_entries()
            .filter_map(|entry| Some((entry.key()?, codec::read_value(entry.value).ok()?)))
    }

    /// The typed view, with the given overlays applied, the oldest first.
    ///
    /// # Errors
    /// As for [`Content::decode`].
    pub fn message<'a>(
        &self,
        overlays: impl IntoIterator<Item = &'a Overlay>,
    ) -> Result<Message, ContentError> {
        let mut message = self.decode()?;
        for overlay in overlays {
            message.apply_overlay(overlay);
        }
        Ok(message)
    }

    /// The typed view of this content. It lacks some fields of the content (AMQ-20).
    ///
    /// # Errors
    /// If an application property has a type or a key that [`Message`] cannot hold.
    pub fn decode(&self) -> Result<Message, ContentError> {
        Ok(Message { body: self.body(), ..self.decode_header()? })
    }

    /// The typed view without the body.
    pub(super) fn decode_header(&self) -> Result<Message, ContentError> {
        let View { time_to_live, annotations, properties } = self.view();
        let text = |text: Option<&str>| text.map(str::to_owned);
        let mut application_properties = Vec::new();
        for entry in self.application_entries() {
            let key = entry.key().ok_or(ContentError::BadKey)?;
            application_properties.push((key.to_owned(), codec::read_value(entry.value)?));
        }
        Ok(Message {
            body: Body::default(),
            message_id: properties.message_id.map(codec::IdRef::to_owned),
            session_id: text(properties.group_id),
            partition_key: text(annotations.partition_key),
            transaction_partition_key: text(annotations.via_partition_key),
            reply_to_session_id: text(properties.reply_to_group_id),
            correlation_id: properties.correlation_id.map(codec::IdRef::to_owned),
            content_type: text(properties.content_type),
            subject: text(properties.subject),
            to: text(properties.to),
            reply_to: text(properties.reply_to),
            time_to_live,
            scheduled_enqueue_time: annotations.scheduled_enqueue_time.map(Timestamp::from_unix_ms),
            force_persistence: annotations.force_persistence,
            application_properties,
        })
    }

    /// This content with another message id. All other bytes are kept (MSG-07, AMQ-20).
    #[must_use]
    pub fn with_message_id(&self, id: &MessageId) -> Self {
        let sections = self.sections();
        let mut fields = Vec::with_capacity(sections.properties.len() + 40);
        codec::id(&mut fields, id.borrow());
        let mut count = 1;
        let mut reader = Reader::new(sections.properties);
        if let Ok((old_count @ 1.., mut old)) = reader.section().and_then(|_| reader.list())
            && old.raw().is_ok()
        {
            fields.extend_from_slice(old.rest());
            count = old_count;
        }
        self.with_properties(&fields, count)
    }

    /// This content with these fields in its properties section.
    fn with_properties(&self, fields: &[u8], count: usize) -> Self {
        let [before, after] = [self.between(0, self.layout.properties_at), self.after_properties()];
        let properties_bytes = 3 + codec::compound_bytes(Compound::List, fields.len(), count);
        let mut bytes = Vec::with_capacity(before.len() + properties_bytes + after.len());
        bytes.extend_from_slice(before);
        bytes.extend_from_slice(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::PROPERTIES]);
        codec::compound(&mut bytes, Compound::List, fields.len(), count);
        bytes.extend_from_slice(fields);
        let application_at = bytes.len();
        bytes.extend_from_slice(after);
        let body_at = application_at + self.sections().application_properties.len();
        let Layout { delivery_at, annotations_at, properties_at, .. } = self.layout;
        let [delivery_at, annotations_at, properties_at] =
            [delivery_at, annotations_at, properties_at].map(place);
        let layout =
            Layout::new(delivery_at, annotations_at, properties_at, application_at, body_at);
        Self { bytes: bytes.into(), layout }
    }

    /// This content with one data section as its body. All other bytes are kept (CON-16).
    #[must_use]
    pub fn with_body(&self, body: &[u8]) -> Self {
        let (before, footer) = (self.between(0, self.layout.body_at), self.sections().footer);
        let mut bytes = Vec::with_capacity(before.len() + 8 + body.len() + footer.len());
        bytes.extend_from_slice(before);
        bytes.extend_from_slice(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::DATA]);
        codec::binary(&mut bytes, body);
        bytes.extend_from_slice(footer);
        Self { bytes: bytes.into(), layout: self.layout }
    }

    /// A copy of this content without its body and footer, which keeps no other memory (CON-36).
    #[must_use]
    pub fn without_body(&self) -> Self {
        let bytes = Bytes::copy_from_slice(self.between(0, self.layout.body_at));
        Self { bytes, layout: self.layout }
    }

    /// Number of bytes of [`Self::without_body`].
    #[must_use]
    pub fn bytes_without_body(&self) -> usize {
        self.between(0, self.layout.body_at).len()
    }

    /// This content without a content encoding, which a new body does not have. All other bytes are
    /// kept (CON-16).
    #[must_use]
    pub fn without_content_encoding(self) -> Self {
        let section = self.sections().properties;
        match fields_without_encoding(section) {
            Some((fields, count)) => self.with_properties(&fields, count),
            None => self,
        }
    }

    /// The number of bytes that the message id adds, if it has the form of an id from a broker. The
    /// sender's message was smaller by this number.
    #[must_use]
    pub fn assigned_id_bytes(&self) -> Option<u32> {
        let section = self.between(self.layout.properties_at, self.layout.application_at);
        let mut reader = Reader::new(section);
        reader.section().ok()?;
        let (count, mut fields) = reader.list().ok()?;
        let fields_bytes = fields.remaining();
        let id = fields.raw().ok()?;
        let is_assigned =
            matches!(Reader::new(id).scalar(), Ok(Scalar::Text(text)) if is_assigned(text));
        let without = match count {
            1 => 0,
            _ => 3 + codec::compound_bytes(Compound::List, fields_bytes - id.len() + 1, count),
        };
        is_assigned.then(|| length(section.len().saturating_sub(without)))
    }

    fn after_properties(&self) -> &[u8] {
        self.bytes.get(place(self.layout.application_at)..).unwrap_or_default()
    }

    pub(super) const fn has_application_properties(&self) -> bool {
        self.layout.application_at < self.layout.body_at
    }

    pub(super) fn application_entries(&self) -> impl Iterator<Item = codec::PropertyEntry<'_>> {
        let mut reader = Reader::new(self.between(self.layout.application_at, self.layout.body_at));
        let map = if reader.section().is_ok() { reader.rest() } else { &[] };
        codec::entries(map)
    }

    /// The fields of the properties section. Content was checked or encoded by this module, so an
    /// unreadable section counts as missing.
    #[inline]
    pub(super) fn properties(&self) -> PropertiesSection<'_> {
        let section = self.between(self.layout.properties_at, self.layout.application_at);
        PropertiesSection::read(section).unwrap_or_default()
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        let header = self.between(0, self.layout.delivery_at);
        let annotations = self.between(self.layout.annotations_at, self.layout.properties_at);
        let properties = self.properties();
        let ttl = codec::ttl(header).unwrap_or_default();
        View {
            time_to_live: codec::time_to_live(ttl, &properties),
            annotations: Annotations::read(annotations).unwrap_or_default(),
            properties,
        }
    }

    /// Whether the body matches its sections. Only a [`Message`] with a value or sequence body that
    /// is not AMQP can fail this, because `encode` does not check such bytes.
    pub(super) fn check_body(&self) -> Result<(), ContentError> {
        let rest = self.bytes.get(place(self.layout.body_at)..).unwrap_or_default();
        if is_one_data_section(rest) {
            return Ok(());
        }
        let mut bounds = ItemBounds::of_sender();
        let (_, end) = codec::body_sections(rest, &mut bounds)?;
        codec::footer(rest.get(end..).unwrap_or_default(), &mut bounds)
    }
}

/// Returns the fields of a properties section without its content encoding, and their number; none
/// if it has no content encoding.
fn fields_without_encoding(section: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut reader = Reader::new(section);
    reader.section().ok()?;
    let (count, mut fields) = reader.list().ok()?;
    let all = fields.rest();
    for _ in 0..CONTENT_ENCODING_PLACE {
        fields.raw().ok()?;
    }
    let before = all.get(..all.len() - fields.remaining())?;
    let is_set = fields.raw().ok()? != [code::NULL];
    is_set.then(|| ([before, &[code::NULL], fields.rest()].concat(), count))
}

/// The bytes of data sections.
fn data_sections(sections: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(sections);
    std::iter::from_fn(move || match (reader.section().ok()?, reader.scalar().ok()?) {
        (descriptor::DATA, Scalar::Binary(bytes)) => Some(bytes),
        _ => None,
    })
}

/// The end of the body, in bytes that begin with it.
fn body_end(rest: &[u8]) -> usize {
    if is_one_data_section(rest) {
        return rest.len();
    }
    codec::body_sections(rest, &mut ItemBounds::stored()).map_or(rest.len(), |(_, end)| end)
}

/// Whether the rest is one data section without a footer, the usual body.
fn is_one_data_section(rest: &[u8]) -> bool {
    let mut reader = Reader::new(rest);
    if reader.section() != Ok(descriptor::DATA) {
        return false;
    }
    let length = match reader.byte() {
        Ok(code::BINARY8) => reader.byte().map(usize::from),
        Ok(code::BINARY32) => reader.length32(),
        _ => return false,
    };
    length == Ok(reader.remaining())
}

/// Whether an id has the form of an id from a broker (MSG-07).
fn is_assigned(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn place(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes.len())
    }
}

impl From<ContentError> for Rejection {
    fn from(error: ContentError) -> Self {
        Self::argument(error.to_string())
    }
}
