//! Durable facts: the changes that a command or time makes to an entity. (Data path, step 3.)
//!
//! Only a machine's `enact` carries a change out. Its `records` writes the absolute value of every
//! key that the change touched, and its `restore` rebuilds the machine from those values. Locks and
//! demand are not changes, because they do not survive a restart (SET-27).

pub mod codec;
pub mod slot;

use std::sync::Arc;

use bytes::Bytes;

use crate::change::slot::Slot;
use crate::command::Receipt;
use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::ids::{EntityId, JobId, SequenceNumber};
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::rule::{Rule, RulePlace};
use crate::time::Timestamp;
use crate::transfer::Origin;
use crate::transfer::peer::{PeerRecord, PeerSource};

/// Whether an answer may rest on a change before it is synced (DESIGN D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// No answer waits for it. It is stored with the next batch, at the latest after 500 ms.
    Lazy,
    /// Answers wait for it, and its message is offered to no receiver before it is durable.
    Sync,
}

/// One durable fact.
#[derive(Clone, Debug)]
pub enum Change {
    /// A message was stored under a new number, scheduled or active.
    Accepted {
        /// Its number.
        sequence: SequenceNumber,
        /// Its slot.
        slot: Slot,
        /// The session it belongs to, in an entity that requires sessions.
        session: Option<Arc<str>>,
        /// The entity in which it was dead-lettered, if the message is scheduled at a topic
        /// (FWD-26). Elsewhere an overlay has it.
        dead_letter_source: Option<Arc<str>>,
        /// Its content.
        content: Content,
    },
    /// A message was stored that waits for its transfer to another entity (VIA-01).
    Pending {
        /// Its number.
        sequence: SequenceNumber,
        /// Its slot.
        slot: Slot,
        /// The path of the destination.
        destination: Arc<str>,
        /// Its content.
        content: Content,
    },
    /// A message came from another entity; its records there are deleted with this change (FND-03).
    Arrived {
        /// Its number here.
        sequence: SequenceNumber,
        /// Its slot here.
        slot: Slot,
        /// The session it belongs to, in an entity that requires sessions.
        session: Option<Arc<str>>,
        /// Its previous location.
        previous: PreviousLocation,
        /// Properties that the broker adds on the way, in addition to the existing overlays.
        added: Vec<Overlay>,
    },
    /// A message came from another entity and was a duplicate; its records there are deleted
    /// (FWD-22).
    Absorbed {
        /// Its records at the source.
        origin: Origin,
    },
    /// A message is durably stored at another entity, and its records here are deleted already, so
    /// nothing is written.
    Departed {
        /// The number it had.
        sequence: SequenceNumber,
    },
    /// A scheduled message became active under a new number (SCH-03).
    Materialised {
        /// The number it had while scheduled.
        from: SequenceNumber,
        /// The number it has now.
        to: SequenceNumber,
        /// Instant of enqueueing.
        enqueued_at: Timestamp,
        /// Instant of expiry by its own TTL.
        expires_at: Timestamp,
    },
    /// A message was removed.
    Removed {
        /// Its number.
        sequence: SequenceNumber,
        /// Number of overlays that are removed with it.
        overlay_count: u16,
        /// The reason.
        reason: Removal,
    },
    /// A delivery failed because the lock or the link ended. The message is available, deferred or
    /// Delayed.
    DeliveryCounted {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// End of the delay, if the message is Delayed (RTY-17).
        delayed_until: Option<Timestamp>,
    },
    /// A message was abandoned. It is available, deferred or Delayed.
    Abandoned {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// End of the delay, if the message is Delayed (RTY-01).
        delayed_until: Option<Timestamp>,
        /// Properties that were set.
        overlay: Option<Overlay>,
    },
    /// A message was deferred.
    Deferred {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// Properties that were set.
        overlay: Option<Overlay>,
    },
    /// A deferred message became active again (CON-12).
    Undeferred {
        /// Its number, which it keeps.
        sequence: SequenceNumber,
    },
    /// A message is as it was before the deed of a job (CON-20).
    PutBack {
        /// Its number, which it had.
        sequence: SequenceNumber,
        /// Its slot.
        slot: Slot,
        /// The session it belongs to, in an entity that requires sessions.
        session: Option<Arc<str>>,
        /// Its content; none if the message exists.
        content: Option<Content>,
        /// Its overlays, if it does not exist.
        overlays: Vec<Overlay>,
        /// Number of its last overlays, which it loses.
        stale_count: u16,
    },
    /// A scheduled message got another instant (CON-12).
    Rescheduled {
        /// Its number, which it keeps.
        sequence: SequenceNumber,
        /// The instant.
        at: Timestamp,
        /// Instant of expiry by its own TTL, if it is enqueued on time.
        expires_at: Timestamp,
    },
    /// A message moved into a sub-queue of its entity.
    DeadLettered {
        /// Its number, which it keeps (DLQ-12).
        sequence: SequenceNumber,
        /// The dead-letter or the transfer dead-letter queue.
        into: SubQueue,
        /// The stored count from now on.
        delivery_count: u32,
        /// Properties that the receiver set.
        properties: Option<Overlay>,
        /// The reason and description that the broker set (DLQ-14).
        verdict: Option<Overlay>,
        /// The cause, for the metrics.
        cause: DeadLetterCause,
    },
    /// A message id was remembered for duplicate detection (DUP-01).
    IdRecorded {
        /// Start of the bucket it belongs to.
        bucket: Timestamp,
        /// Keyed hash of the id.
        id_hash: u128,
        /// Instant of acceptance.
        at: Timestamp,
        /// The number of the scheduled message, 0 if it was not scheduled (DUP-12).
        sequence: SequenceNumber,
    },
    /// All message ids of a bucket are outside every detection window and were forgotten.
    IdsForgotten {
        /// Start of the bucket.
        bucket: Timestamp,
    },
    /// A message that another broker forwarded was taken over. The fact is kept to recognise a
    /// repetition.
    PeerTaken {
        /// Source of the message.
        source: PeerSource,
        /// Its position and identity at the source.
        record: PeerRecord,
    },
    /// The memory of one peer source was dropped to make space for a new source.
    PeerForgotten {
        /// The source.
        source: PeerSource,
    },
    /// An operator acted on messages in a step of a job. The result is kept to recognise a
    /// repetition (CON-15).
    Receipted(Box<Receipt>),
    /// The receipt of a job was dropped, because the job has ended or another one needs the space.
    JobForgotten(JobId),
    /// The state of a session was set or cleared (SES-24).
    SessionStateSet {
        /// The session.
        session: Arc<str>,
        /// Its state from now on.
        state: Option<Bytes>,
        /// Instant of the change.
        at: Timestamp,
    },
    /// The description was replaced.
    Described {
        /// The new one.
        description: Box<QueueDescription>,
        /// Instant of the change.
        at: Timestamp,
    },
    /// The description of a subscription was replaced.
    SubscriptionDescribed {
        /// The new one.
        description: Box<SubscriptionDescription>,
        /// Instant of the change.
        at: Timestamp,
    },
    /// The last number of a subscription is stored before messages leave it. Their destination
    /// deletes the records here, so the slots no longer show the number.
    Numbered {
        /// The last number.
        last: SequenceNumber,
    },
    /// A change that only topics have.
    OfTopic(TopicChange),
}

/// One durable fact about a topic.
#[derive(Clone, Debug)]
pub enum TopicChange {
    /// A message was published: all subscriptions get their copies at once (TOP-07).
    Published {
        /// The number that the topic gave it.
        sequence: SequenceNumber,
        /// The content, stored once for all copies.
        content: PublishedContent,
        /// The copies, numbered; none if no subscription selects it (SND-27).
        copies: Vec<SubscriptionCopy>,
    },
    /// The description was replaced.
    Described {
        /// The new one.
        description: Box<TopicDescription>,
        /// Instant of the change.
        at: Timestamp,
    },
    /// A subscription was created, with its rules (TOP-17).
    SubscriptionCreated {
        /// Its identity.
        id: EntityId,
        /// Its description.
        description: Box<SubscriptionDescription>,
        /// Its compiled rules.
        rules: Vec<Rule>,
        /// Instant of the creation.
        at: Timestamp,
    },
    /// A subscription was removed with all its messages (ENT-14).
    SubscriptionRemoved {
        /// Its identity.
        id: EntityId,
    },
    /// A rule was added, or replaced under its name (TOP-13, TOP-24).
    RuleSet {
        /// The subscription.
        subscription: EntityId,
        /// The compiled rule.
        rule: Box<Rule>,
        /// Whether it is a new rule, which counts as use of the subscription (TMP-11).
        is_new: bool,
        /// Instant of the change.
        at: Timestamp,
    },
    /// A rule was removed (TOP-13).
    RuleRemoved {
        /// The subscription.
        subscription: EntityId,
        /// Its name.
        name: Box<str>,
    },
}

/// The content of a published message.
#[derive(Clone, Debug)]
pub enum PublishedContent {
    /// The content came with the command.
    New(Content),
    /// The content was stored under this number while the message was scheduled; that record is
    /// deleted now (SCH-03).
    Scheduled(SequenceNumber),
    /// The content belongs to a message from another entity, whose records there are deleted.
    Transferred(Origin),
}

/// One copy of a published message.
#[derive(Clone, Debug)]
pub struct SubscriptionCopy {
    /// The subscription.
    pub subscription: EntityId,
    /// The rule that made it; the first one in the order of names if several rules select the same
    /// copy. None for a message that is sent to one subscription only.
    pub rule: Option<RulePlace>,
    /// Its sequence number in the subscription.
    pub sequence: SequenceNumber,
    /// Its slot. A refused copy starts in the dead-letter queue.
    pub slot: Slot,
    /// The session it belongs to, in a subscription that requires sessions.
    pub session: Option<Arc<str>>,
    /// Differences from the published message: properties set by the rule's action, and the reason
    /// of a refusal.
    pub overlays: [Option<Overlay>; 2],
    /// The cause of a refusal, for the metrics.
    pub refused: Option<DeadLetterCause>,
}

/// Location of a message before its arrival.
#[derive(Clone, Debug)]
pub enum PreviousLocation {
    /// Another entity of this broker; the records there are deleted with the arrival.
    Here(Origin),
    /// Another broker.
    Peer(Content),
}

/// Reason for which a message was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Removal {
    /// A receiver completed it.
    Completed,
    /// The message was received in receive-and-delete mode.
    Received,
    /// The message expired, and dead-lettering of expired messages is off.
    Expired,
    /// The message was scheduled and cancelled.
    Cancelled,
    /// The message was removed by a batch delete or by number.
    Deleted,
    /// The message was forwarded.
    Forwarded,
}

/// Cause for which a message was dead-lettered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DeadLetterCause {
    /// The message expired, and dead-lettering of expired messages is on (EXP-22).
    Expired,
    /// The delivery count of the message reached the maximum (SET-34).
    DeliveryCount,
    /// A receiver asked for it (SET-05).
    Application,
    /// A rule of a subscription failed on it (DLQ-23).
    Rule,
    /// A rule made its header too large (DLQ-20).
    HeaderSize,
    /// The message has no session, but the subscription requires one (DLQ-21).
    NoSession,
    /// The message could not be forwarded at all, or not without losing properties (FWD-15,
    /// DLQ-20).
    Forwarding,
    /// The message would exceed the limit of copies over all hops (FWD-33).
    CopyCount,
    /// An operator asked for it (CON-12).
    Operator,
}

impl Change {
    /// Work to carry the change out. Records that it moves or removes in addition to the
    /// record of its message count too.
    #[must_use]
    pub fn work(&self) -> u64 {
        match self {
            Self::OfTopic(TopicChange::Published { content, copies, .. }) => {
                1 + copies.len() as u64 + content.overlay_count_at_source()
            }
            Self::Removed { overlay_count, .. } => 1 + u64::from(*overlay_count),
            Self::PutBack { overlays, stale_count, .. } => {
                1 + overlays.len() as u64 + u64::from(*stale_count)
            }
            Self::Arrived { previous: PreviousLocation::Here(origin), .. }
            | Self::Absorbed { origin } => 1 + origin.overlays.len() as u64,
            _ => 1,
        }
    }
}

impl PublishedContent {
    /// Number of overlays at the source entity, which this change removes there.
    const fn overlay_count_at_source(&self) -> u64 {
        match self {
            Self::New(_) | Self::Scheduled(_) => 0,
            Self::Transferred(origin) => origin.overlays.len() as u64,
        }
    }
}

impl Removal {
    /// Number of reasons.
    pub const COUNT: usize = 6;
    /// Names of all reasons in metrics, in the order of [`Removal::place`].
    pub const NAMES: [&'static str; Self::COUNT] =
        ["completed", "received", "expired", "cancelled", "deleted", "forwarded"];

    /// Index of the reason in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

impl DeadLetterCause {
    /// Number of causes.
    pub const COUNT: usize = 9;
    /// All causes, in the order of [`DeadLetterCause::place`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::Expired,
        Self::DeliveryCount,
        Self::Application,
        Self::Rule,
        Self::HeaderSize,
        Self::NoSession,
        Self::Forwarding,
        Self::CopyCount,
        Self::Operator,
    ];
    /// Names of all causes in metrics, in the order of [`DeadLetterCause::place`].
    pub const NAMES: [&'static str; Self::COUNT] = [
        "expired",
        "delivery_count",
        "application",
        "rule",
        "header_size",
        "no_session",
        "forwarding",
        "copy_count",
        "operator",
    ];

    /// Index of the cause in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::codec::{overlay_key, slot_key};

    /// DESIGN D6, SET-41: an arrival removes the overlays of its message at the source, and each
    /// counts as a step, for a queue that takes the message, a queue that drops it, and a topic
    /// that publishes it.
    #[test]
    fn arrival_counts_removed_overlays_as_steps() {
        let (source, number) = (EntityId(9), SequenceNumber(1));
        let set = |count: u16| Origin {
            shard: 0,
            key: slot_key(source, number),
            overlays: (0..count).map(|index| overlay_key(source, number, index)).collect(),
            contents: None,
        };
        let published = |content| {
            let copies = Vec::new();
            Change::OfTopic(TopicChange::Published { sequence: number, content, copies }).work()
        };
        assert_eq!(Change::Absorbed { origin: set(100) }.work(), 101);
        assert_eq!(published(PublishedContent::Transferred(set(0))), 1);
        assert_eq!(published(PublishedContent::Transferred(set(100))), 101);
        assert_eq!(published(PublishedContent::Scheduled(number)), 1);
    }
}
