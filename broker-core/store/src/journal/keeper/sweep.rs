//! A sweep finds the records and contents in use of a segment, and has them written again. It first
//! reads the segment. Then it searches the index for contents that only records elsewhere refer to.
//! The keeper runs it.
//!
//! Shared contents wait until the end of the sweep, when all their keys are known, and are written
//! once. Small shared contents are written once for each key instead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::super::format::{HEADER_BYTES, LogPosition, PART_BYTES};
use super::super::queue::{CommitJob, Move, MoveContent, MoveItem, MoveReply, MovedRecord};
use super::super::replay;
use super::super::segment::{FrameReader, Index, Segment, Segments};
use crate::{Key, StoreError};
use peeklock_store_log::{IndexEntry, LogSegment as _, Op, ReplayOp, SweepCursor};

/// Number of index entries in a step, so that the keeper can do other work in between.
const ENTRIES_PER_STEP: usize = 8_192;
/// Number of bytes of the segment that a step reads.
const BYTES_PER_STEP: u64 = 1 << 20;
/// Minimum size of shared contents that are written only once.
const SHARED_BYTES_MIN: u32 = 128;

/// A sweep.
pub(super) struct Sweep {
    segment: Arc<Segment>,
    /// End of the part of the segment that was read.
    read: u64,
    /// Position of the index search; `None` at the end.
    cursor: Option<SweepCursor>,
    has_started_search: bool,
    found: VecDeque<(Key, IndexEntry)>,
    shared: BTreeMap<LogPosition, Vec<(Key, IndexEntry)>>,
    large: Option<LargeMove>,
    has_found: bool,
}

/// A large content whose parts are being written again.
struct LargeMove {
    content: Bytes,
    written: usize,
    parts: Vec<LogPosition>,
    users: Vec<(Key, IndexEntry)>,
}

/// The next action.
pub(super) enum SweepAction {
    /// A job for the committer.
    Post(Box<dyn FnOnce(Sender<MoveReply>) -> CommitJob>),
    /// The sweep continues.
    Continue,
    /// The sweep is complete.
    End,
}

impl Sweep {
    /// A sweep for a segment. If the index has fewer bytes than the segment, the segment is not
    /// read and only the index is searched.
    pub(super) fn of(segment: Arc<Segment>, index_is_small: bool) -> Self {
        let read = if index_is_small { segment.end() } else { HEADER_BYTES };
        Self {
            segment,
            read,
            cursor: None,
            has_started_search: false,
            found: VecDeque::new(),
            shared: BTreeMap::new(),
            large: None,
            has_found: false,
        }
    }

    /// Whether the sweep found records in use.
    pub(super) const fn has_found(&self) -> bool {
        self.has_found
    }

    /// The parts that were written again and have no record yet.
    pub(super) fn abandon(self) -> Vec<LogPosition> {
        self.large.map(|large| large.parts).unwrap_or_default()
    }

    /// Takes the committer's answer.
    pub(super) fn handle_answer(&mut self, reply: MoveReply) {
        if let (MoveReply::Part(place), Some(large)) = (reply, &mut self.large) {
            large.parts.push(place);
        }
    }

    /// Runs one step, which writes about `move_bytes` again.
    pub(super) fn next(
        &mut self,
        index: &Index,
        segments: &Segments,
        move_bytes: usize,
    ) -> Result<SweepAction, StoreError> {
        if let Some(large) = self.large.take() {
            return self.continue_large(large, index, segments);
        }
        if !self.found.is_empty() {
            return self.write_found(index, segments, move_bytes);
        }
        if self.read < self.segment.end() {
            self.read_on(index);
            return Ok(SweepAction::Continue);
        }
        if !self.has_started_search {
            self.has_started_search = true;
            // Remaining uses come from records elsewhere; usually there are none.
            self.cursor = (self.segment.uses() > 0).then(SweepCursor::default);
            return Ok(SweepAction::Continue);
        }
        if let Some(cursor) = self.cursor.take() {
            let mut found = Vec::new();
            self.cursor = index.sweep(self.segment.number(), cursor, ENTRIES_PER_STEP, &mut found);
            self.has_found |= !found.is_empty();
            self.found.extend(found);
            return Ok(SweepAction::Continue);
        }
        if let Some((_, users)) = self.shared.pop_first() {
            return self.write_users(users, index, segments);
        }
        Ok(SweepAction::End)
    }

    /// Reads the next records of the segment, and keeps records that are current or that embed a
    /// current content. After damage, the search of the index finds the records that are still in
    /// use.
    fn read_on(&mut self, index: &Index) {
        let (segment, end) = (Arc::clone(&self.segment), self.segment.end());
        let mut reader = FrameReader::new(&*segment.file, segment.header.seed, end);
        let stop = self.read + BYTES_PER_STEP;
        while self.read < stop.min(end) {
            let Ok(Ok(frame)) = reader.frame_at(self.read) else {
                self.read = end;
                return;
            };
            let span = frame.head.span();
            let read = replay::records(&segment, &frame, |offset, record| {
                let Some(ReplayOp { op: Op::Put { key, entry: logged, .. }, .. }) =
                    replay::op_in_log(&segment, offset, record)
                else {
                    return;
                };
                let Some(entry) = index.get(key.as_bytes()) else { return };
                let holds =
                    entry.content_at().is_some() && entry.content_at() == logged.content_at();
                // All users of a shared content are known only after the search of the index.
                let is_shared = holds && index.is_shared(entry.content);
                if (entry.record == logged.record || holds) && !is_shared {
                    self.found.push_back((key, entry));
                }
            });
            if read.is_err() {
                self.read = end;
                return;
            }
            self.read += span;
        }
        self.has_found |= !self.found.is_empty();
    }

    /// Whether the content must be written again.
    fn moves_content(&self, entry: &IndexEntry, index: &Index) -> bool {
        let Some(content) = entry.content_at() else { return false };
        if !content.is_large {
            return content.place.segment == self.segment.number();
        }
        index
            .part_places(content.place)
            .is_some_and(|parts| parts.iter().any(|part| part.segment == self.segment.number()))
    }

    fn write_found(
        &mut self,
        index: &Index,
        segments: &Segments,
        move_bytes: usize,
    ) -> Result<SweepAction, StoreError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < move_bytes {
            let Some((key, entry)) = self.found.pop_front() else { break };
            let moves_content = self.moves_content(&entry, index);
            let length = entry.content_length().unwrap_or(0);
            if moves_content && length >= SHARED_BYTES_MIN && index.is_shared(entry.content) {
                self.shared.entry(entry.content).or_default().push((key, entry));
                continue;
            }
            if moves_content && entry.is_large() {
                if items.is_empty() {
                    return self.write_users(vec![(key, entry)], index, segments);
                }
                self.found.push_front((key, entry));
                break;
            }
            let Some(user) = self.read_user(key, entry, index, segments)? else { continue };
            bytes += user.value.len() + 64;
            let content = if moves_content {
                bytes += length as usize;
                match self.read_unless_removed(&user, index, || {
                    self.segment.read_content(entry.content, length as usize)
                })? {
                    Some(content) => MoveContent::New(content),
                    None => continue,
                }
            } else {
                MoveContent::Stays
            };
            items.push(MoveItem { content, users: vec![user] });
        }
        if items.is_empty() {
            return Ok(SweepAction::Continue);
        }
        Ok(SweepAction::Post(Box::new(|answer| CommitJob::Move(Move { items }, answer))))
    }

    /// Writes a content again, with all records that share it.
    fn write_users(
        &mut self,
        users: Vec<(Key, IndexEntry)>,
        index: &Index,
        segments: &Segments,
    ) -> Result<SweepAction, StoreError> {
        let users: Vec<(Key, IndexEntry)> = users
            .into_iter()
            .filter(|(key, entry)| index.get(key.as_bytes()) == Some(*entry))
            .collect();
        let Some((key, entry)) = users.first().copied() else { return Ok(SweepAction::Continue) };
        if entry.is_large() {
            let Some(parts) = index.parts(entry.content) else { return Ok(SweepAction::Continue) };
            let mut content = Vec::with_capacity(entry.content_length().unwrap_or(0) as usize);
            for (place, segment) in parts {
                content.extend_from_slice(&segment.read_part(place)?);
            }
            self.large =
                Some(LargeMove { content: content.into(), written: 0, parts: Vec::new(), users });
            return Ok(SweepAction::Continue);
        }
        let mut moved = Vec::new();
        let length = entry.content_length().unwrap_or(0) as usize;
        let Some(first) = self.read_user(key, entry, index, segments)? else {
            return Ok(SweepAction::Continue);
        };
        let content = self.read_unless_removed(&first, index, || {
            self.segment.read_content(entry.content, length)
        })?;
        moved.push(first);
        for (key, entry) in users.into_iter().skip(1) {
            moved.extend(self.read_user(key, entry, index, segments)?);
        }
        let Some(content) = content else { return Ok(SweepAction::Continue) };
        let items = vec![MoveItem { content: MoveContent::New(content), users: moved }];
        Ok(SweepAction::Post(Box::new(|answer| CommitJob::Move(Move { items }, answer))))
    }

    fn continue_large(
        &mut self,
        mut large: LargeMove,
        index: &Index,
        segments: &Segments,
    ) -> Result<SweepAction, StoreError> {
        if large.written < large.content.len() {
            let end = (large.written + PART_BYTES).min(large.content.len());
            let piece = large.content.slice(large.written..end);
            large.written = end;
            self.large = Some(large);
            return Ok(SweepAction::Post(Box::new(|answer| CommitJob::MovePart(piece, answer))));
        }
        let mut moved = Vec::new();
        for (key, entry) in &large.users {
            match self.read_user(*key, *entry, index, segments) {
                Ok(user) => moved.extend(user),
                Err(error) => {
                    // The end of the sweep releases its parts.
                    self.large = Some(large);
                    return Err(error);
                }
            }
        }
        let LargeMove { content, parts: places, .. } = large;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let content = MoveContent::Parts { places, length };
        let items = vec![MoveItem { content, users: moved }];
        Ok(SweepAction::Post(Box::new(|answer| CommitJob::Move(Move { items }, answer))))
    }

    /// Reads the value of a record; `None` if it was removed meanwhile.
    fn read_user(
        &self,
        key: Key,
        entry: IndexEntry,
        index: &Index,
        segments: &Segments,
    ) -> Result<Option<MovedRecord>, StoreError> {
        let Some(segment) = segments.get(entry.record.segment) else { return Ok(None) };
        match segment.read_value(&entry, key.as_bytes()) {
            Ok(value) => Ok(Some(MovedRecord { key, expected: entry, value })),
            Err(_) if index.get(key.as_bytes()) != Some(entry) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the content of a record; `None` if it was removed meanwhile.
    fn read_unless_removed(
        &self,
        user: &MovedRecord,
        index: &Index,
        read: impl FnOnce() -> Result<Bytes, StoreError>,
    ) -> Result<Option<Bytes>, StoreError> {
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) if index.get(user.key.as_bytes()) != Some(user.expected) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
