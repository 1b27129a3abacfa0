//! A station in its packed form.

use super::query::StationKind;
use crate::change::DeadLetterCause;
use crate::ids::{EntityId, ReceiverId, SequenceNumber};
use crate::machine::event::LockEnd;
use crate::rule::RulePlace;
use crate::time::Timestamp;

/// A station in the memory of an entity: 32 bytes, without any text of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The message; 0 for a duplicate without a number.
    pub(super) sequence: u64,
    /// Instant in ticks.
    pub(super) at: i64,
    /// Number of the other message, low half of the hash of the id, or new instant.
    pub(super) link: u64,
    /// Receiver, other entity, or number of the job; 0 if there is none.
    pub(super) actor: u32,
    /// Failed deliveries, renewals, or number of the rule.
    pub(super) count: u16,
    /// Hop, cause, or end of a lock.
    pub(super) detail: u8,
    pub(super) kind: StationKind,
}

const _: () = assert!(size_of::<Entry>() == 32, "a station takes 32 bytes");

/// A station, its entity, and the rule whose name its shell adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(super) entity: EntityId,
    pub(super) entry: Entry,
    pub(super) rule: Option<RulePlace>,
}

impl Noted {
    /// Sets the number of the name of its rule.
    pub(crate) fn name_rule(&mut self, number: impl FnOnce(RulePlace) -> u16) {
        if let Some(rule) = self.rule {
            self.entry.count = number(rule);
        }
    }

    /// Removes the number of the name of its rule.
    pub(crate) fn forget_rule(&mut self) {
        self.name_rule(|_| 0);
    }
}

impl Entry {
    pub(super) const fn new(sequence: SequenceNumber, at: Timestamp, kind: StationKind) -> Self {
        let (sequence, at) = (sequence.0, at.ticks());
        Self { sequence, at, link: 0, actor: 0, count: 0, detail: 0, kind }
    }

    pub(super) const fn with_link(mut self, link: u64) -> Self {
        self.link = link;
        self
    }

    pub(super) fn with_receiver(mut self, receiver: Option<ReceiverId>) -> Self {
        // The registry of clients knows the other half.
        self.actor = receiver.map_or(0, |ReceiverId(id)| low_half(id));
        self
    }

    /// Names the other message of a hop or copy.
    pub(super) fn with_other(mut self, (entity, sequence): Place, hop: u8) -> Self {
        self.actor = u32::try_from(entity.0).unwrap_or(0);
        (self.link, self.detail) = (sequence.0, hop);
        self
    }

    pub(super) fn with_count(mut self, count: u32) -> Self {
        self.count = u16::try_from(count).unwrap_or(u16::MAX);
        self
    }

    pub(super) const fn with_detail(mut self, detail: u8) -> Self {
        self.detail = detail;
        self
    }

    /// The other message of a hop, copy or materialisation in entity `own`.
    pub(super) fn other(&self, own: EntityId) -> Option<Place> {
        let entity = match self.kind {
            StationKind::MaterialisedTo | StationKind::MaterialisedFrom => own,
            StationKind::CopiedTo
            | StationKind::CopiedFrom
            | StationKind::ForwardedTo
            | StationKind::ForwardedFrom
            | StationKind::DroppedAt => EntityId(u64::from(self.actor)),
            _ => return None,
        };
        (entity.0 > 0).then_some((entity, SequenceNumber(self.link)))
    }

    /// Whether the other message is earlier than this one.
    pub(super) const fn is_from_other(&self) -> bool {
        matches!(
            self.kind,
            StationKind::MaterialisedFrom | StationKind::CopiedFrom | StationKind::ForwardedFrom
        )
    }

    /// Whether a later entry of the same message only adds to this one.
    pub(super) fn continues_with(&self, later: &Self) -> bool {
        self.kind == later.kind && self.actor == later.actor
    }

    /// Whether the message belongs into the second ring from this entry on (CON-30).
    pub(super) fn is_notable(&self) -> bool {
        match self.kind {
            StationKind::Abandoned
            | StationKind::LockEnded
            | StationKind::DeadLettered
            | StationKind::Job
            | StationKind::Undeferred
            | StationKind::Rescheduled
            | StationKind::PutBack => true,
            StationKind::Released => self.detail == lock_end_code(LockEnd::Operator),
            StationKind::Delivered => self.count > 0,
            StationKind::CopiedFrom | StationKind::ForwardedFrom | StationKind::ForwardedIn => {
                self.detail > 1
            }
            _ => false,
        }
    }
}

/// Returns the low half of the id of a receiver.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low_half(id: u64) -> u32 {
    id as u32
}

/// A message in its entity.
pub(super) type Place = (EntityId, SequenceNumber);

const LOCK_ENDS: [LockEnd; 5] = [
    LockEnd::Settled,
    LockEnd::TimeOver,
    LockEnd::LinkEnded,
    LockEnd::SessionEnded,
    LockEnd::Operator,
];

/// Returns the byte of an end of a lock.
pub(super) const fn lock_end_code(end: LockEnd) -> u8 {
    end as u8
}

/// Returns the end of a lock of a byte.
pub(super) fn lock_end_of(code: u8) -> Option<LockEnd> {
    LOCK_ENDS.get(usize::from(code)).copied()
}

/// Returns the cause of a byte.
pub(super) fn cause_of(code: u8) -> Option<DeadLetterCause> {
    DeadLetterCause::ALL.get(usize::from(code)).copied()
}
