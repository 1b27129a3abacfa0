//! The committer's encoding of a batch as a frame, and of its effects on the index. `committer.rs`
//! calls it.

use std::sync::Arc;

use super::super::format::{
    CONTENT_HEAD, FrameKind, LogPosition, LogRecord, PART_BYTES, PLACE_BYTES, RECORD_HEAD_MAX,
    REMOVAL_HEAD, RecordContent,
};
use super::super::log::Payload;
use super::super::segment::Index;
use super::{Committer, Done, Group, is_large};
use crate::{Batch, Completion, ContentOp, Key, Record, StoreError, Submission};
use peeklock_store_log::{ContentAt, IndexEntry, Op};

/// All sources of the content of keys, newest first: the current group, the groups being written,
/// the index.
struct ContentLookup<'a> {
    group: &'a mut Group,
    waiting: &'a mut Group,
    writing: &'a mut Group,
    index: &'a Index,
}

impl ContentLookup<'_> {
    /// The content of a key after all operations.
    fn content_of(&mut self, key: &Key) -> Option<ContentAt> {
        let Self { group, waiting, writing, index } = self;
        let found = group.ops.content_of(key).or_else(|| waiting.ops.content_of(key));
        let found = found.or_else(|| writing.ops.content_of(key));
        found.unwrap_or_else(|| index.get(key.as_bytes())?.content_at())
    }
}

impl Committer {
    /// Writes a batch. The parts of its large contents must be written already.
    pub(super) fn write_batch(
        &mut self,
        submission: Submission,
        completion: Completion,
        parts: Vec<Vec<LogPosition>>,
    ) -> Result<(), StoreError> {
        let batch = Arc::clone(&submission.batch);
        let reserved = batch.reserved();
        // First, so that the submitter gets an answer even if the write fails.
        self.group.done.push_back(Done { completion, result: Ok(()), reserved });
        self.group.must_sync |= batch.is_synced();
        if batch.is_empty() {
            return Ok(());
        }
        let (group, waiting) = (&mut self.group, &mut self.waiting);
        let mut lookup =
            ContentLookup { group, waiting, writing: &mut self.writing, index: &self.index };
        let mut parts = parts.into_iter();
        self.log.frame(FrameKind::Batch, payload_max(&batch, &mut lookup), |payload| {
            for record in batch.records() {
                write_record(&record, payload, &mut lookup, &mut parts);
            }
        })
    }
}

/// An upper bound of the bytes of a batch in its frame. A large content counts with the places of
/// its parts.
fn payload_max(batch: &Batch, lookup: &mut ContentLookup<'_>) -> u64 {
    let mut bytes = 0;
    // The largest content that a record can refer to: another record of this batch may store it or
    // refer to it.
    let mut largest = 0;
    // Copies usually follow the record that they refer to.
    let mut last_new = None;
    for record in batch.records() {
        let (key, value, content) = match record {
            Record::Put { key, value, content } => (key, value, content),
            Record::Delete { key }
            | Record::DeleteIn { key, .. }
            | Record::DeletePrefix { prefix: key } => {
                bytes += REMOVAL_HEAD + key.len();
                continue;
            }
        };
        bytes += RECORD_HEAD_MAX + key.len() + value.len();
        let length = match content {
            ContentOp::None => continue,
            ContentOp::New(content) => {
                last_new = Some(key);
                if !is_large(content) {
                    bytes += CONTENT_HEAD + content.len();
                    continue;
                }
                content.len()
            }
            ContentOp::Of(source) if last_new == Some(source) => 0,
            ContentOp::Keep => referred(key, lookup),
            ContentOp::Of(source) => referred(source, lookup),
        };
        largest = largest.max(length);
        bytes += largest.div_ceil(PART_BYTES).max(1) * PLACE_BYTES;
    }
    bytes as u64
}

/// The length of a referenced content, if it was known before this batch.
fn referred(key: &[u8], lookup: &mut ContentLookup<'_>) -> usize {
    let Some(key) = Key::from_bytes(key) else { return 0 };
    lookup.content_of(&key).map_or(0, |content| content.length as usize)
}

fn write_record(
    record: &Record<'_>,
    payload: &mut Payload<'_>,
    lookup: &mut ContentLookup<'_>,
    parts: &mut impl Iterator<Item = Vec<LogPosition>>,
) {
    match *record {
        Record::Delete { key } | Record::DeleteIn { key, .. } => {
            LogRecord::Delete { key }.write(payload.buffer, payload.seed);
            lookup.group.ops.push(Op::Delete { key: key_of(key) });
        }
        Record::DeletePrefix { prefix } => {
            LogRecord::DeletePrefix { prefix }.write(payload.buffer, payload.seed);
            lookup.group.ops.push(Op::DeletePrefix { prefix: key_of(prefix) });
        }
        Record::Put { key, value, content } => {
            let known = match content {
                ContentOp::None => None,
                ContentOp::New(bytes) if !is_large(bytes) => {
                    let content = NewContent::Here(bytes);
                    write_put(key_of(key), value, content, payload, lookup.group);
                    return;
                }
                ContentOp::New(bytes) => {
                    let places = parts.next().unwrap_or_default();
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    let content = NewContent::Parts { places, length };
                    let key = key_of(key);
                    if let NewContent::Parts { places, .. } = &content {
                        lookup.index.add_large(Arc::from(places.as_slice()));
                    }
                    write_put(key, value, content, payload, lookup.group);
                    return;
                }
                ContentOp::Keep => lookup.content_of(&key_of(key)),
                ContentOp::Of(source) => lookup.content_of(&key_of(source)),
            };
            write_put_known(key_of(key), value, known, payload, lookup.group, lookup.index);
        }
    }
}

/// Content that no record has yet.
pub(super) enum NewContent<'a> {
    Here(&'a [u8]),
    Parts { places: Vec<LogPosition>, length: u32 },
}

/// Writes a put with new content; returns the position of the content.
pub(super) fn write_put(
    key: Key,
    value: &[u8],
    content: NewContent<'_>,
    payload: &mut Payload<'_>,
    group: &mut Group,
) -> ContentAt {
    let record = payload.place();
    let bytes = key.as_bytes();
    let (record_bytes, content) = match content {
        NewContent::Here(content) => {
            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
            let content = RecordContent::Here(content);
            let put = LogRecord::Put { key: bytes, value, content };
            let record_bytes = put.write(payload.buffer, payload.seed);
            let place = LogPosition { offset: record.offset + record_bytes, ..record };
            payload.note_content(place, length as usize);
            (record_bytes, ContentAt { place, length, is_large: false })
        }
        NewContent::Parts { places, length } => {
            let place = places.first().copied().unwrap_or_default();
            let content = RecordContent::Parts { places, length };
            let put = LogRecord::Put { key: bytes, value, content };
            let record_bytes = put.write(payload.buffer, payload.seed);
            (record_bytes, ContentAt { place, length, is_large: true })
        }
    };
    let entry = IndexEntry::new(record, record_bytes, Some(content));
    group.ops.push(Op::Put { key, entry, content_is_new: true });
    content
}

/// Writes a put without content, or whose content is in the log already.
pub(super) fn write_put_known(
    key: Key,
    value: &[u8],
    known: Option<ContentAt>,
    payload: &mut Payload<'_>,
    group: &mut Group,
    index: &Index,
) {
    let record = payload.place();
    let content = match known {
        None => RecordContent::None,
        Some(ContentAt { place, length, is_large: false }) => RecordContent::At { place, length },
        Some(ContentAt { place, length, is_large: true }) => {
            let places = index.part_places(place).map(|places| places.to_vec()).unwrap_or_default();
            RecordContent::Parts { places, length }
        }
    };
    let put = LogRecord::Put { key: key.as_bytes(), value, content };
    let record_bytes = put.write(payload.buffer, payload.seed);
    let entry = IndexEntry::new(record, record_bytes, known);
    group.ops.push(Op::Put { key, entry, content_is_new: false });
}

fn key_of(key: &[u8]) -> Key {
    Key::from_bytes(key).unwrap_or_else(|| unreachable!("a batch holds no longer keys"))
}
