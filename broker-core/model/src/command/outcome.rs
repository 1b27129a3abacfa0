//! Outcomes of commands, and the facts about messages that the broker reports to receivers. The
//! machine makes them, and each transport encodes them for its client.

use std::sync::Arc;

use bytes::Bytes;

use super::{ActedMessage, Described, DescribedSubscription, DescribedTopic};
use crate::error::Rejection;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::inspect::Excerpt;
use crate::path::SubQueue;
use crate::rule::{Explanation, RuleDescription};
use crate::store::Key;
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::PartOutcome;
use crate::transfer::Admission;

/// The outcome of a command that was not rejected. `M` is a message and `S` a session state: a
/// machine gives only their facts, and the shell adds references to their contents. The shell also
/// adds `W`, the entrance of an accepted session.
#[derive(Clone, Debug)]
pub enum Outcome<M, S, W> {
    /// Done, without a result.
    Done,
    /// The message is stored under this number; 0 for a silently dropped duplicate (DUP-02), or, if
    /// it was to be scheduled, the number of the scheduled message that it repeats (DUP-12).
    Accepted(SequenceNumber),
    /// The numbers of a batch, in its order, each as in [`Outcome::Accepted`].
    AcceptedBatch(Vec<SequenceNumber>),
    /// The entity would store the messages of a transaction, and has reserved numbers for the
    /// scheduled ones (SCH-13).
    NumbersReserved {
        /// The number to return to the client for each message, as in [`Outcome::Accepted`]; 0 if
        /// it gets its number at the commit.
        returned: Vec<SequenceNumber>,
        /// The reserved numbers; 0 for a message without one.
        numbers: Vec<SequenceNumber>,
    },
    /// Received messages; empty when none became available in time (RCV-11).
    Received(Vec<M>),
    /// Peeked messages in ascending order of their numbers.
    Peeked(Vec<M>),
    /// The new end of the lock.
    Renewed(Timestamp),
    /// Credit that is left unused; with a drain, all credit that was given back.
    Granted {
        /// Unused credit.
        unused: u64,
    },
    /// Number of removed messages.
    Deleted(u64),
    /// Number of ended locks of messages, or of sessions (CON-26).
    LocksBroken(u64),
    /// Results for each message of a step, in the order of the command (CON-12).
    Acted(Vec<ActedMessage>),
    /// The description with its runtime part.
    Described(Box<Described>),
    /// The description of a topic with its runtime part.
    TopicDescribed(Box<DescribedTopic>),
    /// The description of a subscription with its runtime part.
    SubscriptionDescribed(Box<DescribedSubscription>),
    /// Rules, in the order of their names (ENT-30).
    Rules(Vec<RuleDescription>),
    /// Judgement of each rule about a message, in the order of rule names.
    Explained(Vec<Explanation>),
    /// A session is locked for the receiver (SES-10).
    SessionAccepted {
        /// The session.
        session: Arc<str>,
        /// The receiver that holds it.
        receiver: ReceiverId,
        /// End of the lock, unless it is renewed.
        locked_until: Timestamp,
        /// The entrance of the session; see `Entity::with_session_entrance` of `peeklock-core`.
        session_entrance: W,
    },
    /// The state of a session, if it has one (SES-24).
    SessionState(Option<S>),
    /// Session ids, ascending (SES-29).
    Sessions(Vec<Arc<str>>),
    /// A part of the state of the entity.
    Inspected(Box<Excerpt<M, S>>),
    /// Results of the parts of a transaction, in their order.
    Committed(Vec<PartOutcome>),
    /// Results for each message of a list from another entity.
    Admitted(Vec<Admission>),
    /// Results for messages of another broker, from the first up to the last one that was examined.
    TakenOver(Vec<Result<(), Rejection>>),
}

/// The outcome as a machine returns it.
pub type MachineOutcome = Outcome<MessageFacts, StateFacts, ()>;

/// Location of a session's state.
#[derive(Clone, Debug)]
pub enum StateFacts {
    /// In the store, as the content of this key.
    Stored(Key),
    /// In memory: it was set recently and is not durable yet.
    Fresh(Bytes),
}

/// State of a message as receivers see it (PEK-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MessageState {
    /// Available or locked.
    Active,
    /// Set aside by a receiver.
    Deferred,
    /// Waiting for its scheduled instant.
    Scheduled,
    /// Waiting to be delivered again (RTY-12).
    Delayed,
}

/// The lock of a delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockGrant {
    /// Names the lock.
    pub token: LockToken,
    /// End of the lock, unless it is renewed (SET-16).
    pub until: Timestamp,
}

/// Facts about a message that the broker adds to its content (file 02, "Properties set by the
/// broker").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageFacts {
    /// Identity in the entity (MSG-12).
    pub sequence: SequenceNumber,
    /// Number at the original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Instant of enqueueing in this entity; the future instant of a scheduled message.
    pub enqueued_at: Timestamp,
    /// Instant of expiry; `None` where it is not computed (EXP-11).
    pub expires_at: Option<Timestamp>,
    /// The TTL to show (EXP-14): effective on receive; own, possibly lowered, on peek.
    pub time_to_live: Option<TimeSpan>,
    /// The stored count (SET-29). A peek-lock delivery shows one more (SET-30).
    pub delivery_count: u32,
    /// Active, deferred, scheduled or Delayed.
    pub state: MessageState,
    /// End of the delay, if the message is Delayed (RTY-12).
    pub delayed_until: Option<Timestamp>,
    /// Sub-queue of the message.
    pub sub_queue: SubQueue,
    /// The lock of a message that was received under one (MSG-19).
    pub lock: Option<LockGrant>,
    /// Stored size in bytes, overlays and their records included (SET-41).
    pub size: u32,
    /// Number of overlays on the content.
    pub overlay_count: u16,
    /// Whether it was scheduled before it was enqueued (PEK-05).
    pub was_scheduled: bool,
}

impl MessageFacts {
    /// Work to show the message: its content and each overlay are looked up.
    #[must_use]
    pub fn work(&self) -> usize {
        1 + usize::from(self.overlay_count)
    }

    /// Delivery count as shown to a receiver (SET-29, SET-30).
    #[must_use]
    pub const fn shown_delivery_count(&self) -> u32 {
        match self.lock {
            Some(_) => self.delivery_count.saturating_add(1),
            None => self.delivery_count,
        }
    }
}
