//! What a command is answered, and what the broker says of messages.

use std::sync::Arc;

use bytes::Bytes;

use super::{Described, DescribedSubscription, DescribedTopic};
use crate::error::Rejection;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::path::SubQueue;
use crate::rule::{Explanation, RuleDescription};
use crate::store::Key;
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::PartOutcome;
use crate::transfer::Admission;

/// The answer to a command that was not rejected. Of messages and states it holds what `M` and `S`
/// say: a machine names them, a shell adds references to their contents. What `W` says of a session that
/// was accepted is the shell's to add.
#[derive(Clone, Debug)]
pub enum Outcome<M, S, W> {
    /// It is done; there is nothing more to say.
    Done,
    /// The message is stored under this number; 0 for a silently dropped duplicate (DUP-02), or, if it
    /// was to be scheduled, the number of the scheduled message that it repeats (DUP-12).
    Accepted(SequenceNumber),
    /// The numbers of a batch, in its order, each as in [`Outcome::Accepted`].
    AcceptedBatch(Vec<SequenceNumber>),
    /// The entity would store the messages of a transaction, and has reserved numbers for the scheduled ones (SCH-13).
    NumbersSetAside {
        /// The number to return for each message, as in [`Outcome::Accepted`]; 0 if it gets its number at the commit.
        told: Vec<SequenceNumber>,
        /// The numbers that were set aside; 0 for one that has none.
        numbers: Vec<SequenceNumber>,
    },
    /// Received messages; empty when none came in time (RCV-11).
    Received(Vec<M>),
    /// Messages looked at, ascending by number.
    Peeked(Vec<M>),
    /// The new end of the lock.
    Renewed(Timestamp),
    /// How much of the credit is left unused; with a drain, all that was given back.
    Granted {
        /// Unused credit.
        unused: u64,
    },
    /// How many messages were removed.
    Deleted(u64),
    /// The description with its runtime part.
    Described(Box<Described>),
    /// The description of a topic with its runtime part.
    TopicDescribed(Box<DescribedTopic>),
    /// The description of a subscription with its runtime part.
    SubscriptionDescribed(Box<DescribedSubscription>),
    /// Rules, in the order of their names (ENT-30).
    Rules(Vec<RuleDescription>),
    /// What each rule makes of a message, in the order of their names.
    Explained(Vec<Explanation>),
    /// A session is locked for the receiver (SES-10).
    SessionAccepted {
        /// The session.
        session: Arc<str>,
        /// The receiver that holds it.
        receiver: ReceiverId,
        /// When the lock ends, unless renewed.
        locked_until: Timestamp,
        /// The way in to the session; see `Entity::by_way_of` of `peeklock-core`.
        way: W,
    },
    /// The state of a session, if it has one (SES-24).
    SessionState(Option<S>),
    /// Session ids, ascending (SES-29).
    Sessions(Vec<Arc<str>>),
    /// What became of the parts of a transaction, in their order.
    Committed(Vec<PartOutcome>),
    /// What became of each message of a list that came in from another entity.
    Admitted(Vec<Admission>),
    /// Which messages of another broker are here now, from the first on as far as they were looked at.
    TakenOver(Vec<Result<(), Rejection>>),
}

/// An outcome as a machine tells it.
pub type MachineOutcome = Outcome<MessageFacts, StateFacts, ()>;

/// Where the state of a session is.
#[derive(Clone, Debug)]
pub enum StateFacts {
    /// In the store, as the content of this key.
    Stored(Key),
    /// Here: it was set a moment ago and is not durable yet.
    Fresh(Bytes),
}

/// State of a message as receivers see it (PEK-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MessageState {
    /// Available or locked.
    Active,
    /// Set aside by a receiver.
    Deferred,
    /// Waiting for its instant.
    Scheduled,
    /// Waiting to be delivered again (RTY-12).
    Delayed,
}

/// The lock of a delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockGrant {
    /// Names the lock.
    pub token: LockToken,
    /// When it ends, unless renewed (SET-16).
    pub until: Timestamp,
}

/// What the broker says about a message beside its content (file 02, "Properties set by the broker").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageFacts {
    /// Identity in the entity (MSG-12).
    pub sequence: SequenceNumber,
    /// Number at the original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// When it was enqueued in this entity; for a scheduled message when it will be.
    pub enqueued_at: Timestamp,
    /// When it expires; `None` where it is not computed (EXP-11).
    pub expires_at: Option<Timestamp>,
    /// The TTL to show (EXP-14): effective on receive; own, possibly lowered, on peek.
    pub time_to_live: Option<TimeSpan>,
    /// The stored count (SET-29). A peek-lock delivery shows one more (SET-30).
    pub delivery_count: u32,
    /// Active, deferred, scheduled or Delayed.
    pub state: MessageState,
    /// Until when it is Delayed, if it is (RTY-12).
    pub delayed_until: Option<Timestamp>,
    /// Where the message is.
    pub sub_queue: SubQueue,
    /// The lock, only on messages received under one (MSG-19).
    pub lock: Option<LockGrant>,
    /// Stored size in bytes, overlays and their records included (SET-41).
    pub size: u32,
    /// How many overlays its content has.
    pub overlay_count: u16,
    /// Whether it was scheduled before it was enqueued (PEK-05).
    pub was_scheduled: bool,
}

impl MessageFacts {
    /// How many steps it is to show it: its content and each of its overlays are looked up.
    #[must_use]
    pub fn steps(&self) -> usize {
        1 + usize::from(self.overlay_count)
    }

    /// The count that a receiver is shown (SET-29, SET-30).
    #[must_use]
    pub const fn shown_delivery_count(&self) -> u32 {
        match self.lock {
            Some(_) => self.delivery_count.saturating_add(1),
            None => self.delivery_count,
        }
    }
}
