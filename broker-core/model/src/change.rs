//! What can happen to an entity: the durable facts of its state machine. (Data path, step 3.)
//!
//! A machine's `enact` is the only code that carries a change out, its `records` tells the store the
//! absolute value of every key the change touched, and its `restore` rebuilds the machine from those
//! values. Locks and demand are not here: they do not survive a restart (SET-27).

pub mod codec;
pub mod slot;

use std::sync::Arc;

use bytes::Bytes;

use crate::change::slot::Slot;
use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::ids::{EntityId, SequenceNumber};
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::rule::Rule;
use crate::time::Timestamp;
use crate::transfer::Origin;
use crate::transfer::peer::{PeerSource, Taking};

/// Whether an answer may rest on a change before it is synced (DESIGN D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// Gates nothing; rides along or is flushed after 500 ms.
    Lazy,
    /// Answers wait for it, and the message it touches is offered to nobody before.
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
        /// The entity in which it was dead-lettered, of one that waits at a topic for its instant
        /// (FWD-26). Elsewhere that is an overlay.
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
    /// A message came from another entity; its records there go with this change (FND-03).
    Arrived {
        /// Its number here.
        sequence: SequenceNumber,
        /// Its slot here.
        slot: Slot,
        /// The session it belongs to, in an entity that requires sessions.
        session: Option<Arc<str>>,
        /// Where it was.
        came: Came,
        /// Properties that the broker sets on the way, on top of those it has.
        added: Vec<Overlay>,
    },
    /// A message came from another entity and was a duplicate; its records there go (FWD-22).
    Absorbed {
        /// Where it was.
        origin: Origin,
    },
    /// A message is at another entity, durably, and its records here are gone: nothing is left to
    /// store.
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
        /// When it was enqueued.
        enqueued_at: Timestamp,
        /// When it expires, from its own TTL.
        expires_at: Timestamp,
    },
    /// A message is gone.
    Removed {
        /// Its number.
        sequence: SequenceNumber,
        /// How many overlays go with it.
        overlay_count: u16,
        /// Why.
        reason: Removal,
    },
    /// A delivery failed by lock end or link end; the message is available or deferred as before, or Delayed.
    Counted {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// Until when it is Delayed, if it is (RTY-17).
        delayed_until: Option<Timestamp>,
    },
    /// A message was abandoned; it is available or deferred as before, or Delayed.
    Abandoned {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// Until when it is Delayed, if it is (RTY-01).
        delayed_until: Option<Timestamp>,
        /// Properties that were set.
        overlay: Option<Overlay>,
    },
    /// A message was set aside.
    Deferred {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// Properties that were set.
        overlay: Option<Overlay>,
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
        /// Why, for the metrics.
        cause: DeadLetterCause,
    },
    /// A message id was remembered for duplicate detection (DUP-01).
    IdRecorded {
        /// Start of the bucket it belongs to.
        bucket: Timestamp,
        /// Keyed hash of the id.
        id_hash: u128,
        /// When it was accepted.
        at: Timestamp,
        /// The number of the scheduled message, 0 if it was not scheduled (DUP-12).
        sequence: SequenceNumber,
    },
    /// A whole bucket of message ids is outside every window.
    IdsForgotten {
        /// Start of the bucket.
        bucket: Timestamp,
    },
    /// A message that another broker forwarded was taken, so that it is known when it comes again.
    PeerTaken {
        /// Where it came from.
        source: PeerSource,
        /// Which it was.
        taking: Taking,
    },
    /// What is known of a source at another broker makes room for that of a new one.
    PeerForgotten {
        /// The source.
        source: PeerSource,
    },
    /// The state of a session was set or cleared (SES-24).
    SessionStateSet {
        /// The session.
        session: Arc<str>,
        /// Its state from now on.
        state: Option<Bytes>,
        /// When.
        at: Timestamp,
    },
    /// The description was replaced.
    Described {
        /// The new one.
        description: Box<QueueDescription>,
        /// When.
        at: Timestamp,
    },
    /// The description of a subscription was replaced.
    SubscriptionDescribed {
        /// The new one.
        description: Box<SubscriptionDescription>,
        /// When.
        at: Timestamp,
    },
    /// The store is to know the last number of a subscription, before messages leave it for other
    /// entities, which remove them here.
    Numbered {
        /// That number.
        last: SequenceNumber,
    },
    /// Something that only happens to topics.
    OfTopic(TopicChange),
}

/// One durable fact about a topic.
#[derive(Clone, Debug)]
pub enum TopicChange {
    /// A message was published: it is in the subscriptions, all copies at once (TOP-07).
    Published {
        /// The number that the topic gave it.
        sequence: SequenceNumber,
        /// What is stored once for all copies.
        content: PublishedContent,
        /// The copies, numbered; none if no subscription selects it (SND-27).
        copies: Vec<SubscriptionCopy>,
    },
    /// The description was replaced.
    Described {
        /// The new one.
        description: Box<TopicDescription>,
        /// When.
        at: Timestamp,
    },
    /// A subscription was created, with its rules (TOP-17).
    SubscriptionCreated {
        /// Its identity.
        id: EntityId,
        /// Its description.
        description: Box<SubscriptionDescription>,
        /// Its rules, judged.
        rules: Vec<Rule>,
        /// When.
        at: Timestamp,
    },
    /// A subscription is gone with everything in it (ENT-14).
    SubscriptionRemoved {
        /// Its identity.
        id: EntityId,
    },
    /// A rule was added, or replaced under its name (TOP-13, TOP-24).
    RuleSet {
        /// The subscription.
        subscription: EntityId,
        /// The rule, judged.
        rule: Box<Rule>,
        /// Whether it is a new one, which counts as use of the subscription (TMP-11).
        is_new: bool,
        /// When.
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
    /// It came with the command.
    New(Content),
    /// It was stored while the message was scheduled, under this number, which is gone now (SCH-03).
    Scheduled(SequenceNumber),
    /// That of a message that comes from another entity, whose records there go.
    Transferred(Origin),
}

/// One copy of a published message.
#[derive(Clone, Debug)]
pub struct SubscriptionCopy {
    /// Where it is.
    pub subscription: EntityId,
    /// Its number there.
    pub sequence: SequenceNumber,
    /// Its slot; a copy that was refused is born in the dead-letter queue.
    pub slot: Slot,
    /// The session it belongs to, in a subscription that requires sessions.
    pub session: Option<Arc<str>>,
    /// How it differs from what was published: what its rule changed, and why it was refused.
    pub overlays: [Option<Overlay>; 2],
    /// Why it was refused, for the metrics.
    pub refused: Option<DeadLetterCause>,
}

/// Where a message was before it arrived.
#[derive(Clone, Debug)]
pub enum Came {
    /// At another entity of this broker, whose records of it go with its arrival.
    Here(Origin),
    /// At another broker.
    Peer(Content),
}

/// Why a message is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Removal {
    /// A receiver completed it.
    Completed,
    /// It was received in receive-and-delete mode.
    Received,
    /// It expired with dead-lettering switched off.
    Expired,
    /// It was scheduled and cancelled.
    Cancelled,
    /// It was removed by a batch delete or by number.
    Deleted,
    /// It was forwarded.
    Forwarded,
}

/// Why a message was dead-lettered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DeadLetterCause {
    /// It expired with dead-lettering switched on (EXP-22).
    Expired,
    /// It failed as often as it may (SET-34).
    DeliveryCount,
    /// A receiver asked for it (SET-05).
    Application,
    /// A rule of a subscription failed on it (DLQ-23).
    Rule,
    /// A rule made its header too large (DLQ-20).
    HeaderSize,
    /// It has no session where one is required (DLQ-21).
    NoSession,
    /// It could not be forwarded, or not without losing what it says (FWD-15, DLQ-20).
    Forwarding,
    /// One message would have become more copies than it may over all its hops (FWD-33).
    CopyCount,
}

impl Change {
    /// How many steps it is to carry it out: the records that it moves or removes beside that of its message, too.
    #[must_use]
    pub fn steps(&self) -> u64 {
        match self {
            Self::OfTopic(TopicChange::Published { content, copies, .. }) => {
                1 + copies.len() as u64 + content.set_elsewhere()
            }
            Self::Removed { overlay_count, .. } => 1 + u64::from(*overlay_count),
            Self::Arrived { came: Came::Here(origin), .. } | Self::Absorbed { origin } => {
                1 + origin.overlays.len() as u64
            }
            _ => 1,
        }
    }
}

impl PublishedContent {
    /// How often properties were set on it where it came from: that is removed there with this change.
    const fn set_elsewhere(&self) -> u64 {
        match self {
            Self::New(_) | Self::Scheduled(_) => 0,
            Self::Transferred(origin) => origin.overlays.len() as u64,
        }
    }
}

impl Removal {
    /// How many reasons there are.
    pub const COUNT: usize = 6;
    /// All reasons with their names in metrics, in the order of [`Removal::place`].
    pub const NAMES: [&'static str; Self::COUNT] =
        ["completed", "received", "expired", "cancelled", "deleted", "forwarded"];

    /// The place of the reason in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

impl DeadLetterCause {
    /// How many causes there are.
    pub const COUNT: usize = 8;
    /// All causes with their names in metrics, in the order of [`DeadLetterCause::place`].
    pub const NAMES: [&'static str; Self::COUNT] = [
        "expired",
        "delivery_count",
        "application",
        "rule",
        "header_size",
        "no_session",
        "forwarding",
        "copy_count",
    ];

    /// The place of the cause in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::codec::{overlay_key, slot_key};

    /// DESIGN D6, SET-41: what was set on a message where it came from is removed there by its arrival, and is work of that,
    /// whether a queue takes it, drops it, or a topic publishes it.
    #[test]
    fn an_arrival_weighs_what_it_removes_where_it_came_from() {
        let (source, number) = (EntityId(9), SequenceNumber(1));
        let set = |count: u16| Origin {
            key: slot_key(source, number),
            overlays: (0..count).map(|index| overlay_key(source, number, index)).collect(),
        };
        let published = |content| {
            let copies = Vec::new();
            Change::OfTopic(TopicChange::Published { sequence: number, content, copies }).steps()
        };
        assert_eq!(Change::Absorbed { origin: set(100) }.steps(), 101);
        assert_eq!(published(PublishedContent::Transferred(set(0))), 1);
        assert_eq!(published(PublishedContent::Transferred(set(100))), 101);
        assert_eq!(published(PublishedContent::Scheduled(number)), 1);
    }
}
