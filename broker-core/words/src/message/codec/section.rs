//! The sections of content: their positions, and the fields that the broker reads. `content.rs` and
//! the encoder use it. Sections that the broker does not read stay unparsed.

use super::{IdRef, annotation, descriptor};
use crate::amqp::{ItemBounds, Reader, Scalar, check_value_of};
use crate::message::ContentError;
use crate::time::TimeSpan;

type Result<T> = std::result::Result<T, ContentError>;

/// Positions of sections. A missing section begins where the next one does. The header begins at 0;
/// a footer is found after the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) delivery_at: u32,
    pub(crate) annotations_at: u32,
    pub(crate) properties_at: u32,
    pub(crate) application_at: u32,
    pub(crate) body_at: u32,
}

impl Layout {
    pub(crate) fn new(
        delivery: usize,
        annotations: usize,
        properties: usize,
        application: usize,
        body: usize,
    ) -> Self {
        // Content of 4 GiB and more is never accepted, so its positions need not be right.
        let at = |place| u32::try_from(place).unwrap_or(u32::MAX);
        Self {
            delivery_at: at(delivery),
            annotations_at: at(annotations),
            properties_at: at(properties),
            application_at: at(application),
            body_at: at(body),
        }
    }
}

/// Finds and checks all sections of untrusted bytes (AMQP 3.2).
pub(crate) fn layout(bytes: &[u8], mut bounds: ItemBounds) -> Result<Layout> {
    if bytes.is_empty() {
        return Err(ContentError::Empty);
    }
    if u32::try_from(bytes.len()).is_err() {
        return Err(ContentError::TooLarge);
    }
    let bounds = &mut bounds;
    let mut reader = Reader::new(bytes);
    let mut places = [None; 5];
    let [delivery, annotations, properties, application, body] = &mut places;
    let mut last = 0;
    while !reader.is_empty() {
        let from = bytes.len() - reader.remaining();
        let section = reader.section()?;
        check_order(last, section)?;
        last = section;
        match section {
            descriptor::HEADER => drop(header_ttl(&mut reader, bounds)?),
            descriptor::DELIVERY_ANNOTATIONS => {
                *delivery = Some(from);
                check_map(&mut reader, bounds)?;
            }
            descriptor::MESSAGE_ANNOTATIONS => {
                *annotations = Some(from);
                let map = reader;
                check_map(&mut reader, bounds)?;
                Annotations::of_map(map)?;
            }
            descriptor::PROPERTIES => {
                *properties = Some(from);
                PropertiesSection::of_list(&mut reader, bounds)?;
            }
            descriptor::APPLICATION_PROPERTIES => {
                *application = Some(from);
                check_map(&mut reader, bounds)?;
            }
            descriptor::FOOTER => {
                body.get_or_insert(from);
                check_map(&mut reader, bounds)?;
            }
            _ => {
                body.get_or_insert(from);
                check_body(section, &mut reader, bounds)?;
            }
        }
    }
    let body = body.unwrap_or(bytes.len());
    let application = application.unwrap_or(body);
    let properties = properties.unwrap_or(application);
    let annotations = annotations.unwrap_or(properties);
    let delivery = delivery.unwrap_or(annotations);
    Ok(Layout::new(delivery, annotations, properties, application, body))
}

/// The sections of `bytes` in the order of the standard. Sections of equal rank keep their order,
/// so that the body stays the same and [`layout`] finds repeated sections.
pub(crate) fn in_order(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut ordered = Vec::with_capacity(bytes.len());
    for wanted in descriptor::HEADER..=descriptor::FOOTER {
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let whole = reader;
            let section = reader.section()?;
            reader.raw()?;
            if !(descriptor::HEADER..=descriptor::FOOTER).contains(&section) {
                return Err(ContentError::NoSection);
            }
            if rank(section) == wanted {
                ordered.extend_from_slice(whole.up_to(&reader)?);
            }
        }
    }
    Ok(ordered)
}

/// The position of a section in the order of the standard. All kinds of body share one.
const fn rank(section: u8) -> u8 {
    match section {
        descriptor::SEQUENCE | descriptor::VALUE => descriptor::DATA,
        other => other,
    }
}

/// The end of the body sections at the start of `bytes`, and the descriptor of the first one.
pub(crate) fn body_sections(bytes: &[u8], bounds: &mut ItemBounds) -> Result<(Option<u8>, usize)> {
    let mut reader = Reader::new(bytes);
    let mut first = None;
    loop {
        let end = bytes.len() - reader.remaining();
        if reader.is_empty() {
            return Ok((first, end));
        }
        let section = reader.section()?;
        match section {
            descriptor::FOOTER => return Ok((first, end)),
            descriptor::DATA | descriptor::SEQUENCE | descriptor::VALUE => {
                check_order(first.unwrap_or(0), section)?;
                check_body(section, &mut reader, bounds)?;
                first = Some(section);
            }
            _ => return Err(ContentError::SectionOrder),
        }
    }
}

/// Checks the bytes after a body: a footer or nothing.
pub(crate) fn footer(bytes: &[u8], bounds: &mut ItemBounds) -> Result<()> {
    let mut reader = Reader::new(bytes);
    if reader.is_empty() {
        return Ok(());
    }
    if reader.section()? != descriptor::FOOTER {
        return Err(ContentError::SectionOrder);
    }
    check_map(&mut reader, bounds)?;
    if reader.is_empty() { Ok(()) } else { Err(ContentError::SectionOrder) }
}

fn check_order(last: u8, section: u8) -> Result<()> {
    if !(descriptor::HEADER..=descriptor::FOOTER).contains(&section) {
        return Err(ContentError::NoSection);
    }
    let again = section == last && matches!(section, descriptor::DATA | descriptor::SEQUENCE);
    if rank(section) > rank(last) || again { Ok(()) } else { Err(ContentError::SectionOrder) }
}

fn check_body(section: u8, reader: &mut Reader<'_>, bounds: &mut ItemBounds) -> Result<()> {
    if section == descriptor::DATA {
        let Scalar::Binary(_) = reader.scalar()? else {
            return Err(ContentError::BadValue("data section"));
        };
        return Ok(());
    }
    if section == descriptor::SEQUENCE {
        let mut list = *reader;
        list.list()?;
    }
    check_value_of(reader, bounds)
}

fn check_map(reader: &mut Reader<'_>, bounds: &mut ItemBounds) -> Result<()> {
    let mut map = *reader;
    map.map()?;
    check_value_of(reader, bounds)
}

/// The header's time to live in milliseconds. The section may be empty.
pub(crate) fn ttl(section: &[u8]) -> Result<Option<u32>> {
    if section.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(section);
    reader.section()?;
    header_ttl(&mut reader, &mut ItemBounds::stored())
}

fn header_ttl(reader: &mut Reader<'_>, bounds: &mut ItemBounds) -> Result<Option<u32>> {
    let (count, mut fields) = reader.list()?;
    let mut ttl = None;
    for field in 0..count {
        if field != 2 {
            check_value_of(&mut fields, bounds)?;
            continue;
        }
        ttl = match fields.scalar()? {
            Scalar::Null => None,
            Scalar::U32(milliseconds) => Some(milliseconds),
            _ => return Err(ContentError::BadValue("header ttl")),
        };
    }
    if fields.is_empty() { Ok(ttl) } else { Err(ContentError::BadCount) }
}

/// Checks the fields that the broker passes on unread: clients fail on other types than the
/// standard's (AMQP 3.2.1, 3.2.4). Not applied to stored content, which may be older than this
/// check.
pub(crate) fn check_unread(header: &[u8], properties: &[u8]) -> Result<()> {
    check_fields(header, |field, value| match (field, value) {
        (_, Scalar::Null)
        | (0 | 3, Scalar::Bool(_))
        | (1, Scalar::U8(_))
        | (2 | 4, Scalar::U32(_)) => Ok(()),
        (0, _) => Err(ContentError::BadValue("header durable")),
        (1, _) => Err(ContentError::BadValue("header priority")),
        (2, _) => Err(ContentError::BadValue("header ttl")),
        (3, _) => Err(ContentError::BadValue("header first-acquirer")),
        (4, _) => Err(ContentError::BadValue("header delivery-count")),
        _ => Err(ContentError::BadCount),
    })?;
    check_fields(properties, |field, value| match (field, value) {
        (_, Scalar::Null)
        | (1, Scalar::Binary(_))
        | (7, Scalar::Symbol(_) | Scalar::Text(_))
        | (11, Scalar::U32(_)) => Ok(()),
        (1, _) => Err(ContentError::BadValue("user-id")),
        (7, _) => Err(ContentError::BadValue("content-encoding")),
        (11, _) => Err(ContentError::BadValue("group-sequence")),
        // `PropertiesSection` reads and checks the others.
        _ => Ok(()),
    })
}

/// Checks each field of a section that is a list. The section may be empty.
fn check_fields(section: &[u8], check: impl Fn(usize, Scalar<'_>) -> Result<()>) -> Result<()> {
    if section.is_empty() {
        return Ok(());
    }
    let mut reader = Reader::new(section);
    reader.section()?;
    let (count, mut fields) = reader.list()?;
    (0..count).try_for_each(|field| check(field, fields.scalar()?))
}

/// The time to live of header and properties together (AMQ-19). A header's 0 means none.
pub(crate) fn time_to_live(
    ttl: Option<u32>,
    properties: &PropertiesSection<'_>,
) -> Option<TimeSpan> {
    let ttl = ttl.filter(|milliseconds| *milliseconds > 0)?;
    if let (u32::MAX, Some(created), Some(expires)) =
        (ttl, properties.creation_time, properties.absolute_expiry_time)
    {
        return Some(TimeSpan::from_ms(expires.saturating_sub(created)));
    }
    Some(TimeSpan::from_ms(i64::from(ttl)))
}

/// The message annotations that the broker reads (AMQP-44).
#[derive(Clone, Copy, Default)]
pub(crate) struct Annotations<'a> {
    pub(crate) scheduled_enqueue_time: Option<i64>,
    pub(crate) partition_key: Option<&'a str>,
    pub(crate) via_partition_key: Option<&'a str>,
    pub(crate) force_persistence: bool,
}

impl<'a> Annotations<'a> {
    /// Reads the section, which may be empty.
    #[inline]
    pub(crate) fn read(section: &'a [u8]) -> Result<Self> {
        if section.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(section);
        reader.section()?;
        Self::of_map(reader)
    }

    fn of_map(mut reader: Reader<'a>) -> Result<Self> {
        let mut annotations = Self::default();
        let mut delivery_time = None;
        let (_, mut items) = reader.map()?;
        while !items.is_empty() {
            let key = items.scalar()?;
            let value = items.raw()?;
            let (Scalar::Symbol(key) | Scalar::Text(key)) = key else {
                continue;
            };
            let value = || Reader::new(value).scalar();
            match key {
                annotation::SCHEDULED_ENQUEUE_TIME => {
                    annotations.scheduled_enqueue_time =
                        value()?.instant(annotation::SCHEDULED_ENQUEUE_TIME)?;
                }
                annotation::DELIVERY_TIME => {
                    if let Scalar::I64(at) = value()? {
                        delivery_time = Some(at);
                    }
                }
                annotation::PARTITION_KEY => {
                    annotations.partition_key =
                        value()?.text_or_binary(annotation::PARTITION_KEY)?;
                }
                annotation::VIA_PARTITION_KEY => {
                    annotations.via_partition_key =
                        value()?.text_or_binary(annotation::VIA_PARTITION_KEY)?;
                }
                annotation::FORCE_PERSISTENCE => {
                    annotations.force_persistence = value()? == Scalar::Bool(true);
                }
                _ => {}
            }
        }
        annotations.scheduled_enqueue_time = annotations.scheduled_enqueue_time.or(delivery_time);
        Ok(annotations)
    }
}

/// The properties that the broker reads (AMQP 3.2.4).
#[derive(Clone, Copy, Default)]
pub(crate) struct PropertiesSection<'a> {
    pub(crate) message_id: Option<IdRef<'a>>,
    pub(crate) to: Option<&'a str>,
    pub(crate) subject: Option<&'a str>,
    pub(crate) reply_to: Option<&'a str>,
    pub(crate) correlation_id: Option<IdRef<'a>>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) absolute_expiry_time: Option<i64>,
    pub(crate) creation_time: Option<i64>,
    pub(crate) group_id: Option<&'a str>,
    pub(crate) reply_to_group_id: Option<&'a str>,
}

impl<'a> PropertiesSection<'a> {
    /// Reads the section, which may be empty.
    #[inline]
    pub(crate) fn read(section: &'a [u8]) -> Result<Self> {
        if section.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(section);
        reader.section()?;
        Self::of_list(&mut reader, &mut ItemBounds::stored())
    }

    /// Reads only the message id, which is the first field.
    #[inline]
    pub(crate) fn message_id(section: &'a [u8]) -> Result<Option<IdRef<'a>>> {
        if section.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(section);
        reader.section()?;
        let (count, mut fields) = reader.list()?;
        if count == 0 { Ok(None) } else { id(&mut fields, "message-id") }
    }

    #[inline]
    fn of_list(reader: &mut Reader<'a>, bounds: &mut ItemBounds) -> Result<Self> {
        let (count, mut fields) = reader.list()?;
        let mut properties = Self::default();
        for field in 0..count {
            match field {
                0 => properties.message_id = id(&mut fields, "message-id")?,
                2 => properties.to = text(&mut fields, "to")?,
                3 => properties.subject = text(&mut fields, "subject")?,
                4 => properties.reply_to = text(&mut fields, "reply-to")?,
                5 => properties.correlation_id = id(&mut fields, "correlation-id")?,
                6 => properties.content_type = text(&mut fields, "content-type")?,
                8 => {
                    properties.absolute_expiry_time =
                        fields.scalar()?.timestamp("absolute-expiry-time")?;
                }
                9 => properties.creation_time = fields.scalar()?.timestamp("creation-time")?,
                10 => properties.group_id = text(&mut fields, "group-id")?,
                12 => properties.reply_to_group_id = text(&mut fields, "reply-to-group-id")?,
                1 | 7 | 11 => check_value_of(&mut fields, bounds)?,
                _ => return Err(ContentError::BadCount),
            }
        }
        if fields.is_empty() { Ok(properties) } else { Err(ContentError::BadCount) }
    }
}

#[inline]
fn text<'a>(fields: &mut Reader<'a>, name: &'static str) -> Result<Option<&'a str>> {
    fields.plain_text().unwrap_or_else(|| fields.scalar()?.text(name))
}

#[inline]
fn id<'a>(fields: &mut Reader<'a>, name: &'static str) -> Result<Option<IdRef<'a>>> {
    match fields.plain_text() {
        Some(text) => Ok(text?.map(IdRef::Text)),
        None => fields.scalar()?.id(name),
    }
}

impl<'a> Scalar<'a> {
    fn text(self, field: &'static str) -> Result<Option<&'a str>> {
        match self {
            Self::Null => Ok(None),
            Self::Text(text) | Self::Symbol(text) => Ok(Some(text)),
            _ => Err(ContentError::BadValue(field)),
        }
    }

    /// Text, also in the form of binary: the SDK for Python re-sends received text like this
    /// (AMQP-44).
    fn text_or_binary(self, field: &'static str) -> Result<Option<&'a str>> {
        match self {
            Self::Binary(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(ContentError::BadValue(field)),
            },
            other => other.text(field),
        }
    }

    /// An instant, also in the form of a number of milliseconds: the SDK for Python re-sends
    /// received instants like this (AMQP-44).
    fn instant(self, field: &'static str) -> Result<Option<i64>> {
        match self {
            Self::I64(milliseconds) => Ok(Some(milliseconds)),
            Self::I32(milliseconds) => Ok(Some(milliseconds.into())),
            Self::U64(milliseconds) => {
                Ok(Some(i64::try_from(milliseconds).map_err(|_| ContentError::BadValue(field))?))
            }
            other => other.timestamp(field),
        }
    }

    fn id(self, field: &'static str) -> Result<Option<IdRef<'a>>> {
        match self {
            Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(IdRef::Text(text))),
            Self::U64(number) => Ok(Some(IdRef::Ulong(number))),
            Self::Uuid(uuid) => Ok(Some(IdRef::Uuid(uuid))),
            Self::Binary(bytes) => Ok(Some(IdRef::Binary(bytes))),
            _ => Err(ContentError::BadValue(field)),
        }
    }

    fn timestamp(self, field: &'static str) -> Result<Option<i64>> {
        match self {
            Self::Null => Ok(None),
            Self::Timestamp(milliseconds) => Ok(Some(milliseconds)),
            _ => Err(ContentError::BadValue(field)),
        }
    }
}
