//! The dry run of a job: its messages with their counts, and the digest of all that (CON-14).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use peeklock_core::command::{ActResult, Deed};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::inspect::{CandidateHead, GroupBy, Head};
use peeklock_core::inspect::{
    JOB_REASON_BYTES_MAX, JOB_REASON_COUNT_MAX, JOB_SAMPLE_COUNT_MAX, JOB_START_TIME, JobDigest,
    JobFacts, JobPreview, expected_result,
};
use peeklock_core::time::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::export::{ENTRY_BYTES, MESSAGE_BYTES_MAX, NOTE_BYTES};
use crate::record::{DeedRecord, code};

/// Maximum number of different reasons that are counted.
const COUNTED_REASONS_MAX: usize = 1_000;

/// Bytes of the file of an ended job that can be undone, without its failures.
const ENDED_BYTES: u64 = 8 << 10;

/// Messages that were selected until now.
#[derive(Default)]
pub(crate) struct Selected {
    pub(crate) sequences: Vec<SequenceNumber>,
    pub(crate) is_cut: bool,
    /// Bytes that the messages take in a file, and bytes of the largest message.
    kept_bytes: u64,
    largest_bytes: u64,
    bytes: u64,
    oldest_at: Option<Timestamp>,
    newest_at: Option<Timestamp>,
    refused: BTreeMap<u8, (ActResult, u64)>,
    reasons: BTreeMap<Option<Box<str>>, u64>,
}

impl Selected {
    /// Adds a message.
    pub(crate) fn add(&mut self, head: &Head, deed: &Deed, breaks_locks: bool) {
        let facts = &head.facts.message;
        self.sequences.push(facts.sequence);
        self.bytes += u64::from(facts.size);
        let session = head.facts.session.as_ref().map_or(0, |session| session.len() as u64);
        let content = if *deed == Deed::Delete { u64::from(facts.size) } else { 0 };
        self.kept_bytes += ENTRY_BYTES + session + content;
        self.largest_bytes = self.largest_bytes.max(content);
        let at = facts.enqueued_at;
        self.oldest_at = Some(self.oldest_at.map_or(at, |oldest| oldest.min(at)));
        self.newest_at = Some(self.newest_at.map_or(at, |newest| newest.max(at)));
        let (state, is_expired) = (head.facts.state, head.facts.is_expired);
        if let Some(result) = expected_result(deed, state, is_expired, breaks_locks) {
            self.refuse(result);
        }
        let reason = head.content.as_ref().and_then(|content| {
            let head = CandidateHead { message: &content.message, dead_letter_source: None };
            GroupBy::Reason.value(&head, at)
        });
        let reason = reason.map(|mut reason| {
            reason.truncate(reason.floor_char_boundary(JOB_REASON_BYTES_MAX));
            Box::from(reason)
        });
        if self.reasons.len() < COUNTED_REASONS_MAX || self.reasons.contains_key(&reason) {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Adds a number without a message.
    pub(crate) fn add_missing(&mut self, sequence: SequenceNumber) {
        self.sequences.push(sequence);
        self.refuse(ActResult::NotFound);
    }

    fn refuse(&mut self, result: ActResult) {
        self.refused.entry(code(result)).or_insert((result, 0)).1 += 1;
    }

    /// Returns the bytes of the messages in a file from which the deed can be undone; none if it
    /// cannot be.
    pub(crate) fn undo_room(&self, deed: &Deed) -> Option<u64> {
        let is_undoable = matches!(deed, Deed::Delete | Deed::DeadLetter { .. } | Deed::Undefer);
        let fits = self.largest_bytes <= MESSAGE_BYTES_MAX && self.kept_bytes > 0;
        let notes = NOTE_BYTES * self.sequences.len() as u64;
        (is_undoable && fits).then_some(ENDED_BYTES + self.kept_bytes + notes)
    }

    /// Ends the dry run of a job.
    pub(crate) fn into_preview(
        self,
        job: &JobFacts,
        entity: EntityId,
        now: Timestamp,
        can_be_undone: bool,
    ) -> (Vec<SequenceNumber>, JobPreview) {
        let mut reasons: Vec<_> = self.reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        reasons.truncate(JOB_REASON_COUNT_MAX);
        let samples = self.sequences.iter().take(JOB_SAMPLE_COUNT_MAX).copied().collect();
        let preview = JobPreview {
            digest: digest(job, entity, &self.sequences, can_be_undone),
            until: now.plus(JOB_START_TIME),
            count: self.sequences.len() as u64,
            bytes: self.bytes,
            oldest_at: self.oldest_at,
            newest_at: self.newest_at,
            is_cut: self.is_cut,
            can_be_undone,
            refused: self.refused.into_values().collect(),
            reasons,
            samples,
        };
        (self.sequences, preview)
    }
}

/// Digest of the parts of a job that a person agrees to.
pub(crate) fn digest(
    job: &JobFacts,
    entity: EntityId,
    sequences: &[SequenceNumber],
    can_be_undone: bool,
) -> JobDigest {
    let mut hash = Sha256::new();
    let deed = serde_json::to_vec(&DeedRecord::from(&job.deed)).unwrap_or_default();
    for part in [&job.id.0.to_be_bytes(), job.path.as_bytes(), &entity.0.to_be_bytes(), &deed] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update([u8::from(job.breaks_locks)]);
    if can_be_undone {
        hash.update([1]);
    }
    for sequence in sequences {
        hash.update(sequence.0.to_be_bytes());
    }
    let hash: [u8; 32] = hash.finalize().into();
    let first = hash.first_chunk::<16>().copied().unwrap_or_default();
    JobDigest(u128::from_be_bytes(first))
}
