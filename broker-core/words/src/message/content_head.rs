//! The head of a message from the first bytes of its content, and the sections of its body one at a
//! time, so that a reader needs only a part of a large content in memory (CON-03).

use std::ops::Range;

use bytes::Bytes;

use super::codec::{Layout, Reader, code, descriptor};
use super::{Content, ContentError, Message};
use crate::amqp::{Width, width};

/// The sections of a content before its body, and the first section of the body.
#[derive(Clone, Debug)]
pub struct ContentHead {
    header: Content,
    body: Option<BodySection>,
}

/// Kind of the sections of a body (MSG-03).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyKind {
    /// Plain bytes.
    Data,
    /// A value section, complete as AMQP encodes it.
    Value,
    /// Sequence sections, complete as AMQP encodes them.
    Sequence,
}

/// A section of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BodySection {
    /// Its kind.
    pub kind: BodyKind,
    /// Positions in the content of its bytes that [`Body`](super::Body) has: the data of a data section, any
    /// other section whole. The section ends where they end.
    pub bytes: Range<u64>,
}

/// Result of looking for a section of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundSection {
    /// A section.
    Section(BodySection),
    /// The body has no further section.
    End,
    /// The given bytes end before the extent of the section is known.
    Incomplete,
}

impl ContentHead {
    /// Reads the head of a content of `length` bytes that begins with `prefix`. `None` if the
    /// prefix ends before the extent of the first body section is known.
    ///
    /// # Errors
    /// If the bytes do not begin a message in AMQP section encoding.
    pub fn parse(prefix: &Bytes, length: u64) -> Result<Option<Self>, ContentError> {
        let body_at = match header_end(prefix, length) {
            Err(ContentError::Truncated) if (prefix.len() as u64) < length => return Ok(None),
            other => other?,
        };
        let rest = prefix.get(body_at..).unwrap_or_default();
        let body = match find_section(rest, body_at as u64, length)? {
            FoundSection::Section(section) => Some(section),
            FoundSection::End => None,
            FoundSection::Incomplete => return Ok(None),
        };
        let header = match body_at {
            0 => Content::new(Bytes::new(), Layout::new(0, 0, 0, 0, 0)),
            _ => Content::parse(prefix.slice(..body_at))?,
        };
        Ok(Some(Self { header, body }))
    }

    /// The first section of the body; `None` if the content has no body section.
    #[must_use]
    pub const fn body(&self) -> Option<&BodySection> {
        self.body.as_ref()
    }

    /// Kind of the body. A missing body reads as an empty one (MSG-01).
    #[must_use]
    pub fn body_kind(&self) -> BodyKind {
        self.body.as_ref().map_or(BodyKind::Data, |section| section.kind)
    }

    /// The typed view of the message, without its body.
    ///
    /// # Errors
    /// As for [`Content::decode`].
    pub fn message(&self) -> Result<Message, ContentError> {
        self.header.decode_header()
    }
}

/// Returns the end of the sections before the body.
fn header_end(prefix: &[u8], length: u64) -> Result<usize, ContentError> {
    if length == 0 {
        return Err(ContentError::Empty);
    }
    let mut reader = Reader::new(prefix);
    loop {
        let end = prefix.len() - reader.remaining();
        if end as u64 == length {
            return Ok(end);
        }
        match reader.section()? {
            descriptor::DATA | descriptor::SEQUENCE | descriptor::VALUE | descriptor::FOOTER => {
                return Ok(end);
            }
            descriptor::HEADER..=descriptor::APPLICATION_PROPERTIES => drop(reader.raw()?),
            _ => return Err(ContentError::NoSection),
        }
    }
}

/// Finds the section of a body that begins at position `at` of a content of `length` bytes.
/// `bytes` are those from there on, some or all.
///
/// # Errors
/// If another section begins there, or the section exceeds the content.
pub fn find_section(bytes: &[u8], at: u64, length: u64) -> Result<FoundSection, ContentError> {
    if at >= length {
        return Ok(FoundSection::End);
    }
    match section_at(bytes, at) {
        Err(ContentError::Truncated) if at + (bytes.len() as u64) < length => {
            Ok(FoundSection::Incomplete)
        }
        Ok(FoundSection::Section(section)) if section.bytes.end > length => {
            Err(ContentError::Truncated)
        }
        other => other,
    }
}

fn section_at(bytes: &[u8], at: u64) -> Result<FoundSection, ContentError> {
    let mut reader = Reader::new(bytes);
    let kind = match reader.section()? {
        descriptor::DATA => BodyKind::Data,
        descriptor::VALUE => BodyKind::Value,
        descriptor::SEQUENCE => BodyKind::Sequence,
        descriptor::FOOTER => return Ok(FoundSection::End),
        _ => return Err(ContentError::SectionOrder),
    };
    let mut code = reader.byte()?;
    if kind == BodyKind::Data && !matches!(code, code::BINARY8 | code::BINARY32) {
        return Err(ContentError::BadValue("data section"));
    }
    while code == code::DESCRIBED {
        reader.raw()?;
        code = reader.byte()?;
    }
    let length = match width(code)? {
        Width::Fixed(length) => length,
        Width::Length8 => usize::from(reader.byte()?),
        Width::Length32 => reader.length32()?,
    };
    let value_at = at + (bytes.len() - reader.remaining()) as u64;
    let end = value_at + length as u64;
    let start = if kind == BodyKind::Data { value_at } else { at };
    Ok(FoundSection::Section(BodySection { kind, bytes: start..end }))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test that goes wrong may panic")]
mod tests {
    use super::*;
    use crate::message::Body;

    fn header() -> Message {
        Message::default()
            .with_message_id("order-17")
            .with_session_id("s")
            .with_subject("new")
            .with_application_property("region", "north")
    }

    /// Contents with each kind of body, in one or more sections, with and without a footer.
    fn contents() -> Vec<Bytes> {
        let with = |message: &Message, sections: &[&[u8]]| {
            let body = Body::Value(Bytes::from(sections.concat()));
            Message { body, ..message.clone() }.encode().as_bytes().clone()
        };
        let data: &[u8] = b"\x00\x53\x75\xa0\x03abc";
        let long = [b"\x00\x53\x75\xb0\x00\x00\x01\x2c".as_slice(), &[7; 300]].concat();
        let value: &[u8] = b"\x00\x53\x77\xa1\x05hello";
        let described: &[u8] = b"\x00\x53\x77\x00\xa3\x03a:b\x00\xa3\x01c\xb1\x00\x00\x00\x02hi";
        let sequence: &[u8] = b"\x00\x53\x76\xc0\x04\x02\x54\x01\x41";
        let footer: &[u8] = b"\x00\x53\x78\xc1\x01\x00";
        let mut contents = Vec::new();
        contents.push(with(&header(), &[]));
        for message in [header(), Message::default()] {
            for sections in [
                &[data][..],
                &[&long],
                &[data, &long, data],
                &[data, footer],
                &[value],
                &[described, footer],
                &[sequence],
                &[sequence, sequence, footer],
                &[footer],
            ] {
                contents.push(with(&message, sections));
            }
            contents.push(Message { body: Body::default(), ..message }.encode().as_bytes().clone());
        }
        contents
    }

    /// CON-02, CON-03: a prefix gives the head of the whole content, or is too short; the sections
    /// of the body, each found from its first bytes, are the body.
    #[test]
    fn content_head_equals_whole_content_for_each_prefix() {
        for content in contents() {
            let length = content.len() as u64;
            let whole = Content::parse(content.clone()).unwrap();
            let (message, sections) = (whole.decode().unwrap(), whole.sections());
            let body_bytes = sections.body.len();
            let body_at = content.len() - sections.footer.len() - body_bytes;
            let mut is_known = false;
            for end in 0..=content.len() {
                let head = ContentHead::parse(&content.slice(..end), length).unwrap();
                assert!(head.is_some() || !is_known, "a longer prefix is too short");
                let Some(head) = head else { continue };
                is_known = true;
                assert!(end > body_at || body_bytes == 0, "a head without the start of its body");
                let (mut joined, mut at) = (Vec::new(), body_at as u64);
                let mut next = head.body().cloned().map(FoundSection::Section);
                while let Some(FoundSection::Section(section)) = next {
                    assert_eq!(section.kind, head.body_kind());
                    let [from, to] = [section.bytes.start, section.bytes.end]
                        .map(|place| usize::try_from(place).unwrap());
                    joined.extend_from_slice(&content[from..to]);
                    at = section.bytes.end;
                    next = Some(find_section(&content[to..], at, length).unwrap());
                }
                let body = match head.body_kind() {
                    BodyKind::Data => Body::Data(joined.into()),
                    BodyKind::Value => Body::Value(joined.into()),
                    BodyKind::Sequence => Body::Sequence(joined.into()),
                };
                assert_eq!(Message { body, ..head.message().unwrap() }, message);
                assert!(at <= (body_at + body_bytes) as u64);
            }
            assert!(is_known, "the whole content is a prefix that is long enough");
        }
    }

    /// CON-03: bytes that are not a message are refused, or are an incomplete prefix, without a
    /// panic.
    #[test]
    fn content_head_refuses_damaged_bytes() {
        for content in contents() {
            for place in 0..content.len() {
                for value in [0x00, 0x53, 0x75, 0xb0, 0xff] {
                    let mut damaged = content.to_vec();
                    damaged[place] = value;
                    let damaged = Bytes::from(damaged);
                    for end in [place, place + 1, damaged.len()] {
                        let head = ContentHead::parse(&damaged.slice(..end), damaged.len() as u64);
                        if let Ok(Some(head)) = head
                            && let Some(section) = head.body()
                        {
                            assert!(section.bytes.end <= damaged.len() as u64);
                        }
                    }
                }
            }
        }
        let exceeding = Bytes::from_static(b"\x00\x53\x75\xa0\x04abc");
        assert_eq!(ContentHead::parse(&exceeding, 8).unwrap_err(), ContentError::Truncated);
        let nothing = ContentHead::parse(&Bytes::new(), 0);
        assert_eq!(nothing.unwrap_err(), ContentError::Empty);
    }
}
