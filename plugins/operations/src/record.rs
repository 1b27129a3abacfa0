//! Lines of the file of a job, whose state follows from them. Each line is durable before its
//! effect is reported.

use std::sync::Arc;

use peeklock_core::command::{ActResult, BodyEdit, Deed, Edit, ExportForm, NewInstant, PutBack};
use peeklock_core::ids::{EntityId, JobId, SequenceNumber};
use peeklock_core::inspect::{JobDigest, JobPreview, JobState};
use peeklock_core::message::Overlay;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::{Deserialize, Serialize};

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Record {
    /// The job with its preview; the first line.
    Made(Box<MadeRecord>),
    /// The job was started.
    Started { at: i64 },
    /// A step was carried out.
    Step(StepRecord),
    /// The job was paused.
    Paused { problem: Option<String> },
    /// The job was resumed.
    Resumed {},
    /// All steps of a job that has ended.
    Steps(StepRecord),
    /// The job has ended.
    Ended { at: i64, state: EndState, problem: Option<String> },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MadeRecord {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) entity: u64,
    pub(crate) deed: DeedRecord,
    pub(crate) breaks_locks: bool,
    pub(crate) rate: u32,
    pub(crate) trial: Option<u32>,
    pub(crate) created_at: i64,
    pub(crate) preview: PreviewRecord,
    /// Instant of its start, for a job that undoes another one or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<i64>,
    /// Bytes that are reserved for its messages, so that it can be undone; 0 if it cannot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) undo_room: u64,
    /// Bytes of these messages until now, of the messages that it puts back, or of the file of an
    /// export.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) kept: u64,
    /// Why some of its messages stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<Box<str>>,
    /// The selection; empty once the job has ended.
    pub(crate) sequences: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DeedRecord {
    Delete,
    DeadLetter { reason: Option<Box<str>>, description: Option<Box<str>> },
    Undefer,
    RescheduleAt(i64),
    RescheduleLater(i64),
    RescheduleEarlier(i64),
    RescheduleNow,
    Resubmit { to: Option<Box<str>>, edit: Option<EditRecord> },
    Move { to: Box<str>, edit: Option<EditRecord> },
    PutBack { undone: String, deed: Option<Box<Self>> },
    Export { csv: bool },
}

/// Changes of each message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EditRecord {
    /// Bytes of the overlay.
    changes: Vec<u8>,
    new_id: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<BodyRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BodyRecord {
    Text(Box<str>),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    MergePatch(Box<str>),
}

impl From<&Arc<Edit>> for EditRecord {
    fn from(edit: &Arc<Edit>) -> Self {
        let body = edit.body.as_ref().map(|body| match body {
            BodyEdit::Whole(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => BodyRecord::Text(text.into()),
                Err(_) => BodyRecord::Bytes(bytes.to_vec()),
            },
            BodyEdit::MergePatch(patch) => BodyRecord::MergePatch(patch.clone()),
        });
        Self { changes: edit.changes.as_bytes().to_vec(), new_id: edit.new_id, body }
    }
}

impl From<EditRecord> for Arc<Edit> {
    fn from(record: EditRecord) -> Self {
        let changes = Overlay::from_bytes(record.changes.into());
        let body = record.body.map(|body| match body {
            BodyRecord::Text(text) => BodyEdit::Whole(String::from(text).into()),
            BodyRecord::Bytes(bytes) => BodyEdit::Whole(bytes.into()),
            BodyRecord::MergePatch(patch) => BodyEdit::MergePatch(patch),
        });
        Self::new(Edit { changes, new_id: record.new_id, body })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviewRecord {
    digest: String,
    until: i64,
    count: u64,
    bytes: u64,
    oldest: Option<i64>,
    newest: Option<i64>,
    is_cut: bool,
    refused: Vec<(u8, u64)>,
    reasons: Vec<(Option<Box<str>>, u64)>,
    samples: Vec<u64>,
}

/// A step: number of messages that were tried, and those whose deed was not done.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepRecord {
    /// Number of the step.
    pub(crate) number: u64,
    pub(crate) tried: u64,
    pub(crate) done: u64,
    /// Sequence numbers with the codes of their results.
    pub(crate) failures: Vec<(u64, u8)>,
    /// Messages of the next step that are done already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ahead: Vec<u64>,
    /// Why messages stay, for the first such step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<Box<str>>,
    /// Bytes of the messages that are kept until now, in a job that can be undone or is an undo;
    /// of an export, bytes of its file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) kept: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EndState {
    Done,
    Cancelled,
    Failed,
}

impl Record {
    /// Writes the line.
    pub(crate) fn line(&self) -> Vec<u8> {
        // Numbers and texts always have a form in JSON.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The lines of a file.
pub(crate) struct Lines {
    /// The lines before the first one that cannot be read.
    pub(crate) records: Vec<Record>,
    /// Bytes of all whole lines. The rest is a torn write, whose line was not reported.
    pub(crate) end: u64,
    /// Number of the first whole line that cannot be read, counted from 1.
    pub(crate) unreadable: Option<usize>,
}

/// Reads the lines of a file up to a torn one at its end.
pub(crate) fn read_lines(bytes: &[u8]) -> Lines {
    let mut end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let mut whole: Vec<_> = bytes.get(..end).unwrap_or_default().split_inclusive(is_end).collect();
    // A zero is a place that a power cut did not let the last write reach.
    if let Some(torn) = whole.pop_if(|line| line.contains(&0)) {
        end -= torn.len();
    }
    let mut lines = Lines { records: Vec::new(), end: end as u64, unreadable: None };
    for (index, line) in whole.into_iter().enumerate() {
        match serde_json::from_slice(line) {
            Ok(record) => lines.records.push(record),
            Err(_) => {
                lines.unreadable = Some(index + 1);
                break;
            }
        }
    }
    lines
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

const fn is_end(byte: &u8) -> bool {
    *byte == b'\n'
}

/// Code of a result in a file.
pub(crate) fn code(result: ActResult) -> u8 {
    let place = ActResult::ALL.iter().position(|one| *one == result);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
}

/// Result of a code.
pub(crate) fn result(code: u8) -> Option<ActResult> {
    ActResult::ALL.get(usize::from(code)).copied()
}

/// Text of an id or digest.
pub(crate) fn hex(number: u128) -> String {
    format!("{number:032x}")
}

impl From<EndState> for JobState {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Done => Self::Done,
            EndState::Cancelled => Self::Cancelled,
            EndState::Failed => Self::Failed,
        }
    }
}

impl From<&Deed> for DeedRecord {
    fn from(deed: &Deed) -> Self {
        match deed {
            Deed::Delete => Self::Delete,
            Deed::DeadLetter { reason, description } => {
                Self::DeadLetter { reason: reason.clone(), description: description.clone() }
            }
            Deed::Undefer => Self::Undefer,
            Deed::Reschedule(NewInstant::At(at)) => Self::RescheduleAt(at.ticks()),
            Deed::Reschedule(NewInstant::Later(by)) => Self::RescheduleLater(by.ticks()),
            Deed::Reschedule(NewInstant::Earlier(by)) => Self::RescheduleEarlier(by.ticks()),
            Deed::Reschedule(NewInstant::Now) => Self::RescheduleNow,
            Deed::Resubmit { to, edit } => {
                Self::Resubmit { to: to.clone(), edit: edit.as_ref().map(Into::into) }
            }
            Deed::Move { to, edit } => {
                Self::Move { to: to.clone(), edit: edit.as_ref().map(Into::into) }
            }
            Deed::PutBack(put_back) => Self::PutBack {
                undone: hex(put_back.undone.0),
                deed: put_back.deed.as_ref().map(|deed| Box::new(deed.into())),
            },
            Deed::Export(form) => Self::Export { csv: *form == ExportForm::Csv },
        }
    }
}

impl From<DeedRecord> for Deed {
    fn from(record: DeedRecord) -> Self {
        let span = TimeSpan::from_ticks;
        match record {
            DeedRecord::Delete => Self::Delete,
            DeedRecord::DeadLetter { reason, description } => {
                Self::DeadLetter { reason, description }
            }
            DeedRecord::Undefer => Self::Undefer,
            DeedRecord::RescheduleAt(at) => {
                Self::Reschedule(NewInstant::At(Timestamp::from_ticks(at)))
            }
            DeedRecord::RescheduleLater(by) => Self::Reschedule(NewInstant::Later(span(by))),
            DeedRecord::RescheduleEarlier(by) => Self::Reschedule(NewInstant::Earlier(span(by))),
            DeedRecord::RescheduleNow => Self::Reschedule(NewInstant::Now),
            DeedRecord::Resubmit { to, edit } => Self::Resubmit { to, edit: edit.map(Into::into) },
            DeedRecord::Move { to, edit } => Self::Move { to, edit: edit.map(Into::into) },
            DeedRecord::PutBack { undone, deed } => {
                let undone = JobId::parse(&undone).unwrap_or(JobId(0));
                let deed = deed.map(|deed| (*deed).into());
                Self::PutBack(Box::new(PutBack { undone, deed, originals: Vec::new() }))
            }
            DeedRecord::Export { csv: true } => Self::Export(ExportForm::Csv),
            DeedRecord::Export { csv: false } => Self::Export(ExportForm::Ndjson),
        }
    }
}

impl From<&JobPreview> for PreviewRecord {
    fn from(preview: &JobPreview) -> Self {
        Self {
            digest: hex(preview.digest.0),
            until: preview.until.ticks(),
            count: preview.count,
            bytes: preview.bytes,
            oldest: preview.oldest_at.map(Timestamp::ticks),
            newest: preview.newest_at.map(Timestamp::ticks),
            is_cut: preview.is_cut,
            refused: preview.refused.iter().map(|(it, count)| (code(*it), *count)).collect(),
            reasons: preview.reasons.clone(),
            samples: preview.samples.iter().map(|sequence| sequence.0).collect(),
        }
    }
}

impl PreviewRecord {
    fn into_preview(self, can_be_undone: bool) -> Option<JobPreview> {
        let refused = self.refused.into_iter().map(|(code, count)| Some((result(code)?, count)));
        Some(JobPreview {
            digest: JobDigest(u128::from_str_radix(&self.digest, 16).ok()?),
            until: Timestamp::from_ticks(self.until),
            count: self.count,
            bytes: self.bytes,
            oldest_at: self.oldest.map(Timestamp::from_ticks),
            newest_at: self.newest.map(Timestamp::from_ticks),
            is_cut: self.is_cut,
            can_be_undone,
            refused: refused.collect::<Option<_>>()?,
            reasons: self.reasons,
            samples: self.samples.into_iter().map(SequenceNumber).collect(),
        })
    }
}

/// The parts of a first line; none if a value is not one that this program writes.
pub(crate) struct Made {
    pub(crate) id: JobId,
    pub(crate) path: String,
    pub(crate) entity: EntityId,
    pub(crate) deed: Deed,
    pub(crate) breaks_locks: bool,
    pub(crate) rate: u32,
    pub(crate) trial: Option<u32>,
    pub(crate) created_at: Timestamp,
    pub(crate) preview: JobPreview,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) undo_room: u64,
    pub(crate) kept: u64,
    pub(crate) refusal: Option<Box<str>>,
    pub(crate) sequences: Vec<SequenceNumber>,
}

impl MadeRecord {
    pub(crate) fn into_made(self) -> Option<Made> {
        Some(Made {
            id: JobId::parse(&self.id)?,
            path: self.path,
            entity: EntityId(self.entity),
            deed: self.deed.into(),
            breaks_locks: self.breaks_locks,
            rate: self.rate.max(1),
            trial: self.trial,
            created_at: Timestamp::from_ticks(self.created_at),
            preview: self.preview.into_preview(self.undo_room > 0)?,
            started_at: self.started_at.map(Timestamp::from_ticks),
            undo_room: self.undo_room,
            kept: self.kept,
            refusal: self.refusal,
            sequences: self.sequences.into_iter().map(SequenceNumber).collect(),
        })
    }
}
