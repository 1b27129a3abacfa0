//! Heads and bodies of messages, for operators (CON-02, CON-03). Only the bytes of a content that
//! are needed are read, in the units that the store checks.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::command::{MessageReadError, ReceivedMessage};
use crate::content_ref::ContentRef;
use crate::findings::{BODY_START_BYTES, HeadContent};
use crate::message::{
    Body, BodyKind, ContentError, ContentHead, FoundSection, Overlay, find_section,
};

/// Maximum number of bytes that a body is read in at once. Pieces end at multiples of this number,
/// as the parts of a large content do.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes that the head of a body section takes at most, unless a client wrote a large descriptor.
const SECTION_HEAD_BYTES: u64 = 64;

impl ReceivedMessage {
    /// Reads the properties and the start of the body. `header_size` is the number of bytes of
    /// everything but the body. May wait for the disk.
    ///
    /// # Errors
    /// As for [`ReceivedMessage::load`].
    pub async fn head(&self, header_size: u32) -> Result<HeadContent, MessageReadError> {
        self.head_with(header_size, |_| {}).await
    }

    /// Reads them with other overlays; `alter` gets the present ones.
    pub(crate) async fn head_with(
        &self,
        header_size: u32,
        alter: impl FnOnce(&mut Vec<Overlay>),
    ) -> Result<HeadContent, MessageReadError> {
        let (head, start) = head_and_start(&self.content, header_size).await?;
        let mut overlays = Vec::with_capacity(self.overlays.len());
        for overlay in &self.overlays {
            overlays.push(Overlay::from_bytes(overlay.load().await?));
        }
        alter(&mut overlays);
        let mut message = head.message()?;
        for overlay in &overlays {
            message.apply_overlay(overlay);
        }
        message.body = Body::Data(start);
        let body_bytes = head.body().map_or(0, |section| {
            let is_whole = section.kind == BodyKind::Value;
            let end = if is_whole { section.bytes.end } else { self.content.length() };
            end - section.bytes.start
        });
        Ok(HeadContent {
            message,
            body_kind: head.body_kind(),
            body_bytes,
            dead_letter_source: Overlay::dead_letter_source_of(overlays.iter()).map(str::to_owned),
        })
    }

    /// Returns a reader of the body. May wait for the disk.
    ///
    /// # Errors
    /// As for [`ReceivedMessage::load`].
    pub async fn body(&self, header_size: u32) -> Result<BodyReader, MessageReadError> {
        BodyReader::of_message(self.content.clone(), header_size).await
    }
}

/// Reads the head of a content, and returns it with the bytes that were read.
async fn content_head(
    content: &ContentRef,
    header_size: u32,
) -> Result<(ContentHead, Bytes), MessageReadError> {
    let length = content.length();
    let mut count = u64::from(header_size) + SECTION_HEAD_BYTES + BODY_START_BYTES as u64;
    loop {
        let prefix = content.load_range(0, count).await?;
        if let Some(head) = ContentHead::parse(&prefix, length)? {
            return Ok((head, prefix));
        }
        if count >= length {
            return Err(ContentError::Truncated.into());
        }
        count = count.saturating_mul(2);
    }
}

/// Reads the head of a content and the first bytes of its body: [`BODY_START_BYTES`], unless they
/// are in more sections than [`PIECE_BYTES`] have.
async fn head_and_start(
    content: &ContentRef,
    header_size: u32,
) -> Result<(ContentHead, Bytes), MessageReadError> {
    let (head, prefix) = content_head(content, header_size).await?;
    let (start, is_complete) = body_start(&head, &prefix, content.length())?;
    if is_complete {
        return Ok((head, start));
    }
    let more = content.load_range(0, PIECE_BYTES.max(prefix.len() as u64)).await?;
    let (start, _) = body_start(&head, &more, content.length())?;
    Ok((head, start))
}

/// Returns a copy of the first bytes of a body, and whether they are all in the prefix of the
/// content of `length` bytes.
fn body_start(
    head: &ContentHead,
    prefix: &Bytes,
    length: u64,
) -> Result<(Bytes, bool), MessageReadError> {
    let mut start = BytesMut::with_capacity(BODY_START_BYTES);
    let mut next = head.body().cloned();
    while let Some(section) = next {
        let found = part_of(prefix, 0, &section.bytes);
        let count = found.len().min(BODY_START_BYTES - start.len());
        start.extend_from_slice(found.get(..count).unwrap_or_default());
        if start.len() == BODY_START_BYTES {
            break;
        }
        let end = section.bytes.end;
        next = match find_section(part_of(prefix, 0, &(end..u64::MAX)), end, length)? {
            FoundSection::Section(section) => Some(section),
            FoundSection::End => None,
            FoundSection::Incomplete => return Ok((start.freeze(), false)),
        };
    }
    Ok((start.freeze(), true))
}

/// Returns the part of `bytes`, which begin at position `at`, that is in `range`.
fn part_of<'a>(bytes: &'a [u8], at: u64, range: &Range<u64>) -> &'a [u8] {
    let place = |position: u64| {
        usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len())
    };
    bytes.get(place(range.start)..place(range.end)).unwrap_or_default()
}

/// Bytes of a body or session state, in pieces of at most 256 KiB.
#[derive(Debug)]
pub struct BodyReader {
    content: ContentRef,
    kind: BodyKind,
    length: u64,
    /// Number of bytes of the body before the next one.
    passed: u64,
    /// Positions of the remaining bytes of the current section.
    section: Range<u64>,
    /// Bytes that were read last, and the position of the first.
    window: Bytes,
    window_at: u64,
}

impl BodyReader {
    /// Returns a reader of the body of a message. The length of a body in several sections is the
    /// sum of theirs, so the start of each is read. May wait for the disk.
    async fn of_message(content: ContentRef, header_size: u32) -> Result<Self, MessageReadError> {
        let (head, _) = content_head(&content, header_size).await?;
        let first = head.body().map_or(0..0, |section| section.bytes.clone());
        let kind = head.body_kind();
        let mut reader = Self::new(content, kind, first.clone());
        if head.body().is_none() {
            reader.section = reader.content.length()..reader.content.length();
            return Ok(reader);
        }
        let mut last = first.clone();
        while let Some(section) = reader.section_at(last.end).await? {
            reader.length += section.end - section.start;
            last = section;
        }
        Ok(reader)
    }

    /// Returns a reader of a whole content, such as the state of a session. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read it.
    pub(crate) async fn of_content(content: ContentRef) -> Result<Self, MessageReadError> {
        let all = 0..content.length();
        let mut reader = Self::new(content, BodyKind::Data, all);
        if reader.length > 0 {
            reader.load(0).await?;
        }
        Ok(reader)
    }

    const fn new(content: ContentRef, kind: BodyKind, section: Range<u64>) -> Self {
        let length = section.end - section.start;
        Self { content, kind, length, passed: 0, section, window: Bytes::new(), window_at: 0 }
    }

    /// Kind of the body.
    #[must_use]
    pub const fn kind(&self) -> BodyKind {
        self.kind
    }

    /// Length of the whole body in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next piece; `None` at the end. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, MessageReadError> {
        while self.section.is_empty() {
            let Some(section) = self.section_at(self.section.end).await? else { return Ok(None) };
            self.section = section;
        }
        let at = self.section.start;
        if part_of(&self.window, self.window_at, &self.section).is_empty() || at < self.window_at {
            self.load(at).await?;
        }
        let found = part_of(&self.window, self.window_at, &self.section);
        if found.is_empty() {
            return Err(ContentError::Truncated.into());
        }
        let piece = self.window.slice_ref(found);
        self.section.start += piece.len() as u64;
        self.passed += piece.len() as u64;
        Ok(Some(piece))
    }

    /// Continues at byte `at`, or at the end if the body is shorter. It never goes back. May wait
    /// for the disk.
    ///
    /// # Errors
    /// If the store cannot read the bytes before.
    pub async fn skip_to(&mut self, at: u64) -> Result<(), MessageReadError> {
        loop {
            let count = at.saturating_sub(self.passed).min(self.section.end - self.section.start);
            self.section.start += count;
            self.passed += count;
            if self.passed >= at {
                return Ok(());
            }
            let Some(section) = self.section_at(self.section.end).await? else { return Ok(()) };
            self.section = section;
        }
    }

    /// Returns the bytes of the body section that begins at a position; `None` at the end of the
    /// body.
    async fn section_at(&mut self, at: u64) -> Result<Option<Range<u64>>, MessageReadError> {
        let length = self.content.length();
        if at >= length {
            return Ok(None);
        }
        let is_here = at >= self.window_at && at < self.window_at + self.window.len() as u64;
        if !is_here {
            self.load(at).await?;
        }
        let known = part_of(&self.window, self.window_at, &(at..length));
        let mut found = find_section(known, at, length)?;
        if found == FoundSection::Incomplete {
            // The head of the section may cross the end of the window.
            self.window = self.content.load_range(at, PIECE_BYTES).await?;
            self.window_at = at;
            found = find_section(&self.window, at, length)?;
        }
        match found {
            FoundSection::Section(section) => Ok(Some(section.bytes)),
            FoundSection::End => Ok(None),
            FoundSection::Incomplete => Err(ContentError::Truncated.into()),
        }
    }

    /// Reads the bytes from a position to the next multiple of [`PIECE_BYTES`].
    async fn load(&mut self, at: u64) -> Result<(), MessageReadError> {
        // At most one window is in memory.
        self.window = Bytes::new();
        self.window = self.content.load_range(at, PIECE_BYTES - at % PIECE_BYTES).await?;
        self.window_at = at;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that goes wrong may panic")]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;

    use super::*;
    use crate::content_ref::StoredContent;
    use crate::message::Message;
    use crate::store::StoreError;

    /// Content that records the ranges that are read.
    struct Recorded {
        bytes: Bytes,
        ranges: Mutex<Vec<Range<u64>>>,
    }

    #[async_trait]
    impl StoredContent for Recorded {
        fn length(&self) -> u64 {
            self.bytes.len() as u64
        }

        async fn load(&self) -> Result<Bytes, StoreError> {
            unreachable!("a part is enough")
        }

        async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
            let end = from.saturating_add(length).min(self.length());
            self.ranges.lock().unwrap().push(from..end);
            Ok(Bytes::copy_from_slice(part_of(&self.bytes, 0, &(from..end))))
        }
    }

    fn recorded(content: &Bytes) -> (ContentRef, Arc<Recorded>) {
        let recorded = Arc::new(Recorded { bytes: content.clone(), ranges: Mutex::default() });
        (ContentRef::Stored(Arc::clone(&recorded) as Arc<dyn StoredContent>), recorded)
    }

    impl Recorded {
        /// Number of units of the store that hold bytes of the ranges read since the last call.
        fn take_units(&self) -> u64 {
            let ranges = std::mem::take(&mut *self.ranges.lock().unwrap());
            let longest = ranges.iter().map(|range| range.end - range.start).max();
            assert!(longest <= Some(PIECE_BYTES), "{longest:?} bytes at once");
            let units = |range: &Range<u64>| match range.is_empty() {
                true => 0,
                false => (range.end - 1) / PIECE_BYTES - range.start / PIECE_BYTES + 1,
            };
            ranges.iter().map(units).sum()
        }
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect()
    }

    fn data_section(data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [b"\x00\x53\x75\xb0".as_slice(), &length, data].concat()
    }

    fn encoded(body: Body) -> (Bytes, u32) {
        let message = Message { body, ..Message::default().with_message_id("m") };
        let content = message.encode();
        (content.as_bytes().clone(), content.header_size())
    }

    /// Reads the body from `from` on, at most `length` bytes.
    async fn read(reader: &mut BodyReader, from: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        reader.skip_to(from).await.unwrap();
        while bytes.len() < length
            && let Some(piece) = reader.next().await.unwrap()
        {
            assert!(!piece.is_empty() && piece.len() as u64 <= PIECE_BYTES);
            bytes.extend_from_slice(&piece);
        }
        bytes.truncate(length);
        bytes
    }

    /// CON-03: the head of a large message reads one unit of the store, and a range of its body the
    /// units that overlap the range.
    #[tokio::test]
    async fn head_and_ranges_read_only_the_units_with_their_bytes() {
        let body = pattern(20 << 20);
        let (content, header_size) = encoded(Body::Data(body.clone().into()));
        let (reference, recorded) = recorded(&content);
        let (head, start) = head_and_start(&reference, header_size).await.unwrap();
        assert_eq!(start, &body[..BODY_START_BYTES]);
        assert_eq!(head.message().unwrap().message_id, Some("m".into()));
        assert_eq!(recorded.take_units(), 1);
        for from in [0u64, 1, PIECE_BYTES - 40, 7 << 20, (20 << 20) - 5, 21 << 20] {
            let mut reader = BodyReader::of_message(reference.clone(), header_size).await.unwrap();
            assert_eq!(reader.length(), body.len() as u64);
            let found = read(&mut reader, from, 4 << 20).await;
            let end = (from + (4 << 20)).min(body.len() as u64);
            assert_eq!(found, part_of(&body, 0, &(from.min(end)..end)), "from {from}");
            assert!(recorded.take_units() <= 18);
        }
        let mut reader = BodyReader::of_message(reference, header_size).await.unwrap();
        assert!(read(&mut reader, 0, usize::MAX).await == body);
        assert!(recorded.take_units() <= 82, "each unit is read once, the first one twice");
    }

    /// CON-03, MSG-03: each kind of body, in one or several sections, is the body that a receiver
    /// gets, from any byte on.
    #[tokio::test]
    async fn body_reader_returns_the_body_of_each_kind() {
        let footer: &[u8] = b"\x00\x53\x78\xc1\x01\x00";
        let value = [b"\x00\x53\x77\xb0\x00\x04\x93\xe0".as_slice(), &pattern(300_000)].concat();
        let sequence: &[u8] = b"\x00\x53\x76\xc0\x04\x02\x54\x01\x41";
        let sections = [1, 0, 300, 262_100, 262_144, 5].map(|size| data_section(&pattern(size)));
        let many: Vec<u8> = (0..70_000).flat_map(|_| data_section(b"ab")).collect();
        for body in [
            Body::default(),
            Body::Data(pattern(1_000).into()),
            Body::Value(data_section(b"abc").into()),
            Body::Value([&data_section(b"abc"), footer].concat().into()),
            Body::Value(sections.concat().into()),
            Body::Value([&sections.concat(), footer].concat().into()),
            Body::Value(many.into()),
            Body::Value(value.clone().into()),
            Body::Value([&value, footer].concat().into()),
            Body::Sequence(sequence.repeat(3).into()),
            Body::Sequence([&sequence.repeat(3), footer].concat().into()),
            Body::Value(Bytes::new()),
        ] {
            let (content, header_size) = encoded(body);
            let whole = crate::message::Content::parse(content.clone()).unwrap();
            let (kind, expected) = match whole.body() {
                Body::Data(bytes) => (BodyKind::Data, bytes),
                Body::Value(bytes) => (BodyKind::Value, bytes),
                Body::Sequence(bytes) => (BodyKind::Sequence, bytes),
            };
            let (reference, recorded) = recorded(&content);
            let length = expected.len() as u64;
            for from in [0, 1, length / 2, length.saturating_sub(1), length, length + 1] {
                let mut reader =
                    BodyReader::of_message(reference.clone(), header_size).await.unwrap();
                assert_eq!((reader.kind(), reader.length()), (kind, length));
                let found = read(&mut reader, from, usize::MAX).await;
                assert!(found == part_of(&expected, 0, &(from.min(length)..length)), "{from}");
            }
            recorded.take_units();
            let (_, start) = head_and_start(&reference, header_size).await.unwrap();
            assert_eq!(start, expected.slice(..expected.len().min(BODY_START_BYTES)));
            assert!(recorded.take_units() <= 2);
        }
        let state = ContentRef::Loaded(Bytes::from_static(b"state"));
        let mut reader = BodyReader::of_content(state).await.unwrap();
        assert_eq!(read(&mut reader, 2, 9).await, b"ate");
    }

    /// CON-03: a content that is not a message, or ends too early, is an error.
    #[tokio::test]
    async fn damaged_content_is_an_error() {
        let (content, header_size) = encoded(Body::Data(pattern(1_000).into()));
        for damaged in [content.slice(..content.len() - 1), content.slice(..3), Bytes::new()] {
            let (reference, _) = recorded(&damaged);
            assert!(BodyReader::of_message(reference.clone(), header_size).await.is_err());
            assert!(content_head(&reference, header_size).await.is_err());
        }
        let not_a_message = ContentRef::Loaded(Bytes::from_static(b"not a message"));
        assert!(BodyReader::of_message(not_a_message, 4).await.is_err());
    }
}
