//! Large contents are written before their batches, in parts and in turn, so that no other
//! submission waits for a whole one. The committer calls this for each group.

use std::collections::VecDeque;

use super::super::format::LogPosition;
use super::Committer;
use crate::{Completion, Shard, StoreError, Submission};
use peeklock_store_log::LogSegment as _;

/// Maximum bytes of parts in a group, so that other submissions do not wait for a large content.
pub(super) const PART_BYTES_PER_GROUP: usize = 1 << 20;

/// A submission whose large contents are being written.
pub(super) struct LargeWrite {
    pub(super) shard: Shard,
    pub(super) submission: Submission,
    pub(super) completion: Completion,
    pub(super) contents: VecDeque<bytes::Bytes>,
    /// Bytes of the first content that are written.
    pub(super) written: usize,
    /// The parts of each content, in the order of the records.
    pub(super) parts: Vec<Vec<LogPosition>>,
}

impl Committer {
    /// Writes the next parts of large contents, and the batches whose contents are complete.
    pub(super) fn write_parts(&mut self) -> Result<(), StoreError> {
        while self.group.part_bytes < PART_BYTES_PER_GROUP {
            let Some(mut write) = self.large.pop_front() else { return Ok(()) };
            let Some(content) = write.contents.front() else {
                self.end_large(write)?;
                continue;
            };
            let end = (write.written + super::super::format::PART_BYTES).min(content.len());
            let piece = content.slice(write.written..end);
            let is_last = end == content.len();
            self.group.part_bytes += piece.len();
            let place = match self.write_part(&piece) {
                Ok(place) => place,
                Err(error) => {
                    // So that the submitter gets its error with all others.
                    self.large.push_front(write);
                    return Err(error);
                }
            };
            if let Some(parts) = write.parts.last_mut() {
                parts.push(place);
            }
            write.written = end;
            if is_last {
                write.written = 0;
                write.contents.pop_front();
                write.parts.push(Vec::new());
            }
            self.large.push_back(write);
        }
        Ok(())
    }

    /// Writes a part. Its segment is held until the batch is applied.
    pub(super) fn write_part(&mut self, piece: &[u8]) -> Result<LogPosition, StoreError> {
        let place = self.log.frame(
            super::super::format::FrameKind::Part,
            piece.len() as u64,
            |payload| {
                let place = payload.place();
                payload.buffer.extend_from_slice(piece);
                place
            },
        )?;
        if let Some(segment) = self.segments.get(place.segment) {
            segment.add_use();
        }
        Ok(place)
    }

    /// Writes the batch, whose contents are complete, and the submissions that wait for it.
    fn end_large(&mut self, write: LargeWrite) -> Result<(), StoreError> {
        let LargeWrite { shard, submission, completion, mut parts, .. } = write;
        parts.pop();
        self.group.used_parts.extend(parts.iter().flatten());
        self.write_batch(submission, completion, parts)?;
        let Some(state) = self.state(shard) else { return Ok(()) };
        state.is_writing_large = false;
        let mut held = std::mem::take(&mut state.waiting);
        while let Some((submission, completion)) = held.pop_front() {
            if let Err(error) = self.submit(submission, completion) {
                if let Some(state) = self.state(shard) {
                    state.waiting = held;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether a content is written before its batch.
pub(super) fn is_large(content: &bytes::Bytes) -> bool {
    content.len() > super::super::format::PART_BYTES
}
