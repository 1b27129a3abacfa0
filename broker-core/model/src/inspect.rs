//! Inquiries of operators about the state of an entity, and the excerpts that answer them (CON-01).
//!
//! An inquiry is one command that examines a bounded part of the state and changes nothing. A
//! longer answer is made of several commands: each excerpt has the position at which the next
//! inquiry continues, and the machine keeps nothing between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::command::{ActedMessage, Counts, JobStep, SessionFilter};
use crate::description::EntityStatus;
use crate::ids::{EntityId, ReceiverId, SequenceNumber};
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of rows in a page (CON-02, CON-25).
pub const ROW_COUNT_MAX: u32 = 500;
/// Number of rows in a page, if a question names none.
pub const ROW_COUNT_DEFAULT: u32 = 100;
/// Maximum number of slots in a timeline (CON-28).
pub const SLOT_COUNT_MAX: u16 = 240;
/// Minimum length of a slot in a timeline (CON-28).
pub const SLOT_MIN: TimeSpan = TimeSpan::from_seconds(10);
/// Maximum length of a slot in a timeline (CON-28).
pub const SLOT_MAX: TimeSpan = TimeSpan::from_days(1);

/// Question about the state of an entity. Answering it changes nothing, not even AccessedAt
/// (CON-01).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inquiry {
    /// Lists messages (CON-02, CON-28). Answer: [`Excerpt::Heads`].
    Heads(HeadQuery),
    /// Lists locks (CON-25). Answer: [`Excerpt::Locks`].
    Locks(LockQuery),
    /// Lists sessions with their counts (CON-27). Answer: [`Excerpt::Sessions`].
    Sessions(SessionQuery),
    /// Reads the state of a session without its lock (CON-27). Answer: [`Excerpt::SessionState`].
    SessionState {
        /// The session.
        session: Box<str>,
    },
    /// Counts messages by instant (CON-28). Answer: [`Excerpt::Timeline`].
    Timeline(TimelineQuery),
    /// Reads messages with their records, so that a job can be undone (CON-20). Answer:
    /// [`Excerpt::Originals`].
    Originals {
        /// The messages, 1 to [`ROW_COUNT_MAX`].
        sequences: Vec<SequenceNumber>,
        /// The step that will change them.
        step: JobStep,
    },
}

/// Selection and order of messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadQuery {
    /// Only messages of this session.
    pub session: Option<Box<str>>,
    /// Only messages in these states.
    pub states: HeadStates,
    /// Order of the rows.
    pub order: HeadOrder,
    /// Whether the order is reversed.
    pub is_descending: bool,
    /// Position of the first row.
    pub start: HeadStart,
    /// Maximum number of rows, 1 to [`ROW_COUNT_MAX`].
    pub count_max: u32,
}

/// The first page of all messages in the order of their numbers.
impl Default for HeadQuery {
    fn default() -> Self {
        Self {
            session: None,
            states: HeadStates::ALL,
            order: HeadOrder::Number,
            is_descending: false,
            start: HeadStart::End,
            count_max: ROW_COUNT_DEFAULT,
        }
    }
}

/// Order of messages in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadOrder {
    /// By sequence number.
    Number,
    /// By scheduled instant; only scheduled messages.
    ScheduledAt,
    /// By instant of expiry; only available messages that expire. A locked or deferred message
    /// appears when it is available again.
    ExpiresAt,
}

/// Position of the first message of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadStart {
    /// The first message in the order, or the last one of a descending list.
    End,
    /// This number.
    Number(SequenceNumber),
    /// This instant: of enqueueing in the order of numbers, else of the order.
    Instant(Timestamp),
    /// The position after an earlier page.
    After(Cursor),
}

/// Position after the last examined message of an earlier page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cursor {
    /// Instant of the order; [`Timestamp::NONE`] in the order of numbers.
    pub at: Timestamp,
    /// Number of the message.
    pub sequence: SequenceNumber,
}

/// State of a message for an operator. Exactly one applies: the first in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeadState {
    /// Waits for its transfer to another entity, or is being transferred.
    Transferring,
    /// Is locked, or belongs to a session that is locked with the message in hand.
    Locked,
    /// Waits for its scheduled instant.
    Scheduled,
    /// Is deferred.
    Deferred,
    /// Has expired, but is still stored.
    Expired,
    /// Waits for another attempt (RTY-12).
    Delayed,
    /// Is available.
    Active,
}

impl HeadState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Transferring,
        Self::Locked,
        Self::Scheduled,
        Self::Deferred,
        Self::Expired,
        Self::Delayed,
        Self::Active,
    ];
}

/// Set of states of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeadStates(u8);

impl HeadStates {
    /// Every state.
    pub const ALL: Self = Self((1 << HeadState::ALL.len()) - 1);

    /// Returns the set with one more state.
    #[must_use]
    pub const fn with(self, state: HeadState) -> Self {
        Self(self.0 | (1 << state as u8))
    }

    /// Whether the set has a state.
    #[must_use]
    pub const fn contains(self, state: HeadState) -> bool {
        self.0 & (1 << state as u8) != 0
    }

    /// Whether the set has no state.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<HeadState> for HeadStates {
    fn from_iter<I: IntoIterator<Item = HeadState>>(states: I) -> Self {
        states.into_iter().fold(Self::default(), Self::with)
    }
}

/// Message in a list. `M` is the message, `H` names the holder of its lock.
#[derive(Clone, PartialEq, Debug)]
pub struct HeadFacts<M, H = ReceiverId> {
    /// The message.
    pub message: M,
    /// Its state.
    pub state: HeadState,
    /// Expiry in force; [`Timestamp::NEVER`] if the message does not expire.
    pub expires_at: Timestamp,
    /// Whether the message has expired and is still stored.
    pub is_expired: bool,
    /// Number of transfers up to here (FWD-13).
    pub hops: u8,
    /// Bytes of everything but the body, properties of settlements included.
    pub header_size: u32,
    /// Session of the message.
    pub session: Option<Arc<str>>,
    /// Destination of a message that is sent via this entity (VIA-01).
    pub destination: Option<Arc<str>>,
    /// Lock on the message.
    pub lock: Option<LockFacts<H>>,
}

/// Lock on a message or session, without its token (SET-24).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockFacts<H = ReceiverId> {
    /// Instant at which it was taken.
    pub taken_at: Timestamp,
    /// Instant of its end, unless it is renewed.
    pub until: Timestamp,
    /// Number of renewals.
    pub renewals: u32,
    /// Holder, if it is known.
    pub holder: Option<H>,
    /// Whether it is the lock of a session.
    pub is_of_session: bool,
}

/// Order and position of locks in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockQuery {
    /// Order of the rows, the order of [`LockRow::key`].
    pub order: LockOrder,
    /// Position at which an earlier command has stopped to examine locks; 0 for the first.
    pub from: u64,
    /// Last row of an earlier page; only rows after it are returned.
    pub after: Option<Cursor>,
    /// Maximum number of rows, 1 to [`ROW_COUNT_MAX`].
    pub count_max: u32,
}

/// Order of locks in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOrder {
    /// By end, the next to end first.
    End,
    /// By age, the oldest first.
    Age,
}

/// Lock in a list. An entity with sessions lists the locks of its sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRow<H = ReceiverId> {
    /// The message; for a session, the first one that was locked under its lock, or 0.
    pub sequence: SequenceNumber,
    /// The session.
    pub session: Option<Arc<str>>,
    /// Number of messages under the lock: 1 unless it is the lock of a session.
    pub message_count: u64,
    /// Delivery count of the message, without the current delivery (SET-29); 0 for a session.
    pub delivery_count: u32,
    /// The lock.
    pub lock: LockFacts<H>,
}

/// Selection and order of sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionQuery {
    /// Column by which the rows are sorted. Their order is the order of [`SessionRow::key`].
    pub order: SessionOrder,
    /// Whether the order is reversed, with the names of equal rows.
    pub is_descending: bool,
    /// Only these sessions.
    pub filter: SessionFilter,
    /// Name of the last session that an earlier command has examined.
    pub from: Option<Box<str>>,
    /// Last row of an earlier page; only rows after it are returned.
    pub beyond: Option<RowKey>,
    /// Maximum number of rows, 1 to [`ROW_COUNT_MAX`].
    pub count_max: u32,
}

/// Column by which sessions are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionOrder {
    /// Name.
    Name,
    /// Number of active messages.
    Active,
    /// Number of deferred messages.
    Deferred,
    /// Number of scheduled messages.
    Scheduled,
    /// Instant of the oldest message; sessions without one come last.
    Oldest,
    /// Bytes of the state; 0 without a state.
    StateSize,
    /// Instant at which the state was set; sessions without a state come first.
    StateSetAt,
    /// End of the lock; sessions that are not held come last.
    LockedUntil,
}

/// Position of a row in a sorted list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowKey {
    /// Value of the column; 0 if the list is sorted by name.
    pub value: i64,
    /// Name of the row.
    pub name: Arc<str>,
}

/// Session in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow<H = ReceiverId> {
    /// Its id.
    pub name: Arc<str>,
    /// Number of active messages, locked ones included.
    pub active: u64,
    /// Number of deferred messages.
    pub deferred: u64,
    /// Number of scheduled messages.
    pub scheduled: u64,
    /// Instant at which its oldest message was enqueued.
    pub oldest_at: Option<Timestamp>,
    /// Whether the oldest message waits longer than ten lock durations.
    pub is_stuck: bool,
    /// State of the session.
    pub state: Option<StateSummary>,
    /// Lock of the session.
    pub lock: Option<LockFacts<H>>,
}

/// Size and instant of the state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSummary {
    /// Bytes.
    pub size: u64,
    /// Instant at which it was set.
    pub set_at: Timestamp,
}

/// Slots of a timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineQuery {
    /// The counted instants.
    pub of: TimelineOf,
    /// Start of the first slot.
    pub from: Timestamp,
    /// Length of each slot, [`SLOT_MIN`] to [`SLOT_MAX`].
    pub slot: TimeSpan,
    /// Number of slots, 1 to [`SLOT_COUNT_MAX`].
    pub slot_count: u16,
    /// Last entry that an earlier command has counted.
    pub after: Option<Cursor>,
}

/// Instants that a timeline counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimelineOf {
    /// Scheduled instants.
    Scheduled,
    /// Instants of expiry of available messages.
    Expiring,
}

/// Bounded part of the state of an entity. `M` is a message and `S` a session state, as in
/// [`Outcome`](crate::command::Outcome). With `next`, the same inquiry continues there; a page may
/// be short or empty and still have one.
#[derive(Clone, Debug)]
pub enum Excerpt<M, S> {
    /// Messages.
    Heads {
        /// The messages, in the order of the query.
        heads: Vec<HeadFacts<M>>,
        /// Position of the next page.
        next: Option<Cursor>,
        /// Number of examined messages.
        examined: u64,
    },
    /// Locks.
    Locks {
        /// The first locks in the order of the query among the examined ones.
        locks: Vec<LockRow>,
        /// Position of the next lock to examine, if there are more.
        next: Option<u64>,
        /// Number of the locks among the examined ones.
        count: u64,
    },
    /// Sessions.
    Sessions {
        /// The first sessions in the order of the query among the examined ones.
        rows: Vec<SessionRow>,
        /// Name of the last examined session, if there are more.
        next: Option<Box<str>>,
        /// Number of all sessions.
        count: u64,
    },
    /// The state of a session, if it has one.
    SessionState(Option<S>),
    /// Counts by slot.
    Timeline {
        /// Number of entries in each slot, among the entries that this command has counted.
        counts: Vec<u64>,
        /// Number of counted entries before the first slot.
        before: u64,
        /// Number of counted entries after the last slot.
        later: u64,
        /// Last counted entry, if there are more.
        next: Option<Cursor>,
    },
    /// Messages of the sub-queue that are there and at rest; none if the step was carried out.
    Originals {
        /// The messages.
        heads: Vec<HeadFacts<M>>,
        /// Their numbers, and their slots and sessions as their records have them.
        records: BTreeMap<SequenceNumber, Bytes>,
        /// Results of the step, if it was carried out.
        receipt: Option<Vec<ActedMessage>>,
    },
}

/// Live figures of an entity, read in constant time after each turn (CON-04).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readings {
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes in bytes. For a topic, without its subscriptions.
    pub size_bytes: u64,
    /// Instant at which the oldest available message was enqueued.
    pub oldest_at: Option<Timestamp>,
    /// The highest sequence number that was given, 0 if none.
    pub last_sequence: SequenceNumber,
    /// Number of receivers: links, and calls that wait.
    pub receivers: u64,
    /// Number of locks on messages.
    pub locks: u64,
    /// Maximum size in bytes; 0 for a subscription, whose topic has it.
    pub size_bytes_max: u64,
    /// Status of the entity.
    pub status: EntityStatus,
}

/// Properties of an entity that the topology and the checks of all entities read without asking it
/// (CON-38, CON-39). An entity publishes them when they change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntitySetup {
    /// Lock duration; zero for a topic.
    pub lock_duration: TimeSpan,
    /// Time to live in force.
    pub time_to_live: TimeSpan,
    /// Destination of messages.
    pub forward_to: Option<Box<str>>,
    /// Destination of dead-lettered messages.
    pub forward_dead_letters_to: Option<Box<str>>,
    /// Of a topic: version of its rules.
    pub rules_version: u64,
    /// Of a topic: subscriptions whose rule `$Default` selects every message, next to other rules.
    pub defaults_among_others: Vec<EntityId>,
}

impl<M, H> HeadFacts<M, H> {
    /// Returns the facts with another form of the message.
    pub fn with_message<N>(self, message: impl FnOnce(M) -> N) -> HeadFacts<N, H> {
        self.with(message, Some)
    }

    /// Returns the facts with another name of the holder.
    pub fn with_holder<G>(self, holder: impl FnOnce(H) -> Option<G>) -> HeadFacts<M, G> {
        self.with(|message| message, holder)
    }

    fn with<N, G>(
        self,
        message: impl FnOnce(M) -> N,
        holder: impl FnOnce(H) -> Option<G>,
    ) -> HeadFacts<N, G> {
        HeadFacts {
            message: message(self.message),
            state: self.state,
            expires_at: self.expires_at,
            is_expired: self.is_expired,
            hops: self.hops,
            header_size: self.header_size,
            session: self.session,
            destination: self.destination,
            lock: self.lock.map(|lock| lock.with_holder(holder)),
        }
    }
}

impl<H> LockFacts<H> {
    /// Returns the facts with another name of the holder.
    pub fn with_holder<G>(self, holder: impl FnOnce(H) -> Option<G>) -> LockFacts<G> {
        let Self { taken_at, until, renewals, holder: held, is_of_session } = self;
        LockFacts { taken_at, until, renewals, holder: held.and_then(holder), is_of_session }
    }
}

impl LockRow {
    /// Returns the position of the row in a list with this order: with the number of the message,
    /// or of the receiver that holds the session.
    #[must_use]
    pub fn key(&self, order: LockOrder) -> Cursor {
        let at = match order {
            LockOrder::End => self.lock.until,
            LockOrder::Age => self.lock.taken_at,
        };
        let holder = self.lock.holder.filter(|_| self.lock.is_of_session);
        let sequence = holder.map_or(self.sequence, |receiver| SequenceNumber(receiver.0));
        Cursor { at, sequence }
    }
}

impl<H> LockRow<H> {
    /// Returns the row with another name of the holder.
    pub fn with_holder<G>(self, holder: impl FnOnce(H) -> Option<G>) -> LockRow<G> {
        LockRow {
            sequence: self.sequence,
            session: self.session,
            message_count: self.message_count,
            delivery_count: self.delivery_count,
            lock: self.lock.with_holder(holder),
        }
    }
}

impl<H> SessionRow<H> {
    /// Returns the position of the row in a list with this order.
    #[must_use]
    pub fn key(&self, order: SessionOrder) -> RowKey {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let ticks = |at: Option<Timestamp>| at.map_or(i64::MAX, Timestamp::ticks);
        let value = match order {
            SessionOrder::Name => 0,
            SessionOrder::Active => count(self.active),
            SessionOrder::Deferred => count(self.deferred),
            SessionOrder::Scheduled => count(self.scheduled),
            SessionOrder::Oldest => ticks(self.oldest_at),
            SessionOrder::StateSize => count(self.state.map_or(0, |state| state.size)),
            SessionOrder::StateSetAt => self.state.map_or(0, |state| state.set_at.ticks()),
            SessionOrder::LockedUntil => ticks(self.lock.as_ref().map(|lock| lock.until)),
        };
        RowKey { value, name: Arc::clone(&self.name) }
    }

    /// Returns the row with another name of the holder.
    pub fn with_holder<G>(self, holder: impl FnOnce(H) -> Option<G>) -> SessionRow<G> {
        SessionRow {
            name: self.name,
            active: self.active,
            deferred: self.deferred,
            scheduled: self.scheduled,
            oldest_at: self.oldest_at,
            is_stuck: self.is_stuck,
            state: self.state,
            lock: self.lock.map(|lock| lock.with_holder(holder)),
        }
    }
}
